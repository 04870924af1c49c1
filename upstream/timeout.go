package upstream

import (
	"fmt"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// Timeouts bound one attempt at a channel. A zero field means its default; the
// time to connect is the driver's.
type Timeouts struct {
	// Headers is the longest wait for the first byte of the answer's body:
	// a non-streamed answer sends nothing until it is done. Default 10 minutes.
	Headers time.Duration
	// Idle is the longest silence after the first byte. Only time in which
	// somebody waits for the upstream counts. Default 60 seconds.
	Idle time.Duration
	// Total is the longest life of an answer. Default 30 minutes.
	Total time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Headers: positive(t.Headers, 10*time.Minute),
		Idle:    positive(t.Idle, time.Minute),
		Total:   positive(t.Total, 30*time.Minute),
	}
}

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// clock is what the time-outs of an attempt need to know, all since its start.
type progress struct {
	elapsed time.Duration
	firstByte   bool          // the first byte has come
	reading bool          // somebody waits for the next byte
	readSince   time.Duration // from when
}

// left is how long until a time-out may be due; not positive if it is due now.
func (t Timeouts) remaining(c progress) time.Duration {
	left := t.Idle
	switch {
	case !c.firstByte:
		left = t.Headers - c.elapsed
	case c.reading:
		left = c.readSince + t.Idle - c.elapsed
	}
	return min(left, t.Total-c.elapsed)
}

// expired is the error of an attempt of which a time-out is due.
func (t Timeouts) expired(c progress) *fault.Error {
	what := fmt.Sprintf("fell silent for %s", t.Idle)
	switch {
	case c.elapsed >= t.Total:
		what = fmt.Sprintf("did not end its answer within %s", t.Total)
	case !c.firstByte:
		what = fmt.Sprintf("did not begin its answer within %s", t.Headers)
	}
	return fault.New(fault.RequestTimeout, "The upstream "+what+".")
}
