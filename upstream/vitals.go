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
type vitals struct {
	base     time.Time // that of the gauges
	paused   atomic.Bool
	health   health
	told     told
	gate     gate
	requests atomic.Int64
	failures atomic.Int64
	last     atomic.Pointer[gauge] // that learnt something lately
	trouble  atomic.Pointer[trouble]

	mu     sync.Mutex
	gauges map[kind]*gauge
}

// kind is what calls have in common that are measured together.
type kind struct {
	question
	stream bool
}

// trouble is what may be told of a failure.
type trouble struct {
	code   fault.Code
	status int
}

func troubleOf(e *fault.Error) *trouble {
	f, _ := failure(e)
	return &trouble{word.Code(e.Code), f.Status}
}

// String names the code and the status.
func (t *trouble) String() string {
	switch {
	case t == nil:
		return ""
	case t.status == 0:
		return string(t.code)
	}
	return fmt.Sprintf("%s (upstream status %d)", t.code, t.status)
}

func newVitals(base time.Time, c *callers) *vitals {
	return &vitals{base: base, health: health{callers: c}, gauges: make(map[kind]*gauge)}
}

// pardon forgets what bars a channel from every call: what its vendor told the
// keys of before, and that they were refused. Other failures may go on, so that
// a rest for those does too.
func (v *vitals) pardon(now time.Time) {
	v.told.clear()
	v.health.pardon(now)
}

// gauge is the one for a kind of call.
func (v *vitals) gauge(k kind) *gauge {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := v.gauges[k]
	if g == nil {
		g = &gauge{base: v.base}
		v.gauges[k] = g
	}
	return g
}

// inFlight is how many calls have not ended.
func (v *vitals) inFlight() (sum int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range v.gauges {
		sum += g.running()
	}
	return sum
}

// latency is that of the calls that the channel had last.
func (v *vitals) latency() time.Duration {
	if g := v.last.Load(); g != nil {
		return g.duration()
	}
	return 0
}
