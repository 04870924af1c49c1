package translate

import (
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// messageReader reads the answer of an upstream of messages: events, or one message.
// Blocks, events and deltas of unknown types say nothing.
type messageReader struct {
	to       writer
	begun    bool
	finished bool // the reason of the end was passed on
	block    openBlock
	calls    int64 // that have begun
	usage    conversation.Report

	object, inner rawjson.Object // reused for every event
}

// openBlock is the content block that is being read.
type openBlock struct {
	open  bool
	kind  string // its type
	index int64  // by the upstream's count

	wrote     bool   // of a call: a piece of its arguments was passed on
	input     string // of a call: the arguments that came with its start, as JSON
	size      int    // of reasoning: bytes of text
	signature []byte // of reasoning; its encrypted text if it is redacted
}

// ordered are the events that may come only after message_start.
var ordered = []string{"content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}

// event reads one event. The stream is complete at message_stop.
func (r *messageReader) event(name string, data []byte) (done bool, err error) {
	if err := rawjson.IndexInto(&r.object, data, nil, nil); err != nil {
		return false, upstream.BadAnswer("The upstream sent an event that is not one JSON object.", err)
	}
	if kind := r.object.Raw("type"); len(kind) > 2 && kind[0] == '"' {
		name = string(kind[1 : len(kind)-1])
	}
	switch e := r.object.Raw("error"); {
	case !rawjson.IsNull(e):
		return false, answer.ErrorFrame(e)
	case name == "error":
		return false, answer.ErrorFrame(data)
	case !r.begun && slices.Contains(ordered, name):
		return false, upstream.BadAnswer("The upstream's stream has content before its message begins.", nil)
	}
	switch name {
	case "message_start":
		return false, r.start()
	case "content_block_start":
		return false, r.blockStart()
	case "content_block_delta":
		return false, r.blockDelta()
	case "content_block_stop":
		r.blockStop()
	case "message_delta":
		messagesop.ReadUsage(&r.usage, r.object.Raw("usage"))
		if r.member("delta") && !rawjson.IsNull(r.inner.Raw("stop_reason")) {
			r.finish(r.inner.Raw("stop_reason"))
		}
	case "message_stop":
		r.end(nil)
		return true, nil
	case "ping": // the answer has no id before it begins; after its end the client has all
		if r.begun && !r.finished {
			r.to.write(piece{kind: idle})
		}
	}
	return false, nil
}

// whole reads a message.
func (r *messageReader) whole(data []byte) error {
	o, err := rawjson.Index(data, nil, nil)
	if err := answer.Whole(&o, err); err != nil {
		return err
	}
	content := o.Raw("content")
	if len(content) == 0 || content[0] != '[' {
		return upstream.BadAnswer("The upstream's answer has no content.", nil)
	}
	r.begin(o.Raw("id"))
	for _, block := range rawjson.Elements(content) {
		if err := rawjson.IndexInto(&r.inner, block, nil, nil); err != nil {
			return upstream.BadAnswer("The upstream's answer has a content block that is no object.", err)
		}
		if !r.openBlock(0) {
			return upstream.BadAnswer("The upstream's answer has a tool call without an id or a name.", nil)
		}
		r.blockStop()
	}
	messagesop.ReadUsage(&r.usage, o.Raw("usage"))
	r.end(o.Raw("stop_reason"))
	return nil
}

// member indexes a member of the event; false if it is not an object.
func (r *messageReader) member(name string) bool {
	raw := r.object.Raw(name)
	return len(raw) > 0 && raw[0] == '{' && rawjson.IndexInto(&r.inner, raw, nil, nil) == nil
}

// start reads message_start.
func (r *messageReader) start() error {
	switch {
	case r.begun:
		return upstream.BadAnswer("The upstream's stream begins twice.", nil)
	case !r.member("message"):
		return upstream.BadAnswer("The upstream's stream begins without a message.", nil)
	}
	messagesop.BeginUsage(&r.usage, r.inner.Raw("usage"))
	r.begin(r.inner.Raw("id"))
	return nil
}

// begin passes on that the message begins. id is JSON.
func (r *messageReader) begin(id []byte) {
	r.begun = true
	s, _ := rawjson.String(id)
	r.to.write(piece{kind: begun, id: strings.TrimPrefix(s, messagePrefix), usage: &r.usage})
}

// blockStart reads content_block_start.
func (r *messageReader) blockStart() error {
	r.blockStop()
	index, ok := rawjson.Int(r.object.Raw("index"))
	if !ok || !r.member("content_block") {
		return upstream.BadAnswer("The upstream's stream has a content block without an index or a content.", nil)
	}
	if !r.openBlock(index) {
		return upstream.BadAnswer("The upstream's stream has a tool call without an id or a name.", nil)
	}
	return nil
}

// openBlock begins the block that inner has, which may be all of it; false if it is a
// call without an id or a name.
func (r *messageReader) openBlock(index int64) bool {
	kind, _ := rawjson.String(r.inner.Raw("type"))
	r.block = openBlock{open: true, kind: kind, index: index, signature: r.block.signature[:0]}
	switch kind {
	case "text":
		r.text(said, r.inner.Raw("text"))
	case "thinking":
		r.sign(r.inner.Raw("signature"))
		r.thought(r.inner.Raw("thinking"))
	case "redacted_thinking":
		r.sign(r.inner.Raw("data"))
	case "tool_use":
		id, _ := rawjson.String(r.inner.Raw("id"))
		name, _ := rawjson.String(r.inner.Raw("name"))
		if id == "" || name == "" {
			return false
		}
		r.block.input = "{}"
		input := r.inner.Raw("input")
		if text, ok := rawjson.String(input); ok && !blank(text) { // some vendors give the text of it
			r.block.input = text
		} else if !ok && !rawjson.IsNull(input) {
			r.block.input = string(input)
		}
		r.calls++
		r.to.write(piece{kind: call, text: []byte(`""`), id: id, name: name, index: r.calls - 1})
	}
	return true
}

// blockDelta reads content_block_delta.
func (r *messageReader) blockDelta() error {
	index, ok := rawjson.Int(r.object.Raw("index"))
	if !ok || !r.block.open || index != r.block.index || !r.member("delta") {
		return upstream.BadAnswer("The upstream's stream has a piece of a content block that is not open.", nil)
	}
	kind, _ := rawjson.String(r.inner.Raw("type"))
	switch {
	case kind == "text_delta" && r.block.kind == "text":
		r.text(said, r.inner.Raw("text"))
	case kind == "thinking_delta" && r.block.kind == "thinking":
		r.thought(r.inner.Raw("thinking"))
	case kind == "signature_delta" && r.block.kind == "thinking":
		r.sign(r.inner.Raw("signature"))
	case kind == "input_json_delta" && r.block.kind == "tool_use":
		r.text(call, r.inner.Raw("partial_json"))
	}
	return nil
}

// blockStop ends the open block, if any. A call then has its arguments. Reasoning is followed
// by what it takes to send it back.
func (r *messageReader) blockStop() {
	b := &r.block
	switch {
	case !b.open:
	case b.kind == "tool_use" && !b.wrote:
		r.text(call, rawjson.Quote(nil, b.input))
	case b.kind == "thinking":
		r.to.write(piece{kind: signed, size: b.size, text: rawjson.Quote(nil, string(b.signature))})
	case b.kind == "redacted_thinking":
		r.to.write(piece{kind: redacted, text: rawjson.Quote(nil, string(b.signature))})
	}
	b.open = false
}

// text passes on a text of the open block. Anything but a string that is not empty says
// nothing.
func (r *messageReader) text(kind pieceKind, value []byte) {
	if len(value) > len(`""`) && value[0] == '"' {
		r.block.wrote = true
		r.to.write(piece{kind: kind, text: value, index: r.calls - 1})
	}
}

// thought passes a piece of reasoning on.
func (r *messageReader) thought(value []byte) {
	s, _ := rawjson.String(value)
	r.block.size += len(s)
	r.text(thought, value)
}

// sign keeps a piece of a signature.
func (r *messageReader) sign(value []byte) {
	s, _ := rawjson.String(value)
	r.block.signature = append(r.block.signature, s...)
}

// finish passes on, once, why the message ends. reason is JSON.
func (r *messageReader) finish(reason []byte) {
	if !r.finished {
		r.finished = true
		r.blockStop()
		r.to.write(piece{kind: finished, reason: finishReason(reason)})
	}
}

// end passes on that the message is complete.
func (r *messageReader) end(reason []byte) {
	r.finish(reason)
	r.to.write(piece{kind: ended, usage: &r.usage})
}
