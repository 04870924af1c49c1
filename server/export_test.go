package server

// Crowd has h serve every further request as in a crowd.
func ForceSmallStack(h *Handler) { h.inFlight.Add(smallStackAbove) }

// Inside is how many requests h is answering.
func InFlight(h *Handler) int64 { return h.inFlight.Load() }

// Leave has n requests be answered.
func Finish(h *Handler, n int64) { h.inFlight.Add(-n) }
