package server

// ForceSmallStack has h serve every further request on a small stack, as it does
// when very many run.
func ForceSmallStack(h *Handler) { h.inFlight.Add(crowdedAbove) }

// InFlight is how many requests h is answering.
func InFlight(h *Handler) int64 { return h.inFlight.Load() }
