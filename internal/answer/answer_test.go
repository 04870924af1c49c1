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
		log       string // how it ends
	}{
		{"the vendor's", `{"type":"server_error","message":"secret"}`, false, "answer: server_error"},
		{"the operator's, by its code", `{"code":"insufficient_quota","type":"x","message":"secret"}`, true, "answer: x"},
		{"the operator's, in other letters", `{"code":"Arrearage","message":"secret"}`, true, "answer: Arrearage"},
		{"the operator's, by its type", `{"type":"permission_error","message":"secret"}`, true, "answer: permission_error"},
		{"a text for a code", `{"code":"my secret prompt"}`, false, "200 answer"},
		{"a code with a hyphen", `{"code":"too-large"}`, false, "answer: too-large"},
		{"no object", `"secret"`, false, "200 answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := ErrorFrame([]byte(test.raw))
			var f *upstream.Failure
			if !fault.Is(err, fault.BadGateway) || !errors.As(err, &f) || f.Fatal != test.fatal || f.Status != http.StatusOK || !f.Sent {
				t.Errorf("%v, failure %+v", err, f)
			}
			if text := err.Error(); strings.Contains(text, "secret") || !strings.HasSuffix(text, test.log+")") {
				t.Errorf("the log gets %q, want an end of %q without the vendor's text", text, test.log)
			}
		})
	}
}
