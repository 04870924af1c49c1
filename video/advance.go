package video

import (
	"errors"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/internal/answer"
)

// Grace is how long after its time the gateway ends a task that its upstream has
// not ended.
const Grace = 10 * time.Minute

// lasts is how long a task lasts of which nobody says otherwise: as long as the
// vendors', whatever shorter time a caller gives it.
const lasts = 48 * time.Hour

// remembers is how long an upstream knows a task at least.
const remembers = 24 * time.Hour

// Transition is what became of a task. The Task of one that ended has no PurgeAt yet:
// that is for whoever knows how long records are kept.
type Transition struct {
	Task Task
	// Changed says that there is something to write: the state is another. Else
	// only PolledAt may be.
	Changed bool
	// Strange is a word of the upstream's that fits nothing; it is for the log.
	Strange string
	// Late says that the upstream succeeded with a task that had expired. It is
	// not charged, and is to be reported.
	Late bool
}

// step is the task in another state.
func (t *Task) step(next State, now time.Time) Task {
	n := *t
	n.State, n.UpdatedAt = next, now
	n.Version++
	return n
}

// Accept is the task after an upstream took it, which r tells. What r says of
// the end, the first poll will say again.
func (t *Task) Accept(r Report, channel string, now time.Time) Task {
	next := Queued
	switch {
	case t.Family == FamilyBeta:
		next = Processing
	case r.Word != "" && !r.State.Terminal():
		next = r.State
	}
	n := t.step(next, now)
	n.UpstreamID, n.Channel, n.AcceptedAt = r.UpstreamID, channel, now
	if r.Answer != nil {
		n.Answer = r.Answer
	}
	return n
}

// MarkUnknown is the task after its submission was sent and no answer came.
func (t *Task) MarkUnknown(channel string, now time.Time) Task {
	n := t.step(Unknown, now)
	n.Channel = channel
	return n
}

// End is when the gateway ends the task, whatever the upstream says. It is not
// before 48 hours have passed: the upstream may obey the caller's shorter time, and
// says so, but what it makes nonetheless is the caller's to pay. A task's hold must
// outlive it.
func (t *Task) End() time.Time {
	end := t.CreatedAt.Add(lasts)
	if t.ExpiresAt.After(end) {
		end = t.ExpiresAt
	}
	return end.Add(Grace)
}

// Expire ends a task whose time has passed ([Task.End]). It is false if nothing
// changed.
func (t *Task) Expire(now time.Time) (Transition, bool) {
	if t.State.Terminal() || now.Before(t.End()) {
		return Transition{Task: *t}, false
	}
	n := t.step(Expired, now)
	n.Failure = t.State.failure()
	return Transition{Task: n, Changed: true}, true
}

// Advance is what becomes of the task by an upstream's 200 answer to a poll. A
// terminal state never changes. An answer that is malformed, or about another
// task, is a fault.BadGateway and changes nothing.
func (t *Task) Advance(data []byte, now time.Time) (Transition, error) {
	r, err := ReadPoll(data)
	if err != nil {
		return Transition{Task: *t}, err
	}
	if r.UpstreamID != "" && t.UpstreamID != "" && r.UpstreamID != t.UpstreamID {
		return Transition{Task: *t}, answer.Bad("The upstream's answer is about another task.", errors.New("the answer has another task's id"))
	}
	next, strange := t.next(&r, now)
	if t.State.Terminal() {
		return Transition{Task: *t, Strange: strange, Late: t.State == Expired && r.State == Succeeded && r.Video}, nil
	}
	if m, expired := t.Expire(now); expired {
		m.Strange, m.Late = strange, next == Succeeded
		m.Task.PolledAt = now
		return m, nil
	}
	m := Transition{Task: *t, Strange: strange}
	if t.State.May(next) {
		m.Task, m.Changed = t.step(next, now), true
		m.Task.Failure = r.Failure
		if next == Expired && r.Failure == nil {
			m.Task.Failure = t.State.failure()
		}
		if r.Answer != nil {
			m.Task.Answer = r.Answer
		}
		if t.UpstreamID == "" {
			m.Task.UpstreamID = r.UpstreamID
		}
	}
	m.Task.PolledAt = now
	return m, nil
}

// next is the state that a report leads to, and the word that fits nothing.
func (t *Task) next(r *Report, now time.Time) (next State, strange string) {
	_, listed := read(r.Word)
	switch {
	case strings.EqualFold(r.Word, forgotten):
		// Right after a submission it may not be known yet; after a day it is
		// not known any more.
		if now.Sub(t.CreatedAt) > remembers {
			return Expired, r.Word
		}
		return t.State, r.Word
	case !listed:
		return Running, r.Word
	case r.State == Succeeded && !r.Video && t.Family != "":
		return Running, r.Word + " without a video"
	}
	return r.State, ""
}
