// Package capabilitytest has what the tests of capabilities have in common.
package capabilitytest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/fault"
)

// Golden compares got with the file of that name in testdata; update writes it
// first.
func Golden(t *testing.T, update bool, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); -update writes it anew:\n%s", path, diff)
	}
}

// Refusal is the field and the message of the refusal of a body. It must be a 400 of the
// common code. Both are empty if err is nil.
func Refusal(t *testing.T, body string, err error) (param, message string) {
	t.Helper()
	if err == nil {
		return "", ""
	}
	var f *fault.Error
	if !errors.As(err, &f) || f.HTTPStatus() != 400 || f.Code != fault.InvalidRequest || f.Message == "" {
		t.Fatalf("%s: %v", body, err)
	}
	return f.Param, f.Message
}

// TextInProportion checks that the text of many blocks takes memory in proportion
// to their number. content has n blocks of the text.
func TextInProportion(t *testing.T, content func(n int, text string) fmt.Stringer) {
	t.Helper()
	const text, few = "some words", 2_000
	size := func(n int) uint64 {
		c, want := content(n, text), strings.Repeat(text, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := c.String()
		runtime.ReadMemStats(&after)
		if got != want {
			t.Fatalf("%d blocks: %d bytes of text", n, len(got))
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if once, fourfold := size(few), size(4*few); fourfold > 8*once {
		t.Errorf("%d bytes for %d blocks, %d for four times as many", once, few, fourfold)
	}
}

// Filled is a body of head, about size bytes of elements, and tail.
func Filled(size int, head, element, tail string) []byte {
	n := size/(len(element)+1) - 1
	return []byte(head + strings.Repeat(element+",", n) + element + tail)
}

// RefusedInProportion checks that read refuses a body for param, with a message that has
// reason in it. It must take no more memory than a small multiple of the body's size.
func RefusedInProportion(t *testing.T, body []byte, param, reason string, read func([]byte) error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := read(body)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*uint64(len(body)) {
		t.Errorf("%d bytes took %d", len(body), took)
	}
	if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Param != param || !strings.Contains(f.Message, reason) {
		t.Errorf("%v, want a refusal for %q that says %s", err, param, reason)
	}
}

// Sized is a request whose input is bounded and estimated, its media by B.
type Sized[B any] interface {
	InputBound(media B) int64
	InputEstimate(media B) int64
}

// Bounded checks the bound of a request's input, and that the estimate is between
// what its media take and the bound.
func Bounded[B any](t *testing.T, what string, r Sized[B], b B, bound, media int64) {
	t.Helper()
	if got := r.InputBound(b); got != bound {
		t.Errorf("%s: bound %d, want %d", what, got, bound)
	}
	if got := r.InputEstimate(b); got > r.InputBound(b) || got < media {
		t.Errorf("%s: estimate %d, bound %d", what, got, r.InputBound(b))
	}
}

// InAnyOrder checks that the usage of events is the same in any order, and if some
// are repeated.
func InAnyOrder[U any](t *testing.T, event func(t *rapid.T) string, usage func(t *rapid.T, events []string) U) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(event), 1, 5).Draw(t, "events")
		repeats := rapid.SliceOf(rapid.SampledFrom(events)).Draw(t, "repeats")
		shuffled := rapid.Permutation(slices.Concat(events, repeats)).Draw(t, "shuffled")
		if diff := cmp.Diff(usage(t, events), usage(t, shuffled)); diff != "" {
			t.Fatalf("%v and %v:\n%s", events, shuffled, diff)
		}
	})
}
