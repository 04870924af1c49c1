package router

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/upstream"
)

// callKind is what calls have in common that are measured together.
type callKind struct {
	routeKey
	stream bool
}

// lastError is what a status page may show of a failure: no text of a vendor.
type lastError struct {
	code   fault.Code
	status int
}

func lastErrorOf(e *fault.Error) *lastError {
	f, _ := upstream.FailureOf(e)
	return &lastError{word.Code(e.Code), f.Status}
}

// String names the code and the status.
func (l *lastError) String() string {
	switch {
	case l == nil:
		return ""
	case l.status == 0:
		return string(l.code)
	}
	return fmt.Sprintf("%s (upstream status %d)", l.code, l.status)
}

// callStats measures how busy and how fast a channel is with one kind of call: of one
// operation and one model, streamed or not, since an embedding says nothing of
// how long a reasoning model thinks. A channel that passes every id through is
// measured by operation only; its like gets the same mixture.
//
// The latency is the time to the first content, which is the whole time of an
// answer that is not streamed. It is averaged by its logarithm, in which one
// answer that takes a hundred times as long is not worth a hundred others.
type callStats struct {
	epoch        time.Time
	latency      atomic.Uint64 // bits of the binary logarithm of its nanoseconds; 0 if it is not known
	lowerBound   atomic.Uint64 // the same of the longest that a call waited in vain, while no more is known
	calls        atomic.Int64  // whose answer has not ended, and in units of pendingCall, those of which nothing was accepted
	lastProgress atomic.Int64  // when something was accepted, or the waiting began, in ns after epoch
}

// pendingCall is one call of which nothing was accepted yet.
const pendingCall = 1 << 31

// begin counts a call.
func (s *callStats) begin(now time.Time) {
	// Before the call is seen: a selection at that moment must not take it for
	// one that has waited since the last progress.
	if s.calls.Load() < pendingCall {
		s.lastProgress.Store(int64(now.Sub(s.epoch)))
	}
	s.calls.Add(pendingCall + 1)
}

// accepted takes note of a call's first content. A sample is a call to a channel
// that gets few for its slowness, so that each weighs more.
func (s *callStats) accepted(now time.Time, took time.Duration, sample bool) {
	s.calls.Add(-pendingCall)
	s.lastProgress.Store(int64(now.Sub(s.epoch)))
	s.learn(took, sample)
}

// abandoned takes note of a call without content. A client
// that left since it was slow must not make the channel look fast, nor must a quick
// refusal.
func (s *callStats) abandoned(took time.Duration) {
	s.calls.Add(-pendingCall)
	switch known, seen := s.knownLatency(), logarithm(took); {
	case known != 0 && seen > known:
		s.learn(took, false)
	case known == 0 && seen > s.expectedLatency():
		s.lowerBound.Store(math.Float64bits(seen))
	}
}

// end counts a call that is over.
func (s *callStats) end() { s.calls.Add(-1) }

// running is how many calls have not ended.
func (s *callStats) running() int64 { return s.calls.Load() % pendingCall }

func (s *callStats) learn(took time.Duration, sample bool) {
	weight := 0.125
	if sample {
		weight = 0.5
	}
	seen := logarithm(took)
	for {
		bits := s.latency.Load()
		known := math.Float64frombits(bits)
		next := seen
		if bits != 0 {
			next = known + (seen-known)*weight
		}
		if next == known || s.latency.CompareAndSwap(bits, math.Float64bits(next)) {
			return
		}
	}
}

// knownLatency is the logarithm of the latency; 0 if it is not known.
func (s *callStats) knownLatency() float64 { return math.Float64frombits(s.latency.Load()) }

// expectedLatency is the least that the logarithm of the latency can be.
func (s *callStats) expectedLatency() float64 {
	if known := s.knownLatency(); known != 0 {
		return known
	}
	return math.Float64frombits(s.lowerBound.Load())
}

// stalled is the logarithm of how long calls have waited in vain; 0 if none waits.
func (s *callStats) stalled(now time.Time) float64 {
	if s.calls.Load() < pendingCall {
		return 0
	}
	return logarithm(now.Sub(s.epoch) - time.Duration(s.lastProgress.Load()))
}

// latencyDuration is the latency; 0 if it is not known.
func (s *callStats) latencyDuration() time.Duration {
	if known := s.knownLatency(); known != 0 {
		return time.Duration(math.Exp2(known))
	}
	return 0
}

// latencyFloor is a latency below which it does not matter how much faster a channel is,
// and latencyFloorLog is its binary logarithm.
const (
	latencyFloor    = 10 * time.Millisecond
	latencyFloorLog = 23.253496664211536
)

// logarithm is that of d in nanoseconds, and of latencyFloor for all that is less.
func logarithm(d time.Duration) float64 {
	if d <= latencyFloor {
		return latencyFloorLog
	}
	return math.Log2(float64(d))
}
