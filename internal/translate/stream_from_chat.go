package translate

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
)

// fromChatStream translates the stream of a chat completion, which answers the
// request as [toChat] made it, into the stream of a message: see
// [translatedStream]. Thoughts that the caller does not ask for pass as a
// [hiddenEvent], which a [Tap] takes out.
//
// The stream is complete at [DONE], or at the usage that follows a finish
// reason.
func fromChatStream(r *messages.Request, body io.ReadCloser) io.ReadCloser {
	return newTranslatedStream(body, &messageEncoder{model: r.Model, thinks: showsThinking(r)})
}

// messageEncoder turns the chunks of one completion into the events of a
// message.
type messageEncoder struct {
	translatedEvents
	model  string // as the client named it
	thinks bool   // the client gets to see thoughts

	id      string // empty before the first chunk
	content blockSequencer
	report  chatapi.Report
	reason  string // the finish reason; empty before it came
	refused bool
}

// translate translates one event.
func (s *messageEncoder) translate(name string, data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case string(data) == "[DONE]" && s.id == "":
		return answer.Bad("The upstream's stream is empty.", nil)
	case string(data) == "[DONE]":
		return s.finish()
	case name == "error":
		return answer.ErrorFrame(data)
	}
	var c chatCompletion
	if err := c.decode(data); err != nil {
		return answer.Bad("The upstream sent an event that is not a chunk of a chat completion.", err)
	}
	if !rawjson.IsNull(c.Error) {
		return answer.ErrorFrame(c.Error)
	}
	return s.chunk(&c, data)
}

// chunk translates one chunk. The first one begins the message, whatever it
// holds, so that the client gets a first byte as soon as the upstream sent one.
func (s *messageEncoder) chunk(c *chatCompletion, data []byte) error {
	if s.id == "" {
		s.begin(messageID(c, data))
	}
	c.report(&s.report)
	if first := c.first(); first != nil {
		if err := s.piece(&first.Delta); err != nil {
			return err
		}
		if first.FinishReason != "" {
			s.reason = first.FinishReason
			return s.content.end()
		}
	}
	if s.reason != "" && len(c.Choices) == 0 && !rawjson.IsNull(c.Usage) {
		return s.finish()
	}
	return nil
}

// piece writes what one delta adds.
func (s *messageEncoder) piece(d *assistantMessage) error {
	w := &s.content
	switch thought := d.reasoning(); {
	case thought == "":
	case !s.thinks:
		s.out = messagesapi.AppendHidden(s.out, thought)
	default:
		if err := w.write(thinkingBlock, thought); err != nil {
			return err
		}
	}
	refusal := d.text("refusal")
	s.refused = s.refused || refusal != ""
	for _, text := range [...]string{d.Content.String(), refusal} {
		if text == "" {
			continue
		}
		if err := w.write(textBlock, text); err != nil {
			return err
		}
	}
	calls := d.toolCalls()
	for i := range calls {
		if err := w.call(&calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// begin opens the message.
func (s *messageEncoder) begin(id string) {
	s.id, s.content = id, blockSequencer{message: id, to: &s.translatedEvents}
	unknown := new(int64) // a beginning's counts are 0 where the upstream counts at the end
	start := struct {
		Type    string      `json:"type"`
		Message *messageOut `json:"message"`
	}{"message_start", &messageOut{
		ID: id, Type: "message", Role: "assistant", Model: s.model,
		Usage: usageOut{Input: unknown, CacheWrite: unknown, CacheRead: unknown, Output: unknown},
	}}
	s.writeEvent(start.Type, &start)
}

// finish ends the message.
func (s *messageEncoder) finish() error {
	if err := s.content.end(); err != nil {
		return err
	}
	type delta struct {
		StopReason   string  `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	end := struct {
		Type  string   `json:"type"`
		Delta delta    `json:"delta"`
		Usage usageOut `json:"usage"`
	}{"message_delta", delta{StopReason: stopReason(s.reason, len(s.content.calls) > 0, s.refused)}, messageUsage(&s.report)}
	s.writeEvent(end.Type, &end)
	s.out = sse.AppendEvent(s.out, "message_stop", []byte(`{"type":"message_stop"}`))
	s.complete = true
	return nil
}

// writeEvent appends an event whose parts are strings and counts.
func (s *messageEncoder) writeEvent(name string, v any) {
	if data, err := json.Marshal(v); err == nil { // strings that were decoded and counts can be encoded
		s.out = sse.AppendEvent(s.out, name, data)
	}
}

// blockSequencer puts the pieces of a chat answer, which may come in any order, into the
// order of a message: one block after the other, and never two open at once.
//
// What belongs to the open block goes out at once. The first piece of something
// else closes it, but a tool call is only closed when its arguments are a whole
// JSON value, or at the end: until then the pieces of others wait. So a stream in
// the usual order, one call after the other, never waits, and one in which calls
// are interleaved loses nothing.
type blockSequencer struct {
	to        *translatedEvents
	message   string // the message's id
	next      int    // the index of the next block
	open      *streamBlock
	waiting   []*streamBlock // in the order in which they began
	heldBytes int            // bytes that wait
	calls     []*streamBlock // all calls until now
}

// streamBlock is one block of the message, or what came of it so far.
type streamBlock struct {
	kind      string
	text      []byte      // not sent yet
	arguments jsonScanner // of a call's arguments
	closed    bool

	index    int64  // of a call: the upstream's index, noIndex if it gives none
	id, name string // as the upstream gave them
	number   int    // of a call: how many were before it
}

// The kinds of blocks.
const (
	thinkingBlock = "thinking"
	textBlock     = "text"
	toolBlock     = "tool_use"
)

// noIndex is the index of calls whose upstream numbers none.
const noIndex = -2

// write takes a piece of text or of a thought.
func (w *blockSequencer) write(kind, text string) error {
	last := w.open
	if n := len(w.waiting); n > 0 {
		last = w.waiting[n-1]
	}
	if last == nil || last.kind != kind {
		last = &streamBlock{kind: kind}
		w.waiting = append(w.waiting, last)
	}
	return w.add(last, text)
}

// call takes a piece of a tool call.
func (w *blockSequencer) call(piece *chat.ToolCall) error {
	s := w.findCall(piece)
	if s == nil {
		const most = 1024
		if len(w.calls) == most {
			return answer.Bad("The upstream's answer has too many tool calls.", nil)
		}
		s = &streamBlock{kind: toolBlock, index: noIndex, number: len(w.calls)}
		if piece.Index != nil {
			s.index = *piece.Index
		}
		w.calls, w.waiting = append(w.calls, s), append(w.waiting, s)
	}
	if s.id == "" {
		s.id = piece.ID
	}
	if s.name == "" {
		s.name = piece.Function.Name
	}
	return w.add(s, piece.Function.Arguments)
}

// findCall is the call that a piece belongs to; nil if it begins one. Most vendors
// number their calls. Some number them all 0 and tell them apart by id; some
// give neither, and each name begins a call.
func (w *blockSequencer) findCall(piece *chat.ToolCall) *streamBlock {
	for i := len(w.calls) - 1; i >= 0; i-- {
		s := w.calls[i]
		switch {
		case piece.Index != nil && s.index != *piece.Index:
		case piece.ID != "" && s.id != "" && s.id != piece.ID:
		case piece.ID == "" && piece.Function.Name != "" && (piece.Index == nil || s.isOver(piece)):
			return nil
		default:
			return s
		}
	}
	return nil
}

// isOver reports whether a call is whole and a piece that looks like its own
// brings more.
func (s *streamBlock) isOver(piece *chat.ToolCall) bool {
	return s.arguments.isWhole() && strings.TrimSpace(piece.Function.Arguments) != ""
}

// add gives text to a block and sends what can be sent.
func (w *blockSequencer) add(s *streamBlock, text string) error {
	if s.closed {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		return answer.Bad("The upstream's tool call goes on after its arguments were complete.", nil)
	}
	s.text = append(s.text, text...)
	if s.kind == toolBlock {
		s.arguments.read(text)
	}
	if s != w.open {
		w.heldBytes += len(text)
	}
	if w.heldBytes > sse.DefaultLimit {
		return answer.Bad("The upstream's tool calls are interleaved and larger than the gateway allows.", nil)
	}
	return w.advance(false)
}

// end closes every block, and sends before what waits.
func (w *blockSequencer) end() error { return w.advance(true) }

// advance sends what can be sent. At the end nothing waits any longer.
func (w *blockSequencer) advance(end bool) error {
	for {
		if w.open != nil {
			w.sendText()
			if !end && (len(w.waiting) == 0 || !w.open.isWhole()) {
				return nil
			}
			w.closeBlock()
		}
		if len(w.waiting) == 0 {
			return nil
		}
		head := w.waiting[0]
		if head.kind == toolBlock && head.name == "" {
			if end {
				return namelessCall()
			}
			return nil // the name is still to come
		}
		w.waiting, w.heldBytes = w.waiting[1:], w.heldBytes-len(head.text)
		w.openBlock(head)
	}
}

// isWhole reports whether nothing can follow that belongs to the block.
func (s *streamBlock) isWhole() bool { return s.kind != toolBlock || s.arguments.isWhole() }

// openBlock opens a block.
func (w *blockSequencer) openBlock(s *streamBlock) {
	w.open = s
	data := w.eventHead("content_block_start")
	switch s.kind {
	case thinkingBlock:
		data = append(data, `,"content_block":{"type":"thinking","thinking":"","signature":""}}`...)
	case textBlock:
		data = append(data, `,"content_block":{"type":"text","text":""}}`...)
	default:
		id := s.id
		if id == "" {
			id = callID(w.message, s.number)
		}
		data = append(data, `,"content_block":{"type":"tool_use","id":`...)
		data = append(rawjson.Quote(data, id), `,"name":`...)
		data = append(rawjson.Quote(data, s.name), `,"input":{}}}`...)
	}
	w.to.out = sse.AppendEvent(w.to.out, "content_block_start", data)
}

// deltaPrefixes are how the deltas of each kind of block begin.
var deltaPrefixes = map[string]string{
	thinkingBlock: `{"type":"thinking_delta","thinking":`,
	textBlock:     `{"type":"text_delta","text":`,
	toolBlock:     `{"type":"input_json_delta","partial_json":`,
}

// sendText gives out the open block's text.
func (w *blockSequencer) sendText() {
	if len(w.open.text) > 0 {
		delta := rawjson.Quote([]byte(deltaPrefixes[w.open.kind]), string(w.open.text))
		w.delta(append(delta, '}'))
		w.open.text = w.open.text[:0]
	}
}

func (w *blockSequencer) delta(delta []byte) {
	data := append(w.eventHead("content_block_delta"), `,"delta":`...)
	data = append(append(data, delta...), '}')
	w.to.out = sse.AppendEvent(w.to.out, "content_block_delta", data)
}

// closeBlock closes the open block.
func (w *blockSequencer) closeBlock() {
	if w.open.kind == thinkingBlock {
		w.delta(append(rawjson.Quote([]byte(`{"type":"signature_delta","signature":`), syntheticSignature), '}'))
	}
	w.to.out = sse.AppendEvent(w.to.out, "content_block_stop", append(w.eventHead("content_block_stop"), '}'))
	w.open.closed, w.open.text, w.open = true, nil, nil
	w.next++
}

// eventHead begins an event about the open block.
func (w *blockSequencer) eventHead(name string) []byte {
	data := append([]byte(`{"type":"`), name...)
	return strconv.AppendInt(append(data, `","index":`...), int64(w.next), 10)
}

// jsonScanner follows JSON text to tell when a value that began with a bracket is
// whole. It does not check it.
type jsonScanner struct {
	depth           int
	begun           bool
	quoted, escaped bool
}

func (s *jsonScanner) read(text string) {
	for i := range len(text) {
		c := text[i]
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted && c == '\\':
			s.escaped = true
		case c == '"':
			s.quoted = !s.quoted
		case s.quoted:
		case c == '{' || c == '[':
			s.depth++
			s.begun = true
		case c == '}' || c == ']':
			s.depth--
		}
	}
}

func (s *jsonScanner) isWhole() bool { return s.begun && s.depth <= 0 && !s.quoted }
