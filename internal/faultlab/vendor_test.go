package faultlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// vendor is an upstream that plays the scripts of runs.
type vendor struct {
	lab   *Lab
	polls *atomic.Int64 // questions after videos
}

// Supports says which dialect each model is spoken in.
func (v *vendor) Supports(op upstream.Op, model string) bool {
	if op == upstream.PollVideo {
		op = upstream.SubmitVideo
	}
	for _, t := range traits {
		if t.dialect == op && t.model == model {
			return true
		}
	}
	return false
}

// Do plays the next attempt of the call's run.
func (v *vendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	r := v.lab.find(call.RequestID)
	switch {
	case r == nil:
		return nil, fmt.Errorf("nobody knows the request %q", call.RequestID)
	case call.Op == upstream.PollVideo:
		v.polls.Add(1)
		return v.poll(ctx, r, call)
	}
	part, err := partOf(r.Case, call)
	if err != nil {
		return nil, err
	}
	p := r.begin(part, call, v.lab)
	context.AfterFunc(ctx, func() { p.drops(v.lab.now()) })
	answers := false
	defer func() { // also of a driver that panics
		if !answers {
			p.ends(v.lab.now(), false)
		}
	}()
	reply, err := v.answer(ctx, p)
	answers = err == nil && reply != nil || ctx.Err() != nil
	if reply != nil && r.Case.Kind.IsVideo() {
		r.mu.Lock()
		r.taken = v.lab.now()
		r.mu.Unlock()
	}
	return reply, err
}

// partOf is which part of a request a call asks for, by its first text.
func partOf(c *Case, call *upstream.Call) (int, error) {
	marks := map[Kind]struct {
		before string
		size   int
	}{Embeddings: {`"t`, textsAtOnce}, Rank: {`"t`, textsAtOnce}, Speech: {`"input":"w`, partCharacters / wordCharacters}}
	m, cut := marks[c.Kind]
	if !cut {
		return 0, nil
	}
	body, err := call.Body.Bytes()
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(body), m.before)
	n, err := strconv.Atoi(after[:2])
	return n / m.size, err
}

// wait waits a while; false if ctx ended before.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// answer is what the gateway's call gets.
func (v *vendor) answer(ctx context.Context, p *attempt) (*upstream.Reply, error) {
	t := p.plan
	if !wait(ctx, t.Connect) || t.Trouble == Unreachable {
		return nil, (&upstream.Failure{Err: errors.New("no connection")}).Fault()
	}
	p.mu.Lock()
	p.sent = true
	p.mu.Unlock()
	if t.Trouble == Silent {
		<-ctx.Done()
	}
	if !wait(ctx, t.Wait) {
		return nil, (&upstream.Failure{Sent: true, Err: context.Cause(ctx)}).Fault()
	}
	switch t.Trouble {
	case Refuses, Fails, Rejects, Disowns:
		return nil, p.status()
	case Panics:
		return nil, errors.New(strconv.Itoa([]int(nil)[t.Status])) // an index out of range: the driver panics
	case Nothing:
		return nil, nil
	case Vague:
		return nil, errors.New("something went wrong")
	case Pretends:
		return nil, context.Canceled
	}
	b := &body{p: p, ctx: ctx, lab: v.lab, start: time.Now(), closed: make(chan struct{})}
	return &upstream.Reply{Status: http.StatusOK, Header: http.Header{"Content-Type": {p.script.kind}}, Body: b}, nil
}

// status is the error of a status.
func (p *attempt) status() error {
	f := &upstream.Failure{Status: p.plan.Status, Sent: true, Fatal: p.plan.Trouble == Disowns, Err: errors.New("the vendor says no")}
	f.Refused = p.plan.Trouble == Refuses
	p.mu.Lock()
	p.refused = f.Refused || f.Fatal
	p.mu.Unlock()
	return f.Fault().With(func(e *fault.Error) { e.RetryAfter = p.plan.Again })
}

// body is an answer that comes in pieces, each at its time, whoever reads.
type body struct {
	p      *attempt
	ctx    context.Context
	lab    *Lab
	start  time.Time
	piece  int
	once   sync.Once
	closed chan struct{}
}

var errBroken = errors.New("the connection was reset by the vendor")

// Read waits for the piece that is due next.
func (b *body) Read(into []byte) (int, error) {
	s := b.p.script
	at := b.p.given
	if at >= s.end {
		return 0, b.end()
	}
	for s.cuts[b.piece] <= at {
		b.piece++
	}
	due := time.Duration(b.piece) * b.p.plan.Answer.Gap
	if !b.wait(due - time.Since(b.start)) {
		return 0, context.Cause(b.ctx)
	}
	n := copy(into, s.data[at:min(s.cuts[b.piece], s.end)])
	b.p.mu.Lock()
	b.p.given += n
	b.p.mu.Unlock()
	return n, nil
}

// wait waits for a time; false if the answer is not wanted any more.
func (b *body) wait(d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return b.ctx.Err() == nil
	case <-b.ctx.Done():
	case <-b.closed:
	}
	return false
}

// end is what comes after the last byte.
func (b *body) end() error {
	switch b.p.plan.Trouble {
	case Breaks:
		b.p.ends(b.lab.now(), false)
		return errBroken
	case Bursts:
		b.p.ends(b.lab.now(), false)
		return errors.New(strconv.Itoa([]int(nil)[b.piece])) // an index out of range: the reader panics
	case Stalls, Lingers:
		select {
		case <-b.ctx.Done():
		case <-b.closed:
		}
		return context.Cause(b.ctx)
	}
	b.p.ends(b.lab.now(), true)
	return io.EOF
}

// Close lets go of the answer.
func (b *body) Close() error {
	b.once.Do(func() {
		b.p.drops(b.lab.now())
		close(b.closed)
	})
	return nil
}
