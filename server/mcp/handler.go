package mcp

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/slowbody"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server/internal/httpio"
)

// httpRequest is one HTTP request on its way in.
type httpRequest struct {
	h     *Handler
	w     *writer
	r     *http.Request
	entry *gateway.Entry

	token          string
	session        string
	idempotencyKey string
	message        []byte         // the body
	messageID      jsontext.Value // nil until it is read, or if the message has none
}

// errPreflight ends a request that a browser makes to ask whether it may make another.
var errPreflight = fault.New(fault.NotFound, "The request asks whether a page may call.")

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &httpRequest{h: h, w: newWriter(w, h.o.KeepAlive), r: r}
	caller := gateway.Caller{Refused: q.check()}
	if caller.Refused == nil {
		q.token, caller.Refused = httpio.Key(r.Header)
		caller.Token = q.token
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	entry, err := h.g.Enter(r.Context(), caller)
	if err != nil && caller.Refused == nil && caller.Token == "" {
		err = httpio.NameMisplacedKey(r.Header, err)
	}
	q.entry = entry
	defer func() { // also after a panic, which is net/http's to report
		q.w.stopHeartbeat()
		entry.End(q.w.statusCode(), err)
	}()
	w.Header().Set("X-Request-Id", entry.ID)
	if err == nil {
		err = q.read()
	}
	switch {
	case err == error(errPreflight):
		w.WriteHeader(http.StatusNoContent)
		err = nil
		return
	case err == nil && r.Method == http.MethodDelete:
		h.running.end(requestName{session: q.session})
		w.WriteHeader(http.StatusNoContent)
		return
	case err == nil:
		err = q.answer()
	}
	if err != nil {
		q.w.stopHeartbeat()
		refuseRequest(q.w, entry.ID, q.messageID, err)
	}
}

// check refuses a request by its method and its origin, which come before the key,
// so that a page learns nothing of keys.
func (q *httpRequest) check() error {
	preflight := q.r.Method == http.MethodOptions && q.r.Header.Get("Origin") != ""
	if q.r.Method != http.MethodPost && q.r.Method != http.MethodDelete && !preflight {
		q.w.Header().Set("Allow", "POST, DELETE")
		return fault.New(fault.MethodNotAllowed, "The MCP server takes POST, and DELETE to end a session. It sends no messages of its own, so that there is nothing to GET.")
	}
	if err := q.h.checkOrigin(q.r); err != nil {
		return err
	}
	setCORSHeaders(q.w.Header(), q.r)
	if preflight {
		return errPreflight
	}
	return nil
}

// read checks the session and reads the whole message, and nothing past the limit.
// A large one takes its slot first; a small one does when its call begins.
func (q *httpRequest) read() (err error) {
	defer fault.Recover(&err)
	q.session = q.r.Header.Get(sessionHeader)
	if err := checkSession(q.session, q.token); err != nil || q.r.Method == http.MethodDelete {
		return err
	}
	if q.idempotencyKey, err = httpio.IdempotencyKey(q.r.Header); err != nil {
		return err
	}
	body := &httpio.Body{Name: "message", Limit: q.h.o.MaxBody, Timeout: ioTimeout, Memory: q.entry}
	if err := body.CheckLength(q.r); err != nil {
		return err
	}
	if n := q.r.ContentLength; n > slowbody.Light {
		if err := q.entry.AcquireSlot(q.r.Context(), n); err != nil {
			return err
		}
	}
	q.message, err = body.ReadAll(q.w, q.r)
	return err
}

// envelope is what is read here of a message; the SDK checks the rest.
type envelope struct {
	Method string         `json:"method"`
	ID     jsontext.Value `json:"id"`
	Params struct {
		RequestID jsontext.Value `json:"requestId"`
	} `json:"params"`
}

// answer hands the message to the SDK and stays until it is answered or cancelled.
// A client that disconnects cancels it too: the answer could not be delivered.
func (q *httpRequest) answer() error {
	data := q.message
	// The values of a message take many times its bytes in memory.
	if err := rawjson.Within(data, rawjson.Bounds{Tokens: 1 << 16}); err != nil {
		return fault.Invalid("", "The message is not acceptable: "+err.Error()+".")
	}
	if err := checkBatch(data); err != nil {
		return err
	}
	var m envelope
	_ = json.Unmarshal(data, &m, jsontext.AllowDuplicateNames(true)) // a batch has none, and the SDK says what is wrong
	q.messageID = m.ID
	ctx, cancel := context.WithCancel(q.r.Context())
	defer cancel()
	switch m.Method {
	case "initialize":
		q.w.Header().Set(sessionHeader, newSession(q.entry.ID, q.token))
	case "notifications/cancelled":
		if id := requestKey(m.Params.RequestID); id != "" {
			q.h.running.end(requestName{q.session, id})
		}
	}
	defer q.h.running.add(requestName{q.session, requestKey(m.ID)}, func() {
		q.w.discard()
		cancel()
	})()
	r := q.r.WithContext(context.WithValue(ctx, callerKey{}, &caller{
		ctx: ctx, token: secret.New(q.token), principal: q.entry.Principal(), idempotencyKey: q.idempotencyKey,
		first: q.entry, toolStarted: q.w.startHeartbeat,
	}))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	q.h.transport.ServeHTTP(q.w, r)
	return q.w.sdkError()
}

// checkBatch refuses a list of too many messages: it counts as one request, and
// each of its messages can have a large answer.
func checkBatch(data []byte) error {
	const maxMessages = 32
	messages := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	if messages.PeekKind() != '[' {
		return nil
	}
	_, _ = messages.ReadToken()
	for n := 0; messages.PeekKind() == '{'; n++ {
		if n == maxMessages {
			return fault.Invalid("", fmt.Sprintf("A batch may have at most %d messages. Send them one by one.", maxMessages))
		}
		if messages.SkipValue() != nil {
			break // the SDK says what is wrong
		}
	}
	return nil
}

// requestKey is a request's id as a key: the number 1 and the text "1" are two.
func requestKey(id jsontext.Value) string { return strings.TrimSpace(string(id)) }

// checkOrigin refuses requests of web pages of other origins. Such a page's owner can point
// its name at a server that only the browser's machine reaches, and make the browser call it
// (DNS rebinding).
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

// setCORSHeaders lets the browser give the answer to the page that asked, whose
// origin was checked.
func setCORSHeaders(h http.Header, r *http.Request) {
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	httpio.AllowOrigin(h, origin, "Mcp-Session-Id, X-Request-Id, Retry-After, WWW-Authenticate")
	if r.Method == http.MethodOptions {
		httpio.AnswerPreflight(h, []string{http.MethodPost, http.MethodDelete}, httpio.PreflightHeaders(r))
	}
}

// isLoopback reports whether a host name means the machine itself on every machine.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// sessionHeader names a session of the versions of the protocol that have them.
const sessionHeader = "Mcp-Session-Id"

// A session's id proves that it was issued for the key that comes with it. It ends in an
// authentication code that only the key's holder can make. So the server keeps nothing of a
// session, any node knows its ids, also after a restart, and an id is worthless with another
// key.

// newSession is the id of a session that the exchange with this id opens.
func newSession(exchange, token string) string {
	name := strings.TrimPrefix(exchange, "req_")
	return "mcp_" + name + "." + sessionMAC(name, token)
}

// checkSession is nil for an id that was given out for the key, and where there
// is none.
func checkSession(id, token string) error {
	name, code, _ := strings.Cut(strings.TrimPrefix(id, "mcp_"), ".")
	if id == "" || hmac.Equal([]byte(code), []byte(sessionMAC(name, token))) && strings.HasPrefix(id, "mcp_") {
		return nil
	}
	return fault.New(fault.NotFound, "This key has no such session. Begin a new one with initialize.")
}

func sessionMAC(name, token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte("tollhouse mcp session\n" + name)) // a hash takes everything
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

// runningRequests are the requests that a client can cancel: those of sessions. It is
// this node's only; on another one nothing is found, and a client that wants to be
// sure closes its connection.
type runningRequests struct {
	mu     sync.Mutex
	cancel map[requestName]context.CancelFunc
}

// requestName is a session and the client's id of one of its requests.
type requestName struct{ session, id string }

// add notes a request until done is called.
func (r *runningRequests) add(name requestName, cancel context.CancelFunc) (done func()) {
	if name.session == "" || name.id == "" {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel == nil {
		r.cancel = make(map[requestName]context.CancelFunc)
	}
	if r.cancel[name] != nil { // the first one keeps its name
		return func() {}
	}
	r.cancel[name] = cancel
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.cancel, name)
	}
}

// end cancels a request, or all of a session for an empty id.
func (r *runningRequests) end(which requestName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, cancel := range r.cancel {
		if name == which || which.id == "" && name.session == which.session {
			cancel()
		}
	}
}

// ioTimeout is how long the next 64 KiB of a message, or its rest, may take to arrive. It also
// bounds one write to a client.
const ioTimeout = 30 * time.Second

// writer is the response to one request. Each write has a deadline, and while a
// tool runs, a silent stream gets a comment now and then.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	every   time.Duration // between two heartbeats

	mu         sync.Mutex
	status     int
	events     bool      // the answer is a stream of events
	last       time.Time // of the last write
	heartbeat  *time.Timer
	ended      bool
	discarding bool // the client does not want the answer any more
	refusal    *sdkRefusal
}

// sdkRefusal is why the SDK does not take a message: a status, and a sentence that
// is no message of the protocol.
type sdkRefusal struct {
	status int
	text   []byte
}

func newWriter(w http.ResponseWriter, every time.Duration) *writer {
	return &writer{ResponseWriter: w, control: http.NewResponseController(w), every: every}
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 && status >= http.StatusBadRequest && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.refusal = &sdkRefusal{status: status}
		return
	}
	w.commit(status)
}

// commit sends the status, of the first call only. The lock is held.
func (w *writer) commit(status int) {
	if w.status == 0 {
		w.status = status
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(p)
}

// write writes a piece, or keeps it where it is the sentence of a refusal. The lock is held.
func (w *writer) write(p []byte) (int, error) {
	if w.refusal != nil {
		w.refusal.text = append(w.refusal.text, p...)
		return len(p), nil
	}
	if w.discarding {
		return len(p), nil
	}
	w.commit(http.StatusOK)
	w.last = time.Now()
	_ = w.control.SetWriteDeadline(w.last.Add(ioTimeout)) // in-process writers have none
	return w.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commit(http.StatusOK)
	return w.control.Flush()
}

// startHeartbeat begins the heartbeats. It is called when the headers are set and
// only the stream is still to come.
func (w *writer) startHeartbeat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heartbeat == nil && !w.ended {
		w.events = w.Header().Get("Content-Type") == "text/event-stream"
		w.last = time.Now()
		w.heartbeat = time.AfterFunc(w.every, w.writeHeartbeat)
	}
}

// writeHeartbeat runs on the timer: it writes if nothing was written for so long.
func (w *writer) writeHeartbeat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.discarding {
		return
	}
	idle := time.Since(w.last)
	if idle >= w.every && w.events {
		if _, err := w.write([]byte(": still working\n\n")); err != nil {
			return // the request's context tells the rest
		}
		_ = w.control.Flush() // a client that is gone is noticed by the next write
		idle = 0
	}
	w.heartbeat.Reset(max(w.every-idle, time.Millisecond))
}

// discard drops all that is written from now on: a cancelled request is not
// answered.
func (w *writer) discard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.discarding = true
}

// sdkError is the error of a message that was not taken; nil if it was.
func (w *writer) sdkError() error {
	const maxText = 300 // bytes of the SDK's sentence
	w.mu.Lock()
	defer w.mu.Unlock()
	status, text := w.status, "The message was refused."
	if r := w.refusal; r != nil {
		w.refusal = nil
		status = r.status
		text = "The message cannot be taken: " + strings.ToValidUTF8(strings.TrimSpace(string(r.text[:min(len(r.text), maxText)])), "")
	}
	switch {
	case status < http.StatusBadRequest:
		return nil
	case status == http.StatusUnsupportedMediaType:
		return fault.New(fault.UnsupportedMediaType, text)
	case status == http.StatusNotFound:
		return fault.New(fault.NotFound, text)
	case status >= http.StatusInternalServerError:
		return fault.New(fault.InternalError, text)
	}
	refusal := fault.Invalid("", text)
	if strings.Contains(text, "JSON RPC not handled") { // the SDK's words, which no value of it is known by
		refusal.Err = errUnknownMethod
	}
	return refusal
}

// errUnknownMethod is the cause of the refusal of a message whose method the server
// does not have.
var errUnknownMethod = errors.New("unknown method")

// stopHeartbeat ends the heartbeats. Nothing is written from then on but by the caller.
func (w *writer) stopHeartbeat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.heartbeat != nil {
		w.heartbeat.Stop()
	}
}

// statusCode is the status; 0 if nothing was answered.
func (w *writer) statusCode() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}
