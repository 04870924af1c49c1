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
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Malformed checks the refusal of a body that is no strict JSON: a 400 that names the byte.
func Malformed(t *testing.T, data []byte, err error) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.HTTPStatus() != 400 || !strings.Contains(e.Message, " (byte ") {
		t.Fatalf("%q: %v", data, err)
	}
}

// Valid reports whether a parsed request is, by what its Validate says. It checks what
// holds of every request: its input is bound, and a refusal names a field.
func Valid(t *testing.T, p *conversation.Parsed, err error) bool {
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
func Known(t *testing.T, view any, prepared upstream.Body, p, summary *conversation.Parsed) []any {
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

// Repeated is a tap of a stream, with all that it says of what it has passed.
type Repeated interface {
	Event(dst []byte, name string, data []byte) (out []byte, done bool, err error)
	Usage() billing.Usage
	Output() int64
	Said() int64
	Delivered() bool
	Terminator() string
}

// RepeatsAsParsed gives the same events to two taps. forget makes the second forget each time
// what the last event shares with the next. What the client gets, and what is counted, must be
// the same.
func RepeatsAsParsed(t *testing.T, remembers, forgetful Repeated, forget func(), events ...[2]string) {
	t.Helper()
	for _, e := range events {
		forget()
		got, gotDone, gotErr := remembers.Event([]byte("> "), e[0], []byte(e[1]))
		want, wantDone, wantErr := forgetful.Event([]byte("> "), e[0], []byte(e[1]))
		if string(got) != string(want) || gotDone != wantDone || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("%q: %q, %t, %v, want %q, %t, %v", e, got, gotDone, gotErr, want, wantDone, wantErr)
		}
		if diff := cmp.Diff(told(forgetful), told(remembers)); diff != "" {
			t.Fatalf("%q:\n%s", e, diff)
		}
		if wantErr != nil || wantDone {
			return
		}
	}
}

// told is what a tap says.
func told(tap Repeated) []any {
	return []any{tap.Usage(), tap.Output(), tap.Said(), tap.Delivered(), tap.Terminator()}
}

// AddForms adds to a fuzzer of a tap the forms of events, each with two places for texts, and
// what may stand there.
func AddForms(f *testing.F, name string, forms ...string) {
	texts := []string{"", "one", " two", `\n`, `\ud83d`, `","x":"`, "\xff", "道", "1", "02", "1000000000000000000", "\t"}
	for _, form := range forms {
		parts := strings.Split(form, "%")
		for i, text := range texts {
			f.Add(name, parts[0], parts[1], parts[2], "one", "11", text, texts[(i+8)%len(texts)])
		}
	}
}
