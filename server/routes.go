package server

import (
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// route is a row of the table of routes.
type route struct {
	method string
	path   string // a trailing "/" stands for one more segment or several, the id
	serve  func(x *exchange) error
}

// The paths that take no key and are not requests of the API (health.go,
// openapi.go). Each takes GET.
const (
	healthPath      = "/healthz"
	readyPath       = "/readyz"
	descriptionPath = "/openapi.json"
)

// Route is a method and a path that a Handler answers. What it answers to GET it
// answers to HEAD too.
type Route struct {
	Method string
	Path   string // "{id}" at its end stands for one segment or several
}

// Routes are all that the handler answers: the API's paths, in the order of its
// table, and those that take no key.
func (h *Handler) Routes() []Route {
	var routes []Route
	for _, r := range h.routes {
		if strings.HasSuffix(r.path, "/") {
			r.path += "{id}"
		}
		routes = append(routes, Route{r.method, r.path})
	}
	for _, path := range []string{healthPath, readyPath, descriptionPath} {
		routes = append(routes, Route{http.MethodGet, path})
	}
	return routes
}

// table is every path under /v1. Each needs a key and counts as a request.
func (h *Handler) table() []route {
	routes := []route{
		{http.MethodPost, "/v1/chat/completions", func(x *exchange) error { return x.call(upstream.ChatCompletion) }},
		{http.MethodPost, "/v1/messages", func(x *exchange) error { return x.messages(upstream.Messages) }},
		{http.MethodPost, "/v1/messages/count_tokens", func(x *exchange) error { return x.messages(upstream.CountTokens) }},
		{http.MethodPost, "/v1/images/generations", func(x *exchange) error { return x.call(upstream.GenerateImage) }},
		{http.MethodPost, "/v1/images/edits", func(x *exchange) error { return x.callForm(upstream.EditImage) }},
		{http.MethodPost, "/v1/videos/generations", func(x *exchange) error { return x.call(upstream.SubmitVideo) }},
		{http.MethodGet, "/v1/videos/generations/", (*exchange).showVideo},
		{http.MethodPost, "/v1/embeddings", func(x *exchange) error { return x.call(upstream.Embeddings) }},
		{http.MethodPost, "/v1/audio/speech", func(x *exchange) error { return x.call(upstream.Speech) }},
		{http.MethodGet, "/v1/models", (*exchange).listModels},
		{http.MethodGet, "/v1/models/", (*exchange).showModel},
	}
	if books, ok := h.gateway.Meter().(billing.Books); ok {
		b := bookkeeping{books}
		routes = append(routes,
			route{http.MethodGet, "/v1/balance", b.balance},
			route{http.MethodGet, "/v1/usage", b.usage},
			route{http.MethodGet, "/v1/receipts/", b.receipt},
		)
	}
	return routes
}

// find matches the path, then the method: 404 before 405.
func (x *exchange) find() error {
	path := x.r.URL.Path
	var allow []string
	for i := range x.h.routes {
		rt := &x.h.routes[i]
		id, ok := rt.match(path)
		if !ok {
			continue
		}
		if rt.method == x.r.Method || (rt.method == http.MethodGet && x.r.Method == http.MethodHead) {
			x.route, x.id = rt, id
			return nil
		}
		allow = append(allow, rt.method)
	}
	if allow == nil {
		return fault.New(fault.NotFound, "There is nothing at "+clip(path)+". The API's paths begin with /v1, for example /v1/chat/completions.")
	}
	x.w.Header().Set("Allow", strings.Join(allow, ", "))
	return fault.New(fault.MethodNotAllowed, "This path takes "+strings.Join(allow, " or ")+", not "+clip(x.r.Method)+".")
}

func (r *route) match(path string) (id string, ok bool) {
	if !strings.HasSuffix(r.path, "/") {
		return "", path == r.path
	}
	id, ok = strings.CutPrefix(path, r.path)
	return id, ok && id != ""
}

// clip bounds a text of the caller's in a message.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
