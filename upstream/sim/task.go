package sim

import (
	"encoding/base64"
	"encoding/hex"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// task is a video that was asked for.
type task struct {
	id, model         string
	nested            bool // the vendor puts it into `output`
	ending            Ending
	begun             time.Time
	hash              [32]byte // of what was asked for
	prompt            string
	seconds, frames   int64 // frames is 0 where the request does not say
	resolution, ratio string
	seed              jsontext.Value
	sound             bool
	draft, lastFrame  bool
}

// phase is how far a task is.
type phase uint8

const (
	isQueued phase = iota
	isRunning
	hasEnded
)

// phase is how far the task is at a time, if it takes so long in all: a quarter
// of it, it waits.
func (t *task) phase(now time.Time, total time.Duration) phase {
	switch since := now.Sub(t.begun); {
	case since < total/4:
		return isQueued
	case since < total, t.ending == VideoEndless:
		return isRunning
	}
	return hasEnded
}

// failureText is what a task says that was told to fail.
const failureText = "The simulated video failed, as it was told to."

// accepted is the answer to the request.
func (t *task) accepted() any {
	if t.nested {
		return nestedTask{RequestID: "sim-" + t.id, Output: nestedOutput{ID: t.id, Status: "PENDING"}}
	}
	return flatTask{ID: t.id}
}

// told is the answer to a poll.
func (t *task) told(now time.Time, total time.Duration, report Report) any {
	p := t.phase(now, total)
	if t.nested {
		return t.toldNested(p, total, report)
	}
	return t.toldFlat(p, now, total, report)
}

// link is the video as a "data:" URL: there is no server behind it.
func (t *task) link() string {
	if t.ending == VideoEmpty {
		return ""
	}
	return "data:video/mp4;base64," + base64.StdEncoding.EncodeToString(film(t.text(), time.Duration(t.seconds)*time.Second))
}

// text is what the pattern of the video is made of.
func (t *task) text() string { return hex.EncodeToString(t.hash[:]) }

// stateWords are those of the vendors for a state.
type stateWords struct{ flat, nested string }

var (
	phases  = [...]stateWords{isQueued: {"queued", "PENDING"}, isRunning: {"running", "RUNNING"}}
	endings = map[Ending]stateWords{
		VideoMade: {"succeeded", "SUCCEEDED"}, VideoEmpty: {"succeeded", "SUCCEEDED"}, VideoFailed: {"failed", "FAILED"},
		VideoCancelled: {"cancelled", "CANCELED"}, VideoExpired: {"expired", "UNKNOWN"},
	}
)

// word is what the vendor calls the state.
func (t *task) word(p phase) string {
	w := endings[t.ending]
	if p < hasEnded {
		w = phases[p]
	}
	if t.nested {
		return w.nested
	}
	return w.flat
}
