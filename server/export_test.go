package server

// Crowd has h serve every further request as in a crowd.
func Crowd(h *Handler) { h.inside.Add(crowd) }

// Inside is how many requests h is answering.
func Inside(h *Handler) int64 { return h.inside.Load() }

// Leave has n requests be answered.
func Leave(h *Handler, n int64) { h.inside.Add(-n) }
