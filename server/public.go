package server

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/server/openapi"
)

// serveHealth answers /healthz (the process lives) and /readyz (it can serve):
// 503 only for what another server may do better. Neither takes a key, counts
// as a request or is logged.
func (h *Handler) serveHealth(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case healthPath:
		h.writeHealth(w, r, nil, nil)
	case readyPath:
		load := h.gateway.Load()
		checks := map[string]func() error{
			"draining": failIf(h.gateway.Draining(), "the gateway is shutting down"),
			"memory":   failIf(load.Short, "memory is short: new calls are refused until some of it is free again"),
		}
		warn := map[string]func() error{ // other servers may be as full, and it is a matter of moments
			"calls": failIf(load.Full, "as many calls run and wait as may: some are refused"),
		}
		maps.Copy(checks, h.options.Ready)
		maps.Copy(warn, h.options.Warn)
		h.writeHealth(w, r, checks, warn)
	default:
		return false
	}
	return true
}

// when is a check that fails where something is so.
func failIf(so bool, what string) func() error {
	return func() error {
		if so {
			return errors.New(what)
		}
		return nil
	}
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

// description is the API's document as it leaves.
type description struct {
	body []byte
	tag  string // of these bytes, quoted
}

var describe = sync.OnceValues(func() (description, error) {
	body, err := openapi.JSON()
	if err != nil {
		return description{}, err
	}
	return description{body, fmt.Sprintf(`"%x"`, sha256.Sum256(body))}, nil
})

// serveDescription answers /openapi.json. Like the checks of health, it takes no
// key, counts as no request and is not logged.
func serveDescription(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != descriptionPath {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", http.MethodGet)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return true
	}
	d, err := describe()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	h := w.Header()
	h.Set("ETag", d.tag)
	h.Set("Cache-Control", "no-cache") // that is: ask whether it changed
	if strings.Contains(r.Header.Get("If-None-Match"), d.tag) {
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(d.body)))
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(d.body)
	return true
}
