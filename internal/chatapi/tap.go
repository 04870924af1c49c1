package chatapi

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Tap turns an upstream's stream into the client's, one event at a time, and
// reads usage as it passes. It is not safe for concurrent use.
type Tap struct {
	request *Request
	options TapOptions
	report  Report

	delivered  completion.Meter
	id         []byte // the stream's id as the client knows it, quoted
	idReplaced bool   // id was minted here and replaces the upstream's
	usageSent  bool   // the client got a usage chunk

	last   completion.Template // of the chunk before
	object *rawjson.Object     // of the event at hand
	edits  []rawjson.Edit
}

// TapOptions are what a Tap cannot know.
type TapOptions struct {
	Media   chat.MediaBound
	NewID   func() string // mints "chatcmpl-…" where the client needs an id before the upstream gave one
	Created int64         // Unix seconds, for chunks that the gateway makes
}

// NewTap returns a Tap for the request's stream.
func (r *Request) NewTap(o TapOptions) *Tap { return &Tap{request: r, options: o} }

// UseSummary has the Tap refer to a [Request.Summary] of its request from now on, so
// that the request's bytes can be freed.
func (t *Tap) UseSummary(r *Request) { t.request = r }

// Event appends what the client gets of one upstream event to dst. It fails
// with the fault.BadGateway that ends the stream if the event is an error frame
// or not one JSON object. At the end of a complete stream it is done, and appends
// the usage chunk that the client asked for, if the upstream gave none, but not
// the terminator.
func (t *Tap) Event(dst []byte, name string, data []byte) (out []byte, done bool, err error) {
	if text, ok := t.last.Match(name, data); ok {
		t.delivered.Wrote(tokencount.Quarters(text))
		return t.last.Append(dst, text), false, nil
	}
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		return t.usageChunk(dst), true, nil
	}
	var s answerScan
	t.object = rawjson.Borrow()
	defer t.giveBack()
	if err := t.index(data, &s); err != nil {
		return dst, false, err
	}
	if name == "error" {
		return dst, false, answer.ErrorFrame(data)
	}
	return t.chunk(dst, name, &s), false, nil
}

// giveBack ends the use of the index: a stream may be silent for long.
func (t *Tap) giveBack() {
	rawjson.GiveBack(t.object)
	t.object = nil
}

// index reads an event's payload in one pass.
func (t *Tap) index(data []byte, s *answerScan) error {
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
	if !s.choices && isErrorEvent(t.object) {
		return answer.ErrorFrame(data)
	}
	return nil
}

// Opening judges the first events of a stream before the answer is committed:
// whether one carries content, and the error if it is a failure behind a status
// 200.
func Opening(name string, data []byte) (content bool, err error) {
	var t Tap
	var s answerScan
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
	return s.text.Quarters > 0 || s.finished, nil
}

// chunk rewrites one chunk.
func (t *Tap) chunk(dst []byte, name string, s *answerScan) []byte {
	t.delivered.Wrote(s.text.Quarters)
	usage := t.object.Raw("usage")
	counted := t.report.Read(usage)
	if t.report.Read(s.nested) || counted {
		t.delivered.Counted()
	}
	t.edits = t.request.publicEdits(t.edits[:0], t.object)
	if usage != nil && !t.request.WantsUsage() {
		if s.count == 0 && !rawjson.IsNull(usage) {
			return dst
		}
		t.edits = append(t.edits, rawjson.Delete("usage"))
	}
	t.usageSent = t.usageSent || (t.request.WantsUsage() && !rawjson.IsNull(usage))
	t.keepID()
	out := t.write(dst)
	if rawjson.IsNull(usage) && !s.finished && s.nested == nil {
		t.last.Learn(name, t.object.Src, out[len(dst):], &s.text)
	}
	return out
}

// keepID keeps one id for the whole stream: an accumulator refuses a changed one.
func (t *Tap) keepID() {
	id := t.object.Raw("id")
	switch {
	case t.idReplaced && id != nil:
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
	u := t.request.usage(&t.report, t.delivered.Quarters, t.options.Media)
	if t.report.Has[output] {
		u = t.delivered.Raised(u)
	}
	return u
}

// Output is the number of output tokens delivered until now.
func (t *Tap) Output() int64 { return max(t.Said(), t.report.output()) }

// Said is the number of output tokens by the text alone, whatever the upstream
// reports.
func (t *Tap) Said() int64 { return t.delivered.Tokens() }

// Heartbeat appends an empty chunk that keeps the connection alive. Before the
// upstream's first chunk it fixes the stream's id.
func (t *Tap) Heartbeat(dst []byte) []byte {
	return t.ownChunk(dst, `{"index":0,"delta":{},"finish_reason":null}`)
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
	return t.usageChunk(t.ownChunk(dst, string(choices)))
}

// ownChunk appends a chunk made here.
func (t *Tap) ownChunk(dst []byte, choices string) []byte {
	dst = append(dst, "data: "...)
	dst = append(t.chunkHead(dst), `,"choices":[`...)
	dst = append(dst, choices...)
	return append(dst, "]}\n\n"...)
}

// chunkHead opens a chunk made here, up to its model.
func (t *Tap) chunkHead(dst []byte) []byte {
	if t.id == nil {
		t.id, t.idReplaced = rawjson.Quote(nil, t.options.NewID()), true
	}
	dst = append(dst, `{"id":`...)
	dst = append(dst, t.id...)
	dst = append(dst, `,"object":"chat.completion.chunk","created":`...)
	dst = strconv.AppendInt(dst, t.options.Created, 10)
	dst = append(dst, `,"model":`...)
	return append(dst, t.request.parsed.Model(t.request.Model)...)
}

// usageChunk appends the usage chunk, once, to a client that asked for it and
// whose upstream gave none.
func (t *Tap) usageChunk(dst []byte) []byte {
	if !t.request.WantsUsage() || t.usageSent {
		return dst
	}
	t.usageSent = true
	usage, err := json.Marshal(wireUsage(t.Usage()))
	if err != nil {
		return dst // integers marshal
	}
	dst = append(dst, "data: "...)
	dst = append(t.chunkHead(dst), `,"choices":[],"usage":`...)
	dst = append(dst, usage...)
	return append(dst, "}\n\n"...)
}

// errorKinds are words with which an event says that it is an error, where it has
// no member "error".
var errorKinds = map[string][]string{
	"type":   {"error", "response.error", "response.failed"},
	"object": {"error"},
}

// isErrorEvent reports whether an event without choices is an error in a form of a
// vendor's own: its kind is one, or it is a code with a
// message, or nothing but a "detail".
func isErrorEvent(o *rawjson.Object) bool {
	for name, words := range errorKinds {
		said, ok := rawjson.String(o.Raw(name))
		for _, word := range words {
			if ok && said == word {
				return true
			}
		}
	}
	_, message := rawjson.String(o.Raw("message"))
	return message && !rawjson.IsNull(o.Raw("code")) || len(o.Members) == 1 && o.Raw("detail") != nil
}
