package chat

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Tap turns an upstream's stream into the client's, one event at a time, and
// reads usage as it passes. It is not safe for concurrent use.
type Tap struct {
	conversation.Tap
	request *Request
	options operation.AnswerOptions

	id         []byte // the stream's id as the client knows it, quoted
	idReplaced bool   // id was minted here and replaces the upstream's
	usageSent  bool   // the client got a usage chunk
	edits      []rawjson.Edit
	calls      callNumbers
}

// NewTap returns a Tap for the request's stream.
func (r *Request) NewTap(o operation.AnswerOptions) operation.Tap {
	return &Tap{Tap: conversation.Tap{Request: &r.Parsed, Media: chat.MediaBound(o.Media)}, request: r, options: o}
}

// DropRequest makes the Tap refer to a [Request.Summary] of its request from now on, so that
// the request's bytes can be freed.
func (t *Tap) DropRequest() bool {
	t.request = t.request.Summary()
	t.Request = &t.request.Parsed
	return true
}

// Event appends what the client gets of one upstream event to dst. It fails with the
// fault.BadGateway that ends the stream if the event is an error frame or not one JSON object.
// At the end of a complete stream it is done. If the client asked for usage and the upstream
// gave none, it then appends the usage chunk. It does not append the terminator: see
// [Tap.Terminator].
func (t *Tap) Event(dst []byte, name string, data []byte) (out []byte, done bool, err error) {
	if out, _, ok := t.Repeat(dst, name, data, 0); ok {
		return out, false, nil
	}
	if sse.IsDone(data) {
		return t.usageChunk(dst), true, nil
	}
	defer t.Done()
	s, err := t.read(data)
	switch {
	case err != nil:
		return dst, false, err
	case name == "error":
		return dst, false, answer.ErrorFrame(data)
	}
	return t.chunk(dst, name, &s), false, nil
}

// read reads an event's payload in one pass.
func (t *Tap) read(data []byte) (conversation.Scan, error) {
	s, err := t.Read(data, chunkParts)
	if err != nil {
		return s, err
	}
	if !rawjson.IsNull(t.Object.Raw("error")) {
		return s, answer.ErrorFrame(data)
	}
	if !s.Listed && answer.IsError(t.Object) {
		return s, answer.ErrorFrame(data)
	}
	return s, nil
}

// Opening judges the first events of a stream before the answer is committed. It reports
// whether one carries content, and the error if it is a failure behind a status 200.
func (*Request) Opening(name string, data []byte) (content bool, err error) {
	switch {
	case sse.IsDone(data):
		return true, upstream.BadAnswer("The upstream's stream is empty.", nil)
	case name == "error":
		return true, answer.ErrorFrame(data)
	}
	var t Tap
	defer t.Done()
	s, err := t.read(data)
	return err != nil || s.Text.Quarters > 0 || s.Stopped, err
}

// chunk rewrites one chunk.
func (t *Tap) chunk(dst []byte, name string, s *conversation.Scan) []byte {
	t.Wrote(s.Text.Quarters)
	usage := t.Object.Raw("usage")
	reported := usage
	if usage == nil && s.Stopped { // Groq's is here where it was not asked for usage
		reported = rawjson.Lookup(t.Object.Raw("x_groq"), "usage")
	}
	for _, raw := range [...][]byte{reported, s.Usage} {
		if raw != nil && ReadUsage(&t.Report, raw) {
			t.Counted()
		}
	}
	t.edits = t.Request.PublicEdits(t.edits[:0], t.request.Model, t.Object, &form)
	if usage != nil && !t.request.WantsUsage() {
		if empty := rawjson.Each(t.Object.Raw("choices"), func(int, rawjson.Span) {}) <= 0; empty && !rawjson.IsNull(usage) {
			return dst
		}
		t.edits = append(t.edits, rawjson.Delete("usage"))
	}
	choices := t.Object.Raw("choices")
	repeats := true
	switch {
	case s.Calls:
		if numbered := t.calls.apply(choices); t.calls.edited {
			t.edits = append(t.edits, rawjson.Set("choices", numbered))
		}
		t.Template.Forget()        // it may have an index of before
		repeats = !t.calls.unnamed // an equal chunk begins another call
	case rawjson.IsNull(choices): // clients walk over them
		t.edits = append(t.edits, rawjson.Set("choices", []byte("[]")))
	}
	t.usageSent = t.usageSent || (t.request.WantsUsage() && !rawjson.IsNull(usage))
	t.keepID()
	out := t.write(dst)
	if repeats && rawjson.IsNull(usage) && !s.Stopped && s.Usage == nil {
		t.Template.Learn(name, t.Object, out[len(dst):], &s.Text, "")
	}
	return out
}

// keepID keeps one id for the whole stream: an accumulator refuses a changed one.
func (t *Tap) keepID() {
	id := t.Object.Raw("id")
	switch {
	case t.idReplaced && id != nil:
		t.edits = append(t.edits, rawjson.Set("id", t.id))
	case t.id == nil && len(id) > len(`""`) && id[0] == '"':
		t.id = bytes.Clone(id)
	}
}

// write appends the edited chunk as one event.
func (t *Tap) write(dst []byte) []byte {
	if src := t.Object.Src; bytes.IndexByte(src, '\n') >= 0 || bytes.IndexByte(src, '\r') >= 0 { // came as several data lines
		return sse.AppendData(dst, t.Object.Apply(nil, t.edits...))
	}
	dst = append(dst, "data: "...)
	dst = t.Object.Apply(dst, t.edits...)
	return append(dst, "\n\n"...)
}

// Heartbeat appends an empty chunk that keeps the connection alive. Before the
// upstream's first chunk it fixes the stream's id.
func (t *Tap) Heartbeat(dst []byte) []byte {
	return t.ownChunk(dst, `"choices":[{"index":0,"delta":{},"finish_reason":null}]`)
}

// CutShort appends the chunk that ends every candidate for reason "length",
// and the usage chunk if the client wants one. The terminator is not appended.
func (t *Tap) CutShort(dst []byte) []byte {
	choices := []byte(`"choices":[`)
	for i := range t.request.Candidates() {
		if i > 0 {
			choices = append(choices, ',')
		}
		choices = strconv.AppendInt(append(choices, `{"index":`...), i, 10)
		choices = append(choices, `,"delta":{},"finish_reason":"length"}`...)
	}
	return t.usageChunk(t.ownChunk(dst, string(choices)+"]"))
}

// Delivered is true: every chunk that is counted goes to the client.
func (t *Tap) Delivered() bool { return true }

// Terminator is the event that ends a complete stream.
func (t *Tap) Terminator() string { return sse.Done }

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
	return t.ownChunk(dst, `"choices":[],"usage":`+string(usage))
}

// ownChunk appends a chunk made here, with the members besides those that every chunk
// has.
func (t *Tap) ownChunk(dst []byte, members string) []byte {
	if t.id == nil {
		t.id, t.idReplaced = rawjson.Quote(nil, t.options.NewID("chatcmpl-")), true
		t.Template.Forget() // it has none of that id
	}
	dst = append(dst, `data: {"id":`...)
	dst = append(dst, t.id...)
	dst = append(dst, `,"object":"chat.completion.chunk","created":`...)
	dst = strconv.AppendInt(dst, t.options.Created, 10)
	dst = append(dst, `,"model":`...)
	dst = append(dst, t.request.Spelled(t.request.Model)...)
	dst = append(dst, ',')
	dst = append(dst, members...)
	return append(dst, "}\n\n"...)
}

// wireUsage is usage as the public wire shows it.
func wireUsage(u billing.Usage) *chat.Usage {
	w := &chat.Usage{
		PromptTokens:     u.Input + u.CachedInput + u.CacheWrite,
		CompletionTokens: u.Output,
	}
	w.TotalTokens = w.PromptTokens + w.CompletionTokens
	if u.CachedInput > 0 {
		w.PromptTokensDetails = &chat.PromptDetails{CachedTokens: u.CachedInput}
	}
	if u.Reasoning > 0 {
		w.CompletionTokensDetails = &chat.CompletionDetails{ReasoningTokens: u.Reasoning}
	}
	return w
}
