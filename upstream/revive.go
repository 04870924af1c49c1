package upstream

import "time"

// ResetHealth ends a channel's rest after failures, since somebody found it well, by a
// call that is a [Call.Test] for instance: it is tried again by degrees, as after
// every rest. Without a rest it changes nothing, and it ends neither a pause nor
// what a vendor told the channel to wait for. The error names the channels that
// there are.
func (r *Router) ResetHealth(name string) error {
	c, err := r.channelNamed(name)
	if err == nil {
		c.breaker.resetAfterSuccess(r.now())
	}
	return err
}

// revive is one call that went well while the channel rests or is on trial.
func (h *circuitBreaker) resetAfterSuccess(now time.Time) {
	p := breakerToken{generation: h.generation.Load()}
	if lone := h.onlyAccount.Load(); lone != nil {
		p.account = *lone
	}
	if p.generation&1 == 1 {
		h.contentAccepted(p, now)
		h.answerEnded(p, now)
	}
}
