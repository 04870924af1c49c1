package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/paced"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/secret"
)

// Handler serves the tools by streamable HTTP, at whatever path it is mounted.
// It is safe for concurrent use.
type Handler struct {
	*toolServer
	transport http.Handler
	serverFor func(catalog) *sdk.Server
	running   runningRequests
}

// New returns the handler of a gateway's tools.
func New(g *gateway.Gateway, o Options) *Handler { return newHandler(newToolServer(g, o)) }

func newHandler(b *toolServer) *Handler {
	h := &Handler{toolServer: b, serverFor: b.server}
	h.transport = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		d, _ := r.Context().Value(httpRequestKey{}).(*httpRequest)
		if d == nil {
			return nil
		}
		return d.server
	}, &sdk.StreamableHTTPOptions{
		Stateless: true, MaxRequestBodyBytes: -1, PropagateRequestCancellation: true,
		// It would refuse all that a proxy on this machine passes on, since that comes
		// from here under a public name. What it is for checkOrigin does: a browser
		// names the page that sends a POST.
		DisableLocalhostProtection: true,
	})
	return h
}

// door is one HTTP request on its way in.
type httpRequest struct {
	h      *Handler
	w      *writer
	r      *http.Request
	x      *gateway.Exchange
	caller *caller

	token   string
	session string
	server  *sdk.Server // for who calls
}

type httpRequestKey struct{}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := &httpRequest{h: h, w: newWriter(w, &h.o), r: r, x: h.g.Begin()}
	w.Header().Set("X-Request-Id", d.x.ID)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	err := error(fault.New(fault.InternalError, "The gateway failed to handle the request."))
	defer func() { // also after a panic, which is net/http's to report
		d.w.stopHeartbeat()
		d.x.End(r.Context(), d.w.statusCode(), err)
	}()
	if err = d.serve(); err != nil {
		d.w.stopHeartbeat()
		refuseRequest(d.w, d.x, err)
	}
}

// serve walks the checks in the order of decisions.md: method, key, size, form.
// The origin comes before the key, so that a page learns nothing of keys.
func (d *httpRequest) serve() error {
	preflight := d.r.Method == http.MethodOptions && d.r.Header.Get("Origin") != ""
	if d.r.Method != http.MethodPost && d.r.Method != http.MethodDelete && !preflight {
		d.w.Header().Set("Allow", "POST, DELETE")
		return fault.New(fault.MethodNotAllowed, "The MCP server takes POST, and DELETE to end a session. It sends no messages of its own, so that there is nothing to GET.")
	}
	if err := d.h.checkOrigin(d.r); err != nil {
		return err
	}
	setCORSHeaders(d.w.Header(), d.r)
	if preflight {
		d.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	d.token = auth.Bearer(d.r.Header)
	if err := d.x.Authenticate(d.r.Context(), d.token); err != nil {
		return err
	}
	d.session = d.r.Header.Get(sessionHeader)
	if err := checkSession(d.session, d.token); err != nil {
		return err
	}
	if d.r.Method == http.MethodDelete {
		d.h.running.cancel(d.session, "")
		d.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	data, err := d.readBody()
	if err != nil {
		return err
	}
	return d.answer(data)
}

// envelope is what is read here of a message; the SDK checks the rest.
type envelope struct {
	Method string         `json:"method"`
	ID     jsontext.Value `json:"id"`
	Params struct {
		RequestID jsontext.Value `json:"requestId"`
	} `json:"params"`
}

// answer hands the message to the SDK and stays until it is answered, or taken
// back. Whoever hangs up takes it back too: nobody could be given the answer.
func (d *httpRequest) answer(data []byte) error {
	// What is made of a message takes many times its bytes.
	if err := rawjson.Within(data, rawjson.Bounds{Tokens: 1 << 16}); err != nil {
		return fault.Invalid("", "The message is not acceptable: "+err.Error()+".")
	}
	if err := checkBatch(data); err != nil {
		return err
	}
	var m envelope
	_ = json.Unmarshal(data, &m, jsontext.AllowDuplicateNames(true)) // a batch has none, and what is wrong the SDK says
	ctx, cancel := context.WithCancel(d.r.Context())
	defer cancel()
	switch m.Method {
	case "initialize":
		d.w.Header().Set(sessionHeader, newSession(d.x.ID, d.token))
	case "notifications/cancelled":
		if id := requestKey(m.Params.RequestID); id != "" {
			d.h.running.cancel(d.session, id)
		}
	}
	defer d.h.running.add(d.session, requestKey(m.ID), func() {
		d.w.discard()
		cancel()
	})()
	c, err := d.h.catalogOf(ctx, d.x.Principal())
	if err != nil {
		return err
	}
	d.server = d.h.serverFor(c)
	d.caller = &caller{
		g: d.h.g, ctx: ctx, token: secret.New(d.token), idempotencyKey: d.r.Header.Get("Idempotency-Key"),
		first: d.x, toolStarted: d.w.startHeartbeat,
	}
	r := d.r.WithContext(withCaller(context.WithValue(ctx, httpRequestKey{}, d), d.caller))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	d.h.transport.ServeHTTP(d.w, r)
	return d.w.sdkError()
}

// checkBatch refuses a list of too many messages: it counts as one request, and
// each of its messages can have a large answer.
func checkBatch(data []byte) error {
	const most = 32
	messages := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	if messages.PeekKind() != '[' {
		return nil
	}
	_, _ = messages.ReadToken()
	for n := 0; messages.PeekKind() == '{'; n++ {
		if n == most {
			return fault.Invalid("", fmt.Sprintf("A batch may have at most %d messages. Send them one by one.", most))
		}
		if messages.SkipValue() != nil {
			break // the SDK says what is wrong
		}
	}
	return nil
}

// name is a request's id as a key: the number 1 and the text "1" are two.
func requestKey(id jsontext.Value) string { return strings.TrimSpace(string(id)) }

// read reads the whole message, and nothing past the limit. It must keep coming.
func (d *httpRequest) readBody() ([]byte, error) {
	limit := d.h.o.MaxBody
	if d.r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if d.r.ContentLength > paced.Light { // a small message finds its place when its call begins
		if err := d.x.Admit(d.r.Context()); err != nil {
			return nil, err
		}
		if err := d.x.Room(d.r.ContentLength); err != nil {
			return nil, err
		}
	}
	body := paced.New(d.r.Body, d.w.control, d.h.o.ReadTimeout, d.x.Weigh)
	const maxPrealloc = 256 << 10 // a declared length is not believed beyond this
	var data bytes.Buffer
	if n := d.r.ContentLength; n > 0 {
		data.Grow(int(min(n, maxPrealloc)) + bytes.MinRead)
	}
	_, err := data.ReadFrom(http.MaxBytesReader(d.w, body, limit))
	var large *http.MaxBytesError
	var own *fault.Error
	switch {
	case errors.As(err, &own): // there is no room for it
		return nil, own
	case err == nil:
		body.Done()
		return data.Bytes(), nil
	case errors.As(err, &large):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.Wrap(fault.InvalidRequest, "The message came too slowly.", err).With(func(e *fault.Error) { e.Status = http.StatusRequestTimeout })
	case d.r.Context().Err() != nil:
		return nil, fault.Wrap(fault.ClientGone, "The client hung up before its message was read.", err)
	}
	return nil, fault.Wrap(fault.InvalidRequest, "The message could not be read to its end.", err)
}

func tooLarge(limit int64) error {
	return fault.New(fault.RequestTooLarge, fmt.Sprintf("The message is larger than %d bytes.", limit))
}

// checkOrigin refuses what a web page of somewhere else sends: a page can make a
// browser call a server that only the browser's machine reaches, under a name
// that it lets point there (DNS rebinding).
func (h *Handler) checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(h.o.Origins, origin) {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && isLoopback(u.Hostname()) {
		return nil
	}
	return fault.New(fault.PermissionDenied, "Web pages of this origin may not call. The operator names those that may in the configuration, under mcp.origins.")
}

// share lets the browser give the answer to the page that asked, whose origin was
// checked.
func setCORSHeaders(h http.Header, r *http.Request) {
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, X-Request-Id, Retry-After, WWW-Authenticate")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "POST, DELETE")
		h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", "600")
	}
}

// local reports whether a host is this machine, whoever asks.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
