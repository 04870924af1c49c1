package messages

import (
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// script puts the pieces of a chat answer, which may come in any order, into the
// order of a message: one block after the other, and never two open at once.
//
// What belongs to the open block goes out at once. The first piece of something
// else closes it, but a tool call is only closed when its arguments are a whole
// JSON value, or at the end: until then the pieces of others wait. So a stream in
// the usual order, one call after the other, never waits, and one in which calls
// are interleaved loses nothing.
type script struct {
	message string // the message's id
	next    int    // the index of the next block
	open    *stretch
	waiting []*stretch // in the order in which they began
	held    int        // bytes that wait
	calls   []*stretch // all calls until now
}

// stretch is one block of the message, or what came of it so far.
type stretch struct {
	kind   string
	text   []byte // not sent yet
	shape  shape  // of a call's arguments
	closed bool

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
func (w *script) write(dst *[]byte, kind, text string) error {
	last := w.open
	if n := len(w.waiting); n > 0 {
		last = w.waiting[n-1]
	}
	if last == nil || last.kind != kind {
		last = &stretch{kind: kind}
		w.waiting = append(w.waiting, last)
	}
	return w.add(dst, last, text)
}

// call takes a piece of a tool call.
func (w *script) call(dst *[]byte, piece *chat.ToolCall) error {
	s := w.find(piece)
	if s == nil {
		const most = 1024
		if len(w.calls) == most {
			return answer.Bad("The upstream's answer has too many tool calls.", nil)
		}
		s = &stretch{kind: toolBlock, index: noIndex, number: len(w.calls)}
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
	return w.add(dst, s, piece.Function.Arguments)
}

// find is the call that a piece belongs to; nil if it begins one. Most vendors
// number their calls. Some number them all 0 and tell them apart by id; some
// give neither, and each name begins a call.
func (w *script) find(piece *chat.ToolCall) *stretch {
	for i := len(w.calls) - 1; i >= 0; i-- {
		s := w.calls[i]
		switch {
		case piece.Index != nil && s.index != *piece.Index:
		case piece.ID != "" && s.id != "" && s.id != piece.ID:
		case piece.ID == "" && piece.Function.Name != "" && (piece.Index == nil || s.over(piece)):
			return nil
		default:
			return s
		}
	}
	return nil
}

// over reports whether a call is whole and a piece that looks like its own
// brings more.
func (s *stretch) over(piece *chat.ToolCall) bool {
	return s.shape.whole() && strings.TrimSpace(piece.Function.Arguments) != ""
}

// add gives text to a block and sends what can be sent.
func (w *script) add(dst *[]byte, s *stretch, text string) error {
	if s.closed {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		return answer.Bad("The upstream's tool call goes on after its arguments were complete.", nil)
	}
	s.text = append(s.text, text...)
	if s.kind == toolBlock {
		s.shape.read(text)
	}
	if s != w.open {
		w.held += len(text)
	}
	if w.held > sse.DefaultLimit {
		return answer.Bad("The upstream's tool calls are interleaved and larger than the gateway allows.", nil)
	}
	return w.advance(dst, false)
}

// end closes every block, and sends before what waits.
func (w *script) end(dst *[]byte) error { return w.advance(dst, true) }

// advance sends what can be sent. At the end nothing waits any longer.
func (w *script) advance(dst *[]byte, end bool) error {
	for {
		if w.open != nil {
			w.send(dst)
			if !end && (len(w.waiting) == 0 || !w.open.whole()) {
				return nil
			}
			w.stop(dst)
		}
		if len(w.waiting) == 0 {
			return nil
		}
		head := w.waiting[0]
		if head.kind == toolBlock && head.name == "" {
			if end {
				return nameless()
			}
			return nil // the name is still to come
		}
		w.waiting, w.held = w.waiting[1:], w.held-len(head.text)
		w.start(dst, head)
	}
}

// whole reports whether nothing can follow that belongs to the block.
func (s *stretch) whole() bool { return s.kind != toolBlock || s.shape.whole() }

// start opens a block.
func (w *script) start(dst *[]byte, s *stretch) {
	w.open = s
	data := w.head("content_block_start")
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
	*dst = sse.AppendEvent(*dst, "content_block_start", data)
}

// pieces are how the deltas of each kind of block begin.
var pieces = map[string]string{
	thinkingBlock: `{"type":"thinking_delta","thinking":`,
	textBlock:     `{"type":"text_delta","text":`,
	toolBlock:     `{"type":"input_json_delta","partial_json":`,
}

// send gives out the open block's text.
func (w *script) send(dst *[]byte) {
	if len(w.open.text) > 0 {
		delta := rawjson.Quote([]byte(pieces[w.open.kind]), string(w.open.text))
		w.delta(dst, append(delta, '}'))
		w.open.text = w.open.text[:0]
	}
}

func (w *script) delta(dst *[]byte, delta []byte) {
	data := append(w.head("content_block_delta"), `,"delta":`...)
	data = append(append(data, delta...), '}')
	*dst = sse.AppendEvent(*dst, "content_block_delta", data)
}

// stop closes the open block.
func (w *script) stop(dst *[]byte) {
	if w.open.kind == thinkingBlock {
		w.delta(dst, append(rawjson.Quote([]byte(`{"type":"signature_delta","signature":`), ownSignature), '}'))
	}
	*dst = sse.AppendEvent(*dst, "content_block_stop", append(w.head("content_block_stop"), '}'))
	w.open.closed, w.open.text, w.open = true, nil, nil
	w.next++
}

// head begins an event about the open block.
func (w *script) head(name string) []byte {
	data := append([]byte(`{"type":"`), name...)
	return strconv.AppendInt(append(data, `","index":`...), int64(w.next), 10)
}

// shape follows JSON text to tell when a value that began with a bracket is
// whole. It does not check it.
type shape struct {
	depth           int
	begun           bool
	quoted, escaped bool
}

func (s *shape) read(text string) {
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

func (s *shape) whole() bool { return s.begun && s.depth <= 0 && !s.quoted }
