package router

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// lastErrorOf is what a status page may show of a failure, the code and the status:
// no text of a vendor.
func lastErrorOf(e *fault.Error) *string {
	text := string(safetext.Code(e.Code))
	if f, _ := upstream.FailureOf(e); f.Status != 0 {
		text = fmt.Sprintf("%s (upstream status %d)", text, f.Status)
	}
	return &text
}

// callKind is what calls have in common that are measured together.
type callKind struct {
	routeKey
	stream bool
}

// testOp is what tests of channels are measured as, apart from calls.
const testOp upstream.Op = "test"

// statsOf are the statistics of calls such as this one. The route remembers those of its own
// calls, since all channels of a model are asked for theirs before each call (BenchmarkPick).
func (rt *route) statsOf(call *upstream.Call) *callStats {
	if call.Test {
		return rt.statsOfKind(callKind{routeKey: routeKey{op: testOp}})
	}
	known := &rt.stats[0]
	if call.Stream {
		known = &rt.stats[1]
	}
	s := known.Load()
	if s == nil {
		s = rt.statsOfKind(callKind{rt.key, call.Stream})
		known.Store(s)
	}
	return s
}

// statsOfKind are the statistics of a kind of call.
func (c *channel) statsOfKind(kind callKind) *callStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.statsByKind[kind]
	if s == nil {
		s = new(callStats)
		c.statsByKind[kind] = s
	}
	return s
}

// callStats measures how busy and how fast a channel is with one kind of call: of one
// operation and one model, streamed or not. An embedding says nothing of how long a reasoning
// model thinks. A channel that passes every id through is measured by operation only; its like
// gets the same mixture.
//
// The latency is the time to the first content, which is the whole time of an
// answer that is not streamed. It is averaged by its logarithm, in which one
// answer that takes a hundred times as long is not worth a hundred others.
type callStats struct {
	mu           sync.Mutex
	measured     measurement
	pending      int       // calls without accepted content yet
	lastProgress time.Time // when something was accepted, or the waiting began
}

// measurement is what a selection is made by. Latencies are binary logarithms of
// nanoseconds, and 0 if they are not known.
type measurement struct {
	running    int       // calls whose answer has not ended
	latency    float64   // the average
	lowerBound float64   // the longest that a call waited in vain, while no more is known
	stalled    float64   // how long calls have waited in vain
	slowSince  time.Time // since when sessions find it too slow; zero if they do not
}

// expected is the least that the latency can be.
func (m *measurement) expected() float64 {
	if m.latency != 0 {
		return m.latency
	}
	return m.lowerBound
}

// doublingsAbove is how many times twice as slow as the fastest the calls are.
func (m *measurement) doublingsAbove(fastest float64) float64 {
	return max(m.expected(), m.stalled-1) - fastest
}

// at is the measurement at a moment.
func (s *callStats) at(now time.Time) measurement {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.measured
	if s.pending > 0 {
		m.stalled = logarithm(now.Sub(s.lastProgress))
	}
	return m
}

// begin counts a call.
func (s *callStats) begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == 0 {
		s.lastProgress = now
	}
	s.pending++
	s.measured.running++
}

// accepted takes note of a call's first content. A sample is a call to a channel
// that gets few for its slowness, so that each weighs more.
func (s *callStats) accepted(now time.Time, took time.Duration, sample bool) {
	weight := 0.125
	if sample {
		weight = 0.5
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending--
	s.lastProgress = now
	s.learn(logarithm(took), weight)
}

// abandoned takes note of a call without content. A client that left since it was slow
// must not make the channel look fast, nor must a quick refusal.
func (s *callStats) abandoned(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending--
	switch seen, m := logarithm(took), &s.measured; {
	case m.latency != 0 && seen > m.latency:
		s.learn(seen, 0.125)
	case m.latency == 0:
		m.lowerBound = max(m.lowerBound, seen)
	}
}

// end counts a call that is over.
func (s *callStats) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measured.running--
}

func (s *callStats) learn(seen, weight float64) {
	if s.measured.latency == 0 {
		weight = 1
	}
	s.measured.latency += (seen - s.measured.latency) * weight
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
