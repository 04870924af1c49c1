package responses

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Tap turns an upstream's stream into the client's, one event at a time, and
// reads usage as it passes. It is not safe for concurrent use.
type Tap struct {
	conversation.Tap
	request *Request
	options operation.AnswerOptions

	whole  *rawjson.Object // the response in the event at hand, until done; nil if it has none
	sent   int64           // the number of the next event that the client gets
	item   int64           // the place in the output of the event that the Template has
	open   []openItem
	quiet  int    // after how many heartbeats in a row one is an event and no comment, which clients do not count; 0 for none
	beats  int    // heartbeats since the upstream's last event
	id     []byte // of the response that the gateway began itself, quoted; nil if the upstream began it
	end    string // what ends the stream well; empty until the upstream's terminal event
	kept   kept
	broken bool // it ends badly, whatever comes
}

// openItem is an item of the output that has begun, and how many quarter tokens of it
// came as deltas.
type openItem struct{ index, quarters int64 }

// NewTap returns a Tap for the request's stream.
func (r *Request) NewTap(o operation.AnswerOptions) operation.Tap { return r.newTap(o) }

// mostSilence is how long the stream of a response has no event: agents give up at five
// minutes, and do not count comments.
const mostSilence = 2 * time.Minute

func (r *Request) newTap(o operation.AnswerOptions) *Tap {
	quiet := 0
	if o.Heartbeat > 0 {
		quiet = int((mostSilence + o.Heartbeat - 1) / o.Heartbeat)
	}
	return &Tap{quiet: quiet, Tap: conversation.Tap{Request: &r.Parsed, Media: chat.MediaBound(o.Media)}, request: r, options: o}
}

// DropRequest makes the Tap refer to a [Request.Summary] of its request from now on, so that
// the request's bytes can be freed.
func (t *Tap) DropRequest() bool {
	t.request = t.request.Summary()
	t.Request = &t.request.Parsed
	return true
}

// The types of events that are not passed as any other.
const (
	created    = "response.created"
	inProgress = "response.in_progress"
	queued     = "response.queued"
	completed  = "response.completed"
	incomplete = "response.incomplete"
	failedKind = "response.failed"
	itemDone   = "response.output_item.done"
	itemAdded  = "response.output_item.added"
	textDelta  = "response.output_text.delta"
	callDelta  = "response.function_call_arguments.delta"
)

// sequenceNumber is the member that counts the events.
const sequenceNumber = "sequence_number"

// eventTypes are those that take no memory to read.
var eventTypes = []string{
	textDelta, callDelta, "response.reasoning_summary_text.delta", "response.reasoning_text.delta", "response.custom_tool_call_input.delta",
	created, inProgress, queued, completed, incomplete, failedKind, itemDone, itemAdded,
	"response.content_part.added", "response.content_part.done", "response.output_text.done",
}

// Event appends what the client gets for one upstream event to dst. It is the same event, with
// the public model id in its response, and with a number that follows that of the event
// before. If the event is an error, says that the response failed, or is not one JSON object,
// Event fails with the *fault.Error for the client. The event that ends a complete stream is
// done and is not appended: see [Tap.Terminator].
func (t *Tap) Event(dst []byte, name string, data []byte) (out []byte, done bool, err error) {
	t.beats = 0
	if out, ok := t.repeat(dst, name, data); ok {
		return out, false, nil
	}
	if sse.IsDone(data) { // completeness is the terminal event, not this
		return dst, false, nil
	}
	defer t.done()
	kind, s, err := t.read(name, data, true)
	if err != nil {
		if kind == failedKind && t.Quarters > 0 && t.Report.Read(s.Usage, usageMembers) {
			t.Counted()
		}
		return dst, false, err
	}
	switch kind {
	case created, inProgress, queued:
		if t.id != nil {
			return dst, false, nil // the client has those of the gateway
		}
		if kind == created {
			t.kept.begin(t.whole)
		}
		return t.appendWhole(dst, name, kind, false), false, nil
	case completed, incomplete:
		if s.Text.Quarters > t.Quarters { // a vendor that sends no deltas
			t.Wrote(s.Text.Quarters - t.Quarters)
		}
		if t.Report.Read(s.Usage, usageMembers) {
			t.Counted()
		}
		end := append(t.appendWhole(sse.GetOutput(), name, kind, true), sse.Done...)
		t.end = string(end)
		sse.PutOutput(end)
		t.sent-- // an error may go out in its place
		return dst, true, nil
	case itemDone:
		t.closeItem(s.Text.Quarters)
		t.AddEncrypted(s.Encrypted)
		t.kept.add(t.index(), t.Object.Raw("item"))
	case itemAdded:
	default:
		t.wrote(t.index(), s.Text.Quarters)
		out = t.append(dst, name, kind)
		if t.Object.Raw("item") != nil || t.whole != nil { // what is encrypted there counts too
			t.Template.Forget()
			return out, false, nil
		}
		t.Template.Learn(name, t.Object, out[len(dst):], &s.Text, sequenceNumber)
		t.item = t.index()
		return out, false, nil
	}
	return t.append(dst, name, kind), false, nil
}

// read reads an event's payload, and returns its type. Without whole nothing of a response
// in it is read.
func (t *Tap) read(name string, data []byte, whole bool) (kind string, s conversation.Scan, err error) {
	t.Object = rawjson.Borrow()
	if whole {
		t.whole, err = s.ReadNested(t.Object, data, eventParts, "response", responseParts)
	} else {
		err = s.Read(t.Object, data, eventParts)
	}
	if err != nil {
		return "", s, upstream.BadAnswer("The upstream sent an event that is not one JSON object.", err)
	}
	if kind = conversation.TypeOf(t.Object.Raw("type"), eventTypes); kind == "" {
		kind = name
	}
	switch e := t.Object.Raw("error"); {
	case kind == failedKind:
		if t.whole == nil {
			return kind, s, upstream.BadAnswer("The upstream reported an error.", nil)
		}
		return kind, s, vendorError(t.whole.Raw("error"))
	case !rawjson.IsNull(e):
		return kind, s, vendorError(e)
	case kind == "error", name == "error", kind == "", string(t.Object.Raw("object")) == `"error"`:
		return kind, s, vendorError(data)
	}
	return kind, s, nil
}

// done ends the use of the event at hand.
func (t *Tap) done() {
	t.Done()
	if t.whole != nil {
		rawjson.GiveBack(t.whole)
		t.whole = nil
	}
}

// Opening judges the first events of a stream before the answer is committed. It reports
// whether one carries content, and the error if it is a failure behind a status 200.
func (*Request) Opening(name string, data []byte) (content bool, err error) {
	if sse.IsDone(data) {
		return true, upstream.BadAnswer("The upstream's stream is empty.", nil)
	}
	var t Tap
	defer t.done()
	kind, s, err := t.read(name, data, !isBeginning(data))
	return err != nil || s.Text.Quarters > 0 || kind == completed || kind == incomplete, err
}

// isBeginning reports whether an event says that a response is on its way. [Tap.Event] does
// not count what is in that response, nor take an error in it for one of the stream.
func isBeginning(data []byte) bool {
	const head = `{"type":"`
	if !bytes.HasPrefix(data, []byte(head)) {
		return false
	}
	for _, k := range [...]string{created, inProgress, queued} {
		if rest := data[len(head):]; len(rest) > len(k) && string(rest[:len(k)]) == k && rest[len(k)] == '"' {
			return true
		}
	}
	return false
}

// index is the place in the output that the event at hand is about; -1 for none.
func (t *Tap) index() int64 {
	index, ok := rawjson.Int(t.Object.Raw("output_index"))
	if !ok {
		return -1
	}
	return index
}

// mostOpen bounds the items whose deltas are counted apart. No vendor has more than a
// few at a time; of more the text is counted when it comes, and again with its item.
const mostOpen = 128

// wrote notes text of an item.
func (t *Tap) wrote(index, quarters int64) {
	if quarters > 0 {
		t.Wrote(quarters)
	}
	t.open = appendText(t.open, index, quarters)
}

// appendText notes text that came of an item as a delta.
func appendText(open []openItem, index, quarters int64) []openItem {
	if quarters <= 0 {
		return open
	}
	for i := range open {
		if open[i].index == index {
			open[i].quarters += quarters
			return open
		}
	}
	if len(open) < mostOpen {
		open = append(open, openItem{index, quarters})
	}
	return open
}

// closeItem notes the text of a whole item that did not come as deltas.
func (t *Tap) closeItem(quarters int64) {
	index := t.index()
	at := slices.IndexFunc(t.open, func(o openItem) bool { return o.index == index })
	if at >= 0 {
		quarters -= t.open[at].quarters
		t.open = slices.Delete(t.open, at, at+1)
	}
	t.Wrote(quarters)
}

// appendWhole appends the event at hand, whose response has the public model id and the id
// that the client knows.
func (t *Tap) appendWhole(dst []byte, name, kind string, ended bool) []byte {
	if t.whole == nil {
		return t.append(dst, name, kind)
	}
	edits := make([]rawjson.Edit, 0, 3)
	if t.whole.Raw("model") != nil {
		edits = append(edits, rawjson.Set("model", t.request.Spelled(t.request.Model)))
	}
	edits = t.request.OwnNames(edits, t.whole)
	if t.id != nil {
		edits = append(edits, rawjson.Set("id", t.id))
	}
	if e := t.whole.Raw("error"); !rawjson.IsNull(e) {
		edits = append(edits, rawjson.Set("error", publicError(e)))
	}
	scratch := t.whole.Apply(sse.GetOutput(), edits...)
	response := scratch
	if t.options.Edit != nil {
		response = t.options.Edit(response, ended && !t.broken)
	}
	dst = t.append(dst, name, kind, rawjson.Set("response", response))
	sse.PutOutput(scratch)
	return dst
}

// append appends the event at hand with the edits and its number.
func (t *Tap) append(dst []byte, name, kind string, edits ...rawjson.Edit) []byte {
	if name == "" {
		name = kind
	}
	if n, ok := rawjson.Int(t.Object.Raw(sequenceNumber)); !ok || n != t.sent {
		edits = append(edits, rawjson.Set(sequenceNumber, strconv.AppendInt(nil, t.sent, 10)))
	}
	t.sent++
	begin := len(dst)
	dst = append(sse.AppendName(dst, name), "data: "...)
	from := len(dst)
	dst = t.Object.Apply(dst, edits...)
	if data := dst[from:]; bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 { // came as several data lines
		return sse.AppendEvent(dst[:begin], name, bytes.Clone(data))
	}
	return append(dst, "\n\n"...)
}

// repeat is [conversation.Tap.Repeat] with the number of the event, whose text is counted
// with that of its item.
func (t *Tap) repeat(dst []byte, name string, data []byte) (out []byte, ok bool) {
	out, quarters, ok := t.Repeat(dst, name, data, t.sent)
	if !ok {
		return dst, false
	}
	t.open = appendText(t.open, t.item, quarters)
	t.sent++
	return out, true
}

// Delivered reports whether the client has got anything of the answer.
func (t *Tap) Delivered() bool { return t.Quarters > 0 }

// Heartbeat appends a comment, which keeps the connection alive. After a long silence it
// appends an event, since clients that wait for events do not count comments. Before the
// upstream's first event only the beginning of a response may come.
func (t *Tap) Heartbeat(dst []byte) []byte {
	t.beats++
	switch {
	case t.quiet <= 0 || t.beats%t.quiet != 0, t.sent == 0 && t.request.VendorState:
		return append(dst, ": keep-alive\n\n"...)
	case t.sent > 0:
		t.sent++
		return appendOwn(dst, "keepalive", t.sent-1, "", nil)
	}
	dst, t.sent = t.appendBeginning(dst)
	return dst
}

// appendBeginning appends the first events of a response of the gateway's own, and
// returns the number of the next one.
func (t *Tap) appendBeginning(dst []byte) (_ []byte, next int64) {
	response := t.begin()
	dst = appendOwn(dst, created, 0, "response", response)
	return appendOwn(dst, inProgress, 1, "response", response), 2
}

// appendOwn appends an event with one member besides its type and its number; without it
// if value is nil.
func appendOwn(dst []byte, kind string, number int64, member string, value []byte) []byte {
	data := strconv.AppendInt([]byte(`{"type":"`+kind+`","sequence_number":`), number, 10)
	if value != nil {
		data = append(append(data, `,"`+member+`":`...), value...)
	}
	return sse.AppendEvent(dst, kind, append(data, '}'))
}

// BreakOff says that the stream ends badly, and that what still comes is only counted.
func (t *Tap) BreakOff() { t.broken = true }

// CutShort ends the stream because the balance has ended. It ends as failed, because clients
// retry a response that is merely incomplete. All of it is the terminator.
func (t *Tap) CutShort(dst []byte) []byte {
	t.end = string(t.AppendError(nil, fault.New(fault.InsufficientBalance, "The account's balance ended before the response was complete.")))
	return dst
}

// AppendError appends the events that end a broken stream. SDKs fail at the first, an error.
// Agents decide by the code of the second, a response that failed, what to do.
func (t *Tap) AppendError(dst []byte, f *fault.Error) []byte {
	object, why := errorJSON(f)
	next := t.sent // which stays: these events may be replaced by others
	if next == 0 {
		dst, next = t.appendBeginning(dst)
	}
	dst = appendOwn(dst, "error", next, "error", object)
	dst = appendOwn(dst, failedKind, next+1, "response", t.failedResponse(why))
	return append(dst, sse.Done...)
}

// ErrorEvents is [Tap.AppendError] of a request that failed before it had a Tap, called
// id.
func ErrorEvents(dst []byte, id string, f *fault.Error) []byte {
	t := (&Request{Request: new(responses.Request)}).newTap(operation.AnswerOptions{NewID: func(string) string { return "resp_" + strings.TrimPrefix(id, "req_") }})
	return t.AppendError(dst, f)
}

// Terminator is what ends a complete stream: the upstream's own event.
func (t *Tap) Terminator() string { return t.end }
