package videoapi

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/video"
)

// words are the states by what upstreams call them, in small letters.
var words = map[string]video.State{
	"queued": video.Queued, "pending": video.Queued, "suspended": video.Queued, "submitted": video.Queued,
	"running": video.Running, "processing": video.Running, "in_progress": video.Running,
	"succeeded": video.Succeeded, "success": video.Succeeded, "completed": video.Succeeded,
	"failed": video.Failed, "failure": video.Failed,
	"cancelled": video.Cancelled, "canceled": video.Cancelled,
	"expired": video.Expired,
}

// statusUnknown is what an upstream says of a task that it does not know any
// more, or not yet.
const statusUnknown = "unknown"

// stateOf is the state that an upstream's word means; a word that no row has is
// Running, and listed is false.
func stateOf(word string) (s video.State, listed bool) {
	s, listed = words[strings.ToLower(word)]
	if !listed {
		return video.Running, false
	}
	return s, true
}

// steps is the one table of legal steps. They lead forward only: an upstream may
// call a running task queued again, which a caller does not see. Nothing
// leaves a state that is not here.
var steps = map[video.State][]video.State{
	video.Submitting: {video.Unknown, video.Queued, video.Processing, video.Running, video.Succeeded, video.Failed, video.Cancelled, video.Expired},
	video.Unknown:    {video.Queued, video.Processing, video.Running, video.Succeeded, video.Failed, video.Cancelled, video.Expired},
	video.Queued:     {video.Processing, video.Running, video.Succeeded, video.Failed, video.Cancelled, video.Expired},
	video.Processing: {video.Running, video.Succeeded, video.Failed, video.Cancelled, video.Expired},
	video.Running:    {video.Succeeded, video.Failed, video.Cancelled, video.Expired},
}

// legal reports whether the step from a state to another is in the table.
func legal(s, next video.State) bool { return slices.Contains(steps[s], next) }

// Grace is how long after its time the gateway ends a task that its upstream has
// not ended.
const Grace = 10 * time.Minute

// defaultLifetime is how long a task lasts unless the request says more: as
// long as the vendors', whatever shorter time a caller gives it.
const defaultLifetime = 48 * time.Hour

// minRemembered is how long an upstream knows a task at least.
const minRemembered = 24 * time.Hour

// Transition is a task after an event. The Task of one that ended has no
// PurgeAt yet: the gateway sets it, which knows how long records are kept.
type Transition struct {
	Task video.Task
	// Changed says that the state changed and is to be stored. Otherwise only
	// PolledAt may differ.
	Changed bool
	// UnknownStatus is a word of the upstream's that fits nothing; it is for
	// the log.
	UnknownStatus string
	// Late says that the upstream succeeded with a task that had expired: it is
	// not charged, and logged for the operator.
	Late bool
}

// step is the task in its next state.
func step(t *video.Task, next video.State, now time.Time) video.Task {
	n := *t
	n.State, n.UpdatedAt = next, now
	n.Version++
	return n
}

// Accept is the task after an upstream accepted it with the report r. If r says
// that the task has ended, the first poll will say so again.
func Accept(t *video.Task, r Report, channel string, now time.Time) video.Task {
	next := video.Queued
	switch {
	case t.Family == video.FamilyBeta:
		next = video.Processing
	case r.Word != "" && !r.State.Terminal():
		next = r.State
	}
	n := step(t, next, now)
	n.UpstreamID, n.Channel, n.AcceptedAt = r.UpstreamID, channel, now
	if r.Answer != nil {
		n.Answer = r.Answer
	}
	return n
}

// MarkUnknown is the task after its submission was sent and no answer came.
func MarkUnknown(t *video.Task, channel string, now time.Time) video.Task {
	n := step(t, video.Unknown, now)
	n.Channel = channel
	return n
}

// End is when the gateway ends the task, whatever the upstream says. It is not
// before 48 hours have passed: the upstream may obey the caller's shorter time,
// and says so, but what it makes nonetheless is the caller's to pay. A task's
// hold must outlive it.
func End(t *video.Task) time.Time {
	end := t.CreatedAt.Add(defaultLifetime)
	if t.ExpiresAt.After(end) {
		end = t.ExpiresAt
	}
	return end.Add(Grace)
}

// Expire ends a task whose time has passed ([End]); false if nothing
// changed.
func Expire(t *video.Task, now time.Time) (Transition, bool) {
	if t.State.Terminal() || now.Before(End(t)) {
		return Transition{Task: *t}, false
	}
	n := step(t, video.Expired, now)
	n.Failure = expiryFailure(t.State)
	return Transition{Task: n, Changed: true}, true
}

// Advance applies an upstream's 200 answer to a poll. A terminal state never
// changes. An answer that is malformed, or about another task, is a
// fault.BadGateway and changes nothing.
func Advance(t *video.Task, data []byte, now time.Time) (Transition, error) {
	r, err := ReadPoll(data)
	if err != nil {
		return Transition{Task: *t}, err
	}
	if r.UpstreamID != "" && t.UpstreamID != "" && r.UpstreamID != t.UpstreamID {
		return Transition{Task: *t}, answer.Bad("The upstream's answer is about another task.", errors.New("the answer has another task's id"))
	}
	next, unknownStatus := nextState(t, &r, now)
	if t.State.Terminal() {
		return Transition{Task: *t, UnknownStatus: unknownStatus, Late: t.State == video.Expired && r.State == video.Succeeded && r.Video}, nil
	}
	if m, expired := Expire(t, now); expired {
		m.UnknownStatus, m.Late = unknownStatus, next == video.Succeeded
		m.Task.PolledAt = now
		return m, nil
	}
	m := Transition{Task: *t, UnknownStatus: unknownStatus}
	if legal(t.State, next) {
		m.Task, m.Changed = step(t, next, now), true
		m.Task.Failure = r.Failure
		if next == video.Expired && r.Failure == nil {
			m.Task.Failure = expiryFailure(t.State)
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

// nextState is the state that a report leads to, and the word that fits nothing.
func nextState(t *video.Task, r *Report, now time.Time) (next video.State, unknownStatus string) {
	_, listed := stateOf(r.Word)
	switch {
	case strings.EqualFold(r.Word, statusUnknown):
		// Right after a submission it may not be known yet; after a day it is
		// not known any more.
		if now.Sub(t.CreatedAt) > minRemembered {
			return video.Expired, r.Word
		}
		return t.State, r.Word
	case !listed:
		return video.Running, r.Word
	case r.State == video.Succeeded && !r.Video && t.Family != "":
		return video.Running, r.Word + " without a video"
	}
	return r.State, ""
}
