package upstream

// CircuitOpens is how often each channel, by its name, was sent to rest after failures
// since the start, reloads included.
func (r *Router) CircuitOpens() map[string]int64 {
	rests := make(map[string]int64, len(r.channels))
	for _, c := range r.channels {
		rests[c.Name] = c.breaker.openCount()
	}
	return rests
}

// rested is how many rests there were: a term begins with each, with each return
// to service, and after a pardon.
func (h *circuitBreaker) openCount() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return (int64(h.generation.Load())+1)/2 - int64(h.resets)
}
