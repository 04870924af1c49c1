package server

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
)

// streamWriter writes a stream's events, and heartbeats between them from
// another goroutine.
type streamWriter struct {
	x      *exchange
	source *gateway.Stream // once there is one
	ended  bool            // it has ended

	mu        sync.Mutex
	committed bool
	flusher   http.Flusher
	control   *http.ResponseController
	deadline  time.Time // the write deadline in force
	broken    error     // the client does not take any more
	reported  bool      // the stream itself said how it ended
}

// fail ends a committed response with the error event, unless the stream did.
func (s *streamWriter) fail(err error) {
	if !s.reported {
		_ = s.write(s.x.AppendError(nil, err))
	}
}

// announce sets headers, unless a heartbeat has sent them already.
func (s *streamWriter) setHeaders(set func(http.Header)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.committed {
		set(s.x.w.Header())
	}
}

// silence writes a heartbeat. It commits the response.
func (s *streamWriter) heartbeat(event []byte) { _ = s.write(event) }

// write sends events and flushes them.
func (s *streamWriter) write(events []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if !s.committed {
		s.commit()
	}
	s.extendDeadline()
	if _, s.broken = s.x.w.Write(events); s.broken != nil {
		return s.broken
	}
	if s.flusher != nil {
		s.flusher.Flush()
		return nil
	}
	if err := s.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.broken = err
	}
	return s.broken
}

func (s *streamWriter) commit() {
	s.committed = true
	s.control = http.NewResponseController(s.x.w)
	s.flusher, _ = s.x.w.(http.Flusher)
	h := s.x.w.Header()
	streamHeaders(h)
	h["X-Content-Type-Options"] = []string{"nosniff"}
	s.x.limitHeaders()
	s.x.status = http.StatusOK
	s.x.w.WriteHeader(http.StatusOK)
}

// streamHeaders are those of every stream, a replayed one included.
func streamHeaders(h http.Header) {
	h["Content-Type"] = []string{"text/event-stream"}
	h["Cache-Control"] = []string{"no-cache"}
	h["X-Accel-Buffering"] = []string{"no"}
}

// extend moves the write deadline, but not for every event.
func (s *streamWriter) extendDeadline() {
	now, timeout := time.Now(), s.x.h.options.WriteTimeout
	if s.deadline.Sub(now) > timeout/2 {
		return
	}
	s.deadline = now.Add(timeout)
	_ = s.control.SetWriteDeadline(s.deadline) // in-process writers have none
}

// copy sends the stream to its end. Every batch of events leaves as it comes.
func (s *streamWriter) copy() error {
	for !s.ended {
		if err := s.next(); err != nil {
			return err
		}
	}
	return nil
}

// await waits for what next sends.
func (s *streamWriter) await() (err error) {
	defer recoverPanic(&err)
	s.source.Await()
	return nil
}

// next sends the events that come next, before the first of them the headers.
func (s *streamWriter) next() (err error) {
	defer recoverPanic(&err)
	events, err := s.source.Next()
	if errors.Is(err, io.EOF) {
		s.ended, s.reported = true, true
		return s.source.Err()
	}
	if err != nil {
		return err
	}
	if err := s.write(events); err != nil {
		return fault.Wrap(fault.ClientGone, "The client did not take the stream.", err)
	}
	return nil
}

// close ends the stream, if it has not ended.
func (s *streamWriter) close() { _ = s.source.Close() }

// started reports whether the response was committed.
func (s *streamWriter) started() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed
}

// audioWriter copies spoken text to the client as it comes.
type audioWriter struct {
	x         *exchange
	committed bool
	control   *http.ResponseController
	until     time.Time // the write deadline in force
}

// copy sends the audio to its end. An error before the first byte is an
// ordinary one; after it the connection is broken off, since nothing else tells
// a client that what it has is not whole.
func (w *audioWriter) copy(a *gateway.Audio) error {
	defer func() { _ = a.Close() }()
	for {
		bytes, err := a.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.write(bytes); err != nil {
			return fault.Wrap(fault.ClientGone, "The client did not take the audio.", err)
		}
	}
}

// write sends and flushes bytes.
func (w *audioWriter) write(bytes []byte) error {
	if !w.committed {
		w.commit()
	}
	now, timeout := time.Now(), w.x.h.options.WriteTimeout
	if w.until.Sub(now) <= timeout/2 { // not for every chunk
		w.until = now.Add(timeout)
		_ = w.control.SetWriteDeadline(w.until) // in-process writers have none
	}
	if _, err := w.x.w.Write(bytes); err != nil {
		return err
	}
	if err := w.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (w *audioWriter) commit() {
	w.committed = true
	w.control = http.NewResponseController(w.x.w)
	h := w.x.w.Header()
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["X-Accel-Buffering"] = []string{"no"}
	w.x.limitHeaders()
	w.x.status = http.StatusOK
	w.x.w.WriteHeader(http.StatusOK)
}

// started reports whether the response was committed.
func (w *audioWriter) started() bool { return w != nil && w.committed }
