package images

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// ReadAnswer checks an upstream's 200 answer to the request: it has images.
// An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The answer gets the request's id as its own. Where tokens are
// paid for, their number is estimated if the upstream does not report it. The answer may lie in data.
func (r *Request) ReadAnswer(data []byte, opts operation.AnswerOptions) (operation.Answer, error) {
	o, err := rawjson.Index(data, nil, nil)
	if err := answer.Whole(&o, err); err != nil {
		return operation.Answer{}, err
	}
	output := o.Raw("output")
	if rawjson.IsNull(output) && !rawjson.IsNull(o.Raw("code")) {
		return operation.Answer{}, answer.ErrorFrame(data)
	}
	made := countPictures(o.Raw("data"), output)
	if made == 0 && (r.known || r.family.Messages || !mayHoldPicture(&o)) {
		return operation.Answer{}, noPicture()
	}
	usage := r.usage(o.Raw("usage"), int64(made), paysTokens(opts.Price))
	return operation.Answer{Body: o.ApplyInPlace(r.edits(&o, opts.RequestID)...), Usage: usage}, nil
}

// edits are those that the gateway owns in an answer.
func (r *Request) edits(o *rawjson.Object, requestID string) []rawjson.Edit {
	edits := []rawjson.Edit{rawjson.Delete("error")}
	if o.Raw("model") != nil {
		edits = append(edits, rawjson.Set("model", r.object.Raw("model")))
	}
	if r.family.Messages || o.Raw("request_id") != nil {
		edits = append(edits, rawjson.Set("request_id", rawjson.Quote(nil, requestID)))
	}
	return edits
}

// countPictures counts the images of OpenAI's form, data, and of the alpha
// family's, output, over all choices.
func countPictures(data, output []byte) (made int) {
	for _, picture := range rawjson.Elements(data) {
		if o, _ := rawjson.Index(picture, nil, nil); isPicture(&o) {
			made++
		}
	}
	for _, choice := range rawjson.Elements(rawjson.Lookup(output, "choices")) {
		for _, block := range rawjson.Elements(rawjson.Lookup(choice, "message", "content")) {
			if link, _ := rawjson.String(rawjson.Lookup(block, "image")); link != "" {
				made++
			}
		}
	}
	return made
}

// isPicture reports whether an object of OpenAI's form has an image: its file or a link.
func isPicture(o *rawjson.Object) bool {
	for _, name := range [...]string{"b64_json", "url"} {
		if raw := o.Raw(name); len(raw) > len(`""`) && raw[0] == '"' {
			return true
		}
	}
	return false
}

// noPicture is the error of an answer that has none.
func noPicture() error {
	return upstream.BadAnswer("The upstream's answer has no picture in it.", errors.New("no picture"))
}

// mayHoldPicture reports whether an answer of an unknown form may have an image. It may have
// one if a text in it is a link or too long for a word, or if its usage counts images. If it
// has OpenAI's list or DashScope's output, only those are looked at: an empty list says that
// no image was made.
func mayHoldPicture(o *rawjson.Object) bool {
	for _, name := range [...]string{"data", "output"} {
		if raw := o.Raw(name); !rawjson.IsNull(raw) {
			return hasPictureText(raw)
		}
	}
	usage, _ := rawjson.Index(o.Raw("usage"), nil, nil)
	n, _, _ := reportedPictures(&usage)
	return n > 0 || hasPictureText(o.Src)
}

// hasPictureText reports whether a text in JSON is a link, or as long as no word is.
func hasPictureText(raw []byte) bool {
	const longest = 256 // bytes of a word
	texts := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	for {
		token, err := texts.ReadToken()
		if err != nil {
			return false
		}
		if token.Kind() != '"' {
			continue
		}
		if s := token.String(); !strings.Contains(s, " ") && (strings.Contains(s, "://") || len(s) > longest) {
			return true
		}
	}
}

// The events that have the image, and end the stream.
const (
	completed     = "image_generation.completed"
	editCompleted = "image_edit.completed"
)

// Tap reads a stream of partial images as it passes. It is for one goroutine.
type Tap struct {
	r         *Request
	requestID string
	tokens    bool  // they are paid for
	partials  int64 // images that came
	whole     bool  // a final image has come
	done      *billing.Usage
}

// NewTap begins a stream.
func (r *Request) NewTap(o operation.AnswerOptions) operation.Tap {
	return &Tap{r: r, requestID: o.RequestID, tokens: paysTokens(o.Price)}
}

// Opening judges an event that comes before anything went to the client.
func (r *Request) Opening(name string, data []byte) (content bool, err error) {
	o, err := event(name, data)
	if err == nil && isLast(kindOf(&o, name)) && !isPicture(&o) {
		return false, noPicture()
	}
	return true, err
}

// The stream has no end but its last image, and nothing that could be sent while the client
// waits.

// Said is 0: no text is made.
func (t *Tap) Said() int64 { return 0 }

// Delivered is true: the client gets each event at once.
func (t *Tap) Delivered() bool { return true }

// Heartbeat appends nothing.
func (t *Tap) Heartbeat(dst []byte) []byte { return dst }

// CutShort appends nothing.
func (t *Tap) CutShort(dst []byte) []byte { return dst }

// Terminator is empty.
func (t *Tap) Terminator() string { return "" }

// DropRequest does nothing: a request is small.
func (t *Tap) DropRequest() bool { return false }

// kindOf is the type of an event, which it says or its name does.
func kindOf(o *rawjson.Object, name string) string {
	if kind, _ := rawjson.String(o.Raw("type")); kind != "" {
		return kind
	}
	return name
}

func isLast(kind string) bool { return kind == completed || kind == editCompleted }

// event reads an event; it fails with the upstream's error, if it is one.
func event(name string, data []byte) (rawjson.Object, error) {
	o, err := rawjson.Index(data, nil, nil)
	switch {
	case err != nil:
		return o, upstream.BadAnswer("The upstream's stream has something in it that is not one JSON object.", err)
	case !rawjson.IsNull(o.Raw("error")):
		return o, answer.ErrorFrame(o.Raw("error"))
	case name == "error":
		return o, answer.ErrorFrame(data)
	}
	return o, nil
}

// Event appends what the client gets for an event of the upstream's; done says
// that the image is complete.
func (t *Tap) Event(dst []byte, name string, data []byte) (out []byte, done bool, err error) {
	o, err := event(name, data)
	if err != nil {
		return dst, false, err
	}
	switch kind, picture := kindOf(&o, name), isPicture(&o); {
	case isLast(kind) && !picture && !t.whole: // some vendors send each image in an event before the last
		return dst, false, noPicture()
	case isLast(kind):
		u := t.r.usage(o.Raw("usage"), 1, t.tokens)
		t.done = &u
	case picture:
		t.partials++
		t.whole = t.whole || !strings.HasSuffix(kind, ".partial_image")
	}
	return sse.AppendEvent(dst, name, o.Apply(nil, t.r.edits(&o, t.requestID)...)), t.done != nil, nil
}

// Usage is what the stream took until now: as reported once it is complete, else
// an estimate by the share of the images that came.
func (t *Tap) Usage() billing.Usage {
	if t.done != nil {
		return *t.done
	}
	u := billing.Usage{Estimated: true}
	u.Input, u.ImageInput = t.r.Estimate()
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

// Unfold makes the event of a stream out of the whole answer with which an upstream answered a
// streamed request: its one image is complete. A stream has no form for more of them.
func (r *Request) Unfold(data []byte) ([]sse.Event, error) {
	o, err := answer.Document(data)
	if err != nil {
		return nil, err
	}
	made := rawjson.Elements(o.Raw("data"))
	if len(made) != 1 || countPictures(o.Raw("data"), nil) != 1 {
		return nil, upstream.BadAnswer("The upstream's answer to a streamed request has not exactly one image in it.", nil)
	}
	kind := completed
	if r.Edit != nil {
		kind = editCompleted
	}
	edits := []rawjson.Edit{rawjson.Set("type", rawjson.Quote(nil, kind))}
	for name, raw := range o.All() {
		switch name {
		case "data", "error":
		case "created":
			edits = append(edits, rawjson.Set("created_at", raw)) // as events call it
		default:
			edits = append(edits, rawjson.Set(name, raw))
		}
	}
	return []sse.Event{{Name: kind, Data: rawjson.Apply(made[0], edits...)}}, nil
}
