package server

import (
	"encoding/json"
	"errors"
	"net/http"
)

// serveHealth answers /healthz (the process lives) and /readyz (it can serve).
// Neither takes a key, counts as a request or is logged.
func (h *Handler) serveHealth(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz":
		h.writeHealth(w, r, nil)
	case "/readyz":
		checks := map[string]func() error{"draining": h.draining}
		for name, check := range h.options.Ready {
			checks[name] = check
		}
		h.writeHealth(w, r, checks)
	default:
		return false
	}
	return true
}

func (h *Handler) draining() error {
	if h.gateway.Draining() {
		return errors.New("the gateway is shutting down")
	}
	return nil
}

func (h *Handler) writeHealth(w http.ResponseWriter, r *http.Request, checks map[string]func() error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	status, results := http.StatusOK, make(map[string]string, len(checks))
	for name, check := range checks {
		results[name] = "ok"
		if err := check(); err != nil {
			status, results[name] = http.StatusServiceUnavailable, err.Error()
		}
	}
	word := "ok"
	if status != http.StatusOK {
		word = "unavailable"
	}
	body, err := json.Marshal(map[string]any{"status": word, "checks": results})
	if err != nil {
		body = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
