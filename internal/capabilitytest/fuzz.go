package capabilitytest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Malformed checks the refusal of a body that is no strict JSON: a 400 that names the byte.
func Malformed(t *testing.T, data []byte, err error) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.HTTPStatus() != 400 || !strings.Contains(e.Message, " at byte ") {
		t.Fatalf("%q: %v", data, err)
	}
}

// Valid reports whether a parsed request is, by what its Validate says. It checks what
// holds of every request: its input is bound, and a refusal names a field.
func Valid(t *testing.T, p *completion.Parsed, err error) bool {
	t.Helper()
	var b chat.MediaBound
	if bound, estimate := p.InputBound(b), p.InputEstimate(b); bound < 0 || estimate < 0 {
		t.Errorf("the input is bound by %d and estimated as %d", bound, estimate)
	}
	if err == nil {
		return true
	}
	if f := fault.From(err); f.HTTPStatus() != 400 || f.Param == "" || f.Message == "" {
		t.Errorf("%+v", f)
	}
	return false
}

// EncodesAsParsed checks that a typed request is read as its bytes are. known is all that
// is known of a request.
func EncodesAsParsed[T, R any](t *testing.T, typed *T, parse func([]byte) (*R, error), encode func(*T) (*R, error), known func(*testing.T, *R) []any) {
	t.Helper()
	data, err := json.Marshal(typed)
	if err != nil {
		return
	}
	want, wantErr := parse(data)
	got, err := encode(typed)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%v, of the bytes %v", err, wantErr)
	}
	if err != nil {
		return
	}
	if diff := cmp.Diff(known(t, want), known(t, got)); diff != "" {
		t.Errorf("%s (-bytes +typed):\n%s", data, diff)
	}
}

// Known is what is known of every request: its view, what is sent of it, and its bounds,
// of its summary too.
func Known(t *testing.T, view any, prepared upstream.Body, p, summary *completion.Parsed) []any {
	t.Helper()
	typed, err := json.Marshal(view)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := prepared.Bytes()
	b := chat.MediaBound{}
	return []any{string(typed), string(body), string(p.Source()), p.InputBound(b), p.LinkedBound(b), p.InputEstimate(b), summary.InputEstimate(b)}
}

// NotNegative checks that a usage has no negative count.
func NotNegative(t *testing.T, u billing.Usage) {
	t.Helper()
	if u.Input < 0 || u.CachedInput < 0 || u.CacheWrite < 0 || u.Output < 0 || u.Reasoning < 0 {
		t.Errorf("%+v", u)
	}
}
