package deliver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/admission"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	"github.com/tollhouse-ai/gateway/internal/money"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// settled is a request that notes how it ends.
type settled struct {
	fails  error // of the settlement
	used   billing.Usage
	reason string
	calls  []string
}

func (r *settled) Settle(used billing.Usage, reason string, _ money.Outcome) (*billing.Receipt, error) {
	r.used, r.reason, r.calls = used, reason, append(r.calls, "settle")
	return &billing.Receipt{Usage: used, Reason: reason}, r.fails
}

func (r *settled) Close() { r.calls = append(r.calls, "close") }

// tap passes events on, counts one output token for each, and ends with "end".
type tap struct {
	operation.Tap
	output int64
	broken bool
}

func (p *tap) Event(dst []byte, _ string, data []byte) ([]byte, bool, error) {
	p.output++
	return append(append(dst, data...), ' '), string(data) == "end", nil
}
func (p *tap) Usage() billing.Usage        { return billing.Usage{Output: p.output} }
func (p *tap) Output() int64               { return p.output }
func (p *tap) Said() int64                 { return p.output }
func (p *tap) Delivered() bool             { return true }
func (p *tap) Terminator() string          { return "terminator" }
func (p *tap) Heartbeat(dst []byte) []byte { return append(dst, "beat"...) }
func (p *tap) BreakOff()                   { p.broken = true }

// opening is a request whose first event is content.
type opening struct{ operation.Stream }

func (opening) Opening(string, []byte) (bool, error) { return true, nil }
func (opening) Unfold([]byte) ([]sse.Event, error)   { return nil, errors.New("no stream") }

// spec ends a broken stream with the code of its error.
var spec = &operation.Spec{ErrorEvent: func(dst []byte, _ string, _ operation.Tap, err *fault.Error) []byte {
	return append(append(dst, "error:"...), err.Code...)
}}

// started is a stream of the events, each of which is a word.
type started struct {
	*deliver.Stream
	request *settled
	tap     *tap
	leave   context.CancelFunc // the client disconnects
	cancel  context.CancelCauseFunc
}

func start(t *testing.T, body io.ReadCloser, readOn time.Duration, edit func(*deliver.Options)) *started {
	t.Helper()
	s := &started{request: new(settled), tap: new(tap)}
	o := deliver.Options{Request: s.request, Spec: spec, Hold: new(money.Hold), Now: time.Now}
	o.Client, s.leave = context.WithCancel(t.Context())
	o.Context, o.Cancel = context.WithCancelCause(context.Background())
	s.cancel = o.Cancel
	if edit != nil {
		edit(&o)
	}
	s.Stream = deliver.NewStream(o, s.tap)
	events, err := deliver.ReadEvents(&upstream.Reply{Body: body}, opening{}, new(admission.Budget).Event(t.Context()), 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Begin(events, nil, readOn)
	return s
}

// words is a body of an event for each word.
func words(list ...string) io.ReadCloser {
	return io.NopCloser(strings.NewReader("data: " + strings.Join(list, "\n\ndata: ") + "\n\n"))
}

func TestAStreamIsSettledBeforeItsLastEventLeaves(t *testing.T) {
	for _, c := range []struct {
		name   string
		fails  error
		body   io.ReadCloser
		want   string
		output int64
		reason string
	}{
		{"complete", nil, words("a", "b", "end"), "a b end terminator", 3, billing.ReasonComplete},
		{"the settlement fails", fault.New(fault.ServiceUnavailable, "away"), words("a", "end"), "a end error:ServiceUnavailable", 2, billing.ReasonComplete},
		{"cut off", nil, words("a", "b"), "a b error:BadGateway", 2, billing.ReasonUpstreamFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, c.body, 0, nil)
				s.request.fails = c.fails
				out, err := io.ReadAll(s)
				if err != nil || string(out) != c.want {
					t.Errorf("got %q, %v, want %q", out, err, c.want)
				}
				if s.request.used.Output != c.output || s.request.reason != c.reason {
					t.Errorf("settled %+v as %q, want %d tokens as %q", s.request.used, s.request.reason, c.output, c.reason)
				}
				s.Close()
				synctest.Wait() // for the end of the transfer
				if got := strings.Join(s.request.calls, " "); got != "settle close" {
					t.Errorf("the request's end is %q", got)
				}
			})
		})
	}
}

// The upstream has made what has come, whoever takes it.
func TestWhatCameAndWasNotTakenIsCharged(t *testing.T) {
	s := start(t, words("a", "b", "end"), 0, nil)
	s.Close()
	if s.request.used.Output != 3 || s.request.reason != billing.ReasonClientGone || !s.tap.broken {
		t.Errorf("settled %+v as %q; the tap was told: %t", s.request.used, s.request.reason, s.tap.broken)
	}
	if out, err := s.Next(); err != io.EOF {
		t.Errorf("a stream that was closed gives %q, %v", out, err)
	}
}

func TestAStreamThatEndsBetweenTwoCallsOfNextSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		go func() { _, _ = io.WriteString(out, "data: a\n\n") }()
		s := start(t, in, 0, nil)
		first, err := s.Next()
		if string(first) != "a " || err != nil {
			t.Fatalf("it begins with %q, %v", first, err)
		}
		s.cancel(deliver.ErrShutdown)
		synctest.Wait()
		if s.request.reason != billing.ReasonShutdown || s.request.used.Output != 1 {
			t.Errorf("settled %+v as %q", s.request.used, s.request.reason)
		}
		rest, err := io.ReadAll(s)
		if string(rest) != "error:ServiceUnavailable" || err != nil || !bytes.Equal(first, []byte("a ")) {
			t.Errorf("behind %q it ends with %q, %v", first, rest, err)
		}
	})
}

func TestASilentStreamHasHeartbeatsUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var beats int
		in, out := io.Pipe()
		go func() { _, _ = io.WriteString(out, "data: a\n\n") }()
		s := start(t, in, 0, func(o *deliver.Options) {
			o.Interval, o.Heartbeat = time.Second, func([]byte) { beats++ }
		})
		time.Sleep(3*time.Second + time.Millisecond)
		s.Close()
		time.Sleep(time.Minute)
		if beats != 3 {
			t.Errorf("%d heartbeats, want 3", beats)
		}
	})
}

// A writer that fails asks for the error event while the stream still runs. The tap then belongs
// to whoever has the stream's lock.
func TestAnErrorEventWaitsForAHeartbeatOfTheSameTap(t *testing.T) {
	var beating atomic.Bool
	asked := make(chan bool, 1)
	beats := make(chan struct{})
	s := start(t, words("a"), 0, func(o *deliver.Options) {
		o.Spec = &operation.Spec{ErrorEvent: func(dst []byte, _ string, _ operation.Tap, err *fault.Error) []byte {
			select {
			case asked <- beating.Load():
			default: // of the end of the stream
			}
			return dst
		}}
		o.Interval = time.Millisecond
		o.Heartbeat = func([]byte) {
			beating.Store(true)
			beats <- struct{}{}
			for range 1000 { // while whoever asks could go on
				runtime.Gosched()
			}
			beating.Store(false)
		}
	})
	<-beats
	s.AppendError(nil, fault.New(fault.ClientGone, ""))
	if <-asked {
		t.Error("the tap was asked for an error event within its heartbeat")
	}
	go func() {
		for range beats { // of later heartbeats
		}
	}()
	s.Close()
}
