package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/quota"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// drains are the streams that are read on after their clients left, until they
// tell what they used: where cancelling does not stop a vendor's bill, and of
// models that reason without showing it, of which only the last usage tells.
// They are bounded together, and no account has all of them: a stream above the
// bound is cancelled and estimated.
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

func (d *drains) release(s *Stream) {
	d.mu.Lock()
	delete(d.running, s)
	d.mu.Unlock()
	d.slots.Give(s.c.hold.Account, 1)
}

// stop ends all drains, and lets none begin.
func (d *drains) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for s := range d.running {
		s.c.cancel(errShuttingDown)
	}
}

// hides reports whether a model is known to reason without showing it.
func (d *drains) hides(model string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	_, ok := d.hidden[model]
	return ok
}

// limit is for how long a stream of a model is drained whose channel says own;
// 0 for not at all.
func (d *drains) limit(own time.Duration, model string) time.Duration {
	if own <= 0 && d.most > 0 && d.hides(model) {
		return router.MaxDrain
	}
	return own
}

// set remembers whether a model reasons without showing it.
func (d *drains) set(model string, hides bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !hides:
		delete(d.hidden, model)
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

// learnHidden notes what an answer of a conversation tells of its model: u is what
// the vendor reported. A model that reported much reasoning and showed it hides
// none.
func (c *call) learnHidden(u billing.Usage) {
	if _, ok := c.op.(exposed); !ok || u.Estimated || u.Anomaly || u.Output <= muchHidden {
		return
	}
	if c.tap == nil && u.Reasoning <= muchHidden && u.Output <= int64(len(c.whole))/4 {
		return // so much text has so many tokens; it is not read once more for that
	}
	hides := u.Output > hiddenFactor*c.said()+muchHidden
	if hides != c.x.g.drains.hides(c.model.ID) && (hides || u.Reasoning > muchHidden) {
		c.x.g.drains.set(c.model.ID, hides)
	}
}

// drainFor has the stream read on for at most limit after its client left: what
// ends the client's context does not end the upstream's any more.
func (s *Stream) drainFor(limit time.Duration) {
	if limit <= 0 {
		return
	}
	s.mu.Lock() // it may be ended at once
	defer s.mu.Unlock()
	if s.ended || !s.c.detach() {
		return
	}
	s.drainLimit = limit
	s.c.detach = context.AfterFunc(s.c.client, func() { s.leaves(context.Cause(s.c.client)) })
}

// leaves notes that the client left, and has the stream read on if it may; else
// it is cancelled.
func (s *Stream) leaves(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.drainTimer != nil {
		return
	}
	if !s.c.x.g.drains.acquire(s) {
		s.c.cancel(cause)
		return
	}
	if s.beat != nil {
		s.beat.Stop()
	}
	s.drainTimer = time.AfterFunc(s.drainLimit, func() { s.c.cancel(cause) })
}

// left reports whether the client left and the stream is read on.
func (s *Stream) left() bool { return s.drainTimer != nil }

// endDrain lets go of what a drain holds.
func (s *Stream) endDrain() {
	if s.drainTimer != nil {
		s.drainTimer.Stop()
		s.c.x.g.drains.release(s)
	}
}

// drained settles a stream that was read to its end after its client left: as
// its vendor reported.
func (s *Stream) drained() {
	s.c.x.record.gone = true
	s.err = errLeft()
}

func errLeft() error {
	return fault.New(fault.ClientGone, "The client closed the connection before the answer was complete.")
}
