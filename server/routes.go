package server

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
	"github.com/tollhouse-ai/gateway/upstream"
)

// route is a row of the table of routes. Each needs a key and counts as a request
// of it; one with an op takes two slots too, its key's and the gateway's, and counts
// its tokens.
type route struct {
	method string
	path   string // a pattern of http.ServeMux; its {id...} is not empty
	body   Body
	bills  Billing
	op     upstream.Op                 // of a route that the gateway answers whole
	serve  func(x *httpExchange) error // of any other
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

// The paths that take no key and are not requests of the API (public.go). Each
// takes GET.
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
		routes = append(routes, Route{r.method, strings.Replace(r.path, "{id...}", "{id}", 1), false, r.body, r.bills})
	}
	for _, path := range []string{healthPath, readyPath, descriptionPath} {
		routes = append(routes, Route{http.MethodGet, path, true, NoBody, Free})
	}
	return routes
}

// table is every path under /v1.
func (h *Handler) table() []route {
	routes := []route{
		{http.MethodPost, "/v1/chat/completions", JSONBody, Charged, upstream.ChatCompletion, nil},
		{http.MethodPost, "/v1/messages", JSONBody, Charged, upstream.Messages, nil},
		{http.MethodPost, "/v1/messages/count_tokens", JSONBody, Free, upstream.CountTokens, nil},
		{http.MethodPost, "/v1/images/generations", JSONBody, Charged, upstream.GenerateImage, nil},
		{http.MethodPost, "/v1/images/edits", FormBody, Charged, upstream.EditImage, nil},
		{http.MethodPost, "/v1/videos/generations", JSONBody, TaskHold, upstream.SubmitVideo, nil},
		{http.MethodGet, "/v1/videos/generations/{id...}", NoBody, Free, "", (*httpExchange).showVideo},
		{http.MethodPost, "/v1/embeddings", JSONBody, Charged, upstream.Embeddings, nil},
		{http.MethodPost, "/v1/audio/speech", JSONBody, Charged, upstream.Speech, nil},
		{http.MethodGet, "/v1/models", NoBody, Free, "", (*httpExchange).listModels},
		{http.MethodGet, "/v1/models/{id...}", NoBody, Free, "", (*httpExchange).showModel},
	}
	if reports, ok := h.gateway.Meter().(billing.Reports); ok {
		api := reportsAPI{reports}
		routes = append(routes,
			route{http.MethodGet, "/v1/balance", NoBody, Free, "", api.balance},
			route{http.MethodGet, "/v1/usage", NoBody, Free, "", api.usage},
			route{http.MethodGet, "/v1/receipts/{id...}", NoBody, Free, "", api.receipt},
		)
	}
	return routes
}

// newMux registers the paths of the table and those that take no key.
func (h *Handler) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for path, routes := range routesByPath(h.routes, func(r *route) string { return r.path }) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { h.serveRoutes(w, r, routes) })
	}
	mux.HandleFunc(healthPath, h.serveLiveness)
	mux.HandleFunc(readyPath, h.serveReadiness)
	mux.HandleFunc(descriptionPath, serveDescription)
	return mux
}

// routesByPath groups a table by its patterns for an http.ServeMux. Patterns have
// no methods, and there is a row without routes for every path that ServeMux would
// answer or redirect by itself: its errors are plain text.
func routesByPath[R any](table []R, pattern func(*R) string) map[string][]*R {
	paths := map[string][]*R{"/": nil}
	for i := range table {
		p := pattern(&table[i])
		paths[p] = append(paths[p], &table[i])
	}
	for p := range paths {
		// /x would be redirected to /x/ for the sake of /x/{id...}.
		if parent, ok := strings.CutSuffix(p, "/{id...}"); ok && paths[parent] == nil {
			paths[parent] = nil
		}
	}
	return paths
}

// isClean reports whether http.ServeMux takes the path as it is. It redirects any
// other to a clean one, which clients that send a body do not follow.
func isClean(u *url.URL) bool {
	p := u.EscapedPath()
	if !strings.HasPrefix(p, "/") {
		return false
	}
	clean := path.Clean(p)
	return p == clean || clean != "/" && p == clean+"/"
}

// matchRoute chooses among the routes of the path by the method: 404 comes before
// 405.
func (x *httpExchange) matchRoute() error {
	x.id = x.r.PathValue("id")
	if len(x.routes) == 0 || x.id == "" && strings.HasSuffix(x.routes[0].path, "/{id...}") {
		return fault.New(fault.NotFound, "Not found: "+clip(x.r.URL.Path)+". The API's paths begin with /v1, for example /v1/chat/completions.")
	}
	var allowed []string
	for _, rt := range x.routes {
		if rt.method == x.r.Method || rt.method == http.MethodGet && x.r.Method == http.MethodHead {
			x.route = rt
			return nil
		}
		allowed = append(allowed, rt.method)
	}
	return methodNotAllowed(x.w.Header(), x.r.Method, allowed)
}

// methodNotAllowed is the error of a path that takes other methods. It sets the
// header that names them.
func methodNotAllowed(h http.Header, method string, allowed []string) error {
	h.Set("Allow", strings.Join(allowed, ", "))
	return fault.New(fault.MethodNotAllowed, "This path takes "+strings.Join(allowed, " or ")+", not "+clip(method)+".")
}

// clip bounds a text of the caller's in a message.
func clip(s string) string { return word.Truncate(s, 100) }
