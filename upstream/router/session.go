package router

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/header"
	"github.com/tollhouse-ai/gateway/upstream/internal/rendezvous"
)

const (
	// slowDoublings is how many doublings of the latency a session bears for the prompts in
	// its channel's cache: eight times that of the fastest.
	slowDoublings = 3
	// slowFor is how long a channel is so slow before sessions leave it.
	slowFor = time.Minute
	// slowSample is one in how many calls of a session goes to a channel all the same
	// that is too slow, to be measured.
	slowSample = 128
)

// picksBySession reports whether the call's session decides which of its routes is taken:
// it has one, more than one route, and no pin.
func (s *selection) picksBySession() bool {
	return s.call.Session != upstream.Session{} && len(s.routes) > 1 && !s.pinned
}

// setScore gives the candidate its score in the order of the call's session. It notes the
// channel that the session prefers: the one with the highest score of the first priority. By
// the scores each channel gets its weight of all sessions. If a channel comes or goes, only
// its own sessions move.
func (s *selection) setScore(c *candidate) {
	c.score = c.point.Score((*[16]byte)(&s.call.Session), c.Weight)
	if c.Priority == s.routes[0].Priority && c.score > s.preferredScore {
		s.preferred, s.preferredScore = c.channel, c.score
	}
}

// pickBySession chooses the first in the session's order of the candidates that is not
// too slow.
func pickBySession(cs []candidate, now time.Time, rand func(uint64) uint64) *candidate {
	fastest := measure(cs, now)
	var first *candidate
	for i := range rendezvous.Order(len(cs), func(i int) float64 { return cs[i].score }) {
		if !cs[i].judgeTooSlow(fastest, now, rand) {
			return &cs[i]
		}
		if first == nil {
			first = &cs[i]
		}
	}
	return first
}

// judgeTooSlow notes the candidate's latency, and reports whether a session should avoid it.
// That is when the latency has been far above that of the fastest for a while. A few calls,
// chosen at random and marked as slow, are sent there to measure it, as long as answers come.
func (c *candidate) judgeTooSlow(fastest float64, now time.Time, rand func(uint64) uint64) bool {
	slow := c.measured.doublingsAbove(fastest) >= slowDoublings
	if !slow && c.measured.slowSince.IsZero() { // as nearly always
		return false
	}
	since := c.stats.noteTooSlow(slow, now)
	if since.IsZero() || now.Sub(since) < slowFor {
		return false
	}
	c.slow = c.measured.stalled == 0 && rand(slowSample) == 0
	return !c.slow
}

// noteTooSlow takes note of whether sessions find the channel too slow at a moment, and
// returns since when they have; zero if they do not.
func (s *callStats) noteTooSlow(slow bool, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !slow:
		s.measured.slowSince = time.Time{}
	case s.measured.slowSince.IsZero():
		s.measured.slowSince = now
	}
	return s.measured.slowSince
}

// withSession is ctx with the header by which the vendor gets the call's session, if its
// channel has one. The vendor then keeps the session at one of its own machines.
func (a *attempt) withSession(ctx context.Context, call *upstream.Call) context.Context {
	if a.SessionHeader == "" || call.Session == (upstream.Session{}) {
		return ctx
	}
	h := upstream.Wire(ctx).Clone()
	if h == nil {
		h = make(http.Header, 1)
	}
	h[a.SessionHeader] = []string{hex.EncodeToString(call.Session[:])}
	return upstream.WithWire(ctx, h)
}

// isSessionHeader reports whether a session can stand in a header of the name, which no
// client may send by itself.
func isSessionHeader(name string) bool {
	return header.Settable(name) && !strings.HasPrefix(name, "Anthropic-")
}
