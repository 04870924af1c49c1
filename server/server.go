// Package server puts a gateway behind HTTP: one table of routes, bodies in and
// out, error shapes and server-sent events. It knows no rule of a model and no
// price.
package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/formdata"
)

// Options configure a Handler. The zero value is the documented default.
type Options struct {
	// MaxBody is the largest JSON body in bytes; zero means 32 MiB.
	MaxBody int64
	// MaxForm is the largest multipart body in bytes; zero means 64 MiB.
	MaxForm int64
	// TempDir is where multipart bodies above 1 MiB are kept until their calls have
	// ended, in files without names; empty means os.TempDir.
	TempDir string
	// MaxUploads is how many bytes they may take there at one time; a body for which
	// there is no space is refused with a 503. Zero means 8 GiB.
	MaxUploads int64
	// ReadTimeout is how long the next 64 KiB of a body, or its rest, may take to
	// come; zero means 30 s. A whole body may take ten times as long. It bounds no
	// in-process client.
	ReadTimeout time.Duration
	// WriteTimeout is how long one write to a client can take; zero means 30 s. A write
	// is the next 1 MiB of an answer, or one batch of a stream's events.
	WriteTimeout time.Duration
	// Ready are the checks of /readyz by name; a check that fails makes it 503.
	Ready map[string]func() error
	// Warn are checks whose failures /readyz reports without becoming a 503.
	Warn map[string]func() error
	// CORS are the origins of the web pages that may call from a browser. Browsers send
	// them as scheme://host, with the port if it is not the scheme's. "*" stands for
	// all, and "null" for pages without an origin, which any page can make of itself.
	// None means that no page of another origin may. Credentials of the browser are
	// never allowed: without an Authenticator, any page that may call spends. SetCORS
	// replaces them.
	CORS []string
}

// Handler serves the API of a gateway. It is an http.Handler that is safe for
// concurrent use and can be mounted in any mux. It answers for every path that
// it is given.
type Handler struct {
	gateway *gateway.Gateway
	options Options
	routes  []route
	mux     *http.ServeMux
	uploads *formdata.Quota
	cors    atomic.Pointer[corsPolicy] // nil while no page may call
}

// New returns the handler of a gateway.
func New(g *gateway.Gateway, o Options) *Handler {
	o.MaxBody = cmp.Or(o.MaxBody, 32<<20)
	o.MaxForm = cmp.Or(o.MaxForm, 64<<20)
	o.MaxUploads = cmp.Or(o.MaxUploads, 8<<30)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 30*time.Second)
	h := &Handler{gateway: g, options: o, uploads: formdata.NewQuota(o.MaxUploads)}
	h.routes = h.table()
	h.mux = h.newMux()
	h.SetCORS(o.CORS)
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := h.cors.Load(); p != nil {
		p.allowOrigin(w.Header(), r)
	}
	if !isClean(r.URL) {
		h.serveRoutes(w, r, nil)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// httpExchange is one request on its way through the handler.
type httpExchange struct {
	h        *Handler
	w        http.ResponseWriter
	r        *http.Request
	routes   []*route          // of the path
	route    *route            // the one of the method
	id       string            // the {id} of the path
	dialect  *dialect          // of the path's clients
	entry    *gateway.Entry    // nil before the gateway knows the request
	response *gateway.Response // of an operation that was answered

	status     int
	err        error        // what the client is told, or was
	limitsSent bool         // the headers say what is left of the key's limits
	stream     streamWriter // of a call
}

// serveRoutes answers a request for a path that has these routes, and writes its
// one log line. There are none if it is not a path of the API.
func (h *Handler) serveRoutes(w http.ResponseWriter, r *http.Request, routes []*route) {
	if r.Method == http.MethodOptions && isPath(routes, r) && h.answerPreflight(w, r, methodsOf(routes)) {
		return
	}
	x := &httpExchange{h: h, w: w, r: r, routes: routes, dialect: dialectOf(routes, r)}
	x.stream.x = x
	if x.err = x.serve(); x.err == nil && x.response != nil {
		x.err = x.writeResponse()
	}
	x.end()
	if x.err != nil && x.stream.mustAbort() {
		panic(http.ErrAbortHandler)
	}
}

// end writes the error, if there is one, and the log line.
func (x *httpExchange) end() {
	defer func() { x.entry.End(x.status, x.err) }() // also if a writer panics
	if x.err != nil {
		x.writeError(x.err)
	}
}

// serve answers the request, but for what came of an operation, which is still to be written.
// The checks come in the order of the API: path (404), method (405), key (401, 403,
// 429), loops (508), then the body and its fields.
func (x *httpExchange) serve() (err error) {
	defer fault.Recover(&err)
	if err := x.enter(); err != nil {
		return err
	}
	if x.route.op == "" {
		return x.route.serve(x)
	}
	q := gateway.Request{Op: x.route.op}
	if err := x.read(&q); err != nil {
		return err
	}
	x.response, err = x.entry.Do(x.r.Context(), &q)
	return err
}

// writeJSON answers with a JSON document.
func (x *httpExchange) writeJSON(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fault.Wrap(fault.InternalError, "The answer cannot be written as JSON.", err)
	}
	x.write(http.StatusOK, "application/json", append(data, '\n'))
	return nil
}

// nosniff has browsers take an answer for what its type says. It is one value for all
// answers, and not to be changed.
var nosniff = []string{"nosniff"}

// maxWrite is how much of a whole answer a client must take within one
// Options.WriteTimeout.
const maxWrite = 1 << 20

// write answers with a whole body. A client that does not take it makes no
// difference to the request, which was settled before.
func (x *httpExchange) write(status int, contentType string, body []byte) {
	header := x.w.Header()
	if contentType != "" {
		header["Content-Type"] = []string{contentType}
	}
	header["X-Content-Type-Options"] = nosniff
	x.limitHeaders()
	x.status = status
	setWriteDeadline(x.w, x.h.options.WriteTimeout)
	x.w.WriteHeader(status)
	for len(body) > 0 {
		piece := body[:min(len(body), maxWrite)]
		if _, err := x.w.Write(piece); err != nil {
			return
		}
		if body = body[len(piece):]; len(body) > 0 {
			setWriteDeadline(x.w, x.h.options.WriteTimeout)
		}
	}
}

// setWriteDeadline bounds the next writes.
func setWriteDeadline(w http.ResponseWriter, timeout time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout)) // in-process writers have none
}
