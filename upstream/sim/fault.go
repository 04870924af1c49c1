package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Fault is what goes wrong in one call. The zero Fault is a good answer.
type Fault struct {
	// Status refuses the call before any answer, with a vendor's HTTP status
	// (401, 429, 500 …).
	Status int
	// Break is how the answer breaks off; [Whole] means that it does not.
	Break Break
	// After is how many events of a stream come before the break; 0 breaks it
	// before the first. An answer that is not streamed has no events: [Cut]
	// leaves half of its body.
	After int
	// Usage is what happens to the report of usage; [Reported] means nothing. A
	// video's is in the answer to a poll.
	Usage Report
	// Video is how the video ends that the call submits. A Break of a submission
	// comes after the video was taken, a Status before.
	Video Ending
}

// Break is a way in which an answer breaks off.
type Break uint8

// The ways to break off.
const (
	Whole      Break = iota // not at all
	Cut                     // the body ends too early, as if it were complete
	Reset                   // the body ends in a transport error
	Stall                   // nothing more comes until the call's context ends
	ErrorFrame              // an error object comes instead of the rest, under status 200
	Garbage                 // what comes next is not JSON
	Lost                    // the work is done, and the connection breaks before any answer
)

// Ending is how a video ends.
type Ending uint8

// The ways to end.
const (
	VideoMade      Ending = iota // as it was asked for
	VideoFailed                  // by a fault of the vendor's
	VideoCancelled               // as if somebody had cancelled it
	VideoExpired                 // the vendor gave it up
	VideoEndless                 // never
	VideoEmpty                   // as if it were made, without its address
)

// Report is what an answer says of usage.
type Report uint8

// The reports of usage.
const (
	Reported  Report = iota // once, as it was
	Withheld                // not at all
	Twice                   // two times; in a stream only
	ZeroUsage               // as an explicit zero
)

// times is how often a stream reports usage.
func (r Report) times() int {
	switch r {
	case Withheld:
		return 0
	case Twice:
		return 2
	}
	return 1
}

const (
	errorFrame = `{"error":{"message":"The simulated model failed.","type":"server_error","code":"server_error","param":null}}`
	garbage    = `{"id":"chatcmpl-`
)

// breaks say what comes in the place of the rest of an answer: a text, or the
// end of the body with an error, nil being the end of a body that is complete.
// A [Stall] waits instead, and a [Lost] answer is never sent.
var breaks = map[Break]struct {
	text string
	err  error
}{
	Cut:        {},
	Reset:      {err: io.ErrUnexpectedEOF},
	ErrorFrame: {text: errorFrame},
	Garbage:    {text: garbage},
}

// body is the body of a whole answer under the fault.
func (f Fault) body(data []byte) io.ReadCloser {
	b, breaksOff := breaks[f.Break]
	rest := io.Reader(strings.NewReader(b.text))
	switch {
	case !breaksOff:
		rest = bytes.NewReader(data)
	case b.text == "":
		rest = io.MultiReader(bytes.NewReader(data[:len(data)/2]), failingReader{b.err})
	}
	return io.NopCloser(rest)
}

// failingReader is a connection that ends: by itself if err is nil.
type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, cmp.Or(r.err, io.EOF) }

// refused is the error of a fault that refuses the call.
func refused(status int) error {
	message := fmt.Sprintf("The simulated upstream refused the request with status %d, as it was told to.", status)
	e := upstream.FromStatus(status).Fault()
	if e.Code == fault.InvalidRequest {
		return vendorError(status, e.Code, "", message)
	}
	e.Message = message
	return e
}

// refusal is the refusal of a request that err says is wrong, or whose model the
// vendor does not have; nil if there is none.
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
	if data, err := json.Marshal(map[string]body{"error": b}); err == nil {
		e.Body = data
	}
	return e
}
