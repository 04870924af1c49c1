package translate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// responsePrefix is what the ids of responses begin with.
const responsePrefix = "resp_"

// responsesReader reads the answer of an upstream of Responses: events, or one response. It
// ignores items, parts and events of unknown types.
//
// Text passes as its deltas come. Text without deltas is taken from the item when that ends,
// or, if the upstream sends no items, from the response that ends the stream.
type responsesReader struct {
	to    writer
	begun bool
	items map[int64]*readItem // by the upstream's count
	calls int64               // that have begun
	last  pieceKind           // of what was passed on last
	usage conversation.Report

	object rawjson.Object // reused for every event
}

// readItem is an item of the answer that has begun.
type readItem struct {
	call   int64      // the index of a call, or -1
	custom bool       // it is a call of a custom tool
	wrote  []readPart // parts that were passed on at least in part
	done   bool
}

// readPart names a part of an item that had text.
type readPart struct {
	kind  string // the member of the event that counts it
	index int64
}

// The members of an event that count the parts of an item.
const (
	contentIndex = "content_index"
	summaryIndex = "summary_index"
	wholeItem    = "" // of calls, which have no parts
)

// textEvents are the events that carry a piece of a text in their delta.
var textEvents = map[string]struct {
	kind pieceKind
	part string
}{
	"response.output_text.delta":             {said, contentIndex},
	"response.refusal.delta":                 {declined, contentIndex},
	"response.reasoning_text.delta":          {thought, contentIndex},
	"response.reasoning_summary_text.delta":  {thought, summaryIndex},
	"response.function_call_arguments.delta": {call, wholeItem},
	"response.custom_tool_call_input.delta":  {call, wholeItem},
}

// event reads one event. The stream is complete at the event that has the whole
// response.
func (r *responsesReader) event(name string, data []byte) (done bool, err error) {
	if string(data) == "[DONE]" {
		return false, upstream.BadAnswer("The upstream's stream ended before its response was complete.", nil)
	}
	if err := rawjson.IndexInto(&r.object, data, nil, nil); err != nil {
		return false, upstream.BadAnswer("The upstream sent an event that is not one JSON object.", err)
	}
	if kind, ok := rawjson.String(r.object.Raw("type")); ok {
		name = kind
	}
	switch e := r.object.Raw("error"); {
	case !rawjson.IsNull(e):
		return false, answer.ErrorFrame(e)
	case name == "error":
		return false, answer.ErrorFrame(data)
	}
	switch name {
	case "response.created":
		id, _ := rawjson.String(rawjson.Lookup(r.object.Raw("response"), "id"))
		r.begin(id, data)
	case "response.failed", "response.cancelled":
		return false, answer.ErrorFrame(rawjson.Lookup(r.object.Raw("response"), "error"))
	case "response.completed", "response.incomplete":
		o, err := rawjson.Index(r.object.Raw("response"), nil, nil)
		if err != nil {
			return false, upstream.BadAnswer("The upstream's stream ends without a response.", err)
		}
		return true, r.end(&o, data, strings.TrimPrefix(name, "response."))
	case "response.output_item.added":
		r.begin("", data)
		_, err = r.item(r.index("output_index"), r.object.Raw("item"), []byte(`""`))
	case "response.output_item.done":
		r.begin("", data)
		err = r.itemDone(r.index("output_index"), r.object.Raw("item"))
	case "keepalive":
		if r.begun {
			r.to.write(piece{kind: idle})
		}
	default:
		if e, carries := textEvents[name]; carries {
			r.begin("", data)
			err = r.delta(e.kind, e.part)
		}
	}
	return false, err
}

// whole reads a response.
func (r *responsesReader) whole(data []byte) error {
	o, err := rawjson.Index(data, nil, nil)
	if err := answer.Whole(&o, err); err != nil {
		return err
	}
	if output := o.Raw("output"); len(output) == 0 || output[0] != '[' {
		return upstream.BadAnswer("The upstream's answer has no output.", nil)
	}
	return r.end(&o, data, "completed")
}

// begin passes on, once, that the answer begins. data stands for an id that cannot be
// part of an id elsewhere.
func (r *responsesReader) begin(id string, data []byte) {
	if !r.begun {
		r.begun = true
		r.to.write(piece{kind: begun, id: answerID(strings.TrimPrefix(id, responsePrefix), data), usage: new(conversation.Report)})
	}
}

// index is a member of the event that counts; -1 if it does not.
func (r *responsesReader) index(name string) int64 {
	n, ok := rawjson.Int(r.object.Raw(name))
	if !ok {
		return -1
	}
	return n
}

// item begins the item at an index. arguments are those of a call that are known.
func (r *responsesReader) item(index int64, raw, arguments []byte) (*readItem, error) {
	const most = 1024
	if index < 0 || len(r.items) == most {
		return nil, upstream.BadAnswer("The upstream's answer has an item without an index, or too many of them.", nil)
	}
	it := &readItem{call: -1}
	switch kind := rawjson.LookupString(raw, "type"); kind {
	case "function_call", "custom_tool_call":
		id, name := rawjson.LookupString(raw, "call_id"), rawjson.LookupString(raw, "name")
		if id == "" || name == "" {
			return nil, upstream.BadAnswer("The upstream's answer has a tool call without an id or a name.", nil)
		}
		it.call, it.custom = r.calls, kind == "custom_tool_call"
		r.calls++
		r.last = call
		r.to.write(piece{kind: call, text: arguments, id: id, name: name, custom: it.custom, index: it.call})
	}
	if r.items == nil {
		r.items = make(map[int64]*readItem)
	}
	r.items[index] = it
	return it, nil
}

// delta reads a piece of a text.
func (r *responsesReader) delta(kind pieceKind, part string) (err error) {
	at := r.index("output_index")
	it := r.items[at]
	switch {
	case it == nil && kind != call:
		it, err = r.item(at, nil, nil)
	case kind == call && (it == nil || it.call < 0):
		err = upstream.BadAnswer("The upstream's stream has a piece of a tool call that has not begun.", nil)
	}
	if err != nil {
		return err
	}
	text := r.object.Raw("delta")
	if it.custom && len(text) > len(`""`) && text[0] == '"' {
		text = inputPiece(text, len(it.wrote) == 0)
	}
	return r.text(it, kind, readPart{part, r.index(part)}, text)
}

// text passes on a piece of a part. What is no string, or an empty one, says nothing. A
// part that follows one of its kind begins a paragraph.
func (r *responsesReader) text(it *readItem, kind pieceKind, part readPart, text []byte) error {
	const most = 1024
	if len(text) <= len(`""`) || text[0] != '"' {
		return nil
	}
	if !slices.Contains(it.wrote, part) {
		if len(it.wrote) == most {
			return upstream.BadAnswer("The upstream's answer has an item of too many parts.", nil)
		}
		it.wrote = append(it.wrote, part)
		if kind == r.last && kind != call {
			r.to.write(piece{kind: kind, text: []byte(`"\n\n"`)})
		}
	}
	r.last = kind
	r.to.write(piece{kind: kind, text: text, index: it.call})
	return nil
}

// itemDone reads an item as it is at its end, and passes on what was not yet.
func (r *responsesReader) itemDone(index int64, raw []byte) (err error) {
	it := r.items[index]
	if it == nil {
		if it, err = r.item(index, raw, arguments(raw)); err != nil {
			return err
		}
	} else if it.call >= 0 && !it.done {
		switch {
		case len(it.wrote) == 0:
			r.to.write(piece{kind: call, text: arguments(raw), index: it.call})
		case it.custom:
			r.to.write(piece{kind: call, text: []byte(`"\"}"`), index: it.call})
		}
	}
	if it.done {
		return nil
	}
	it.done = true
	switch rawjson.LookupString(raw, "type") {
	case "message":
		err = r.rest(it, contentIndex, rawjson.Lookup(raw, "content"))
	case "reasoning":
		err = cmp.Or(r.rest(it, summaryIndex, rawjson.Lookup(raw, "summary")), r.rest(it, contentIndex, rawjson.Lookup(raw, "content")))
		if blob := rawjson.Lookup(raw, "encrypted_content"); len(blob) > len(`""`) && blob[0] == '"' {
			r.to.write(piece{kind: encrypted, text: blob})
		}
	}
	return err
}

// inputPiece is a piece of a custom tool's input, a JSON string, as one of the arguments of
// the function that stands for the tool. The first one begins them.
func inputPiece(text []byte, first bool) []byte {
	inner := string(text[1 : len(text)-1])
	if first {
		inner = inputOpening + inner
	}
	return rawjson.Quote(nil, inner)
}

// arguments are those of a call that is over, as a JSON string. The input of a custom tool is
// the member "input" of an object, for not every caller knows other tools than functions. A
// function without arguments gets an empty object, unless the upstream was cut.
func arguments(call []byte) []byte {
	raw := rawjson.Lookup(call, "arguments")
	text, ok := rawjson.String(raw)
	if !ok && !rawjson.IsNull(raw) {
		text = string(raw) // some vendors give the JSON itself
	}
	switch {
	case rawjson.LookupString(call, "type") == "custom_tool_call":
		text = string(customArguments(rawjson.LookupString(call, "input")))
	case blank(text) && rawjson.LookupString(call, "status") != "incomplete":
		text = "{}"
	}
	return rawjson.Quote(nil, text)
}

// partKinds are the parts of items that have a text, and the member that has it.
var partKinds = map[string]struct {
	kind   pieceKind
	member string
}{
	"output_text":    {said, "text"},
	"refusal":        {declined, "refusal"},
	"reasoning_text": {thought, "text"},
	"summary_text":   {thought, "text"},
}

// rest passes on the parts of an item that had not begun.
func (r *responsesReader) rest(it *readItem, counted string, parts []byte) error {
	for i, raw := range rawjson.Elements(parts) {
		part := readPart{counted, int64(i)}
		known, ok := partKinds[rawjson.LookupString(raw, "type")]
		if !ok || slices.Contains(it.wrote, part) {
			continue
		}
		if err := r.text(it, known.kind, part, rawjson.Lookup(raw, known.member)); err != nil {
			return err
		}
	}
	return nil
}

// end reads the whole response that ends the answer. assumed is its status if it does not
// say.
func (r *responsesReader) end(o *rawjson.Object, data []byte, assumed string) error {
	id, _ := rawjson.String(o.Raw("id"))
	r.begin(id, data)
	status, _ := rawjson.String(o.Raw("status"))
	status = cmp.Or(status, assumed)
	switch e := o.Raw("error"); {
	case !rawjson.IsNull(e) || status == "failed":
		return answer.ErrorFrame(e)
	case status == "queued" || status == "in_progress" || status == "cancelled":
		return upstream.BadAnswer("The upstream's answer is not complete.", nil)
	}
	if r.items == nil {
		for i, item := range rawjson.Elements(o.Raw("output")) {
			if err := r.itemDone(int64(i), item); err != nil {
				return err
			}
		}
	}
	responsesop.ReadUsage(&r.usage, o.Raw("usage"))
	r.to.write(piece{kind: finished, reason: responseFinishReason(status, o.Raw("incomplete_details"), r.calls > 0)})
	r.to.write(piece{kind: ended, usage: disjoint(&r.usage)})
	return nil
}
