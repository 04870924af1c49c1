package auth_test

import (
	"context"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
)

func TestAKeyMayUseItsModels(t *testing.T) {
	for _, c := range []struct {
		models []string
		model  string
		want   bool
	}{
		{nil, "delta-k3", true},
		{[]string{"delta-k3"}, "delta-k3", true},
		{[]string{"delta-k3"}, "delta-k", false},
		{[]string{"a", "b"}, "b", true},
	} {
		p := &auth.Principal{Models: c.models}
		if got := p.MayUse(c.model); got != c.want {
			t.Errorf("a key for %q: MayUse(%q) = %t", c.models, c.model, got)
		}
	}
}

func TestAContextCarriesItsPrincipal(t *testing.T) {
	p := &auth.Principal{Account: "acme"}
	if got, ok := auth.FromContext(auth.NewContext(context.Background(), p)); got != p || !ok {
		t.Errorf("FromContext = %v, %t", got, ok)
	}
	for name, ctx := range map[string]context.Context{
		"none": context.Background(),
		"nil":  auth.NewContext(context.Background(), nil),
	} {
		if got, ok := auth.FromContext(ctx); got != nil || ok {
			t.Errorf("%s: FromContext = %v, %t", name, got, ok)
		}
	}
}
