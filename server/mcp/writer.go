package mcp

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// ioTimeout is how long the next 64 KiB of a message, or its rest, may take to come,
// and how long one write to a client may take.
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
