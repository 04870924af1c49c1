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
	case healthPath:
		h.writeHealth(w, r, nil, nil)
	case readyPath:
		checks := map[string]func() error{"draining": h.draining}
		for name, check := range h.options.Ready {
			checks[name] = check
		}
		h.writeHealth(w, r, checks, h.options.Warn)
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

// health is the body of an answer.
type health struct {
	Status   string            `json:"status"`
	Checks   map[string]string `json:"checks"`
	Warnings map[string]string `json:"warnings,omitempty"`
}

func (h *Handler) writeHealth(w http.ResponseWriter, r *http.Request, checks, warn map[string]func() error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	status, answer := http.StatusOK, health{"ok", make(map[string]string, len(checks)), make(map[string]string)}
	for name, check := range checks {
		answer.Checks[name] = "ok"
		if err := check(); err != nil {
			status, answer.Status, answer.Checks[name] = http.StatusServiceUnavailable, "unavailable", err.Error()
		}
	}
	for name, check := range warn {
		if err := check(); err != nil {
			answer.Warnings[name] = err.Error()
		}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		body = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
