package word

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

func TestOnlyAWordIsTold(t *testing.T) {
	for _, code := range []fault.Code{"", "client_gone", "InvalidParameter.MissingRequired", "too-large", "429", fault.Code(strings.Repeat("x", 64))} {
		if got := Code(code); got != code {
			t.Errorf("%q is told as %q", code, got)
		}
	}
	for _, code := range []fault.Code{"my prompt", "a\nb", "naïve", "a:b", "\x1b[31m", "<b>", fault.Code(strings.Repeat("x", 65))} {
		if got := Code(code); got != "upstream_error" {
			t.Errorf("%q is told as %q", code, got)
		}
	}
}
