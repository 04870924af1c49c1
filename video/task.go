package video

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/word"
)

// Task is one video from its submission to its purge. It is a plain value.
type Task struct {
	ID         string // ours: "vid_…"
	Account    string // whose it is
	Key        string // the id of the key that submitted it
	RequestID  string // of the submission: the id of its hold and receipt
	Model      string // public id
	Family     string // "beta", "gamma" or empty for a model that no table describes
	Channel    string // which channel took it, and is asked how it goes
	UpstreamID string // the vendor's id; empty until it is known

	State   State
	Version int64 // grows by one with each change

	CreatedAt time.Time
	// AcceptedAt is when an upstream took it; zero while that is not known.
	AcceptedAt time.Time
	UpdatedAt  time.Time
	ExpiresAt  time.Time // when the upstream is to end it; the gateway does so at [Task.End]
	PurgeAt    time.Time // when the record is forgotten; zero while it is open

	PriceVersion string // of the price that its hold pinned; empty for a free model

	Bound       billing.Usage  // what was priced: what success costs, or for tokens the most
	Tokens      bool           // the price is for tokens: success costs what the upstream reports
	Open        bool           // the upstream chose length or resolution: success costs what it made, at most Bound
	Seed        jsontext.Value // of the request; nil if it gave none
	WebhookURL  string         // of the request
	Answer      jsontext.Value // the upstream's last word in the public form; nil before the first
	Failure     *Failure       // of a task that failed or expired
	Fingerprint [32]byte       // of key and request, for the duplicate window

	PolledAt time.Time // when the upstream was last asked
}

// Failure says why a task failed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// State is where a task is in its life.
type State string

// The states. Submitting and Unknown are inside only: the public word of both is
// "queued".
const (
	Submitting State = "submitting" // the upstream is being asked to take it
	Unknown    State = "unknown"    // whether the upstream took it is not known, and it is not asked again
	Queued     State = "queued"
	Processing State = "processing"
	Running    State = "running"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
	Expired    State = "expired"
)

// Terminal reports whether the state never changes any more.
func (s State) Terminal() bool {
	switch s {
	case Succeeded, Failed, Cancelled, Expired:
		return true
	}
	return false
}

// words are the states by what upstreams call them, in small letters.
var words = map[string]State{
	"queued": Queued, "pending": Queued, "suspended": Queued, "submitted": Queued,
	"running": Running, "processing": Running, "in_progress": Running,
	"succeeded": Succeeded, "success": Succeeded, "completed": Succeeded,
	"failed": Failed, "failure": Failed,
	"cancelled": Cancelled, "canceled": Cancelled,
	"expired": Expired,
}

// statusUnknown is what an upstream says of a task that it does not know any
// more, or not yet.
const statusUnknown = "unknown"

// stateOf is the state that an upstream's word means; a word that no row has is
// Running, and listed is false.
func stateOf(word string) (s State, listed bool) {
	s, listed = words[strings.ToLower(word)]
	if !listed {
		return Running, false
	}
	return s, true
}

// steps is the one table of legal steps. They lead forward only: an upstream may
// call a running task queued again, and a caller is not told that. Nothing
// leaves a state that is not here.
var steps = map[State][]State{
	Submitting: {Unknown, Queued, Processing, Running, Succeeded, Failed, Cancelled, Expired},
	Unknown:    {Queued, Processing, Running, Succeeded, Failed, Cancelled, Expired},
	Queued:     {Processing, Running, Succeeded, Failed, Cancelled, Expired},
	Processing: {Running, Succeeded, Failed, Cancelled, Expired},
	Running:    {Succeeded, Failed, Cancelled, Expired},
}

// May reports whether the step to another state is legal.
func (s State) May(next State) bool { return slices.Contains(steps[s], next) }

// Public is the word of the public record.
func (s State) Public() State {
	if s == Submitting || s == Unknown {
		return Queued
	}
	return s
}

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
	Task Task
	// Changed says that the state changed and is to be stored. Otherwise only
	// PolledAt may differ.
	Changed bool
	// UnknownStatus is a word of the upstream's that fits nothing; it is for
	// the log.
	UnknownStatus string
	// Late says that the upstream succeeded with a task that had expired: it is
	// not charged, and the operator is told.
	Late bool
}

// step is the task in its next state.
func (t *Task) step(next State, now time.Time) Task {
	n := *t
	n.State, n.UpdatedAt = next, now
	n.Version++
	return n
}

// Accept is the task after an upstream accepted it with the report r. If r says
// that the task has ended, the first poll will say so again.
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
// before 48 hours have passed: the upstream may obey the caller's shorter time,
// and says so, but what it makes nonetheless is the caller's to pay. A task's
// hold must outlive it.
func (t *Task) End() time.Time {
	end := t.CreatedAt.Add(defaultLifetime)
	if t.ExpiresAt.After(end) {
		end = t.ExpiresAt
	}
	return end.Add(Grace)
}

// Expire ends a task whose time has passed ([Task.End]); false if nothing
// changed.
func (t *Task) Expire(now time.Time) (Transition, bool) {
	if t.State.Terminal() || now.Before(t.End()) {
		return Transition{Task: *t}, false
	}
	n := t.step(Expired, now)
	n.Failure = t.State.failure()
	return Transition{Task: n, Changed: true}, true
}

// Advance applies an upstream's 200 answer to a poll. A terminal state never
// changes. An answer that is malformed, or about another task, is a
// fault.BadGateway and changes nothing.
func (t *Task) Advance(data []byte, now time.Time) (Transition, error) {
	r, err := ReadPoll(data)
	if err != nil {
		return Transition{Task: *t}, err
	}
	if r.UpstreamID != "" && t.UpstreamID != "" && r.UpstreamID != t.UpstreamID {
		return Transition{Task: *t}, answer.Bad("The upstream's answer is about another task.", errors.New("the answer has another task's id"))
	}
	next, unknownStatus := t.next(&r, now)
	if t.State.Terminal() {
		return Transition{Task: *t, UnknownStatus: unknownStatus, Late: t.State == Expired && r.State == Succeeded && r.Video}, nil
	}
	if m, expired := t.Expire(now); expired {
		m.UnknownStatus, m.Late = unknownStatus, next == Succeeded
		m.Task.PolledAt = now
		return m, nil
	}
	m := Transition{Task: *t, UnknownStatus: unknownStatus}
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
func (t *Task) next(r *Report, now time.Time) (next State, unknownStatus string) {
	_, listed := stateOf(r.Word)
	switch {
	case strings.EqualFold(r.Word, statusUnknown):
		// Right after a submission it may not be known yet; after a day it is
		// not known any more.
		if now.Sub(t.CreatedAt) > minRemembered {
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

// Repeats reports whether a submission of the same request at now is taken for a
// mistake: the task is still being submitted, or was accepted within the window.
// What decides is the task that exists; whether the fingerprints are the same is
// for the caller.
func (t *Task) Repeats(now time.Time, window time.Duration) bool {
	if window <= 0 {
		return false
	}
	since := t.AcceptedAt
	if since.IsZero() {
		since = t.CreatedAt
	}
	return t.State == Submitting || now.Sub(since) < window
}

// ErrDuplicate is the conflict of a submission that repeats that of the task.
func ErrDuplicate(t *Task) error {
	return &fault.Error{
		Code: fault.IdempotencyConflict, Retry: fault.RetryNo,
		Message: fmt.Sprintf("The same request made the task %q a moment ago. Poll that one, or send an Idempotency-Key with each request that is meant to make another.", t.PublicID()),
	}
}

// ErrTooManyTasks is the refusal of a key that has as many open tasks as it may.
func ErrTooManyTasks(most int64) error {
	return fault.New(fault.ConcurrencyExceeded, fmt.Sprintf("The key has %d video tasks that have not ended, which is as many as it may have. Wait until one has ended.", most))
}

// ErrNotFound is the 404 of a task that does not exist, or not for the account,
// or not any more.
func ErrNotFound(id string) error {
	return &fault.Error{Code: fault.ResourceNotFound, Param: "id", Message: fmt.Sprintf("There is no video task %q.", word.Truncate(id, 100))}
}
