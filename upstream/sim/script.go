package sim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Step is what one call to a [Script] gets. With neither text, calls nor an error the answer is
// empty.
type Step struct {
	// Text is what the model says. It may stand beside Calls.
	Text string
	// Calls are the tools that the model calls. One without an ID or a Type gets one.
	Calls []chat.ToolCall
	// Err fails the call in the place of an answer. A *fault.Error or a fault.Code is the
	// vendor's: other channels are asked where its status says so. Any other error is a
	// connection that broke after the request was sent.
	Err error
	// Delay is the time before the answer or the error. The end of the call's context ends it.
	Delay time.Duration
}

// Script returns an upstream that answers chat completions of any model, whole or as a stream,
// by steps. The first call gets the first step, and so on. Usage is counted as in [New], and a
// token bound of the request cuts an answer. Requests that a vendor would refuse are refused,
// and take no step.
//
// A call beyond the last step is a 400 that no other channel is asked about. It names the number
// of the call and what its last message says. It is safe for concurrent use; calls take steps in
// the order in which they come.
func Script(steps ...Step) upstream.Upstream { return &script{steps: steps} }

// script is the upstream of a [Script].
type script struct {
	sim   Upstream
	steps []Step
	calls atomic.Int64 // that took a step, or found none
}

// Supports reports whether op is a chat completion.
func (s *script) Supports(op upstream.Op, _ string) bool { return op == upstream.ChatCompletion }

// Do answers by the next step.
func (s *script) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Op != upstream.ChatCompletion {
		return nil, fault.New(fault.NoChannel, fmt.Sprintf("A script answers chat completions, and not the operation %q.", call.Op))
	}
	r, data, err := request(&s.sim, call, chatop.Parse, (*chatop.Request).Validate)
	if err != nil {
		return nil, err
	}
	n := s.calls.Add(1)
	if n > int64(len(s.steps)) {
		said := safetext.Truncate(last(r.Request).Content.String(), maxRepeated)
		return nil, vendorError(400, fault.InvalidRequest, "messages", fmt.Sprintf("call %d (%q) is not in the script of %d steps", n, said, len(s.steps)))
	}
	step := &s.steps[n-1]
	if err := wait(ctx, max(step.Delay, 0)); err != nil {
		return nil, fault.From(err)
	}
	if step.Err != nil {
		return nil, step.fault()
	}
	a := s.sim.newAnswer(call, sha256.Sum256(data), r.WantsUsage())
	for i := range r.Candidates() {
		c := candidate{finish: "stop"}
		c.add(content, 0, step.Text)
		for j, call := range step.Calls {
			id := call.ID
			if id == "" {
				id = fmt.Sprintf("call_%d_%d_%d", n, i, j)
			}
			c.call(int64(j), id, call.Function.Name, call.Function.Arguments)
		}
		c.limit(r.OutputBound())
		a.candidates = append(a.candidates, c)
	}
	a.count(r.Request)
	if call.Stream {
		return s.sim.sendStream(ctx, a.events(), Fault{}), nil
	}
	return s.sim.sendJSON(ctx, a.response(), Fault{})
}

// fault is the step's error as a driver reports it.
func (s *Step) fault() error {
	var (
		stated *fault.Error
		code   fault.Code
	)
	if !errors.As(s.Err, &stated) && !errors.As(s.Err, &code) {
		return (&upstream.Failure{Sent: true, Err: s.Err}).Fault()
	}
	e := fault.From(s.Err)
	if _, known := upstream.FailureOf(e); known {
		return e
	}
	return e.With(func(e *fault.Error) {
		f := upstream.FromStatus(e.HTTPStatus())
		f.Stated, f.Err = upstream.Stated(f.Status, string(e.Code)), s.Err
		e.Err = f
	})
}
