package sim

import (
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

// body makes a whole answer's body what the fault makes of it.
func (f Fault) body(data []byte) io.ReadCloser {
	switch f.Break {
	case Cut:
		return bodyOf(data[:len(data)/2])
	case Reset:
		return io.NopCloser(io.MultiReader(bodyOf(data[:len(data)/2]), broken{}))
	case ErrorFrame:
		return bodyOf([]byte(errorFrame))
	case Garbage:
		return bodyOf([]byte(garbage))
	}
	return bodyOf(data)
}

// broken is a connection that was reset.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// refused is the error of a fault that refuses the call.
func refused(status int) error {
	message := fmt.Sprintf("The simulated upstream refused the request with status %d, as it was told to.", status)
	e := upstream.FromStatus(status).Fault()
	if e.Code == fault.InvalidRequest {
		return wrong(status, e.Code, "", message)
	}
	e.Message = message
	return e
}

// unfit is the refusal of a request that err says is wrong, or whose model the
// vendor does not have; nil if there is none.
func (u *Upstream) unfit(err error, model string) error {
	switch f := fault.From(err); {
	case f != nil:
		return wrong(400, f.Code, f.Param, f.Message)
	case !u.has(model):
		return wrong(404, fault.ModelNotFound, "model", fmt.Sprintf("The simulated vendor has no model %q.", model))
	}
	return nil
}

// wrong is a vendor's refusal of a request that is at fault itself.
func wrong(status int, code fault.Code, param, message string) error {
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
