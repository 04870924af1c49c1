package messages

import (
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Tap turns an upstream's stream into the client's, one event at a time, and
// reads usage as it passes. It is not safe for concurrent use.
type Tap struct {
	request *Request
	options TapOptions
	report  report

	quarters int64 // text delivered or thought unseen, in quarter tokens
	unseen   int64 // of them, what the client does not see
	fresh    bool  // nothing was delivered since the output was last counted

	started bool    // message_start went out
	open    []int64 // the blocks that are open
	stopped bool    // the client knows why the model stopped
	last    string  // the upstream's own end; empty until it came

	like   likeness        // of the piece of text before
	object *rawjson.Object // of the event at hand
}

// TapOptions are what a Tap cannot know.
type TapOptions struct {
	Media chat.MediaBound
	// NewID mints "msg_…" for a message that the gateway must begin itself; nil
	// leaves its id empty.
	NewID func() string
}

// NewTap returns a Tap for the request's stream.
func (r *Request) NewTap(o TapOptions) *Tap { return &Tap{request: r, options: o} }

// Event appends what the client gets of one upstream event to dst: the same,
// with the public model id in message_start. It fails with the *fault.Error
// that ends the stream if the event is an error, is not one JSON object or
// comes before message_start. Nothing is appended for what the model thinks
// unseen, which [Bridge] tells the Tap alone. The event that ends a complete
// stream is done and is not appended: see [Tap.Terminator].
func (t *Tap) Event(dst []byte, name string, data []byte) (out []byte, done bool, err error) {
	if text, ok := t.like.text(name, data); ok {
		t.wrote(tokencount.Quarters(text))
		return sse.AppendEvent(dst, t.like.shown, data), false, nil
	}
	var w written
	t.object = rawjson.Borrow()
	defer t.giveBack()
	kind, err := t.index(name, data, &w)
	if err != nil {
		return dst, false, err
	}
	if kind == hiddenEvent || name == hiddenEvent {
		unseen := hidden(t.object)
		t.unseen += unseen
		t.wrote(unseen)
		return dst, false, nil
	}
	if !t.started && ordered(kind) {
		return dst, false, answer.Bad("The upstream's stream does not begin with message_start.", nil)
	}
	t.wrote(w.quarters)
	came := name
	if name == "" {
		name = kind // without an event line the vendor's own clients see nothing
	}
	switch kind {
	case "message_start":
		return t.begin(dst, name), false, nil
	case "message_stop":
		t.last = string(sse.AppendEvent(nil, name, data))
		return dst, true, nil
	case "message_delta":
		t.stopped = t.stopped || w.stopped
		if t.report.read(t.object.Raw("usage")) {
			t.fresh = true
		}
	case "content_block_start", "content_block_stop":
		t.block(kind == "content_block_start")
	case "content_block_delta":
		t.like.learn(came, name, data, &w)
	}
	return sse.AppendEvent(dst, name, data), false, nil
}

// ordered reports whether an event has its place in the order of the vendor's:
// after message_start.
func ordered(kind string) bool {
	switch kind {
	case "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop":
		return true
	}
	return false
}

// giveBack ends the use of the index: a stream may be silent for long.
func (t *Tap) giveBack() {
	rawjson.GiveBack(t.object)
	t.object = nil
}

// index reads an event's payload in one pass, and returns its type.
func (t *Tap) index(name string, data []byte, w *written) (kind string, err error) {
	err = rawjson.IndexInto(t.object, data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "delta" || string(name) == "content_block" {
			return w.object(rd, data)
		}
		_, err := rd.Skip()
		return err
	})
	if err != nil {
		return "", answer.Bad("The upstream sent an event that is not one JSON object.", err)
	}
	kind = kindOf(t.object.Raw("type"))
	if kind == "" {
		kind = name
	}
	if e := t.object.Raw("error"); kind == "error" || name == "error" || !rawjson.IsNull(e) {
		return "", vendorError(e)
	}
	return kind, nil
}

// kinds are the events that the vendor documents.
var kinds = []string{
	"message_start", "content_block_start", "content_block_delta", "content_block_stop",
	"message_delta", "message_stop", "ping", "error",
}

// kindOf is the type of an event.
func kindOf(raw []byte) string {
	for _, k := range kinds {
		if len(raw) == len(k)+2 && raw[0] == '"' && string(raw[1:len(raw)-1]) == k {
			return k
		}
	}
	kind, _ := rawjson.String(raw)
	return kind
}

// Opening judges the first events of a stream before the answer is committed:
// whether one carries content, and the error if it is a failure in disguise
// (faults.md, row 4).
func Opening(name string, data []byte) (content bool, err error) {
	var t Tap
	var w written
	t.object = rawjson.Borrow()
	defer t.giveBack()
	kind, err := t.index(name, data, &w)
	switch {
	case err != nil:
		return true, err
	case kind == hiddenEvent || name == hiddenEvent:
		return false, nil
	case kind == "message_stop":
		return true, answer.Bad("The upstream's stream is empty.", nil)
	case kind == "content_block_start": // other blocks come whole
		block := kindOf(w.kind)
		return w.quarters > 0 || block != "text" && block != "thinking", nil
	}
	return w.quarters > 0 || kind == "message_delta", nil
}

// begin passes message_start.
func (t *Tap) begin(dst []byte, name string) []byte {
	t.started = true
	raw := t.object.Raw("message")
	message := rawjson.Borrow()
	defer rawjson.GiveBack(message)
	if rawjson.IsNull(raw) || rawjson.IndexInto(message, raw, nil, nil) != nil {
		return sse.AppendEvent(dst, name, t.object.Src)
	}
	t.report.begin(message.Raw("usage"))
	if message.Raw("model") == nil {
		return sse.AppendEvent(dst, name, t.object.Src)
	}
	public := message.Apply(nil, rawjson.Set("model", t.request.quotedModel()))
	return sse.AppendEvent(dst, name, t.object.Apply(nil, rawjson.Set("message", public)))
}

// block notes that a block begins or ends.
func (t *Tap) block(begins bool) {
	index, _ := rawjson.Int(t.object.Raw("index"))
	at := slices.Index(t.open, index)
	switch {
	case begins && at < 0:
		t.open = append(t.open, index)
	case !begins && at >= 0:
		t.open = slices.Delete(t.open, at, at+1)
	}
}

// wrote notes text that is delivered, or produced unseen.
func (t *Tap) wrote(quarters int64) {
	if quarters > 0 {
		t.quarters += quarters
		t.fresh = false
	}
}

// Usage is what was consumed until now. Text delivered after the upstream last
// counted its output is estimated, as is everything that it did not count.
func (t *Tap) Usage() billing.Usage {
	u := t.request.usage(&t.report, t.quarters, t.options.Media)
	if out := tokencount.Tokens(t.quarters); t.report.Has[output] && !t.fresh && out > u.Output {
		u.Output, u.Estimated, u.Zero = out, true, false
	}
	return u
}

// Delivered reports whether the client has got anything of the answer.
func (t *Tap) Delivered() bool { return t.quarters > t.unseen || t.report.Has[output] && t.fresh }

// Output is the number of output tokens delivered, or thought unseen, until now.
// What message_start counts was not delivered.
func (t *Tap) Output() int64 {
	out := t.Said()
	if t.report.Has[output] {
		out = max(out, t.report.N[output])
	}
	return out
}

// Said is the number of output tokens by the text alone, whatever the upstream
// reports.
func (t *Tap) Said() int64 { return tokencount.Tokens(t.quarters) }
