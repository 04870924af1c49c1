package servertest

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

// MidMinute is the time by which requests are counted. It stands still: a minute of
// the real clock may end between two requests of any test.
func MidMinute() time.Time { return time.Date(2026, 3, 1, 12, 0, 20, 0, time.UTC) }

// Stream is an upstream that answers one call with a stream that the test writes.
type Stream struct {
	Called chan struct{} // closed when the call is there
	Gone   chan struct{} // closed when the call's context has ended
	in     *io.PipeReader
	out    *io.PipeWriter
}

// NewStream returns an upstream for one call.
func NewStream() *Stream {
	in, out := io.Pipe()
	return &Stream{make(chan struct{}), make(chan struct{}), in, out}
}

// Do implements [upstream.Upstream].
func (s *Stream) Do(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
	close(s.Called)
	context.AfterFunc(ctx, func() {
		_ = s.in.CloseWithError(context.Cause(ctx))
		close(s.Gone)
	})
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: s.in}, nil
}

// Send writes events, each with its data; it waits until they are read.
func (s *Stream) Send(t testing.TB, data ...string) {
	t.Helper()
	for _, d := range data {
		s.Write(t, "data: "+d+"\n\n")
	}
}

// Write writes a text; it waits until that is read.
func (s *Stream) Write(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(s.out, text); err != nil {
		t.Error(err)
	}
}

// End ends the stream.
func (s *Stream) End() { _ = s.out.Close() }

// Delta is the data of a chunk of a chat completion with a text.
func Delta(text string) string {
	return `{"id":"u","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}`
}
