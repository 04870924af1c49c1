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

// streamWriter copies a stream or audio to the client as it comes. Heartbeats, which
// another goroutine writes, keep a stream of events alive before its first event is
// there and between its events.
type streamWriter struct {
	x     *httpExchange
	audio bool // it writes audio

	mu        sync.Mutex
	committed bool
	flusher   http.Flusher
	control   *http.ResponseController
	deadline  time.Time // the write deadline in force
	broken    error     // the client does not take any more
	reported  bool      // the events themselves said how the stream ended
}

// sendEvents sends a stream to its end, behind the headers. Each batch of events leaves as it
// comes. The last one leaves when the handler returns, in one write with the end of the body,
// as a short whole answer does.
func (s *streamWriter) sendEvents(from *gateway.Stream) error {
	for {
		events, err := from.Next()
		if err != nil {
			s.reported = true
			return from.Err()
		}
		if err := s.write(events, !isSettled(from)); err != nil {
			return fault.Wrap(fault.ClientGone, "The client did not read the stream.", err)
		}
	}
}

// isSettled reports whether a stream has ended: no event follows the last one. The receipt must
// not lie on the stack while the stream waits (TestTheGoroutinesOfAStreamKeepLittleStack).
//
//go:noinline
func isSettled(s *gateway.Stream) bool {
	_, settled := s.Receipt()
	return settled
}

// sendAudio sends audio to its end, behind the headers. Each piece leaves as it comes.
func (s *streamWriter) sendAudio(from *gateway.Audio) error {
	s.audio = true
	for {
		piece, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.write(piece, true); err != nil {
			return fault.Wrap(fault.ClientGone, "The client did not read the audio.", err)
		}
	}
}

// heartbeat writes an event that keeps the connection alive. It commits the
// response.
func (s *streamWriter) heartbeat(event []byte) { _ = s.write(event, true) }

// write writes a piece, and has it leave at once where it is to be flushed.
func (s *streamWriter) write(piece []byte, flush bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if !s.committed {
		s.commit()
	}
	s.extendDeadline()
	if _, s.broken = s.x.w.Write(piece); s.broken != nil || !flush {
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

// commit sends the headers. Those of audio name its type already.
func (s *streamWriter) commit() {
	s.committed = true
	s.control = http.NewResponseController(s.x.w)
	h := s.x.w.Header()
	if s.audio {
		h["X-Accel-Buffering"] = []string{"no"}
	} else {
		// A Flusher keeps its error for the next write: an event that was written
		// counts as taken.
		s.flusher, _ = s.x.w.(http.Flusher)
		setEventHeaders(h)
	}
	h["X-Content-Type-Options"] = nosniff
	s.x.limitHeaders()
	s.x.status = http.StatusOK
	s.x.w.WriteHeader(http.StatusOK)
}

// setEventHeaders sets the headers of every stream of events, a replayed one
// included.
func setEventHeaders(h http.Header) {
	h["Content-Type"] = []string{"text/event-stream"}
	h["Cache-Control"] = []string{"no-cache"}
	h["X-Accel-Buffering"] = []string{"no"}
}

// extendDeadline moves the write deadline once half of it has passed: a system
// call for each event would cost more than the event.
func (s *streamWriter) extendDeadline() {
	now, timeout := time.Now(), s.x.h.options.WriteTimeout
	if s.deadline.Sub(now) > timeout/2 {
		return
	}
	s.deadline = now.Add(timeout)
	_ = s.control.SetWriteDeadline(s.deadline) // in-process writers have none
}

// started reports whether the response was committed.
func (s *streamWriter) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed
}

// mustAbort reports whether only a broken connection can tell the client that
// what it has is not whole: audio has no place for an error.
func (s *streamWriter) mustAbort() bool { return s.started() && s.audio }

// fail ends a committed stream of events with the error event, unless the stream
// itself did.
func (s *streamWriter) fail(err error) {
	if !s.reported && !s.audio {
		_ = s.write(s.x.entry.AppendError(nil, err), false)
	}
}
