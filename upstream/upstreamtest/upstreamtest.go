// Package upstreamtest holds the conformance suite of every upstream.
package upstreamtest

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Harness is what the suite needs to know of an upstream. Exactly one of New
// and Local is set.
type Harness struct {
	// New makes the upstream under test against a scripted vendor, whose server
	// it starts and stops by t.Cleanup. The suite closes the upstream if it is
	// an io.Closer.
	New func(t *testing.T, vendor http.Handler) upstream.Upstream
	// Local makes an upstream that has no vendor. Nothing can be scripted then,
	// and only what the upstream does by itself is checked.
	Local func(t *testing.T) upstream.Upstream
	// Samples hold a call for every operation that the upstream supports.
	Samples map[upstream.Op]Sample
	// MaxWait ends a check that would wait forever; 20 s if zero. Nothing
	// waits for it to pass.
	MaxWait time.Duration
}

// Sample is one operation's traffic. The Public fields can be left out if the vendor's
// wire is the public one. A Local upstream needs only Model, TaskID, Request and Stream.
type Sample struct {
	Model   string // the upstream's id
	TaskID  string // makes Call.TaskID; a Local upstream must know the task
	Request []byte // a request in the public wire, not streamed; nil if the operation has no body
	Stream  []byte // the same, streamed; nil if the operation never streams
	// Form and StreamForm are the requests of an operation whose body is a form,
	// in place of Request and Stream; nil for any other. The suite closes neither.
	Form, StreamForm *upstream.Form

	View  func(body []byte) any            // makes Call.Request; may be nil
	Check func(t *testing.T, reply []byte) // judges a whole answer of a Local upstream; may be nil

	Wire   []byte   // what the vendor must get for Request; Request itself if nil
	Answer []byte   // the vendor's answer to Request
	Public []byte   // the Reply for it; Answer itself if nil
	Events []string // the vendor's answer to Stream, event by event, blank lines included
	// PublicEvents[i] is what of the Reply must be readable, and no more, once the vendor sent
	// event i. Nil means Events.
	PublicEvents []string

	Refusal Refusal // the vendor's 4xx for a request that is the caller's fault
}

// Refusal is an error of the vendor and what must become of it.
type Refusal struct {
	Status  int
	Body    []byte
	Code    fault.Code
	Message string
}

// Run checks every operation that the upstream supports.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h.MaxWait = cmp.Or(h.MaxWait, 20*time.Second)
	for _, op := range upstream.Ops() {
		t.Run(string(op), func(t *testing.T) { h.run(t, op) })
	}
}

// check is one rule of the suite.
type check struct {
	name   string
	stream bool // it needs an operation that streams
	run    func(t *testing.T, h *Harness, c *upstream.Call, s *Sample)
}

func (h *Harness) run(t *testing.T, op upstream.Op) {
	s, sampled := h.Samples[op]
	if supported := h.supports(t, op, s.Model); supported != sampled {
		t.Fatalf("the upstream supports it: %v; the harness has a sample: %v", supported, sampled)
	}
	if !sampled {
		ctx, _ := h.bounded(t)
		if _, err := h.make(t, http.NotFoundHandler()).Do(ctx, &upstream.Call{Op: op, Model: "m"}); fault.From(err) == nil {
			t.Error("a call for an operation that is not supported has no error")
		}
		return
	}
	checks := wireChecks
	if h.Local != nil {
		checks = localChecks
	}
	for _, c := range checks {
		if c.stream && s.Stream == nil && s.StreamForm == nil {
			continue
		}
		before := goroutines()
		t.Run(c.name, func(t *testing.T) { c.run(t, h, s.call(t, op, c.stream), &s) })
		settle(t, before, h.MaxWait)
	}
}

func (h *Harness) supports(t *testing.T, op upstream.Op, model string) (yes bool) {
	t.Run("says whether it is supported", func(t *testing.T) {
		yes = upstream.Supports(h.make(t, http.NotFoundHandler()), op, model)
	})
	return yes
}

// make makes the upstream, and closes it before its vendor.
func (h *Harness) make(t *testing.T, vendor http.Handler) upstream.Upstream {
	t.Helper()
	var up upstream.Upstream
	if h.Local != nil {
		up = h.Local(t)
	} else {
		up = h.New(t, vendor)
	}
	if c, ok := up.(io.Closer); ok {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	return up
}

// call makes a call of the sample.
func (s *Sample) call(t *testing.T, op upstream.Op, stream bool) *upstream.Call {
	t.Helper()
	body, form := s.Request, s.Form
	if stream {
		body, form = s.Stream, s.StreamForm
	}
	c := &upstream.Call{
		Op: op, Model: s.Model, TaskID: s.TaskID, Stream: stream, RequestID: "req_sample", Body: upstream.BytesBody(body),
	}
	if body != nil {
		c.ContentType = "application/json"
	}
	if o, err := rawjson.Index(body, nil, nil); err == nil {
		c.Body = upstream.ObjectBody(o)
	}
	if form != nil {
		c.Body = upstream.FormBody(form)
		c.ContentType = c.Body.ContentType()
		body = formBytes(t, c.Body)
	}
	if s.View != nil {
		c.Request = s.View(body)
	}
	return c
}

// formBytes is a form as it goes over the wire.
func formBytes(t *testing.T, body upstream.Body) []byte {
	t.Helper()
	data, err := body.Bytes()
	if err != nil {
		t.Fatalf("the form of the sample: %v", err)
	}
	return data
}

// wire is what the vendor must get for the sample's request.
func (s *Sample) wire(t *testing.T) []byte {
	t.Helper()
	if s.Form != nil && s.Wire == nil {
		return formBytes(t, upstream.FormBody(s.Form))
	}
	return or(s.Wire, s.Request)
}

// bounded is a context that ends a call that hangs; later than await, which must
// not mistake that end for the one that it awaits.
func (h *Harness) bounded(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*h.MaxWait)
	t.Cleanup(cancel)
	return ctx, cancel
}

// whole reads and closes a reply.
func whole(t *testing.T, r *upstream.Reply) []byte {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("reading the reply: %v", err)
	}
	if err := r.Body.Close(); err != nil {
		t.Fatalf("closing the reply: %v", err)
	}
	return data
}

// goroutines are those that run, by number, with their stacks. To count them is
// not enough: one that is about to end would hide one that stays.
func goroutines() map[string]string {
	stacks := make([]byte, 1<<16)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	all := make(map[string]string)
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		number, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		all[number] = stack
	}
	return all
}

// settle waits until no goroutine runs that did not before.
func settle(t *testing.T, before map[string]string, patience time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; runtime.Gosched() {
		var left []string
		for number, stack := range goroutines() {
			if before[number] == "" {
				left = append(left, stack)
			}
		}
		switch {
		case len(left) == 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("%d goroutines run that did not before:\n%s", len(left), strings.Join(left, "\n\n"))
		}
	}
}
