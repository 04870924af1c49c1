package messages

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Tap turns an upstream's stream into the client's, one event at a time, and
// reads usage as it passes. It is not safe for concurrent use.
type Tap struct {
	conversation.Tap // counts text that was delivered or thought unseen
	request          *Request
	options          operation.AnswerOptions

	unseen  int64   // of the text, what the client does not see, in quarter tokens
	started bool    // message_start went out
	open    []int64 // the blocks that are open
	stopped bool    // the client knows why the model stopped
	end     string  // the upstream's own terminator; empty until it came
}

// NewTap returns a Tap for the request's stream.
func (r *Request) NewTap(o operation.AnswerOptions) operation.Tap {
	return &Tap{Tap: conversation.Tap{Request: &r.Parsed, Media: chat.MediaBound(o.Media)}, request: r, options: o}
}

// DropRequest makes the Tap refer to a [Request.Summary] of its request from now on, so that
// the request's bytes can be freed.
func (t *Tap) DropRequest() bool {
	t.request = t.request.Summary()
	t.Request = &t.request.Parsed
	return true
}

// Event appends what the client gets of one upstream event to dst: the same, with the public
// model id in message_start. It fails with the *fault.Error that ends the stream if the event
// is an error, is not one JSON object or comes before message_start. Nothing is appended for
// hidden reasoning, which internal/translate reports to the Tap alone. The event that ends a
// complete stream is done and is not appended: see [Tap.Terminator].
func (t *Tap) Event(dst []byte, name string, data []byte) (out []byte, done bool, err error) {
	if out, _, ok := t.Repeat(dst, name, data, 0); ok {
		return out, false, nil
	}
	defer t.Done()
	kind, s, err := t.read(name, data)
	if err != nil {
		return dst, false, err
	}
	data = t.Object.Src // with bytes that are no UTF-8 replaced
	if kind == hiddenEvent || name == hiddenEvent {
		unseen := tokencount.StringQuarters(t.Object.Raw("hidden"))
		t.unseen += unseen
		t.Wrote(unseen)
		return dst, false, nil
	}
	if !t.started && slices.Contains(laterEvents, kind) {
		return dst, false, upstream.BadAnswer("The upstream's stream does not begin with message_start.", nil)
	}
	t.Wrote(s.Text.Quarters)
	came := name
	if name == "" {
		name = kind // without an event line the vendor's own clients see nothing
	}
	switch kind {
	case "message_start":
		return t.begin(dst, name), false, nil
	case "message_stop":
		t.end = string(sse.AppendEvent(nil, name, data))
		return dst, true, nil
	case "message_delta":
		t.stopped = t.stopped || s.Stopped
		if ReadUsage(&t.Report, t.Object.Raw("usage")) {
			t.Counted()
		}
	case "content_block_start", "content_block_stop":
		t.block(kind == "content_block_start")
	case "content_block_delta":
		out = sse.AppendEvent(dst, name, data)
		t.Template.Learn(came, t.Object, out[len(dst):], &s.Text, "")
		return out, false, nil
	}
	return sse.AppendEvent(dst, name, data), false, nil
}

// hiddenEvent is an event between a translated stream (internal/translate) and the [Tap] above
// it. It says that the model reasons, and that the caller did not ask to see it. Without it,
// long reasoning would run into the time-outs of a silent upstream. A client that disconnects
// during it would not pay for it. No client ever gets it.
//
// Its member "hidden" is a string with one point for each quarter token, not a number. An
// upstream could send the event itself to make a caller pay; it is believed no more than the
// bytes that it sent.
const hiddenEvent = "gateway.hidden"

// AppendHidden appends the events that stand for reasoning, which is a JSON string.
func AppendHidden(dst, thought []byte) []byte {
	const longest = 64 << 10 // quarters in one event, which has a limit above
	quarters := tokencount.StringQuarters(thought)
	for quarters > 0 {
		n := min(quarters, longest)
		data := append([]byte(`{"type":"`+hiddenEvent+`","hidden":"`), bytes.Repeat([]byte{'.'}, int(n))...)
		dst = sse.AppendEvent(dst, hiddenEvent, append(data, `"}`...))
		quarters -= n
	}
	return dst
}

// laterEvents may only come after message_start.
var laterEvents = []string{"content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}

// eventTypes are the events that the vendor documents.
var eventTypes = []string{
	"message_start", "content_block_start", "content_block_delta", "content_block_stop",
	"message_delta", "message_stop", "ping", "error",
}

// read reads an event's payload in one pass, and returns its type.
func (t *Tap) read(name string, data []byte) (kind string, s conversation.Scan, err error) {
	if s, err = t.Read(data, eventParts); err != nil {
		return "", s, err
	}
	kind = conversation.TypeOf(t.Object.Raw("type"), eventTypes)
	if kind == "" {
		kind = name
	}
	if e := t.Object.Raw("error"); kind == "error" || name == "error" || !rawjson.IsNull(e) {
		return "", s, vendorError(e)
	}
	return kind, s, nil
}

// Opening judges the first events of a stream before the answer is committed. It reports
// whether one carries content, and the error if it is a failure behind a status 200.
func (*Request) Opening(name string, data []byte) (content bool, err error) {
	var t Tap
	defer t.Done()
	kind, s, err := t.read(name, data)
	switch {
	case err != nil:
		return true, err
	case kind == hiddenEvent || name == hiddenEvent:
		return false, nil
	case kind == "message_stop":
		return true, upstream.BadAnswer("The upstream's stream is empty.", nil)
	case kind == "content_block_start": // other blocks come whole
		block, _ := rawjson.String(s.Type)
		return s.Text.Quarters > 0 || block != "text" && block != "thinking", nil
	}
	return s.Text.Quarters > 0 || kind == "message_delta", nil
}

// begin passes message_start.
func (t *Tap) begin(dst []byte, name string) []byte {
	t.started = true
	raw := t.Object.Raw("message")
	message := rawjson.Borrow()
	defer rawjson.GiveBack(message)
	if rawjson.IsNull(raw) || rawjson.IndexInto(message, raw, nil, nil) != nil {
		return sse.AppendEvent(dst, name, t.Object.Src)
	}
	BeginUsage(&t.Report, message.Raw("usage"))
	if message.Raw("model") == nil {
		return sse.AppendEvent(dst, name, t.Object.Src)
	}
	public := message.Apply(nil, rawjson.Set("model", t.request.Spelled(t.request.Model)))
	return sse.AppendEvent(dst, name, t.Object.Apply(nil, rawjson.Set("message", public)))
}

// block notes that a block begins or ends.
func (t *Tap) block(begins bool) {
	index, _ := rawjson.Int(t.Object.Raw("index"))
	at := slices.Index(t.open, index)
	switch {
	case begins && at < 0:
		t.open = append(t.open, index)
	case !begins && at >= 0:
		t.open = slices.Delete(t.open, at, at+1)
	}
}

// Delivered reports whether the client has got anything of the answer.
func (t *Tap) Delivered() bool {
	return t.Quarters > t.unseen || t.Report.Has[conversation.Output] && t.UpToDate()
}

// Heartbeat appends an event that keeps the connection alive.
func (t *Tap) Heartbeat(dst []byte) []byte {
	return sse.AppendEvent(dst, "ping", []byte(`{"type":"ping"}`))
}

// CutShort appends the events that end the message for reason "max_tokens", with the usage
// until now. It ends the open blocks, and begins the message if it has not begun. The
// terminator is not appended.
func (t *Tap) CutShort(dst []byte) []byte {
	u := t.Usage()
	shown := messages.Usage{
		InputTokens: u.Input, CacheReadInputTokens: u.CachedInput, CacheCreationInputTokens: u.CacheWrite,
		OutputTokens: u.Output,
	}
	if !t.started {
		t.started = true
		dst = t.start(dst, shown)
	}
	slices.Sort(t.open)
	for _, index := range t.open {
		stop := strconv.AppendInt([]byte(`{"type":"content_block_stop","index":`), index, 10)
		dst = sse.AppendEvent(dst, "content_block_stop", append(stop, '}'))
	}
	t.open = t.open[:0]
	if t.stopped {
		return dst
	}
	t.stopped = true
	usage, err := json.Marshal(shown)
	if err != nil {
		return dst // integers marshal
	}
	delta := append([]byte(`{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":`), usage...)
	return sse.AppendEvent(dst, "message_delta", append(delta, '}'))
}

// start appends the beginning of a message of the gateway's own.
func (t *Tap) start(dst []byte, u messages.Usage) []byte {
	id := ""
	if t.options.NewID != nil {
		id = t.options.NewID("msg_")
	}
	message, err := json.Marshal(messages.Response{ID: id, Type: "message", Role: "assistant", Model: t.request.Model, Content: []messages.Block{}, Usage: u})
	if err != nil {
		return dst // strings and integers marshal
	}
	return sse.AppendEvent(dst, "message_start", append(append([]byte(`{"type":"message_start","message":`), message...), '}'))
}

// Terminator is the event that ends a complete stream: the upstream's own, if it
// came.
func (t *Tap) Terminator() string {
	if t.end != "" {
		return t.end
	}
	return "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
}
