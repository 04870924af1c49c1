// Package admission bounds what a gateway takes on at one time: the calls that run, and the
// memory of their bodies and answers. A request that exceeds a limit is refused with a 503
// before its body is read, so running calls are unaffected.
package admission

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/quota"
)

// Options are those of the gateway of the same names, where a negative bound means none.
type Options struct {
	MaxCalls   int           // calls that run at once
	MaxWaiting int           // calls that wait for a slot
	MaxWait    time.Duration // of one of them
	Memory     int64         // bytes
	InUse      func() int64  // bytes; nil means by the figures of the runtime
	Now        func() time.Time
}

// SetDefaults replaces the fields that are zero, but for InUse and Now.
func (o *Options) SetDefaults() {
	const slots, queue = 1 << 16, 256
	if o.MaxCalls == 0 {
		o.MaxCalls = slots
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = max(1, min(o.MaxCalls/8, queue))
	}
	if o.MaxWait == 0 {
		o.MaxWait = time.Second
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory()
	}
}

// Share returns how many bytes large bodies may take together, and as many again large
// answers; 0 if memory has no bound.
func (o *Options) Share() int64 {
	const least = 64 << 20
	if o.Memory <= 0 {
		return 0
	}
	return max(o.Memory/4, least)
}

// Admission decides which calls run, and which large bodies and answers are in memory. It is
// safe for concurrent use.
type Admission struct {
	now       func() time.Time
	queue     *queue
	memory    memoryMonitor
	maxBodies int64      // bytes of large bodies; 0 means as many as come
	bodies    quota.Fair // bytes of those that are in memory, by account
	answers   Budget
	refused   atomic.Int64
}

// New makes an Admission of options whose defaults are set.
func New(o Options) *Admission {
	a := &Admission{now: o.Now, queue: newQueue(o), maxBodies: o.Share()}
	a.memory.init(o)
	if a.maxBodies > 0 {
		a.answers.available = a.freeForBodies
	}
	return a
}

// freeForBodies is how many bytes of large bodies may be in memory now.
func (a *Admission) freeForBodies() int64 { return min(a.maxBodies, a.memory.free()) }

// Slot is the right of one call to run, and the memory that it has taken. The zero Slot has
// neither.
type Slot struct {
	place
	account string
	body    int64 // bytes of its large body
	answers int64 // bytes of its large answers
}

// Held reports whether the call may run.
func (s *Slot) Held() bool { return s.held }

// Enter takes a slot, unless the Slot has one, and reports whether a large body of so many
// bytes would fit in memory. It waits a moment for a slot. Its error is a 503 that says to
// try again, or the cause of the context's end.
func (a *Admission) Enter(ctx context.Context, p *auth.Principal, body int64, s *Slot) error {
	if !s.held {
		var err error = errLowMemory
		if !a.memory.overloaded(a.now()) {
			err = a.queue.acquire(ctx, p, &s.place)
		}
		if err != nil {
			if fault.Is(err, fault.ServiceUnavailable) {
				a.refused.Add(1)
			}
			return err
		}
	}
	if a.maxBodies != 0 && body > 0 && body <= a.maxBodies && !a.bodies.Fits(p.Account, body, a.freeForBodies()) {
		a.refused.Add(1)
		return errNoMemory
	}
	return nil
}

// Reserve counts n more bytes of a call's large body, until ReleaseBody or Leave. Its error
// is a 503: there is no memory for them, or the account has its part of it.
func (a *Admission) Reserve(p *auth.Principal, n int64, s *Slot) error {
	switch {
	case a.maxBodies == 0:
		return nil
	case !a.bodies.Take(p.Account, n, a.freeForBodies()):
		a.refused.Add(1)
		return errNoMemory
	}
	s.account = p.Account
	s.body += n
	return nil
}

// ReleaseBody gives back the memory of the body. Later calls do nothing.
func (a *Admission) ReleaseBody(s *Slot) {
	if s.body > 0 {
		a.bodies.Give(s.account, s.body)
		s.body = 0
	}
}

// Leave gives back the slot and the memory. Later calls do nothing.
func (a *Admission) Leave(s *Slot) {
	a.queue.release(&s.place)
	a.ReleaseBody(s)
	if s.answers > 0 {
		a.answers.release(s)
	}
}

// Answers is the memory of all large answers.
func (a *Admission) Answers() *Budget { return &a.answers }

// Load is what an Admission carries at one moment, as the gateway reports it.
type Load struct {
	Running, Waiting         int
	Full                     bool
	Bodies, Answers, Refused int64
	Short                    bool
}

// Load returns what the Admission carries now.
func (a *Admission) Load() Load {
	l := a.queue.load()
	l.Bodies, l.Answers, l.Refused = a.bodies.Used(), a.answers.total(), a.refused.Load()
	l.Short = a.memory.overloaded(a.now()) // calls may have stopped coming
	return l
}

// The refusals of a gateway that carries as much as it can.
var (
	errNoSlot = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second,
		Message: "The gateway runs as many calls as it can. Send the request again.",
	}
	errLowMemory = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second,
		Message: "The gateway is short of memory and takes no new calls. Send the request again.",
	}
	errNoMemory = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second,
		Message: "The gateway has no memory left for a body of this size. Send the request again.",
	}
)
