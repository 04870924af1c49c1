package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/quota"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// drains are the streams that are read to their end after their clients disconnected,
// since only their last usage says what they cost. They are those
//
//   - of channels whose vendor bills a cancelled stream in full,
//   - of models that reason without showing it, and
//   - that have delivered thoughts which only the vendor can read.
//
// Their number is limited, and no account has all of it. A stream above the limit is
// cancelled, and its usage estimated.
type drains struct {
	most  int64
	slots quota.Fair // by account

	mu      sync.RWMutex
	running map[*Stream]struct{}
	stopped bool                // the gateway shuts down
	hidden  map[string]struct{} // public ids of models that reason without showing it
}

// mostHidden bounds the models that are remembered.
const mostHidden = 1024

// acquire takes a slot for a stream; false if there is none. The stream's lock is
// held.
func (d *drains) acquire(s *Stream) bool {
	if !d.slots.Take(s.c.hold.Account, 1, d.most) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		d.slots.Give(s.c.hold.Account, 1)
		return false
	}
	if d.running == nil {
		d.running = make(map[*Stream]struct{})
	}
	d.running[s] = struct{}{}
	return true
}

// release gives a slot back.
func (d *drains) release(s *Stream) {
	d.mu.Lock()
	delete(d.running, s)
	d.mu.Unlock()
	d.slots.Give(s.c.hold.Account, 1)
}

// stop ends all drains and prevents new ones.
func (d *drains) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for s := range d.running {
		s.c.cancel(errShuttingDown)
	}
}

// hidesReasoning reports whether a model is known to reason without showing it.
func (d *drains) hidesReasoning(model string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	_, ok := d.hidden[model]
	return ok
}

// limit is how long a stream is drained whose channel has the limit own, and which hides
// its reasoning or not; 0 for not at all.
func (d *drains) limit(own time.Duration, hides bool) time.Duration {
	if own <= 0 && d.most > 0 && hides {
		return router.MaxDrain
	}
	return own
}

// learn records that a model reasons without showing it. Nothing takes that back before the
// process ends: any caller can ask for an answer that shows much, and would have the
// streams of all no longer drained.
func (d *drains) learn(model string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.hidden == nil:
		d.hidden = map[string]struct{}{model: {}}
	case len(d.hidden) < mostHidden:
		d.hidden[model] = struct{}{}
	}
}

// A model hides its reasoning if it reports hiddenFactor times as many tokens as
// its text is estimated at, and muchHidden more: no text is estimated so badly.
const (
	hiddenFactor = 3
	muchHidden   = 512
)

// learnHidden records what the usage u, as the vendor reported it, says of a chat
// model: one that reports far more output than its text hides its reasoning.
func (c *call) learnHidden(u billing.Usage) {
	if !c.op.bounds.tokens.given() || u.Estimated || u.Anomaly || u.Output <= muchHidden {
		return
	}
	if c.tap == nil && u.Reasoning <= muchHidden && c.answer != nil && u.Output <= int64(len(c.answer.body))/4 {
		return // so many bytes have so many tokens
	}
	if u.Output > hiddenFactor*c.textOutput()+muchHidden && !c.g.drains.hidesReasoning(c.model.ID) {
		c.g.drains.learn(c.model.ID)
	}
}

// allowDrain lets the stream be read on for at most limit after its client has
// disconnected: the end of the client's context does not end the upstream's any
// more.
func (s *Stream) allowDrain(limit time.Duration) {
	s.mu.Lock() // it may be ended at once
	defer s.mu.Unlock()
	s.setDrain(limit)
}

// setDrain is [Stream.allowDrain] with the lock held.
func (s *Stream) setDrain(limit time.Duration) {
	if limit <= 0 || s.ended || !s.c.unbind() {
		return
	}
	s.drainLimit = limit
	s.c.unbind = context.AfterFunc(&s.c.client, func() { s.startDrain(context.Cause(&s.c.client)) })
}

// startDrain runs when the client has disconnected: the stream is read on if there
// is a slot for it, else it is cancelled.
func (s *Stream) startDrain(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.gone {
		return
	}
	if !s.c.g.drains.acquire(s) {
		s.c.cancel(cause)
		return
	}
	if s.heartbeat != nil {
		s.heartbeat.Stop()
	}
	s.gone = true
	s.drainTimer = time.AfterFunc(s.drainLimit, func() { s.c.cancel(cause) })
}

// endDrain releases the slot and the timer of a drain.
func (s *Stream) endDrain() {
	if s.drainTimer != nil {
		s.drainTimer.Stop()
		s.drainTimer = nil
		s.c.g.drains.release(s)
	}
}
