package upstream

import "slices"

// mostAway bounds how many channels that are gone are remembered.
const maxRemovedPaused = 1000

// outlast pauses those of the next Router's channels that come back and were
// paused when they went: a file that lacks a channel for one reload is often a
// mistake, and whoever paused the channel has not changed their mind. It returns
// who is away from then on, the last to go last.
func (r *Router) keepPaused(next []*channel) (away []string) {
	now := make(map[string]*channel, len(next))
	for _, c := range next {
		now[c.Name] = c
	}
	for _, name := range r.removedPaused {
		if c := now[name]; c != nil {
			c.paused.Store(true)
		} else {
			away = append(away, name)
		}
	}
	for _, c := range r.channels {
		if now[c.Name] == nil && c.paused.Load() {
			away = append(away, c.Name)
		}
	}
	return slices.Clone(away[max(0, len(away)-maxRemovedPaused):])
}
