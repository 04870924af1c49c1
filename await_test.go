package gateway_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// drainApart reads a stream to its end as a server does in a crowd: another
// goroutine than the one that waits calls Next.
func drainApart(t testing.TB, s *gateway.Stream) string {
	t.Helper()
	var all strings.Builder
	for {
		s.Await()
		s.Await() // which has nothing left to wait for
		var b []byte
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			b, err = s.Next()
		}()
		<-done
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		all.Write(b)
	}
}

func TestAStreamThatIsAwaitedSaysAndCostsTheSameWhereverItIsCut(t *testing.T) {
	full := recorded(usageChunk(20, 30))
	for at := range len(full) + 1 {
		waited, plain := newHouse(t, &scripted{text: full[:at]}, "1.00", nil), newHouse(t, &scripted{text: full[:at]}, "1.00", nil)
		x, r, err := waited.ask(t.Context(), askStream)
		y, other, otherErr := plain.ask(t.Context(), askStream)
		if err != nil || otherErr != nil {
			if fault.From(err).Code != fault.From(otherErr).Code {
				t.Fatalf("cut at %d: %v and %v", at, err, otherErr)
			}
			continue
		}
		got, want := drainApart(t, r.Stream), drain(t, other.Stream)
		if strings.ReplaceAll(got, x.ID, "") != strings.ReplaceAll(want, y.ID, "") {
			t.Fatalf("cut at %d: %q, and without waiting %q", at, got, want)
		}
		if got, want := waited.spent(t, "1.00"), plain.spent(t, "1.00"); got != want {
			t.Fatalf("cut at %d: spent %s, and without waiting %s", at, got, want)
		}
	}
}

// beginning is the recorded stream up to its first event that has text, with
// it.
func beginning(t testing.TB) string {
	t.Helper()
	full := recorded(usageChunk(20, 30))
	const empty = `"content":""`
	at := strings.Index(strings.ReplaceAll(full, empty, strings.Repeat(" ", len(empty))), `"content":"`)
	end := strings.Index(full[at:], "\n\n")
	return full[:at+end+2]
}

func TestACallThatEndsWhileItsStreamIsAwaitedIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		h := newHouse(t, &scripted{body: in}, "1.00", nil)
		ctx, hangUp := context.WithCancel(t.Context())
		go func() { _, _ = io.WriteString(out, beginning(t)) }()
		x, r, err := h.ask(ctx, askStream)
		if err != nil {
			t.Fatal(err)
		}
		for given := ""; strings.Count(given, "\n\n") < strings.Count(beginning(t), "\n\n"); {
			b, err := r.Stream.Next()
			if err != nil {
				t.Fatal(err)
			}
			given += string(b)
		}
		go r.Stream.Await()
		synctest.Wait()
		hangUp()
		synctest.Wait()
		if receipt, ok := x.Receipt(); !ok || receipt.Reason != billing.ReasonClientGone {
			t.Errorf("%+v, %t", receipt, ok)
		}
		r.Stream.Await() // after the end there is nothing to wait for
		if got, want := h.spent(t, "1.00"), deliveredCost(beginning(t)); got != want {
			t.Errorf("spent %s, want %s", got, want)
		}
	})
}

// The upstream has made what was waited for, whoever takes it.
func TestAnEventThatWasAwaitedAndNotTakenIsCharged(t *testing.T) {
	first, second := beginning(t), `data: {"id":"x","choices":[{"index":0,"delta":{"content":"`+strings.Repeat("not taken ", 40)+`"}}]}`+"\n\n"
	in, out := io.Pipe()
	h := newHouse(t, &scripted{body: in}, "1.00", nil)
	go func() {
		_, _ = io.WriteString(out, first)
		_, _ = io.WriteString(out, second)
	}()
	_, r, err := h.ask(t.Context(), askStream)
	if err != nil {
		t.Fatal(err)
	}
	for given := ""; strings.Count(given, "\n\n") < strings.Count(first, "\n\n"); {
		b, err := r.Stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		given += string(b)
	}
	r.Stream.Await()
	if err := r.Stream.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := h.spent(t, "1.00"), deliveredCost(first+second); got != want {
		t.Errorf("spent %s, want %s", got, want)
	}
}

// faulty is a body that panics once when it has given its text.
type faulty struct {
	io.Reader
	panicked bool
}

func (f *faulty) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !f.panicked {
		f.panicked = true
		panic("the body is broken")
	}
	return n, err
}

func TestABodyThatPanicsWhileItIsAwaitedEndsTheStreamOnly(t *testing.T) {
	h := newHouse(t, &scripted{body: &faulty{Reader: strings.NewReader(beginning(t))}}, "1.00", nil)
	x, r, err := h.ask(t.Context(), askStream)
	if err != nil {
		t.Fatal(err)
	}
	if out := drainApart(t, r.Stream); !strings.Contains(out, `data: {"error":{"message":`) {
		t.Errorf("no error event in %q", out)
	}
	if receipt, ok := x.Receipt(); !ok || receipt.Reason != billing.ReasonInternal {
		t.Errorf("%+v, %t", receipt, ok)
	}
}
