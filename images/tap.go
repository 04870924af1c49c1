package images

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// The events that have the picture, and end the stream.
const (
	completed     = "image_generation.completed"
	editCompleted = "image_edit.completed"
)

// Tap reads a stream of partial pictures as it passes. It is for one goroutine.
type Tap struct {
	r         *Request
	requestID string
	tokens    bool // they are paid for
	partials  int64
	done      *billing.Usage
}

// NewTap begins a stream. requestID and tokens are as in [Request.ReadAnswer].
func (r *Request) NewTap(requestID string, tokens bool) *Tap {
	return &Tap{r: r, requestID: requestID, tokens: tokens}
}

// Opening judges an event that comes before anything went to the client.
func Opening(name string, data []byte) error {
	_, err := event(name, data)
	return err
}

// event reads an event; it fails with the upstream's error, if it is one.
func event(name string, data []byte) (rawjson.Object, error) {
	o, err := rawjson.Index(data, nil, nil)
	switch {
	case err != nil:
		return o, answer.Bad("The upstream's stream has something in it that is not one JSON object.", err)
	case !rawjson.IsNull(o.Raw("error")):
		return o, answer.ErrorFrame(o.Raw("error"))
	case name == "error":
		return o, answer.ErrorFrame(data)
	}
	return o, nil
}

// Event appends what the client gets for an event of the upstream's; done says
// that the picture is complete.
func (t *Tap) Event(dst []byte, name string, data []byte) (out []byte, done bool, err error) {
	o, err := event(name, data)
	if err != nil {
		return dst, false, err
	}
	kind, _ := rawjson.String(o.Raw("type"))
	if kind == "" {
		kind = name
	}
	switch {
	case kind == completed || kind == editCompleted:
		u := t.r.usage(o.Raw("usage"), 1, t.tokens)
		t.done = &u
	case len(o.Raw("b64_json")) > 0:
		t.partials++
	}
	return sse.AppendEvent(dst, name, o.Apply(nil, t.r.edits(&o, t.requestID)...)), t.done != nil, nil
}

// Usage is what the stream took until now: as reported once it is complete, else
// an estimate by the share of the pictures that came.
func (t *Tap) Usage() billing.Usage {
	if t.done != nil {
		return *t.done
	}
	u := billing.Usage{Input: t.r.Estimate(), ImageInput: t.r.parsed.shown, Estimated: true}
	if t.partials > 0 {
		u.Images, u.ImageOutput = 1, t.Output()
	}
	return u
}

// Output is the number of output tokens until now.
func (t *Tap) Output() int64 {
	switch {
	case t.done != nil:
		return max(t.done.ImageOutput, 1)
	case t.partials == 0:
		return 0
	}
	all := t.r.OutputBound(0)
	return max(all*t.partials/(max(t.r.PartialImages, t.partials)+1), 1)
}
