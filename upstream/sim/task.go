package sim

import (
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"slices"
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

// videoFile is the MP4 file of every task: H.264, 5 s, a pattern of 128 by 72
// pixels, with a comment that says that it is simulated.
//
//go:embed video.mp4
var videoFile []byte

// videoWidth and videoHeight are the size of the picture in videoFile.
const (
	videoWidth  = 128
	videoHeight = 72
)

// link is the video as a "data:" URL: there is no server behind it. Two prompts
// have different bytes, because the file ends with the prompt's hash in a box
// that players skip (`free`, ISO/IEC 14496-12, 8.1.2).
func (t *task) link() string {
	if t.ending == VideoEmpty {
		return ""
	}
	file := slices.Concat(videoFile, []byte{0, 0, 0, 8 + byte(len(t.hash))}, []byte("free"), t.hash[:])
	return "data:video/mp4;base64," + base64.StdEncoding.EncodeToString(file)
}

// text is what the pattern of the last frame is made of.
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
