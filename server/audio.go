package server

import (
	"errors"
	"io"
	"net/http"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
)

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
