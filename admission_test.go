package gateway_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

var hello = &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}}

// refusedFor asserts the refusal of a gateway that is full.
func refusedFor(t *testing.T, err error, message string) {
	t.Helper()
	f := fault.From(err)
	if f == nil || f.Code != fault.ServiceUnavailable || f.RetryAfter != time.Second || f.Message != message+" Send the request again." {
		t.Errorf("got %+v, want %q", f, message)
	}
}

const full = "The gateway runs as many calls as it can."

func TestAStreamKeepsItsPlaceUntilItIsClosed(t *testing.T) {
	up := &scriptedUpstream{text: string(cannedStream(3))}
	h := newTestGateway(t, up, "1", func(o *gateway.Options) { o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: -1} })
	s, err := h.ChatStream(t.Context(), hello)
	must(t, err)
	if l, b := h.Load(), h.Backlog(); l.Running != 1 || l.Waiting != 0 || b != (gateway.Backlog{Streams: 1}) {
		t.Errorf("%+v, %+v", l, b)
	}
	_, err = h.Chat(t.Context(), hello)
	refusedFor(t, err, full)
	if up.count() != 1 {
		t.Errorf("the upstream was called %d times", up.count())
	}
	must(t, s.Close())
	if l, b := h.Load(), h.Backlog(); l != (gateway.Load{Refused: 1}) || b != (gateway.Backlog{}) {
		t.Errorf("%+v, %+v", l, b)
	}
	up.text = cannedAnswer
	if _, err := h.Chat(t.Context(), hello); err != nil {
		t.Error(err)
	}
}

func TestACallThatIsRefusedGivesItsPlaceBack(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: cannedAnswer}, "1", func(o *gateway.Options) { o.Admission.MaxCalls = 1 })
	for range 3 {
		x := authenticated(t, t.Context(), h.Gateway)
		for range 2 { // of which the second does nothing
			if err := x.AcquireSlot(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
		_, err := x.Do(t.Context(), &gateway.Request{Op: upstream.ChatCompletion, Body: []byte(`{"model":"m","messages":[]}`)})
		if !fault.Is(err, fault.InvalidRequest) || h.Load().Running != 1 {
			t.Errorf("%v, %+v", err, h.Load())
		}
		x.End(400, err)
	}
	if l := h.Load(); l != (gateway.Load{}) {
		t.Errorf("%+v", l)
	}
}

func TestACallWaitsForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
			time.Sleep(700 * time.Millisecond) // virtual
			return (&scriptedUpstream{text: cannedAnswer}).Do(ctx, call)
		})
		h := newTestGateway(t, up, "1", func(o *gateway.Options) { o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: 1} })
		answered := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := h.Chat(t.Context(), hello)
				answered <- err
			}()
			synctest.Wait()
		}
		if l := h.Load(); l.Running != 1 || l.Waiting != 1 {
			t.Errorf("%+v", l)
		}
		began := time.Now()
		_, err := h.Chat(t.Context(), hello)
		refusedFor(t, err, full)
		if time.Since(began) != 0 {
			t.Errorf("refused after %v", time.Since(began))
		}
		for range 2 {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != 1400*time.Millisecond {
			t.Errorf("both were answered after %v", took)
		}
	})
}

func TestNewCallsAreRefusedWhileMemoryIsShortAndStreamsGoOn(t *testing.T) {
	used, now := int64(0), time.Unix(1_700_000_000, 0)
	up := &scriptedUpstream{text: string(cannedStream(3))}
	h := newTestGateway(t, up, "1", func(o *gateway.Options) {
		o.Now = func() time.Time { return now }
		o.Admission = gateway.Admission{Memory: 1000, InUse: func() int64 { return used }}
	})
	s, err := h.ChatStream(t.Context(), hello)
	must(t, err)
	up.text = cannedAnswer
	used, now = 1000, now.Add(time.Second)
	_, err = h.Chat(t.Context(), hello)
	refusedFor(t, err, "The gateway is short of memory and takes no new calls.")
	if l := h.Load(); !l.Short || l.Refused != 1 {
		t.Errorf("%+v", l)
	}
	for _, err := range s.Chunks() {
		if err != nil {
			t.Errorf("the open stream: %v", err)
		}
	}
	used, now = 0, now.Add(time.Second)
	if _, err := h.Chat(t.Context(), hello); err != nil {
		t.Errorf("when there is memory: %v", err)
	}
}

// What is weighed is tested in internal/admission.
func TestALargeBodyThatFindsNoMemoryIsRefused(t *testing.T) {
	const mib = 1 << 20
	h := newTestGateway(t, &scriptedUpstream{text: cannedAnswer}, "1", func(o *gateway.Options) {
		o.Admission = gateway.Admission{Memory: 256 * mib, InUse: func() int64 { return 0 }}
	})
	x := authenticated(t, t.Context(), h.Gateway)
	const noMemory = "The gateway has no memory left for a body of this size."
	refusedFor(t, x.AcquireSlot(t.Context(), 49*mib), noMemory) // of the 48 MiB that one account may have
	refusedFor(t, x.Reserve(49*mib), noMemory)
	if err := errors.Join(x.AcquireSlot(t.Context(), 48*mib), x.Reserve(48*mib)); err != nil || h.Load().Bodies != 48*mib {
		t.Errorf("%v, %+v", err, h.Load())
	}
	x.End(200, nil)
	if l := h.Load(); l.Bodies != 0 {
		t.Errorf("in the end %+v", l)
	}
}

func TestACallerWhoLeavesWhileItWaitsIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		up := &scriptedUpstream{body: r}
		h := newTestGateway(t, up, "1", func(o *gateway.Options) { o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: 1} })
		first, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := h.Chat(first, hello)
			done <- err
		}()
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			_, err := h.Chat(ctx, hello)
			done <- err
		}()
		synctest.Wait()
		leave()
		if err := <-done; !fault.Is(err, fault.ClientGone) {
			t.Error(err)
		}
		cancel()
		<-done
		_ = w.Close()
		if up.count() != 1 {
			t.Errorf("the upstream was called %d times", up.count())
		}
	})
}
