package gateway_test

import (
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
)

func TestAModelWithoutAPriceDoesNotExistInPrepaid(t *testing.T) {
	for name, required := range map[string]bool{"prepaid": true, "otherwise": false} {
		up := &scripted{text: whole(`,"usage":{"prompt_tokens":1,"completion_tokens":1}`)}
		h := newHouse(t, up, "1.00", func(o *gateway.Options) { o.RequirePrice = required })
		_, _, err := h.ask(t.Context(), strings.Replace(askWhole, `"model":"m"`, `"model":"unpriced"`, 1))
		if fault.Is(err, fault.ModelNotFound) != required || (up.count() == 0) != required {
			t.Errorf("%s: %v after %d calls", name, err, up.count())
		}
		if _, _, err := h.ask(t.Context(), askWhole); err != nil {
			t.Errorf("%s: a model with a price: %v", name, err)
		}
	}
}
