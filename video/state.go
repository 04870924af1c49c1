package video

import (
	"slices"
	"strings"
)

// words are the states by what upstreams call them, in small letters
// (decisions.md, Video).
var words = map[string]State{
	"queued": Queued, "pending": Queued, "suspended": Queued, "submitted": Queued,
	"running": Running, "processing": Running, "in_progress": Running,
	"succeeded": Succeeded, "success": Succeeded, "completed": Succeeded,
	"failed": Failed, "failure": Failed,
	"cancelled": Cancelled, "canceled": Cancelled,
	"expired": Expired,
}

// forgotten is what an upstream says of a task that it does not know any more,
// or not yet.
const forgotten = "unknown"

// read is the state that an upstream's word means; a word that no row has is
// Running, and listed is false.
func read(word string) (s State, listed bool) {
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
