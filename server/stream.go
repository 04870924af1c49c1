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

// streamSource is an answer that comes piece by piece: a *gateway.Stream, whose
// pieces are batches of events, or a *gateway.Audio.
type streamSource interface {
	Next() ([]byte, error) // the error is io.EOF after the last piece, or why its client got no more
	Err() error            // after an error of Next: why the answer is not whole
	Close() error
}

// streamWriter copies a streamSource to the client as it comes. Heartbeats, which
// another goroutine writes, keep a stream of events alive before its source is
// there and between its pieces.
type streamWriter struct {
	x      *httpExchange
	source streamSource    // once there is one
	events *gateway.Stream // the source, unless it is audio
	audio  bool            // the source is audio
	ended  bool            // the source has ended

	mu        sync.Mutex
	committed bool
	flusher   http.Flusher
	control   *http.ResponseController
	deadline  time.Time // the write deadline in force
	broken    error     // the client does not take any more
	reported  bool      // the events themselves said how the stream ended
}

// copy sends the source to its end. Each piece leaves as it comes.
func (s *streamWriter) copy() error {
	for !s.ended {
		if err := s.next(); err != nil {
			return err
		}
	}
	return nil
}

// next sends the piece that comes next, before the first of them the headers.
func (s *streamWriter) next() (err error) {
	defer fault.Recover(&err)
	piece, err := s.source.Next()
	if err != nil && (s.hasEvents() || errors.Is(err, io.EOF)) {
		s.ended, s.reported = true, true
		return s.source.Err()
	}
	if err != nil {
		return err
	}
	if err := s.write(piece, !s.isLast()); err != nil {
		what := "stream"
		if s.audio {
			what = "audio"
		}
		return fault.Wrap(fault.ClientGone, "The client did not read the "+what+".", err)
	}
	return nil
}

// isLast reports whether no piece comes after the one that Next has returned: the stream is
// settled. Such a piece leaves when the handler returns, in one write with the end of the
// body, as a short whole answer does.
func (s *streamWriter) isLast() bool {
	if s.events == nil {
		return false
	}
	_, settled := s.events.Receipt()
	return settled
}

// hasEvents reports whether the source is a stream of events.
func (s *streamWriter) hasEvents() bool { return s.events != nil }

// close ends the source, if it has not ended.
func (s *streamWriter) close() { _ = s.source.Close() }

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
