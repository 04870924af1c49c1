package openai

import (
	"bytes"
	"io"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// doneBody is the stream of a vendor that may omit the terminator of chat completions. It adds
// the terminator if the transfer ended well after every candidate had its finish_reason. All
// bytes pass as they come, so that silence and comments are noticed as with any vendor. Only
// Close is safe for concurrent use.
type doneBody struct {
	io.ReadCloser
	candidates int // that were asked for

	events   *sse.Reader // of what passes
	finished map[int64]bool
	broken   bool // an event is not JSON of the form: the stream is not complete
	done     bool // the vendor sent the terminator
	ended    bool
	tail     []byte // of what the body adds, the part that was not read yet
}

// terminator ends the event that came last, should the vendor not have done so.
const terminator = "\n\ndata: [DONE]\n\n"

// completed is the reply to a call with a body that ends as OpenAI's do.
func completed(call *upstream.Call, reply *upstream.Reply) *upstream.Reply {
	n, _ := rawjson.Int(call.Body.Raw("n"))
	reply.Body = &doneBody{ReadCloser: reply.Body, candidates: int(max(n, 1)), events: sse.NewReader(nil, sse.MaxSize), finished: make(map[int64]bool)}
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
	b.events.Push(p[:n])
	for b.events.Buffered() {
		e, _ := b.events.Next() // which cannot fail
		b.judge(&e)
	}
	if err == nil {
		return n, nil
	}
	defer b.events.Release() // not by Close, which may come while a Read waits
	if err != io.EOF {
		return n, err
	}
	b.ended = true
	last, err := b.events.Next()
	for ; err == nil; last, err = b.events.Next() {
		b.judge(&last)
	}
	if whole := err == io.EOF && !b.events.Cut(); whole && !b.done && !b.broken && len(b.finished) >= b.candidates {
		b.tail = []byte(terminator)
	}
	return n, nil
}

// judge looks for the ends of candidates in an event. An event that is not an object says that
// the stream is broken.
func (b *doneBody) judge(e *sse.Event) {
	data := bytes.TrimSpace(e.Data)
	if e.Whole || string(data) == "[DONE]" { // a whole answer has no terminator
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
