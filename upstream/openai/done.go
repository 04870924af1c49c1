package openai

import (
	"bytes"
	"io"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// doneBody is the stream of a vendor that may leave the terminator of chat completions
// out: the body adds it where the transfer ended well after every candidate had its
// finish_reason. What comes passes as it is, so that silence and comments are noticed as
// of any other vendor. It is not safe for concurrent use.
type doneBody struct {
	io.ReadCloser
	candidates int // that were asked for

	line     []byte // the line that has not ended
	data     []byte // of the event that has not ended
	afterCR  bool   // a line feed that comes next belongs to the line end before it
	finished map[int64]bool
	broken   bool // an event is none, or too large: the stream is not complete
	done     bool // the vendor sent the terminator
	ended    bool
	tail     []byte // of what the body adds, the part that was not read yet
}

// terminator ends the event that came last, should the vendor not have done so.
const terminator = "\n\ndata: [DONE]\n\n"

// completed is the reply to a call with a body that ends as OpenAI's do.
func completed(call *upstream.Call, reply *upstream.Reply) *upstream.Reply {
	n, _ := rawjson.Int(call.Body.Raw("n"))
	reply.Body = &doneBody{ReadCloser: reply.Body, candidates: int(max(n, 1)), finished: make(map[int64]bool)}
	return reply
}

// Read reads what the vendor sent, and then the terminator where that is missing.
func (b *doneBody) Read(p []byte) (int, error) {
	if b.ended {
		n := copy(p, b.tail)
		if b.tail = b.tail[n:]; n == 0 && len(p) > 0 {
			return 0, io.EOF
		}
		return n, nil
	}
	n, err := b.ReadCloser.Read(p)
	b.scan(p[:n])
	if err != io.EOF {
		return n, err
	}
	b.ended = true
	b.endLine()
	b.endEvent()
	if !b.done && !b.broken && len(b.finished) >= b.candidates {
		b.tail = []byte(terminator)
	}
	return n, nil
}

// scan takes in the next bytes. A line ends in LF, CRLF or CR.
func (b *doneBody) scan(p []byte) {
	for len(p) > 0 && !b.broken {
		if b.afterCR = b.afterCR && p[0] == '\n'; b.afterCR {
			b.afterCR, p = false, p[1:]
			continue
		}
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			b.line = append(b.line, p...)
			b.broken = len(b.line) > sse.DefaultLimit
			return
		}
		b.line = append(b.line, p[:end]...)
		b.afterCR = p[end] == '\r'
		b.endLine()
		p = p[end+1:]
	}
}

// endLine takes in a whole line; an empty one ends the event.
func (b *doneBody) endLine() {
	if len(b.line) == 0 {
		b.endEvent()
		return
	}
	if value, ok := bytes.CutPrefix(b.line, []byte("data:")); ok {
		if len(b.data) > 0 {
			b.data = append(b.data, '\n')
		}
		b.data = append(b.data, bytes.TrimPrefix(value, []byte(" "))...)
		b.broken = b.broken || len(b.data) > sse.DefaultLimit
	}
	b.line = b.line[:0]
}

// endEvent looks for the ends of candidates in an event. Half an event says that the
// stream was cut, wherever it was.
func (b *doneBody) endEvent() {
	data := bytes.TrimSpace(b.data)
	b.data = b.data[:0]
	if len(data) == 0 {
		return
	}
	if string(data) == "[DONE]" {
		b.done = true
		return
	}
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, data, nil, nil) != nil {
		b.broken = true
		return
	}
	choices := o.Raw("choices")
	rawjson.Each(choices, func(_ int, at rawjson.Span) {
		c, err := rawjson.Index(at.Of(choices), nil, nil)
		if err != nil {
			return
		}
		reason, _ := rawjson.String(c.Raw("finish_reason"))
		index, isIndex := int64(0), true // some leave it out of an only candidate
		if raw := c.Raw("index"); !rawjson.IsNull(raw) {
			index, isIndex = rawjson.Int(raw)
		}
		if reason != "" && isIndex && index >= 0 && index < int64(b.candidates) {
			b.finished[index] = true
		}
	})
}
