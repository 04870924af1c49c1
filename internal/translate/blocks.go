package translate

import (
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// blockSequencer orders the pieces of an answer, which may come in any order. It puts them
// into a message's blocks or a response's items, one after the other, never two open at once.
//
// Pieces of the open block go out at once. The first piece of another block closes it. A tool
// call, however, is closed only when its arguments are a whole JSON value, or at the end;
// until then other pieces wait. So a stream in the usual order, one call after the other,
// never waits, and interleaved calls lose nothing.
type blockSequencer struct {
	to        blockSink
	queue     []*streamBlock // in the order in which they began; only the first can be open
	heldBytes int            // bytes of text of blocks that are not open yet
	calls     []*streamBlock // all calls until now
}

// blockSink writes the blocks that a blockSequencer has put in order.
type blockSink interface {
	openBlock(s *streamBlock)
	sendText(s *streamBlock)             // s.text has more than before
	closeBlock(s *streamBlock, end bool) // end says that the answer ends in this block
}

// streamBlock is one block of the answer, or what came of it so far.
type streamBlock struct {
	kind         pieceKind // thought, said, declined or call
	text         []byte    // what stands within a JSON string; the sink may take it out when it is sent
	arguments    jsonScanner
	open, closed bool

	index    int64  // of a call: the upstream's index
	id, name string // as the upstream gave them
	number   int    // of a call: how many were before it

	item responseItem // what a response knows of it
}

// text takes a piece of text or reasoning, which is a JSON string.
func (w *blockSequencer) text(kind pieceKind, text []byte) error { return w.add(w.block(kind), text) }

// block returns the last block, which may wait, if it is of the kind. Otherwise it adds a new
// one.
func (w *blockSequencer) block(kind pieceKind) *streamBlock {
	if w.lastKind() != kind {
		w.queue = append(w.queue, &streamBlock{kind: kind})
	}
	return w.queue[len(w.queue)-1]
}

// lastKind returns the kind of the last block if it can go on, otherwise begun.
func (w *blockSequencer) lastKind() pieceKind {
	if n := len(w.queue); n > 0 {
		return w.queue[n-1].kind
	}
	return begun
}

// call takes a piece of a tool call.
func (w *blockSequencer) call(p *piece) error {
	arguments, _ := rawjson.String(p.text)
	s := w.findCall(p, arguments)
	if s == nil {
		const most = 1024
		if len(w.calls) == most {
			return upstream.BadAnswer("The upstream's answer has too many tool calls.", nil)
		}
		s = &streamBlock{kind: call, index: p.index, number: len(w.calls)}
		w.calls, w.queue = append(w.calls, s), append(w.queue, s)
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
		return upstream.BadAnswer("The upstream's tool call goes on after its arguments were complete.", nil)
	}
	s.arguments.read(arguments)
	return w.add(s, p.text)
}

// findCall returns the call that a piece belongs to; nil if the piece begins one. Most vendors
// number their calls. Some number them all 0 and tell them apart by id. Some give neither:
// then each name begins a call, even the name of a complete call.
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
	if !s.open {
		w.heldBytes += len(text)
	}
	if err := w.advance(false); err != nil {
		return err
	}
	const most = 4 << 20
	if w.heldBytes > most { // of what could not be sent
		return upstream.BadAnswer("The upstream's tool calls are interleaved and larger than the gateway allows.", nil)
	}
	return nil
}

// advance sends what can be sent: the text of the first block. It also ends that block if
// another waits and nothing more of it can follow. At the end every block is closed, and
// nothing waits any longer.
func (w *blockSequencer) advance(end bool) error {
	for len(w.queue) > 0 {
		s := w.queue[0]
		switch {
		case s.open:
		case s.kind != call || s.name != "":
			s.open = true
			w.heldBytes -= len(s.text)
			w.to.openBlock(s)
		case end:
			return upstream.BadAnswer("The upstream's answer has a tool call without a name.", nil)
		default:
			return nil // the name is still to come
		}
		if len(s.text) > 0 {
			w.to.sendText(s)
		}
		if whole := s.kind != call || s.arguments.isWhole(); !end && (len(w.queue) == 1 || !whole) {
			return nil
		}
		w.to.closeBlock(s, end && len(w.queue) == 1)
		s.open, s.closed, s.text = false, true, nil
		w.queue = w.queue[1:]
	}
	return nil
}

// jsonScanner follows JSON text to tell when a value that began with a bracket is
// whole. It does not check it.
type jsonScanner struct {
	depth           int
	begun           bool
	quoted, escaped bool
}

// read takes a piece of the text, which may end anywhere.
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

// isWhole reports whether an object or an array has ended. A number or a word has no end that
// can be seen, and is never whole.
func (s *jsonScanner) isWhole() bool { return s.begun && s.depth <= 0 && !s.quoted }
