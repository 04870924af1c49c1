package upstream

import (
	"fmt"
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
	paused   atomic.Bool
	breaker   circuitBreaker
	cooldowns     cooldowns
	limiter     concurrencyLimiter
	requests atomic.Int64
	failures atomic.Int64
	lastUsed     atomic.Pointer[callStats] // that learnt something lately
	lastError  atomic.Pointer[lastError]

	mu     sync.Mutex
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

func newChannelStats(base time.Time, c *accountCount) *channelStats {
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
