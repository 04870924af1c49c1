package upstream

import "time"

// ResetHealth ends a channel's rest after failures, since somebody found it well, by a
// call that is a [Call.Test] for instance: it is tried again by degrees, as after
// every rest. Without a rest it changes nothing, and it ends neither a pause nor
// what a vendor told the channel to wait for. The error names the channels that
// there are.
func (r *Router) ResetHealth(name string) error {
	c, err := r.named(name)
	if err == nil {
		c.health.revive(r.now())
	}
	return err
}

// revive is one call that went well while the channel rests or is on trial.
func (h *health) revive(now time.Time) {
	p := pass{term: h.term.Load()}
	if lone := h.lone.Load(); lone != nil {
		p.account = *lone
	}
	if p.term&1 == 1 {
		h.began(p, now)
		h.ended(p, now)
	}
}
