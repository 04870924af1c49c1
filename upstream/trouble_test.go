package upstream_test

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestTheLastErrorHasNoTextOfAVendors(t *testing.T) {
	for code, want := range map[fault.Code]string{
		"InternalError.Algo":                        "InternalError.Algo (upstream status 500)",
		"the caller's prompt, at its full length":   "upstream_error (upstream status 500)",
		"\x1b[31mred":                               "upstream_error (upstream status 500)",
		fault.Code(strings.Repeat("sk-vendor-", 7)): "upstream_error (upstream status 500)",
	} {
		bad := &fault.Error{Code: code, Message: "Text.", Status: 500, Err: &upstream.Failure{Status: 500, Sent: true}}
		r := router(t, upstream.RouterOptions{}, every("1", plays(bad), 1))
		if _, err := r.Do(t.Context(), call(t, hello)); err == nil {
			t.Fatal("no error")
		}
		if got := r.Channels()[0].LastError; got != want {
			t.Errorf("%q is told as %q, want %q", code, got, want)
		}
	}
}
