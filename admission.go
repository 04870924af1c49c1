package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/quota"
)

// Admission bounds what a gateway takes on at one time. What is too much is
// refused with a 503 before its body is read, so that the calls that run go on
// as if nothing were. The zero value is the default.
type Admission struct {
	// MaxCalls is how many calls run at once, open streams among them; zero means
	// 65,536, negative means as many as come. The last of these places are kept
	// for those who run few, as soon as there are several keys and accounts: a key
	// that runs more than a thirty-second of them does not get the last sixteenth,
	// and an account that does not the last thirty-second.
	MaxCalls int
	// MaxWaiting is how many more calls wait for a place when all are taken; zero
	// means an eighth of MaxCalls, but at most 256, negative means none. A place
	// goes to the account that runs the fewest calls, and of its keys to the one
	// that does. When the queue is full, a caller with fewer calls takes the place
	// in it of one with more.
	MaxWaiting int
	// MaxWait is how long a call waits at the most, and zero means one second. One
	// that would wait longer, by the pace at which places became free, is refused
	// at once.
	MaxWait time.Duration
	// Memory is how much memory in bytes may be in use before new calls are
	// refused, until a sixteenth of it is free again; zero means the runtime's limit
	// (GOMEMLIMIT) if it has one, less a sixteenth for garbage; negative means that
	// nobody looks. Request bodies may take a quarter of it or 64 MiB, whichever is
	// more, as long as that much of it is free without them, of which one account may
	// have three times as much as it leaves free for the others; large answers as much
	// again, of which those that find no room are read when there is some.
	Memory int64
	// InUse tells the memory in use; nil means what the runtime's last collection
	// found alive, the stacks, and the runtime's account of them, or all that it
	// holds where that is more than its limit and a thirty-second. It is asked at
	// most ten times a second, by one caller at a time.
	InUse func() int64
}

// share is the part of the memory that large requests may take, and as much again
// large answers; 0 if nobody looks.
func (a *Admission) share() int64 {
	const least = 64 << 20
	if a.Memory <= 0 {
		return 0
	}
	return max(a.Memory/4, least)
}

func (a *Admission) setDefaults() {
	const places, queue = 1 << 16, 256
	if a.MaxCalls == 0 {
		a.MaxCalls = places
	}
	if a.MaxWaiting == 0 {
		a.MaxWaiting = max(1, min(a.MaxCalls/8, queue))
	}
	if a.MaxWait == 0 {
		a.MaxWait = time.Second
	}
	if a.Memory == 0 {
		a.Memory = defaultMemory()
	}
}

// Load is what a gateway carries at one moment.
type Load struct {
	Running int   // calls that have a place
	Waiting int   // calls that wait for one
	Full    bool  // no place is free, and one more call would not be let wait for one
	Bodies  int64 // bytes of their large requests in memory
	Answers int64 // bytes taken for large answers
	Refused int64 // calls that got no place, since the start
	Short   bool  // new calls are refused for want of memory
}

// Load tells what the gateway carries. It is safe for concurrent use.
func (g *Gateway) Load() Load {
	l := g.slots.load()
	l.Bodies, l.Answers, l.Refused = g.admission.bodies.Used(), g.admission.answers.total(), g.admission.refused.Load()
	l.Short = g.admission.memory.overloaded(g.options.Now()) // calls may have stopped coming
	return l
}

// admissionController is where calls are let in.
type admissionController struct {
	memory    memoryMonitor
	maxBodies int64      // bytes of large bodies; 0 means as many as come
	bodies    quota.Fair // bytes of those that are in memory, by account
	refused   atomic.Int64
	answers   memoryBudget
}

func newAdmissionController(a Admission, now func() time.Time) *admissionController {
	d := &admissionController{maxBodies: a.share()}
	d.memory.init(a, now)
	if d.maxBodies > 0 {
		d.answers.available = d.bodyRoom
	}
	return d
}

// bodyRoom is how many bytes of large bodies may be in memory now.
func (d *admissionController) bodyRoom() int64 { return min(d.maxBodies, d.memory.free()) }

// Admit takes a place among the running calls, which End gives back. It waits a
// moment for one; its error is a 503 that says to try again. [Exchange.Call] does
// it too: a server does it before it reads the request, so that a refused one
// costs nothing. Authenticate must have succeeded. Further calls do nothing.
func (x *Exchange) Admit(ctx context.Context) error {
	if x.slot.held {
		return nil
	}
	defer x.spent(&x.record.phases.Admit, x.clock())
	err := x.g.acquireSlot(ctx, x.principal, &x.slot)
	switch {
	case err == nil:
		return nil
	case fault.Is(err, fault.ServiceUnavailable):
		x.g.admission.refused.Add(1)
	}
	return fault.From(err)
}

func (g *Gateway) acquireSlot(ctx context.Context, p *auth.Principal, to *slot) error {
	if g.admission.memory.overloaded(g.options.Now()) {
		return errLowMemory
	}
	return g.slots.acquire(ctx, p, to)
}

// Weigh counts n more bytes of the request's body, which lie in memory until End,
// or until a stream of it has begun. It is for large ones: the first 64 KiB are
// part of any call. Its error is a 503: there is no room for them now, or the
// account has so much of it that the rest is for others. Authenticate must have
// succeeded.
func (x *Exchange) Weigh(n int64) error {
	d := x.g.admission
	if d.maxBodies == 0 {
		return nil
	}
	if !d.bodies.Take(x.principal.Account, n, d.bodyRoom()) {
		d.refused.Add(1)
		return errNoMemory
	}
	x.bodyBytes += n
	return nil
}

// Room reports whether a body of n bytes would find room now; 503 if not.
// Authenticate must have succeeded.
func (x *Exchange) Room(n int64) error {
	if d := x.g.admission; d.maxBodies != 0 && n <= d.maxBodies && !d.bodies.Fits(x.principal.Account, n, d.bodyRoom()) {
		d.refused.Add(1)
		return errNoMemory
	}
	return nil
}

// Leave gives back the exchange's place and the memory of its body and its answer
// before its End. It is for a request that was answered and only waits on, for a
// video that goes on without it. Later calls do nothing.
func (x *Exchange) Leave() {
	x.g.slots.release(&x.slot)
	x.releaseBody()
	if x.answerBytes > 0 {
		x.g.admission.answers.release(&x.answerBytes)
	}
}

// releaseBody says that the request's body lies in memory no more.
func (x *Exchange) releaseBody() {
	if x.bodyBytes > 0 {
		x.g.admission.bodies.Give(x.principal.Account, x.bodyBytes)
		x.bodyBytes = 0
	}
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
