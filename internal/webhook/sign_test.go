package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/webhooks"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tollhouse-ai/gateway/webhook"
)

// body is an event as the gateway sends it.
const body = `{"id":"evt_1","object":"event","created_at":1700000000,"type":"video.generation.succeeded","data":{"id":"vid_1","note":"ä.\u0000"}}`

func newSecret(t testing.TB) webhook.Secret {
	t.Helper()
	s, err := webhook.NewSecret(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReceiversLibrariesVerifyASignature checks signatures with the libraries that
// receivers use, while two secrets sign, as in a rotation.
func TestReceiversLibrariesVerifyASignature(t *testing.T) {
	older, newer, other := newSecret(t), newSecret(t), newSecret(t)
	header := Sign("evt_1", time.Now(), []byte(body), newer, older)
	if n := len(strings.Fields(header.Get(headerSignature))); n != 2 {
		t.Fatalf("%d signatures, want 2", n)
	}
	verifiers := map[string]func(webhook.Secret) func(body string, h http.Header) error{
		"Standard Webhooks": func(s webhook.Secret) func(string, http.Header) error {
			receiver, err := standardwebhooks.NewWebhook(s.Reveal())
			if err != nil {
				t.Fatal(err)
			}
			return func(body string, h http.Header) error { return receiver.Verify([]byte(body), h) }
		},
		"OpenAI": func(s webhook.Secret) func(string, http.Header) error {
			receiver := webhooks.NewWebhookService(option.WithWebhookSecret(s.Reveal()))
			return func(body string, h http.Header) error {
				_, err := receiver.Unwrap([]byte(body), h)
				return err
			}
		},
	}
	for library, verifier := range verifiers {
		for _, c := range []struct {
			name   string
			secret webhook.Secret
			body   string
			header http.Header
			ok     bool
		}{
			{"the newer secret", newer, body, header, true},
			{"the older secret", older, body, header, true},
			{"another secret", other, body, header, false},
			{"another body", newer, body + " ", header, false},
		} {
			if err := verifier(c.secret)(c.body, c.header); (err == nil) != c.ok {
				t.Errorf("%s, %s: %v", library, c.name, err)
			}
		}
	}
	if h := Sign("evt_1", time.Now(), []byte(body), webhook.Secret{}); h.Get(headerSignature) != "" {
		t.Errorf("an empty secret signed: %v", h)
	}
}
