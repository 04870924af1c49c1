package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
)

// awayFirst is a meter that cannot be reached at the first settlements.
type awayFirst struct {
	billing.Free
	mu   sync.Mutex
	left int
}

func (m *awayFirst) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left >= 0 {
		return billing.Receipt{}, errors.New("the disk is full")
	}
	return m.Free.Settle(ctx, h, u, with...)
}

func TestThatACaptureWaitsIsToldBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var states []string
		g, err := gateway.New(gateway.Options{
			Upstream: &scripted{text: whole("")}, Meter: &awayFirst{left: 1},
			Observe: gateway.Observer{Event: func(_ context.Context, e gateway.Event) {
				c, ok := e.(gateway.CaptureRetried)
				if !ok {
					return
				}
				if c.State == gateway.CaptureQueued {
					time.Sleep(time.Second) // Run goes first if it may
				}
				mu.Lock()
				defer mu.Unlock()
				states = append(states, c.State)
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		if _, err := g.Chat(t.Context(), chatRequest()); err == nil {
			t.Error("a charge that was not recorded is no success")
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{gateway.CaptureQueued, gateway.CaptureSettled}; !slices.Equal(states, want) {
			t.Errorf("told were %q", states)
		}
	})
}

func TestAnObserverThatHangsKeepsNoOtherCaptureWaitingNorRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, hangs := &awayFirst{left: 2}, make(chan struct{})
		first := true
		g, err := gateway.New(gateway.Options{
			Upstream: &scripted{text: whole("")}, Meter: m, SettleTimeout: time.Second,
			Observe: gateway.Observer{Event: func(_ context.Context, e gateway.Event) {
				if c, ok := e.(gateway.CaptureRetried); ok && c.State == gateway.CaptureQueued && first {
					first = false
					<-hangs
				}
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		for range 2 {
			go func() {
				_, _ = g.Chat(t.Context(), chatRequest())
				ended <- struct{}{}
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		time.Sleep(time.Minute)
		if n := g.Unsettled(); n != 1 {
			t.Errorf("%d captures wait", n)
		}
		began := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(began) > time.Second {
			t.Errorf("Run ended %s after its context with %v", time.Since(began), err)
		}
		close(hangs)
		<-ended
		<-ended
	})
}

// TestAReceiptMayBeAskedForWhileTheStreamIsBeingCancelled has the race detector
// look.
func TestAReceiptMayBeAskedForWhileTheStreamIsBeingCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		h := newHouse(t, &scripted{body: r}, "1", nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = io.WriteString(w, chunk(`{"role":"assistant","content":"x"}`, "")) }()
		_, res, err := h.ask(ctx, askStream)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := res.Stream.Next(); err != nil {
			t.Fatal(err)
		}
		cancel()
		_, _ = res.Stream.Receipt() // there may be one, or not yet
		synctest.Wait()
		if _, ok := res.Stream.Receipt(); !ok {
			t.Error("a stream that was cancelled has no receipt")
		}
		_, _ = res.Stream.Close(), w.Close()
	})
}

// lingering is a body that takes its time to close.
type lingering struct {
	io.Reader
	closed *bool
}

func (l lingering) Close() error {
	time.Sleep(time.Second)
	*l.closed = true
	return nil
}

func TestTheGatewayIsClosedWhenNoUpstreamHasACallLeft(t *testing.T) {
	for name, text := range map[string]string{
		"complete": recorded(usageChunk(20, 30)),
		"cut":      chunk(`{"role":"assistant","content":"x"}`, ""),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := false
				h := newHouse(t, upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
					header := http.Header{"Content-Type": {"text/event-stream"}}
					return &upstream.Reply{Status: 200, Header: header, Body: lingering{strings.NewReader(text), &closed}}, nil
				}), "1", nil)
				_, r, err := h.ask(t.Context(), askStream)
				if err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = io.Copy(io.Discard, r.Stream) }()
				time.Sleep(time.Millisecond) // the body is being closed
				if err := h.Close(); err != nil || !closed {
					t.Errorf("Close returned with %v; the upstream's answer is closed: %t", err, closed)
				}
			})
		})
	}
}
