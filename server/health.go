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

// The paths of this file take no key, count as no requests and are not logged.

// serveLiveness answers /healthz: the process lives.
func (h *Handler) serveLiveness(w http.ResponseWriter, r *http.Request) {
	writeHealth(w, r, nil, nil)
}

// serveReadiness answers /readyz: the gateway can serve. It is 503 only for what
// another server may do better.
func (h *Handler) serveReadiness(w http.ResponseWriter, r *http.Request) {
	load := h.gateway.Load()
	checks := map[string]func() error{
		"draining": failIf(h.gateway.ShuttingDown(), "the gateway is shutting down"),
		"memory":   failIf(load.Short, "memory is short: new calls are refused until some of it is free again"),
	}
	warnings := map[string]func() error{ // other servers may be as full, and it passes in moments
		"calls": failIf(load.Full, "as many calls run and wait as may: some are refused"),
	}
	maps.Copy(checks, h.options.Ready)
	maps.Copy(warnings, h.options.Warn)
	writeHealth(w, r, checks, warnings)
}

// failIf is a check that fails where a condition holds.
func failIf(condition bool, message string) func() error {
	return func() error {
		if condition {
			return errors.New(message)
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

// writeHealth makes the checks and answers with their outcomes.
func writeHealth(w http.ResponseWriter, r *http.Request, checks, warnings map[string]func() error) {
	if !isRead(w, r) {
		return
	}
	status, answer := http.StatusOK, health{"ok", make(map[string]string, len(checks)), make(map[string]string)}
	for name, check := range checks {
		answer.Checks[name] = "ok"
		if err := check(); err != nil {
			status, answer.Status, answer.Checks[name] = http.StatusServiceUnavailable, "unavailable", err.Error()
		}
	}
	for name, check := range warnings {
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

// isRead reports whether the request is a GET or HEAD, and refuses any other.
func isRead(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
	return false
}

// description is the API's document as it is served.
type description struct {
	body []byte
	tag  string // the ETag of these bytes, quoted
}

var loadDescription = sync.OnceValues(func() (description, error) {
	body, err := openapi.JSON()
	if err != nil {
		return description{}, err
	}
	return description{body, fmt.Sprintf(`"%x"`, sha256.Sum256(body))}, nil
})

// serveDescription answers /openapi.json.
func serveDescription(w http.ResponseWriter, r *http.Request) {
	if !isRead(w, r) {
		return
	}
	d, err := loadDescription()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("ETag", d.tag)
	h.Set("Cache-Control", "no-cache") // which has a cache ask whether it changed
	if strings.Contains(r.Header.Get("If-None-Match"), d.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(d.body)))
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(d.body)
}
