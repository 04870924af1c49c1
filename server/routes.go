package server

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// route is a row of the table of routes. Each needs a key and counts as a request of it. A
// route with an op also takes two slots, its key's and the gateway's, and counts its tokens.
// What such a request may cost is held before an upstream is asked.
type route struct {
	method string
	path   string                      // a pattern of http.ServeMux; its {id...} is not empty
	op     upstream.Op                 // of a route with a body, which the gateway answers, body and all
	form   bool                        // its body is a form, of at most Options.MaxForm; else JSON, of at most Options.MaxBody
	serve  func(x *httpExchange) error // of any other, whose body is not read

	dialect *dialect // of the path
}

// The paths that take no key and are not requests of the API (health.go). Each
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
}

// Routes are all that the handler answers: the API's paths, in the order of its
// table, and those that take no key.
func (h *Handler) Routes() []Route {
	var routes []Route
	for _, r := range h.routes {
		routes = append(routes, Route{r.method, strings.Replace(r.path, "{id...}", "{id}", 1), false})
	}
	for _, path := range []string{healthPath, readyPath, descriptionPath} {
		routes = append(routes, Route{http.MethodGet, path, true})
	}
	return routes
}

// table is every path of the API: those of the endpoints, and those that the server answers
// itself.
func (h *Handler) table() []route {
	var routes []route
	for _, spec := range all.Specs() {
		for _, path := range append([]string{spec.Path}, spec.Paths...) {
			routes = append(routes, route{method: http.MethodPost, path: path, op: spec.Op, form: spec.ParseForm != nil})
		}
	}
	routes = append(routes,
		route{method: http.MethodGet, path: "/v1/responses/{id}", serve: (*httpExchange).showResponse},
		route{method: http.MethodDelete, path: "/v1/responses/{id}", serve: (*httpExchange).deleteResponse},
		route{method: http.MethodGet, path: "/v1/responses/{id}/input_items", serve: (*httpExchange).listInput},
		route{method: http.MethodGet, path: "/v1/videos/generations/{id...}", serve: (*httpExchange).showVideo},
		route{method: http.MethodGet, path: "/v1/models", serve: (*httpExchange).listModels},
		route{method: http.MethodGet, path: "/v1/models/{id...}", serve: (*httpExchange).showModel},
	)
	if reports, ok := h.gateway.Meter().(billing.Reports); ok {
		api := reportsAPI{reports}
		routes = append(routes,
			route{method: http.MethodGet, path: "/v1/balance", serve: api.balance},
			route{method: http.MethodGet, path: "/v1/usage", serve: api.usage},
			route{method: http.MethodGet, path: "/v1/receipts/{id...}", serve: api.receipt},
		)
	}
	for i := range routes {
		routes[i].dialect = dialectOfPath(routes[i].path)
	}
	return routes
}

// newMux registers the paths of the table and those that take no key.
func (h *Handler) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for path, routes := range routesByPath(h.routes, func(r *route) string { return r.path }) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { h.serveRoutes(w, r, routes) })
	}
	mux.HandleFunc("/v1/responses/compact", func(w http.ResponseWriter, r *http.Request) { h.serveRoutes(w, r, nil) }) // an operation that is not served, and no id
	mux.HandleFunc("HEAD /{$}", func(http.ResponseWriter, *http.Request) {})                                           // clients ask by it whether a server is there
	for path, serve := range map[string]http.HandlerFunc{healthPath: h.serveLiveness, readyPath: h.serveReadiness, descriptionPath: serveDescription} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if !h.answerPreflight(w, r, []string{http.MethodGet}) {
				serve(w, r)
			}
		})
	}
	return mux
}

// routesByPath groups a table by its patterns for an http.ServeMux. Patterns have no methods.
// Every path that ServeMux would answer or redirect itself has a row without routes, because
// ServeMux's errors are plain text.
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
	if !isPath(x.routes, x.r) {
		return fault.New(fault.NotFound, "Not found: "+safetext.Quoted(x.r.URL.Path)+". GET /openapi.json lists the paths.")
	}
	for _, rt := range x.routes {
		if rt.method == x.r.Method || rt.method == http.MethodGet && x.r.Method == http.MethodHead {
			x.route = rt
			return nil
		}
	}
	if err := x.checkPreflight(); err != nil {
		return err
	}
	return methodNotAllowed(x.w.Header(), x.r.Method, methodsOf(x.routes))
}

// isPath reports whether the API has the path, whose pattern the routes have: an id
// must not be empty.
func isPath(routes []*route, r *http.Request) bool {
	return len(routes) > 0 && (r.PathValue("id") != "" || !strings.HasSuffix(routes[0].path, "/{id...}"))
}

// methodsOf are the methods of a path's routes.
func methodsOf(routes []*route) (methods []string) {
	for _, rt := range routes {
		methods = append(methods, rt.method)
	}
	return methods
}

// methodNotAllowed is the error of a path that takes other methods. It sets the
// header that names them.
func methodNotAllowed(h http.Header, method string, allowed []string) error {
	h.Set("Allow", strings.Join(allowed, ", "))
	return fault.New(fault.MethodNotAllowed, "This path takes "+strings.Join(allowed, " or ")+", not "+safetext.Quoted(method)+".")
}
