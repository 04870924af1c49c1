package translate

import (
	"io"
	"strconv"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// toChatStream translates the stream of a message, the answer to the chat
// request c, into the stream of a completion: see [translatedStream]. created is
// in Unix seconds. The stream is complete at message_stop.
func toChatStream(c *chat.Request, body io.ReadCloser, created int64) io.ReadCloser {
	return newTranslatedStream(body, &chunkEncoder{model: c.Model, created: created})
}

// chunkEncoder turns the events of one message into the chunks of a completion.
type chunkEncoder struct {
	translatedEvents
	model   string // public id
	created int64  // Unix seconds

	head     []byte // what every chunk begins with; nil until the message has begun
	block    chatBlock
	calls    int64 // the calls that have begun
	finished bool  // a finish_reason went out
	usage    report

	object, inner rawjson.Object // reused for every event
}

// chatBlock is the content block that is open.
type chatBlock struct {
	open  bool
	kind  string // tool_use, thinking or redacted_thinking; others need no memory
	index int64

	wrote     bool   // of a call: a piece of its arguments went out
	input     string // of a call: the arguments that came with its start, as JSON
	size      int    // of a thought: bytes of text
	signature []byte // of a thought; what is encrypted where it is redacted
}

// translate translates one event. Events and deltas of unknown types make nothing.
func (w *chunkEncoder) translate(name string, data []byte) error {
	if err := rawjson.IndexInto(&w.object, data, nil, nil); err != nil {
		return answer.Bad("The upstream sent an event that is not one JSON object.", err)
	}
	if kind := w.object.Raw("type"); len(kind) > 2 && kind[0] == '"' {
		name = string(kind[1 : len(kind)-1])
	}
	if e := w.object.Raw("error"); !rawjson.IsNull(e) {
		return answer.ErrorFrame(e)
	}
	switch name {
	case "error":
		return answer.ErrorFrame(data)
	case "message_start":
		return w.start()
	case "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop":
		if w.head == nil {
			return answer.Bad("The upstream's stream has content before its message begins.", nil)
		}
	}
	switch name {
	case "content_block_start":
		return w.blockStart()
	case "content_block_delta":
		return w.delta()
	case "content_block_stop":
		w.blockStop()
	case "message_delta":
		w.messageDelta()
	case "message_stop":
		w.stop()
	case "ping":
		w.ping()
	}
	return nil
}

// member indexes a member of the event that is an object; false if it is none.
func (w *chunkEncoder) member(name string) bool {
	raw := w.object.Raw(name)
	return len(raw) > 0 && raw[0] == '{' && rawjson.IndexInto(&w.inner, raw, nil, nil) == nil
}

// start opens the stream with the role. The prompt's counts go along as
// choices[0].usage, which the gateway reads: should the client leave, what it
// owes for the prompt is known.
func (w *chunkEncoder) start() error {
	switch {
	case w.head != nil:
		return answer.Bad("The upstream's stream begins twice.", nil)
	case !w.member("message"):
		return answer.Bad("The upstream's stream begins without a message.", nil)
	}
	head := append([]byte(nil), `data: {"id":`...)
	head = rawjson.Quote(head, completionID(w.inner.Raw("id")))
	head = append(head, `,"object":"chat.completion.chunk","created":`...)
	head = strconv.AppendInt(head, w.created, 10)
	head = append(head, `,"model":`...)
	w.head = append(rawjson.Quote(head, w.model), `,"choices":[`...)
	w.usage.begin(w.inner.Raw("usage"))
	w.openChunk()
	w.out = append(w.out, `"role":"assistant"},"finish_reason":null`...)
	if w.usage.Has[input] {
		w.out = appendChatUsage(append(w.out, `,"usage":`...), &w.usage)
	}
	w.out = append(w.out, "}]}\n\n"...)
	return nil
}

// openChunk begins a chunk, up to the members of its delta.
func (w *chunkEncoder) openChunk() {
	w.out = append(w.out, w.head...)
	w.out = append(w.out, `{"index":0,"delta":{`...)
}

// closeChunk ends what openChunk began.
func (w *chunkEncoder) closeChunk() { w.out = append(w.out, `},"finish_reason":null}]}`+"\n\n"...) }

// ping makes a chunk that adds nothing, which keeps the connection alive as the
// upstream's ping does. Before the message begins there is no id for it, and after
// its end the client has all.
func (w *chunkEncoder) ping() {
	if w.head != nil && !w.finished {
		w.openChunk()
		w.closeChunk()
	}
}

// text makes a chunk of one text. value is JSON, and passes as it came; what is
// no string, or an empty one, makes nothing.
func (w *chunkEncoder) text(member string, value []byte) {
	if len(value) <= len(`""`) || value[0] != '"' {
		return
	}
	w.openChunk()
	w.out = append(w.out, member...)
	w.out = append(w.out, value...)
	w.closeChunk()
}

// The members that text writes.
const (
	contentMember   = `"content":`
	reasoningMember = `"reasoning_content":`
	signatureMember = `"` + reasoningSignature + `":`
)

// blockStart begins a content block, which may have its first text with it.
func (w *chunkEncoder) blockStart() error {
	w.blockStop()
	index, ok := rawjson.Int(w.object.Raw("index"))
	if !ok || !w.member("content_block") {
		return answer.Bad("The upstream's stream has a content block without an index or a content.", nil)
	}
	b := &w.block
	kind, _ := rawjson.String(w.inner.Raw("type"))
	*b = chatBlock{open: true, kind: kind, index: index, signature: b.signature[:0]}
	switch kind {
	case "text":
		w.text(contentMember, w.inner.Raw("text"))
	case "thinking":
		w.thought(w.inner.Raw("thinking"))
		w.sign(w.inner.Raw("signature"))
	case "redacted_thinking":
		w.sign(w.inner.Raw("data"))
	case "tool_use":
		return w.call()
	}
	return nil
}

// call begins a call: its index among the calls, its id and its name.
func (w *chunkEncoder) call() error {
	id, _ := rawjson.String(w.inner.Raw("id"))
	name, _ := rawjson.String(w.inner.Raw("name"))
	if id == "" || name == "" {
		return answer.Bad("The upstream's stream has a tool call without an id or a name.", nil)
	}
	w.block.input = string(w.inner.Raw("input"))
	if w.block.input == "" || w.block.input == "null" {
		w.block.input = "{}"
	}
	w.calls++
	w.openCall()
	w.out = append(w.out, `"id":`...)
	w.out = rawjson.Quote(w.out, id)
	w.out = append(w.out, `,"type":"function","function":{"name":`...)
	w.out = rawjson.Quote(w.out, name)
	w.out = append(w.out, `,"arguments":""}}]`...)
	w.closeChunk()
	return nil
}

// openCall begins a chunk of the newest call, up to what follows its index.
func (w *chunkEncoder) openCall() {
	w.openChunk()
	w.out = append(w.out, `"tool_calls":[{"index":`...)
	w.out = strconv.AppendInt(w.out, w.calls-1, 10)
	w.out = append(w.out, ',')
}

// arguments makes a chunk of a piece of arguments, which is a JSON string.
func (w *chunkEncoder) arguments(value []byte) {
	if len(value) <= len(`""`) || value[0] != '"' {
		return
	}
	w.block.wrote = true
	w.openCall()
	w.out = append(w.out, `"function":{"arguments":`...)
	w.out = append(w.out, value...)
	w.out = append(w.out, `}}]`...)
	w.closeChunk()
}

// thought makes a chunk of a piece of thought.
func (w *chunkEncoder) thought(value []byte) {
	s, _ := rawjson.String(value)
	w.block.size += len(s)
	w.text(reasoningMember, value)
}

// sign keeps a piece of a signature.
func (w *chunkEncoder) sign(value []byte) {
	s, _ := rawjson.String(value)
	w.block.signature = append(w.block.signature, s...)
}

// delta carries one piece of the open block.
func (w *chunkEncoder) delta() error {
	index, ok := rawjson.Int(w.object.Raw("index"))
	if !ok || !w.block.open || index != w.block.index || !w.member("delta") {
		return answer.Bad("The upstream's stream has a piece of a content block that is not open.", nil)
	}
	kind, _ := rawjson.String(w.inner.Raw("type"))
	switch {
	case kind == "text_delta" && w.block.kind == "text":
		w.text(contentMember, w.inner.Raw("text"))
	case kind == "thinking_delta" && w.block.kind == "thinking":
		w.thought(w.inner.Raw("thinking"))
	case kind == "signature_delta" && w.block.kind == "thinking":
		w.sign(w.inner.Raw("signature"))
	case kind == "input_json_delta" && w.block.kind == "tool_use":
		w.arguments(w.inner.Raw("partial_json"))
	}
	return nil
}

// blockStop ends the open block, if there is one: a call has arguments at last,
// and a thought is followed by what it takes to send it back.
func (w *chunkEncoder) blockStop() {
	b := &w.block
	if !b.open {
		return
	}
	b.open = false
	switch {
	case b.kind == "tool_use" && !b.wrote:
		w.arguments(rawjson.Quote(nil, b.input))
	case b.kind == "thinking":
		w.text(signatureMember, rawjson.Quote(nil, string(appendThinking(nil, b.size, string(b.signature)))))
	case b.kind == "redacted_thinking":
		w.text(signatureMember, rawjson.Quote(nil, string(appendRedacted(nil, string(b.signature)))))
	}
}

// messageDelta carries the reason of the end, once, and the counts.
func (w *chunkEncoder) messageDelta() {
	w.usage.read(w.object.Raw("usage"))
	if !w.member("delta") {
		return
	}
	if reason := w.inner.Raw("stop_reason"); !rawjson.IsNull(reason) {
		w.finish(reason)
	}
}

// finish makes the chunk that ends the answer, once.
func (w *chunkEncoder) finish(reason []byte) {
	if w.finished {
		return
	}
	w.blockStop()
	w.finished = true
	w.out = append(w.out, w.head...)
	w.out = append(w.out, `{"index":0,"delta":{},"finish_reason":"`...)
	w.out = append(w.out, finishReason(reason)...)
	w.out = append(w.out, `"}]}`+"\n\n"...)
}

// stop ends the stream: with the usage, if the upstream gave it (the gateway
// makes its own where not), and the terminator.
func (w *chunkEncoder) stop() {
	w.finish(nil)
	if w.usage.Has[input] && w.usage.Has[output] {
		w.out = append(w.out, w.head...)
		w.out = append(w.out, `],"usage":`...)
		w.out = appendChatUsage(w.out, &w.usage)
		w.out = append(w.out, "}\n\n"...)
	}
	w.out = append(w.out, sse.Done...)
	w.complete = true
}
