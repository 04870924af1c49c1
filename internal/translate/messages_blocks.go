package translate

import (
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// blockSequencer puts the pieces of an answer, which may come in any order, into the
// order of a message: one block after the other, and never two open at once.
//
// What belongs to the open block goes out at once. The first piece of something else
// closes it, but a tool call is only closed when its arguments are a whole JSON
// value, or at the end: until then the pieces of others wait. So a stream in the
// usual order, one call after the other, never waits, and one in which calls are
// interleaved loses nothing.
type blockSequencer struct {
	out       *[]byte
	id        string // the answer's
	next      int    // the index of the next block
	open      *streamBlock
	waiting   []*streamBlock // in the order in which they began
	heldBytes int            // bytes that wait
	calls     []*streamBlock // all calls until now
}

// streamBlock is one block of the message, or what came of it so far.
type streamBlock struct {
	kind      blockKind
	text      []byte // not sent yet: what stands within a JSON string
	arguments jsonScanner
	closed    bool

	index    int64  // of a call: the upstream's index
	id, name string // as the upstream gave them
	number   int    // of a call: how many were before it
}

// blockKind is a type of content blocks, and how they and their deltas begin.
type blockKind struct{ start, delta string }

// The kinds of blocks.
var (
	thinkingBlock = blockKind{`{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"`}
	textBlock     = blockKind{`{"type":"text","text":""}`, `{"type":"text_delta","text":"`}
	toolBlock     = blockKind{`{"type":"tool_use","id":`, `{"type":"input_json_delta","partial_json":"`}
)

// text takes a piece of text or of a thought, which is a JSON string.
func (w *blockSequencer) text(kind blockKind, text []byte) error {
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
func (w *blockSequencer) call(p *piece) error {
	arguments, _ := rawjson.String(p.text)
	s := w.findCall(p, arguments)
	if s == nil {
		const most = 1024
		if len(w.calls) == most {
			return answer.Bad("The upstream's answer has too many tool calls.", nil)
		}
		s = &streamBlock{kind: toolBlock, index: p.index, number: len(w.calls)}
		w.calls, w.waiting = append(w.calls, s), append(w.waiting, s)
	}
	if s.id == "" {
		s.id = p.id
	}
	if s.name == "" {
		s.name = p.name
	}
	if s.closed {
		if strings.TrimSpace(arguments) == "" {
			return nil
		}
		return answer.Bad("The upstream's tool call goes on after its arguments were complete.", nil)
	}
	s.arguments.read(arguments)
	return w.add(s, p.text)
}

// findCall is the call that a piece belongs to; nil if it begins one. Most vendors
// number their calls. Some number them all 0 and tell them apart by id; some give
// neither, and each name begins a call, be it that of a call which is whole already.
func (w *blockSequencer) findCall(p *piece, arguments string) *streamBlock {
	for i := len(w.calls) - 1; i >= 0; i-- {
		s := w.calls[i]
		switch {
		case p.index != noIndex && s.index != p.index:
		case p.id != "" && s.id != "" && s.id != p.id:
		case p.id == "" && p.name != "" && (p.index == noIndex || s.arguments.isWhole() && strings.TrimSpace(arguments) != ""):
			return nil
		default:
			return s
		}
	}
	return nil
}

// add gives a text, which is a JSON string, to a block and sends what can be sent.
func (w *blockSequencer) add(s *streamBlock, text []byte) error {
	text = text[1 : len(text)-1]
	s.text = append(s.text, text...)
	if s != w.open {
		w.heldBytes += len(text)
	}
	if w.heldBytes > sse.DefaultLimit {
		return answer.Bad("The upstream's tool calls are interleaved and larger than the gateway allows.", nil)
	}
	return w.advance(false)
}

// advance sends what can be sent. At the end every block is closed, and nothing waits
// any longer.
func (w *blockSequencer) advance(end bool) error {
	for {
		if w.open != nil {
			w.sendText()
			if whole := w.open.kind != toolBlock || w.open.arguments.isWhole(); !end && (len(w.waiting) == 0 || !whole) {
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

// openBlock opens a block.
func (w *blockSequencer) openBlock(s *streamBlock) {
	w.open = s
	start := []byte(s.kind.start)
	if s.kind == toolBlock {
		id := s.id
		if id == "" {
			id = callID(w.id, s.number)
		}
		start = append(rawjson.Quote(start, id), `,"name":`...)
		start = append(rawjson.Quote(start, s.name), `,"input":{}}`...)
	}
	w.event("content_block_start", `,"content_block":`, start)
}

// sendText gives out the open block's text.
func (w *blockSequencer) sendText() {
	if len(w.open.text) > 0 {
		w.event("content_block_delta", `,"delta":`+w.open.kind.delta, append(w.open.text, `"}`...))
		w.open.text = w.open.text[:0]
	}
}

// closeBlock closes the open block.
func (w *blockSequencer) closeBlock() {
	if w.open.kind == thinkingBlock {
		w.event("content_block_delta", `,"delta":{"type":"signature_delta","signature":"`+syntheticSignature, []byte(`"}`))
	}
	w.event("content_block_stop", "", nil)
	w.open.closed, w.open.text, w.open = true, nil, nil
	w.next++
}

// event appends an event about the open block, of whose members member begins the
// last and rest ends it.
func (w *blockSequencer) event(name, member string, rest []byte) {
	data := append(append([]byte(`{"type":"`), name...), `","index":`...)
	data = append(strconv.AppendInt(data, int64(w.next), 10), member...)
	*w.out = sse.AppendEvent(*w.out, name, append(append(data, rest...), '}'))
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
