package chat

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Tap turns an upstream's stream into the client's, one event at a time, and
// reads usage as it passes. It is not safe for concurrent use.
type Tap struct {
	request *Request
	options TapOptions
	report  report

	quarters int64  // text delivered, in quarter tokens
	fresh    bool   // nothing was delivered since the last report
	id       []byte // the stream's id as the client knows it, quoted
	minted   bool   // id was minted here and replaces the upstream's
	shown    bool   // the client got a usage chunk

	last   likeness        // of the chunk before
	object *rawjson.Object // of the event at hand
	edits  []rawjson.Edit
}

// TapOptions are what a Tap cannot know.
type TapOptions struct {
	Media   MediaBound
	NewID   func() string // mints "chatcmpl-…" where the client needs an id before the upstream gave one
	Created int64         // Unix seconds, for chunks that the gateway makes
}

// Kind says what an event was.
type Kind uint8

// The kinds of events.
const (
	Withheld Kind = iota // not for the client
	Empty                // a chunk without content
	Produced             // a chunk with content, a finish reason or usage
	Done                 // the end of a complete stream
)

// NewTap returns a Tap for the request's stream.
func (r *Request) NewTap(o TapOptions) *Tap { return &Tap{request: r, options: o} }

// Event appends what the client gets of one upstream event to dst. It fails
// with the fault.BadGateway that ends the stream if the event is an error frame
// or not one JSON object. At Done it appends the usage chunk that the client
// asked for, if the upstream gave none, but not the terminator: see [Terminator].
func (t *Tap) Event(dst []byte, name string, data []byte) ([]byte, Kind, error) {
	if text, ok := t.last.text(data); ok && name != "error" {
		return t.last.append(dst, text), t.count(&seen{quarters: tokencount.Quarters(text)}), nil
	}
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		return t.usageChunk(dst), Done, nil
	}
	var s seen
	t.object = rawjson.Borrow()
	defer t.giveBack()
	if err := t.index(data, &s); err != nil {
		return dst, Withheld, err
	}
	if name == "error" {
		return dst, Withheld, answer.ErrorFrame(data)
	}
	return t.chunk(dst, &s)
}

// giveBack ends the use of the index: a stream may be silent for long.
func (t *Tap) giveBack() {
	rawjson.GiveBack(t.object)
	t.object = nil
}

// index reads an event's payload in one pass.
func (t *Tap) index(data []byte, s *seen) error {
	err := rawjson.IndexInto(t.object, data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "choices" {
			return s.readChoices(rd, data, "delta")
		}
		_, err := rd.Skip()
		return err
	})
	if err != nil {
		return answer.Bad("The upstream sent an event that is not one JSON object.", err)
	}
	if e := t.object.Raw("error"); !rawjson.IsNull(e) {
		return answer.ErrorFrame(e)
	}
	if !s.choices && failed(t.object) {
		return answer.ErrorFrame(data)
	}
	return nil
}

// Opening judges the first events of a stream before the answer is committed:
// whether one carries content, and the error if it is a failure in disguise
// (faults.md, row 4).
func Opening(name string, data []byte) (content bool, err error) {
	var t Tap
	var s seen
	switch {
	case string(bytes.TrimSpace(data)) == "[DONE]":
		return true, answer.Bad("The upstream's stream is empty.", nil)
	case name == "error":
		return true, answer.ErrorFrame(data)
	}
	t.object = rawjson.Borrow()
	defer t.giveBack()
	if err := t.index(data, &s); err != nil {
		return true, err
	}
	return s.quarters > 0 || s.finished, nil
}

// chunk rewrites one chunk.
func (t *Tap) chunk(dst []byte, s *seen) ([]byte, Kind, error) {
	kind := t.count(s)
	usage := t.object.Raw("usage")
	told := t.report.read(usage)
	told = t.report.read(s.nested) || told
	t.fresh = t.fresh || told
	if !rawjson.IsNull(usage) || !rawjson.IsNull(s.nested) {
		kind = Produced
	}
	t.edits = t.request.publicEdits(t.edits[:0], t.object)
	if usage != nil && !t.request.WantsUsage() {
		if s.count == 0 && !rawjson.IsNull(usage) {
			return dst, Withheld, nil
		}
		t.edits = append(t.edits, rawjson.Delete("usage"))
	}
	t.shown = t.shown || (t.request.WantsUsage() && !rawjson.IsNull(usage))
	t.keepID()
	out := t.write(dst)
	if rawjson.IsNull(usage) {
		t.last.learn(t.object.Src, out[len(dst):], s)
	}
	return out, kind, nil
}

// count notes what the chunk delivers.
func (t *Tap) count(s *seen) Kind {
	if s.quarters > 0 {
		t.quarters += s.quarters
		t.fresh = false
	}
	if s.quarters > 0 || s.finished {
		return Produced
	}
	return Empty
}

// keepID keeps one id for the whole stream: an accumulator refuses a changed one.
func (t *Tap) keepID() {
	id := t.object.Raw("id")
	switch {
	case t.minted && id != nil:
		t.edits = append(t.edits, rawjson.Set("id", t.id))
	case t.id == nil && len(id) > len(`""`) && id[0] == '"':
		t.id = append([]byte(nil), id...)
	}
}

// write appends the edited chunk as one event.
func (t *Tap) write(dst []byte) []byte {
	if src := t.object.Src; bytes.IndexByte(src, '\n') >= 0 || bytes.IndexByte(src, '\r') >= 0 { // came as several data lines
		return sse.AppendData(dst, t.object.Apply(nil, t.edits...))
	}
	dst = append(dst, "data: "...)
	dst = t.object.Apply(dst, t.edits...)
	return append(dst, "\n\n"...)
}

// Usage is what was consumed until now. Text delivered after the upstream's
// last report is estimated, as is everything if there was no report.
func (t *Tap) Usage() billing.Usage {
	u := t.request.usage(&t.report, t.quarters, t.options.Media)
	if out := tokencount.Tokens(t.quarters); t.report.Has[completion] && !t.fresh && out > u.Output {
		u.Output, u.Estimated, u.Zero = out, true, false
	}
	return u
}

// Output is the number of output tokens delivered until now.
func (t *Tap) Output() int64 { return max(t.Said(), t.report.output()) }

// Said is the number of output tokens by the text alone, whatever the upstream
// reports.
func (t *Tap) Said() int64 { return tokencount.Tokens(t.quarters) }

// Heartbeat appends an empty chunk that keeps the connection alive. Before the
// upstream's first chunk it fixes the stream's id.
func (t *Tap) Heartbeat(dst []byte) []byte {
	return t.own(dst, `{"index":0,"delta":{},"finish_reason":null}`)
}

// CutShort appends the chunk that ends every candidate for reason "length",
// and the usage chunk if the client wants one. The terminator is not appended.
func (t *Tap) CutShort(dst []byte) []byte {
	choices := make([]byte, 0, 64)
	for i := range t.request.Candidates() {
		if i > 0 {
			choices = append(choices, ',')
		}
		choices = append(choices, `{"index":`...)
		choices = strconv.AppendInt(choices, i, 10)
		choices = append(choices, `,"delta":{},"finish_reason":"length"}`...)
	}
	return t.usageChunk(t.own(dst, string(choices)))
}

// own appends a chunk made here.
func (t *Tap) own(dst []byte, choices string) []byte {
	dst = append(dst, "data: "...)
	dst = append(t.head(dst), `,"choices":[`...)
	dst = append(dst, choices...)
	return append(dst, "]}\n\n"...)
}

// head opens a chunk made here, up to its model.
func (t *Tap) head(dst []byte) []byte {
	if t.id == nil {
		t.id, t.minted = rawjson.Quote(nil, t.options.NewID()), true
	}
	dst = append(dst, `{"id":`...)
	dst = append(dst, t.id...)
	dst = append(dst, `,"object":"chat.completion.chunk","created":`...)
	dst = strconv.AppendInt(dst, t.options.Created, 10)
	dst = append(dst, `,"model":`...)
	return append(dst, t.request.quotedModel()...)
}

// usageChunk appends the usage chunk, once, to a client that asked for it and
// whose upstream gave none.
func (t *Tap) usageChunk(dst []byte) []byte {
	if !t.request.WantsUsage() || t.shown {
		return dst
	}
	t.shown = true
	usage, err := json.Marshal(wireUsage(t.Usage()))
	if err != nil {
		return dst // integers marshal
	}
	dst = append(dst, "data: "...)
	dst = append(t.head(dst), `,"choices":[],"usage":`...)
	dst = append(dst, usage...)
	return append(dst, "}\n\n"...)
}

// Terminator is the event that ends a complete stream.
const Terminator = "data: [DONE]\n\n"
