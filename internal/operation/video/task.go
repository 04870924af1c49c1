package video

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
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
	if s, listed = words[strings.ToLower(word)]; !listed {
		s = video.Running
	}
	return s, listed
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

// The times of a task's life.
const (
	// Grace is how long after its time the gateway ends a task that its upstream has
	// not ended.
	Grace = 10 * time.Minute
	// defaultLifetime is how long a task lasts unless the request says more: as
	// long as the vendors', whatever shorter time a caller gives it.
	defaultLifetime = 48 * time.Hour
	// minRemembered is how long an upstream knows a task at least.
	minRemembered = 24 * time.Hour
	// submitTimeout is how long a submission may take: one that is older was made
	// by a process that is gone.
	submitTimeout = time.Hour
)

// End is when the gateway ends the task, whatever the upstream says. It is never before 48
// hours have passed. The upstream obeys the caller's shorter time and says so, but the caller
// pays for what it makes nonetheless. A task's hold must outlive it.
func End(t *video.Task) time.Time {
	end := t.CreatedAt.Add(defaultLifetime)
	if t.ExpiresAt.After(end) {
		end = t.ExpiresAt
	}
	return end.Add(Grace)
}

// PollInterval is the time between two polls of a task at now: a twentieth of its
// age, at least poll and at most a minute.
func PollInterval(t *video.Task, now time.Time, poll time.Duration) time.Duration {
	return min(max(now.Sub(t.CreatedAt)/20, poll), max(time.Minute, poll))
}

// NextPoll is when a task is polled next. It is after the interval, but just before the task's
// time is over, so that a success in time is seen in time.
func NextPoll(t *video.Task, now time.Time, poll time.Duration) time.Time {
	switch t.State {
	case video.Submitting:
		return t.CreatedAt.Add(submitTimeout + time.Second)
	case video.Unknown:
		return End(t)
	}
	next, end := now.Add(PollInterval(t, now, poll)), End(t)
	last := end.Add(-poll)
	switch {
	case next.Before(end):
		return next
	case now.Before(last):
		return last
	}
	return end
}

// EventKind is the kind of an [Event].
type EventKind byte

// The kinds.
const (
	Tick     EventKind = iota // time has passed
	Accepted                  // an upstream took the submission
	Lost                      // the submission was sent, and no answer came
	Polled                    // the upstream was asked how the task goes
)

// Event is what happened to a task.
type Event struct {
	Kind    EventKind
	Channel string // of Accepted, and of Lost where it is known
	Report  Report // what the upstream said, of Accepted and Polled
}

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

// Apply is the task after an event at now: the only way from one state to
// another. What the table of steps does not have, or what comes after the end,
// changes nothing. t stays as it is.
func Apply(t *video.Task, e Event, now time.Time) Transition {
	m := Transition{Task: *t}
	n, r := &m.Task, e.Report
	next, unknownStatus := nextState(t, &e, now)
	m.UnknownStatus = unknownStatus
	expired := t.State == video.Expired
	if !t.State.Terminal() {
		if e.Kind == Polled {
			n.PolledAt = now
		}
		expired = (e.Kind == Polled || e.Kind == Tick) && !now.Before(End(t))
	}
	if m.Late = expired && e.Kind == Polled && next == video.Succeeded; expired {
		next, r = video.Expired, Report{} // what came too late is not kept
	}
	if !legal(t.State, next) {
		return m
	}
	m.Changed = true
	n.State, n.UpdatedAt = next, now
	n.Version++
	if r.Answer != nil {
		n.Answer = r.Answer
	}
	if n.UpstreamID == "" {
		n.UpstreamID = r.UpstreamID
	}
	switch {
	case e.Kind == Accepted:
		n.Channel, n.AcceptedAt = e.Channel, now
	case e.Kind == Lost:
		n.Channel = e.Channel
	case next == video.Expired && r.Failure == nil:
		n.Failure = expiryFailure(t.State)
	default:
		n.Failure = r.Failure
	}
	return m
}

// nextState is the state that an event leads to, and the upstream's word if it fits nothing.
// It does not look at the task's time.
func nextState(t *video.Task, e *Event, now time.Time) (next video.State, unknownStatus string) {
	r := &e.Report
	_, listed := stateOf(r.Word)
	switch {
	case e.Kind == Lost, e.Kind == Tick && t.State == video.Submitting && now.Sub(t.CreatedAt) > submitTimeout:
		return video.Unknown, ""
	case e.Kind == Tick:
		return t.State, ""
	case e.Kind == Accepted && t.Family == video.FamilyBeta:
		return video.Processing, ""
	case e.Kind == Accepted && (r.Word == "" || r.State.Terminal()): // if it has ended, the first poll will say so again
		return video.Queued, ""
	case e.Kind == Accepted:
		return r.State, ""
	case strings.EqualFold(r.Word, statusUnknown):
		// The vendor may not know a task right after submission, and forgets it after a day.
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

// expiryFailure is why a task ended that was in the state when its time was over.
func expiryFailure(s video.State) *video.Failure {
	f := &video.Failure{Code: string(fault.RequestTimeout), Message: "The upstream did not finish the video in time. It was not charged."}
	if s == video.Unknown || s == video.Submitting {
		f.Message = "Whether the upstream took the task never became known. It was not charged."
	}
	return f
}

// NotTaken reports whether the error of a submission says for certain that no
// upstream has taken the task. After any other it is [Lost].
func NotTaken(err error) bool {
	f := fault.From(err)
	var how *upstream.Failure
	if !errors.As(err, &how) {
		status := f.HTTPStatus()
		return f.Code == fault.NoChannel || status >= 400 && status < 499
	}
	certain := !how.Sent || how.Refused || how.Fatal || how.Stated
	switch how.Status {
	case http.StatusRequestTimeout, http.StatusFailedDependency, 499: // something behind the vendor's first server may go on
		return certain
	}
	return certain || how.Status >= 400 && how.Status < 500
}
