package upstream

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
)

// vitals are how a channel is. Routers that follow one another share them, by
// the channel's name.
type channelStats struct {
	epoch     time.Time // that of the gauges
	paused    atomic.Bool
	breaker   circuitBreaker
	cooldowns cooldowns
	limiter   concurrencyLimiter
	requests  atomic.Int64
	failures  atomic.Int64
	lastUsed  atomic.Pointer[callStats] // that learnt something lately
	lastError atomic.Pointer[lastError]

	mu    sync.Mutex
	calls map[statsKey]*callStats
}

// kind is what calls have in common that are measured together.
type statsKey struct {
	routeKey
	stream bool
}

// trouble is what may be told of a failure.
type lastError struct {
	code   fault.Code
	status int
}

func lastErrorOf(e *fault.Error) *lastError {
	f, _ := failure(e)
	return &lastError{word.Code(e.Code), f.Status}
}

// String names the code and the status.
func (t *lastError) String() string {
	switch {
	case t == nil:
		return ""
	case t.status == 0:
		return string(t.code)
	}
	return fmt.Sprintf("%s (upstream status %d)", t.code, t.status)
}

func newChannelStats(base time.Time, c *accountsSeen) *channelStats {
	return &channelStats{epoch: base, breaker: circuitBreaker{accounts: c}, calls: make(map[statsKey]*callStats)}
}

// pardon forgets what bars a channel from every call: what its vendor told the
// keys of before, and that they were refused. Other failures may go on, so that
// a rest for those does too.
func (v *channelStats) reset(now time.Time) {
	v.cooldowns.reset()
	v.breaker.reset(now)
}

// gauge is the one for a kind of call.
func (v *channelStats) callStats(k statsKey) *callStats {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := v.calls[k]
	if g == nil {
		g = &callStats{epoch: v.epoch}
		v.calls[k] = g
	}
	return g
}

// inFlight is how many calls have not ended.
func (v *channelStats) inFlight() (sum int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range v.calls {
		sum += g.running()
	}
	return sum
}

// latency is that of the calls that the channel had last.
func (v *channelStats) latency() time.Duration {
	if g := v.lastUsed.Load(); g != nil {
		return g.latencyDuration()
	}
	return 0
}

// gauge tells how busy and how fast a channel is with one kind of call: of one
// operation and one model, streamed or not, since an embedding says nothing of
// how long a reasoning model thinks. A channel that passes every id through is
// measured by operation only; its like gets the same mixture.
//
// The latency is the time to the first content, which is the whole time of an
// answer that is not streamed. It is averaged by its logarithm, in which one
// answer that takes a hundred times as long is not worth a hundred others.
type callStats struct {
	epoch        time.Time
	latency      atomic.Uint64 // bits of the binary logarithm of its nanoseconds; 0 if nobody knows
	lowerBound   atomic.Uint64 // the like of the longest that a call waited in vain, while nobody knows more
	calls        atomic.Int64  // whose answer has not ended, and in units of waits, of which nothing was accepted
	lastProgress atomic.Int64  // of life: when something was accepted, or the waiting began, in ns after base
}

// waits is one call that waits.
const pendingCall = 1 << 31

// begin counts a call.
func (g *callStats) begin(now time.Time) {
	// Before the call is seen: whoever draws then must not take it for one that
	// has waited since the last sign.
	if g.calls.Load() < pendingCall {
		g.lastProgress.Store(int64(now.Sub(g.epoch)))
	}
	g.calls.Add(pendingCall + 1)
}

// accepted takes note of a call's first content. A scout is a call to a channel
// that is spared for its slowness: there are few, so each weighs more.
func (g *callStats) accepted(now time.Time, took time.Duration, scout bool) {
	g.calls.Add(-pendingCall)
	g.lastProgress.Store(int64(now.Sub(g.epoch)))
	g.learn(took, scout)
}

// abandoned takes note of a call without content. Whoever gave it up for its
// slowness must not make the channel look fast, nor must a quick refusal.
func (g *callStats) abandoned(took time.Duration) {
	g.calls.Add(-pendingCall)
	switch known, seen := g.knownLatency(), logarithm(took); {
	case known != 0 && seen > known:
		g.learn(took, false)
	case known == 0 && seen > g.expectedLatency():
		g.lowerBound.Store(math.Float64bits(seen))
	}
}

// end counts a call that is over.
func (g *callStats) end() { g.calls.Add(-1) }

// running is how many calls have not ended.
func (g *callStats) running() int64 { return g.calls.Load() % pendingCall }

func (g *callStats) learn(took time.Duration, scout bool) {
	weight := 0.125
	if scout {
		weight = 0.5
	}
	seen := logarithm(took)
	for {
		bits := g.latency.Load()
		known := math.Float64frombits(bits)
		next := seen
		if bits != 0 {
			next = known + (seen-known)*weight
		}
		if next == known || g.latency.CompareAndSwap(bits, math.Float64bits(next)) {
			return
		}
	}
}

// known is the logarithm of the latency; 0 if nobody knows it.
func (g *callStats) knownLatency() float64 { return math.Float64frombits(g.latency.Load()) }

// expected is the least that the logarithm of the latency can be.
func (g *callStats) expectedLatency() float64 {
	if known := g.knownLatency(); known != 0 {
		return known
	}
	return math.Float64frombits(g.lowerBound.Load())
}

// stalled is the logarithm of how long calls have waited in vain; 0 if none waits.
func (g *callStats) stalled(now time.Time) float64 {
	if g.calls.Load() < pendingCall {
		return 0
	}
	return logarithm(now.Sub(g.epoch) - time.Duration(g.lastProgress.Load()))
}

// duration is the latency; 0 if nobody knows it.
func (g *callStats) latencyDuration() time.Duration {
	if known := g.knownLatency(); known != 0 {
		return time.Duration(math.Exp2(known))
	}
	return 0
}

// quick is a latency below which nobody cares how much faster a channel is, and
// quickest is its binary logarithm.
const (
	latencyFloor    = 10 * time.Millisecond
	latencyFloorLog = 23.253496664211536
)

// logarithm is that of d in nanoseconds, and of quick for all that is less.
func logarithm(d time.Duration) float64 {
	if d <= latencyFloor {
		return latencyFloorLog
	}
	return math.Log2(float64(d))
}
