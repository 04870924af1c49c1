// Package sim is an upstream that calls no model. It answers in process, always the same to
// the same request, and says that it is a simulation. It serves demos and examples, and
// programs that test their own billing and their own handling of faults without a vendor.
// [Script] answers what a test says, call by call.
//
//	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
//	up := sim.Script( // first a call of a tool, then a text
//		sim.Step{Calls: []chat.ToolCall{{Function: chat.CalledFunction{Name: "weather", Arguments: `{"city":"Bern"}`}}}},
//		sim.Step{Text: "It rains."},
//	)
package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Options shape the simulation. The zero Options answer every model at once and
// without a fault. The functions must be safe for concurrent use.
type Options struct {
	// Models are the ids that are answered; any other is refused as a vendor
	// would, with a 404. Empty means every id.
	Models []string
	// Text makes the text of an answer, whatever tools and formats the request has. With nil,
	// or for an empty text, the answer calls the tools that the last message names, or follows
	// the format. Otherwise it says that it is simulated and quotes the last message.
	Text func(r *chat.Request) string
	// Fill makes every answer with a token bound exactly that long: plain text
	// that repeats itself, whatever tools, formats and stop sequences say.
	Fill bool
	// FirstDelay is the time before the first byte of an answer.
	FirstDelay time.Duration
	// Pace is the time between two events of a stream.
	Pace time.Duration
	// VideoTime is how long a video takes from its submission on; 6 s if zero,
	// no time if negative.
	VideoTime time.Duration
	// Fault says what goes wrong in a call; nil means nothing does.
	Fault func(call *upstream.Call) Fault
	// NewID makes the ids of answers and of videos; nil means an id derived from
	// the request's bytes, which is another for each video.
	NewID func() string
	// Now gives the `created` of answers and the time by which videos are made. Nil means
	// always the same moment for answers, so that equal requests get equal answers, and the
	// real time for videos.
	Now func() time.Time
}

// Upstream is the simulated vendor. It is safe for concurrent use.
type Upstream struct {
	o     Options
	tasks tasks
}

// New returns a simulated vendor.
func New(o Options) *Upstream { return &Upstream{o: o} }

// Jobs is how many videos were ever taken, including those whose answer was lost: what a
// vendor would bill.
func (u *Upstream) Jobs() int { return u.tasks.taken() }

// operations are those that are answered.
var operations = map[upstream.Op]func(*Upstream, context.Context, *upstream.Call, Fault) (*upstream.Reply, error){
	upstream.ChatCompletion: (*Upstream).chat,
	upstream.GenerateImage:  (*Upstream).generateImages,
	upstream.EditImage:      (*Upstream).editImages,
	upstream.SubmitVideo:    (*Upstream).submitVideo,
	upstream.PollVideo:      (*Upstream).pollVideo,
	upstream.Embeddings:     (*Upstream).embed,
	upstream.Speech:         (*Upstream).synthesize,
	upstream.Rerank:         (*Upstream).rank,
	upstream.Moderations:    (*Upstream).moderate,
}

// Supports reports whether the model is among those that are answered.
func (u *Upstream) Supports(op upstream.Op, model string) bool {
	return operations[op] != nil && u.has(model)
}

func (u *Upstream) has(model string) bool {
	return len(u.o.Models) == 0 || slices.Contains(u.o.Models, model)
}

// Do answers from the call's body alone, as a vendor does.
func (u *Upstream) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault.From(err)
	}
	do := operations[call.Op]
	if do == nil {
		return nil, fault.New(fault.NoChannel, fmt.Sprintf("The simulator does not know the operation %q.", call.Op))
	}
	var f Fault
	if u.o.Fault != nil {
		f = u.o.Fault(call)
	}
	if nestedStatuses[f.Video] == "" && f.Video != "" {
		return nil, fault.New(fault.InternalError, fmt.Sprintf("The simulator does not know the state %q of a video.", f.Video))
	}
	if f.Status != 0 {
		return nil, refused(f.Status)
	}
	reply, err := do(u, ctx, call, f)
	if err == nil && f.Break == Lost {
		_ = reply.Body.Close()
		return nil, (&upstream.Failure{Sent: true, Err: io.ErrUnexpectedEOF}).Fault()
	}
	return reply, err
}

// now is the time of answers, which is always the same unless the options say otherwise.
func (u *Upstream) now() time.Time {
	if u.o.Now != nil {
		return u.o.Now()
	}
	return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
}

// request reads the body of a call. It checks it by the rules of the public API, then by
// those of the simulated vendor.
func request[R any](u *Upstream, call *upstream.Call, parse func([]byte) (*R, error), rules ...func(*R) error) (*R, []byte, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, nil, unreadable(err)
	}
	r, err := parse(data)
	for _, rule := range rules {
		if err == nil {
			err = rule(r)
		}
	}
	return r, data, u.refusal(err, call.Model)
}

// obeys checks a request by the rules of the public API, for a model without rules of its own.
func obeys[R operation.Request](r R) error { return r.Check(&operation.Facts{}, nil, nil) }

// unreadable is the error of a body that cannot be read.
func unreadable(err error) error {
	return fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
}

// sendJSON waits and replies with a value as JSON.
func (u *Upstream) sendJSON(ctx context.Context, answer any, f Fault) (*upstream.Reply, error) {
	data, err := json.Marshal(answer, json.Deterministic(true))
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The simulated answer cannot be written as JSON.", err)
	}
	return u.send(ctx, "application/json", data, f)
}

// send waits and replies with a whole answer.
func (u *Upstream) send(ctx context.Context, contentType string, data []byte, f Fault) (*upstream.Reply, error) {
	delay := max(u.o.FirstDelay, 0)
	if f.Break == Stall {
		delay = forever
	}
	if err := wait(ctx, delay); err != nil {
		return nil, fault.From(err)
	}
	if breaks[f.Break].text != "" {
		contentType = "application/json"
	}
	return funcmodel.Reply(contentType, f.body(data)), nil
}

// forever is a delay that only the call's context ends.
const forever = time.Duration(-1)

// wait sleeps; it fails with the context's error.
func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	var over <-chan time.Time // never, for forever
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
