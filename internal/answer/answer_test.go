package answer

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestAnErrorInA200SaysWhoseFaultItIs(t *testing.T) {
	for _, test := range []struct {
		name, raw string
		fatal     bool
		ambiguous bool
		log       string // how it ends
	}{
		{"the vendor's", `{"type":"server_error","message":"secret"}`, false, false, "answer: server_error"},
		{"the operator's, by its code", `{"code":"insufficient_quota","type":"x","message":"secret"}`, true, false, "answer: x"},
		{"the operator's, in other letters", `{"code":"Arrearage","message":"secret"}`, true, false, "answer: Arrearage"},
		{"the operator's, by its type", `{"type":"permission_error","message":"secret"}`, true, true, "answer: permission_error"},
		{"the operator's, by its code, whatever its type", `{"code":"insufficient_quota","type":"permission_error"}`, true, false, "answer: permission_error"},
		{"a bill", `{"type":"billing_error"}`, true, false, "answer: billing_error"},
		{"MiniMax's key", `{"code":"1004"}`, true, false, "answer: 1004"},
		{"Google's key", `{"code":"API_KEY_INVALID"}`, true, false, "answer: API_KEY_INVALID"},
		{"a text for a code", `{"code":"my secret prompt"}`, false, false, "200 answer"},
		{"a code with a hyphen", `{"code":"too-large"}`, false, false, "answer: too-large"},
		{"no object", `"secret"`, false, false, "200 answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := ErrorFrame([]byte(test.raw))
			var f *upstream.Failure
			if !fault.Is(err, fault.BadGateway) || !errors.As(err, &f) || f.Fatal != test.fatal || f.Ambiguous != test.ambiguous || f.Status != http.StatusOK || !f.Sent {
				t.Errorf("%v, failure %+v", err, f)
			}
			if text := err.Error(); strings.Contains(text, "secret") || !strings.HasSuffix(text, test.log+")") {
				t.Errorf("the log gets %q, want an end of %q without the vendor's text", text, test.log)
			}
		})
	}
}
