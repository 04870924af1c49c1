package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Fault is what goes wrong in one call. The zero Fault is a good answer.
type Fault struct {
	// Status refuses the call before any answer, with a vendor's HTTP status
	// (401, 429, 500 …).
	Status int
	// Break is how the answer breaks off; zero means that it does not.
	Break Break
	// After is how many events of a stream come before the break; 0 breaks it
	// before the first. An answer that is not streamed has no events: [Cut]
	// leaves half of its body.
	After int
	// NoUsage leaves out the report of usage, and ZeroUsage makes it an explicit zero.
	// A video's is in the answer to a poll.
	NoUsage, ZeroUsage bool
	// Video is the state in which the submitted video ends: "failed", "cancelled", "expired", or
	// "running" if it never ends. Empty means that it succeeds. A Break of a submission comes
	// after the video was taken, a Status before.
	Video string
	// NoVideoURL leaves the address out of a video that succeeded.
	NoVideoURL bool
}

// Break is a way in which an answer breaks off.
type Break uint8

// The ways to break off.
const (
	Cut        Break = iota + 1 // the body ends too early, as if it were complete
	Reset                       // the body ends in a transport error
	Stall                       // nothing more comes until the call's context ends
	ErrorFrame                  // an error object comes instead of the rest, under status 200
	Garbage                     // what comes next is not JSON
	Lost                        // the work is done, and the connection breaks before any answer
)

// breaks say what comes instead of the rest of an answer: a text, or the end of the body with
// an error. A nil error ends a complete body. A [Stall] waits instead, and a [Lost] answer is
// never sent.
var breaks = map[Break]struct {
	text string
	err  error
}{
	Cut:        {},
	Reset:      {err: io.ErrUnexpectedEOF},
	ErrorFrame: {text: `{"error":{"message":"The simulated model failed.","type":"server_error","code":"server_error","param":null}}`},
	Garbage:    {text: `{"id":"chatcmpl-`},
}

// body is the body of a whole answer under the fault.
func (f Fault) body(data []byte) io.ReadCloser {
	b, broken := breaks[f.Break]
	switch {
	case broken && b.text != "":
		data = []byte(b.text)
	case broken:
		data = data[:len(data)/2]
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(data), ending{b.err}))
}

// ending is the end of a connection: in an error, or by itself if err is nil.
type ending struct{ err error }

func (e ending) Read([]byte) (int, error) { return 0, cmp.Or(e.err, io.EOF) }

// streamBody is an answer as server-sent events. A Read gives at most one of them.
type streamBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the stream, and a Read that waits.
func (b *streamBody) Close() error {
	defer b.cancel()
	return b.PipeReader.Close()
}

// sendStream replies with events.
func (u *Upstream) sendStream(ctx context.Context, events iter.Seq[[]byte], f Fault) *upstream.Reply {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	go func() {
		defer cancel()
		_ = w.CloseWithError(u.writeStream(ctx, w, events, f))
	}()
	return funcmodel.Reply("text/event-stream", &streamBody{r, cancel})
}

// writeStream writes events at their pace, until the fault comes instead of the rest.
func (u *Upstream) writeStream(ctx context.Context, w io.Writer, events iter.Seq[[]byte], f Fault) error {
	sent, delay := 0, u.o.FirstDelay
	for event := range events {
		if err := wait(ctx, max(delay, 0)); err != nil {
			return err
		}
		b := breaks[f.Break]
		broken := f.Break != 0 && sent >= f.After
		switch {
		case broken && f.Break == Stall:
			return wait(ctx, forever)
		case broken && b.text == "":
			return b.err
		case broken:
			event = []byte("data: " + b.text + "\n\n")
		}
		if _, err := w.Write(event); err != nil || broken {
			return err
		}
		sent, delay = sent+1, u.o.Pace
	}
	return nil
}

// report puts the report of usage into an answer, as the fault says.
func (f Fault) report(answer, usage, zero object) {
	switch {
	case f.NoUsage:
	case f.ZeroUsage:
		answer["usage"] = zero
	default:
		answer["usage"] = usage
	}
}

// refused is the error of a fault that refuses the call.
func refused(status int) error {
	message := fmt.Sprintf("The simulated upstream refused the request with status %d, as it was told to.", status)
	f := upstream.FromStatus(status)
	f.Stated = upstream.Stated(status, "InternalError")
	e := f.Fault()
	if e.Code == fault.InvalidRequest {
		return vendorError(status, e.Code, "", message)
	}
	e.Message = message
	return e
}

// refusal returns the refusal of an invalid request (err) or of a model that the vendor does
// not have; nil without a reason.
func (u *Upstream) refusal(err error, model string) error {
	switch f := fault.From(err); {
	case f != nil:
		return vendorError(400, f.Code, f.Param, f.Message)
	case !u.has(model):
		return vendorError(404, fault.ModelNotFound, "model", fmt.Sprintf("The simulated vendor has no model %q.", model))
	}
	return nil
}

// vendorError is a vendor's refusal of a request that is at fault itself.
func vendorError(status int, code fault.Code, param, message string) error {
	e := &fault.Error{
		Code: code, Message: message, Param: param, Status: status,
		Err: &upstream.Failure{Status: status, Sent: true},
	}
	type body struct {
		Message string     `json:"message"`
		Type    string     `json:"type"`
		Code    fault.Code `json:"code"`
		Param   *string    `json:"param"`
	}
	b := body{strings.ToValidUTF8(message, "\uFFFD"), fault.Type(status), code, nil}
	if param != "" {
		b.Param = &param
	}
	e.Body, _ = json.Marshal(map[string]body{"error": b}) // strings marshal
	return e
}
