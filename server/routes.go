package server

import (
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// route is a row of the table of routes. Each needs a key and counts as a request
// of it; one that bills counts its tokens and takes a slot and a place too.
type route struct {
	method string
	path   string // a trailing "/" stands for one more segment or several, the id
	body   Body
	bills  Billing
	serve  func(x *exchange) error
}

// Body is what a request to a route carries.
type Body string

// The kinds of bodies. What of a body is over its limit is never read.
const (
	NoBody   Body = "none" // it is not read
	JSONBody Body = "json" // at most Options.MaxBody
	FormBody Body = "form" // at most Options.MaxForm
)

// Billing is what a request to a route costs.
type Billing string

// The classes of billing.
const (
	Free     Billing = "free" // nothing
	Charged  Billing = "call" // the most that it may cost is held before an upstream is asked, and settled at its end
	TaskHold Billing = "task" // the same, and settled when the task ends that it starts
)

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
	Open   bool   // it takes no key, and counts as nobody's request
	Body   Body
	Bills  Billing
}

// Routes are all that the handler answers: the API's paths, in the order of its
// table, and those that take no key.
func (h *Handler) Routes() []Route {
	var routes []Route
	for _, r := range h.routes {
		if strings.HasSuffix(r.path, "/") {
			r.path += "{id}"
		}
		routes = append(routes, Route{r.method, r.path, false, r.body, r.bills})
	}
	for _, path := range []string{healthPath, readyPath, descriptionPath} {
		routes = append(routes, Route{http.MethodGet, path, true, NoBody, Free})
	}
	return routes
}

// table is every path under /v1. Each needs a key and counts as a request.
func (h *Handler) table() []route {
	routes := []route{
		{http.MethodPost, "/v1/chat/completions", JSONBody, Charged, func(x *exchange) error { return x.call(upstream.ChatCompletion) }},
		{http.MethodPost, "/v1/messages", JSONBody, Charged, func(x *exchange) error { return x.messages(upstream.Messages) }},
		{http.MethodPost, "/v1/messages/count_tokens", JSONBody, Free, func(x *exchange) error { return x.messages(upstream.CountTokens) }},
		{http.MethodPost, "/v1/images/generations", JSONBody, Charged, func(x *exchange) error { return x.call(upstream.GenerateImage) }},
		{http.MethodPost, "/v1/images/edits", FormBody, Charged, func(x *exchange) error { return x.callForm(upstream.EditImage) }},
		{http.MethodPost, "/v1/videos/generations", JSONBody, TaskHold, func(x *exchange) error { return x.call(upstream.SubmitVideo) }},
		{http.MethodGet, "/v1/videos/generations/", NoBody, Free, (*exchange).showVideo},
		{http.MethodPost, "/v1/embeddings", JSONBody, Charged, func(x *exchange) error { return x.call(upstream.Embeddings) }},
		{http.MethodPost, "/v1/audio/speech", JSONBody, Charged, func(x *exchange) error { return x.call(upstream.Speech) }},
		{http.MethodGet, "/v1/models", NoBody, Free, (*exchange).listModels},
		{http.MethodGet, "/v1/models/", NoBody, Free, (*exchange).showModel},
	}
	if books, ok := h.gateway.Meter().(billing.Reports); ok {
		b := reportsAPI{books}
		routes = append(routes,
			route{http.MethodGet, "/v1/balance", NoBody, Free, b.balance},
			route{http.MethodGet, "/v1/usage", NoBody, Free, b.usage},
			route{http.MethodGet, "/v1/receipts/", NoBody, Free, b.receipt},
		)
	}
	return routes
}

// find matches the path, then the method: 404 before 405.
func (x *exchange) matchRoute() error {
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
