// Package server puts a gateway behind HTTP: one table of routes, bodies in and
// out, error shapes and server-sent events. It knows no rule of a model and no
// price.
package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
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
	// TempDir is where multipart bodies above 1 MiB lie until their calls have
	// ended, in files without names; empty means os.TempDir.
	TempDir string
	// MaxUploads is how many bytes they may take there at one time; a body that
	// finds no room is refused with a 503. Zero means 8 GiB.
	MaxUploads int64
	// ReadTimeout is how long the next 64 KiB of a body, or its rest, may take to
	// come; zero means 30 s. A whole body may take ten times as long. It bounds no
	// in-process client.
	ReadTimeout time.Duration
	// WriteTimeout is how long one write to a client may take, the next 1 MiB of
	// an answer or one batch of a stream's events; zero means 30 s.
	WriteTimeout time.Duration
	// Ready are the checks of /readyz by name; a check that fails makes it 503.
	Ready map[string]func() error
	// Warn are checks that /readyz tells of when they fail, and stays ready.
	Warn map[string]func() error
}

// Handler serves the API of a gateway. It is an http.Handler that is safe for
// concurrent use and can be mounted in any mux; it answers for every path that
// it is given.
type Handler struct {
	gateway  *gateway.Gateway
	options  Options
	routes   []route
	uploads  *formdata.Quota
	inFlight atomic.Int64 // requests that are being answered
}

// New returns the handler of a gateway.
func New(g *gateway.Gateway, o Options) *Handler {
	if o.MaxBody == 0 {
		o.MaxBody = 32 << 20
	}
	if o.MaxForm == 0 {
		o.MaxForm = 64 << 20
	}
	if o.MaxUploads == 0 {
		o.MaxUploads = 8 << 30
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = 30 * time.Second
	}
	h := &Handler{gateway: g, options: o, uploads: formdata.NewQuota(o.MaxUploads)}
	h.routes = h.table()
	return h
}

// exchange is one request on its way through the handler.
type exchange struct {
	*gateway.Exchange
	h     *Handler
	w     http.ResponseWriter
	r     *http.Request
	route *route
	id    string // the {id} of the path

	smallStack bool // many requests are being answered

	status     int
	err        error         // what the client is told, or was
	limitsSent bool          // the headers say what is left of the key's limits
	stream     *streamWriter // once the call is one that streams
	audio      *audioWriter  // once the answer is audio
}

// ServeHTTP answers one request and writes its one log line.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.serveHealth(w, r) || serveDescription(w, r) {
		return
	}
	x := &exchange{Exchange: h.gateway.Begin(), h: h, w: w, r: r, smallStack: h.inFlight.Add(1) > smallStackAbove}
	defer h.inFlight.Add(-1)
	if ctx, made := x.Start(r.Context()); made {
		x.r = r.WithContext(ctx)
	}
	x.ClientID = clientID(r)
	x.setRequestID(x.ID)
	if x.smallStack {
		x.serveOnSmallStack()
	} else {
		x.err = x.serve()
		x.end()
	}
	if x.err != nil && x.audio.started() {
		panic(http.ErrAbortHandler)
	}
}

// end writes the error, if there is one, and the log line.
func (x *exchange) end() {
	defer func() { x.End(x.r.Context(), x.status, x.err) }() // also if a writer panics
	if x.err != nil {
		x.writeError(x.err)
	}
}

// serve walks the checks in the order of decisions.md and answers. An error
// that it returns is still to be written.
func (x *exchange) serve() (err error) {
	defer recoverPanic(&err)
	if err := x.matchRoute(); err != nil {
		return err
	}
	if err := x.authenticate(); err != nil {
		return err
	}
	if err := x.CheckVia(x.r.Header["Via"]); err != nil {
		return err
	}
	return x.route.serve(x)
}

// recovered turns a panic into an error.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fault.Wrap(fault.InternalError, "The gateway failed to handle the request.",
			fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	}
}

// authenticate hands on the token. Whether one is needed at all is not known
// here; only where it was may the header's form be what is wrong.
func (x *exchange) authenticate() error {
	token, err := x.token()
	if err != nil {
		return err
	}
	err = x.Authenticate(x.r.Context(), token)
	if token == "" && x.r.Header.Get("Authorization") != "" && fault.Is(err, fault.Unauthorized) {
		return fault.Wrap(fault.Unauthorized, "The Authorization header must be \"Bearer sk-…\".", err)
	}
	return err
}

// clientID is the caller's own id of the request, if it is fit to be logged:
// at most 512 printable ASCII characters (decisions.md, Request id).
func clientID(r *http.Request) string {
	id := r.Header.Get("X-Client-Request-Id")
	if len(id) > 512 {
		return ""
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return ""
		}
	}
	return id
}

// writeJSON answers with a JSON document.
func (x *exchange) writeJSON(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fault.Wrap(fault.InternalError, "The answer cannot be written as JSON.", err)
	}
	x.write(http.StatusOK, "application/json", append(data, '\n'))
	return nil
}

// write answers with a whole body. A client that does not take it is its own
// loss: the request was settled before.
func (x *exchange) write(status int, contentType string, body []byte) {
	header := x.w.Header()
	if contentType != "" {
		header["Content-Type"] = []string{contentType}
	}
	header["X-Content-Type-Options"] = []string{"nosniff"}
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

// heavyPiece is how much of a whole answer a client must take in the time that
// one write has.
const maxWrite = 1 << 20

// deadline bounds the next writes where the connection can be bounded.
func setWriteDeadline(w http.ResponseWriter, timeout time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout)) // in-process writers have none
}

// crowd is how many requests may be answered at once before it matters how much
// stack each takes.
const smallStackAbove = 1024

// serveInCrowd does what serve and end do, with as little stack as may be. A
// goroutine keeps what it once needed, which is 8 KiB or more for a call, 4 for a
// stream that only waits. So all but waiting for the upstream's next event is
// done on goroutines that end.
func (x *exchange) serveOnSmallStack() {
	streams := false
	detached(func() {
		x.err = x.serve()
		if streams = x.stream != nil && x.stream.source != nil; !streams {
			x.end()
		}
	})
	if !streams {
		return
	}
	for x.err == nil && !x.stream.ended {
		if x.err = x.stream.await(); x.err == nil {
			detached(func() { x.err = x.stream.next() })
		}
	}
	detached(func() {
		x.stream.close()
		x.end()
	})
}

// apart runs f on a goroutine of its own, and waits for its end. A panic is the
// caller's.
func detached(f func()) {
	ended := make(chan any)
	go func() {
		defer func() { ended <- recover() }()
		f()
	}()
	if p := <-ended; p != nil {
		panic(p)
	}
}
