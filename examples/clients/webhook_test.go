package clients

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	deliverer "github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/webhook"
)

// standard receives deliveries with the Standard Webhooks library.
func standard(secret string) (http.HandlerFunc, error) {
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || verifier.Verify(body, r.Header) != nil {
			http.Error(w, "this is no webhook of the gateway", http.StatusBadRequest)
			return
		}
		fmt.Println(r.Header.Get("webhook-id"), string(body))
	}, nil
}

// sdk receives deliveries with OpenAI's SDK.
func sdk(secret string) http.HandlerFunc {
	client := openai.NewClient(option.WithAPIKey("none"), option.WithWebhookSecret(secret))
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body did not arrive", http.StatusBadRequest)
			return
		}
		event, err := client.Webhooks.Unwrap(body, r.Header)
		if err != nil {
			http.Error(w, "this is no webhook of the gateway", http.StatusBadRequest)
			return
		}
		fmt.Println(event.ID, event.Type)
	}
}

func Example_webhooks() {
	secret, err := webhook.NewSecret(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := standard(secret.Reveal())
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/standard", first)
	mux.Handle("/sdk", sdk(secret.Reveal()))
	server := httptest.NewTLSServer(mux) // it is example.com
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client := deliverer.NewClient(deliverer.Options{RootCAs: roots, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}})
	body := []byte(`{"id":"evt_1","object":"event","created_at":1,"type":"video.generation.succeeded","data":{}}`)
	for _, path := range []string{"standard", "sdk"} {
		d := webhook.Delivery{ID: "evt_1", URL: "https://example.com/" + path, Body: body}
		fmt.Println(client.Post(context.Background(), d, time.Now(), []webhook.Secret{secret}).Outcome)
		result := client.Post(context.Background(), d, time.Now().Add(-time.Hour), []webhook.Secret{secret})
		fmt.Println(result.Outcome, result.Reason)
	}
	// Output:
	// evt_1 {"id":"evt_1","object":"event","created_at":1,"type":"video.generation.succeeded","data":{}}
	// delivered
	// retry the receiver answered with 400
	// evt_1 video.generation.succeeded
	// delivered
	// retry the receiver answered with 400
}
