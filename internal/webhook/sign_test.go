package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

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

// TestTheLibraryOfStandardWebhooksVerifiesASignature checks signatures while two
// secrets sign, as in a rotation. OpenAI's SDK does so in examples/clients.
func TestTheLibraryOfStandardWebhooksVerifiesASignature(t *testing.T) {
	older, newer, other := newSecret(t), newSecret(t), newSecret(t)
	header := Sign("evt_1", time.Now(), []byte(body), newer, older)
	if n := len(strings.Fields(header.Get(headerSignature))); n != 2 {
		t.Fatalf("%d signatures, want 2", n)
	}
	verify := func(secret webhook.Secret, body string, h http.Header) error {
		receiver, err := standardwebhooks.NewWebhook(secret.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		return receiver.Verify([]byte(body), h)
	}
	for _, c := range []struct {
		name   string
		secret webhook.Secret
		body   string
		ok     bool
	}{
		{"the newer secret", newer, body, true},
		{"the older secret", older, body, true},
		{"another secret", other, body, false},
		{"another body", newer, body + " ", false},
	} {
		if err := verify(c.secret, c.body, header); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if h := Sign("evt_1", time.Now(), []byte(body), webhook.Secret{}); h.Get(headerSignature) != "" {
		t.Errorf("an empty secret signed: %v", h)
	}
}
