package gateway

import (
	"time"

	"github.com/tollhouse-ai/gateway/internal/admission"
)

// Admission bounds what a gateway takes on at one time. What is too much is
// refused with a 503 before its body is read, so that the calls that run go on
// as if nothing were. The zero value is the default.
type Admission struct {
	// MaxCalls is how many calls run at once, open streams among them; zero means
	// 65,536, negative means as many as come.
	//
	// As soon as there are several keys and accounts, the last slots are kept for those
	// that run few calls. A key that has more than a thirty-second of all slots gets none
	// of the last sixteenth. An account that has more than a thirty-second gets none of the
	// last thirty-second.
	MaxCalls int
	// MaxWaiting is how many more calls wait for a slot when all are taken; zero
	// means an eighth of MaxCalls, but at most 256, negative means none. A slot
	// goes to the account that runs the fewest calls, and of its keys to the one
	// that does. When the queue is full, a caller with fewer calls takes the place
	// in it of one with more.
	MaxWaiting int
	// MaxWait is how long a call waits at the most; zero means one second.
	MaxWait time.Duration
	// Memory is how much memory in bytes may be in use before new calls are
	// refused, until a sixteenth of it is free again. Zero means the runtime's limit
	// (GOMEMLIMIT) if it has one, less a sixteenth for garbage; negative means that
	// memory has no bound.
	//
	// Request bodies share a quarter of it, or 64 MiB if that is more, but never more than
	// is free without them. One account may have three times as much of this share as it
	// leaves free for the others. A body that does not fit is refused.
	//
	// Large answers share as much again. One that gets no memory is read when some is free.
	Memory int64
	// InUse is the memory in use; nil means what the runtime's last collection
	// found alive, the stacks, and the runtime's account of them, or all that it
	// holds where that is more than its limit and a thirty-second. It is asked at
	// most ten times a second, by one caller at a time.
	InUse func() int64
}

// options returns the options of package admission.
func (a *Admission) options(now func() time.Time) admission.Options {
	return admission.Options{MaxCalls: a.MaxCalls, MaxWaiting: a.MaxWaiting, MaxWait: a.MaxWait, Memory: a.Memory, InUse: a.InUse, Now: now}
}

func (a *Admission) setDefaults() {
	o := a.options(nil)
	o.SetDefaults()
	a.MaxCalls, a.MaxWaiting, a.MaxWait, a.Memory = o.MaxCalls, o.MaxWaiting, o.MaxWait, o.Memory
}
