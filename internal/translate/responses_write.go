package translate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// responseWriter makes a response: its events, or the whole of it, which the last event has.
// The first content of an item opens it, and it is closed before the next one. The last event
// marks the response as complete; the gateway's Tap adds [DONE].
type responseWriter struct {
	written
	request *responses.Request
	names   *toolNames // of the request's tools
	// seal encrypts reasoning for the client to send back. It is nil if the client must not get
	// it.
	seal    func(thoughts []byte) string
	id      string           // "resp_…"
	created int64            // Unix seconds
	now     func() time.Time // at its end
	whole   bool             // or events

	head, tail []byte // of the response's object: what stands before and after what changes
	asText     *partForm
	sealing    bool // the client asks for sealed reasoning, and may have it

	blocks        blockSequencer
	unsent        *streamBlock // has text that no event has sent yet; nil if there is none
	blank         []byte       // white space that opens no item yet, within a JSON string
	blankLogprobs []byte
	sequence      int64          // of the next event
	items         int            // that were opened
	callIDs       map[string]int // that were given out, and how often the vendor gave each
	output        []byte         // the items that are done
	size          int            // of all that was said, in bytes
	cut           bool           // the answer ended in the middle of a call, after which nothing can follow
	reason        string         // chat's word; empty before it came
	final         []byte         // the response as the last event has it
}

// write takes in one piece. For a whole response, only the content of the last event is kept.
func (w *responseWriter) write(p piece) {
	w.writeEvents(&p)
	if w.whole {
		w.out = append(w.out[:0], w.final...)
	}
}

// writeEvents makes the events of one piece. What an answer says in all is bounded: its
// last event repeats it, and no event may be larger than a reader of events takes.
func (w *responseWriter) writeEvents(p *piece) {
	const most = 6 << 20
	if w.unsent != nil && p.kind != w.unsent.kind {
		w.flush()
	}
	if w.size += len(p.text) + len(p.list) + len(p.id) + len(p.name); w.err == nil && w.size > most {
		w.err = upstream.BadAnswer("The upstream's answer is larger than the gateway allows in a response.", nil)
	}
	if w.err != nil {
		return
	}
	switch p.kind {
	case begun:
		w.begin()
	case thought:
		w.flow(thought, p.text)
	case signed, redacted, wantedBack:
		w.signature(p)
	case said:
		w.said(p)
	case cited:
		w.cite(p.list)
	case declined:
		w.flow(declined, p.text)
	case call:
		w.blank, w.blankLogprobs = nil, nil
		w.err = w.blocks.call(p)
	case idle:
		w.event("keepalive")
		w.endEvent()
	case finished:
		w.reason = p.reason
	case ended:
		w.end(p.usage)
	}
}

// flush sends the text that was gathered.
func (w *responseWriter) flush() {
	if s := w.unsent; s != nil {
		w.unsent = nil
		w.textDelta(s, w.form(s))
	}
}

// flow takes a piece of reasoning or of a refusal.
func (w *responseWriter) flow(kind pieceKind, text []byte) {
	w.blank, w.blankLogprobs = nil, nil
	w.err = w.blocks.text(kind, text)
}

// said takes a piece of text. White space opens no item: many vendors send some with calls.
func (w *responseWriter) said(p *piece) {
	if w.blocks.lastKind() != said {
		text := p.text[1 : len(p.text)-1]
		w.blank = append(w.blank, text...)
		w.blankLogprobs = appendElements(w.blankLogprobs, p.list)
		if !isBlank(text) {
			w.sayBlank()
		}
		return
	}
	item := &w.blocks.block(said).item
	item.logprobs = appendElements(item.logprobs, p.list)
	w.err = w.blocks.text(said, p.text)
}

// sayBlank opens an item with what was held back.
func (w *responseWriter) sayBlank() {
	w.blocks.block(said).item.logprobs = w.blankLogprobs
	w.err = w.blocks.text(said, slices.Concat([]byte{'"'}, w.blank, []byte{'"'}))
	w.blank, w.blankLogprobs = nil, nil
}

// cite says where the last text is from.
func (w *responseWriter) cite(list []byte) {
	if w.blocks.lastKind() != said {
		return
	}
	s := w.blocks.block(said)
	s.item.citations = append(s.item.citations, rawjson.Elements(slices.Concat([]byte("["), list, []byte("]")))...)
	if s.open {
		w.sendCitations(s)
	}
}

// signature keeps what the vendor needs to take its reasoning back. Reasoning that only its
// vendor can read becomes an item if the client can send it back.
func (w *responseWriter) signature(p *piece) {
	wants := p.kind == wantedBack && w.seal != nil // it refuses the next turn without it
	if w.blocks.lastKind() == thought || w.sealing || wants {
		item := &w.blocks.block(thought).item
		item.wanted = item.wanted || wants
		item.signature = appendSigned(item.signature, p)
		w.err = w.blocks.advance(false)
	}
}

// begin says that the response is on its way.
func (w *responseWriter) begin() {
	w.blocks = blockSequencer{to: w}
	w.echo()
	w.asText = &reasoningText
	if r := w.request.Reasoning; r != nil && (r.Summary != "" || !rawjson.IsNull(rawjson.Lookup(r.Extra, "generate_summary"))) {
		w.asText = &summaryText
	}
	w.sealing = w.seal != nil && slices.Contains(w.request.Include, "reasoning.encrypted_content")
	for _, name := range [...]string{"response.created", "response.in_progress"} {
		w.event(name)
		w.out = w.appendResponse(append(w.out, `,"response":`...), "in_progress", "", nil)
		w.endEvent()
	}
	w.request = &responses.Request{Model: w.request.Model} // the rest of it can be freed
}

// end closes what is open and the response.
func (w *responseWriter) end(u *conversation.Report) {
	if len(w.blank) > 0 && len(w.blocks.calls) == 0 {
		w.sayBlank()
	}
	if w.err == nil {
		w.err = w.blocks.advance(true)
	}
	if w.err != nil {
		return
	}
	name, status, reason := "response.completed", "completed", incomplete[w.reason]
	if w.cut && reason == "" {
		reason = incomplete["length"]
	}
	if reason != "" {
		name, status = "response.incomplete", "incomplete"
	}
	w.event(name)
	w.out = append(w.out, `,"response":`...)
	from := len(w.out)
	w.out = w.appendResponse(w.out, status, reason, u)
	w.final = w.out[from:]
	w.endEvent()
}

// appendResponse appends the response's object. u is nil before its end. A usage that lacks
// one side is left to the gateway, since clients want both.
func (w *responseWriter) appendResponse(dst []byte, status, reason string, u *conversation.Report) []byte {
	dst = append(append(dst, w.head...), status...)
	dst = append(dst, `","completed_at":`...)
	if status == "completed" {
		dst = strconv.AppendInt(dst, w.now().Unix(), 10)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"error":null,"incomplete_details":`...)
	if reason != "" {
		dst = append(append(append(dst, `{"reason":"`...), reason...), `"}`...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(append(append(dst, `,"output":[`...), w.output...), `],"usage":`...)
	if u != nil && u.Has[conversation.Input] && u.Has[conversation.Output] {
		dst = appendResponseUsage(dst, u)
	} else {
		dst = append(dst, "null"...)
	}
	return append(dst, w.tail...)
}

// echo makes the parts of the response that do not change: the request's members. A member
// larger than the bound is not repeated, since everything must fit in one event.
func (w *responseWriter) echo() {
	const most = 1 << 20
	w.head = rawjson.Quote([]byte(`{"id":`), w.id)
	w.head = strconv.AppendInt(append(w.head, `,"object":"response","created_at":`...), w.created, 10)
	w.head = append(w.head, `,"status":"`...)
	body := w.request.Body
	if !body.IsObject() { // the request was made in Go
		if data, err := json.Marshal(w.request); err == nil {
			o, _ := rawjson.Index(data, nil, nil) // the zero Object has nothing to repeat
			body = upstream.ObjectBody(o)
		}
	}
	const usual = 768 // bytes of what is repeated
	w.tail = rawjson.Quote(append(make([]byte, 0, usual), `,"model":`...), w.request.Model)
	for _, m := range responsesop.Echoed {
		raw := body.Raw(m.Name)
		if rawjson.IsNull(raw) {
			raw = []byte(m.Otherwise)
		}
		if raw = oneLine(filled(m.Name, raw)); len(w.tail)+len(raw) > most {
			raw = []byte(m.Otherwise)
		}
		w.tail = append(append(append(w.tail, `,"`...), m.Name...), `":`...)
		w.tail = append(w.tail, raw...)
	}
	w.tail = append(w.tail, `,"background":false,"service_tier":"default","store":false}`...)
}

// filled is an echoed member with what clients want to find in it.
func filled(name string, raw []byte) []byte {
	switch name {
	case "reasoning":
		return withAbsent(raw, "null", "effort", "summary")
	case "text":
		return withAbsent(raw, `{"type":"text"}`, "format")
	case "tools":
		tools, changed := editElements(raw, `"function"`, func(tool []byte) []byte {
			if rawjson.LookupString(tool, "type") != "function" {
				return tool
			}
			return withAbsent(tool, "null", "description", "parameters", "strict")
		})
		if changed {
			return tools
		}
	}
	return raw
}

// withAbsent is an object with a value for those of the names that it lacks.
func withAbsent(object []byte, value string, names ...string) []byte {
	var edits []rawjson.Edit
	for _, name := range names {
		if rawjson.Lookup(object, name) == nil {
			edits = append(edits, rawjson.Set(name, []byte(value)))
		}
	}
	if edits == nil {
		return object
	}
	return rawjson.Apply(object, edits...)
}

// oneLine is JSON that an event can have in its one line of data.
func oneLine(raw []byte) []byte {
	if bytes.ContainsAny(raw, "\r\n") {
		compact := jsontext.Value(bytes.Clone(raw))
		_ = compact.Compact() // it was read before
		return compact
	}
	return raw
}

// event begins an event; members are appended to it until endEvent.
func (w *responseWriter) event(name string) {
	w.out = append(append(w.out, "event: "...), name...)
	w.out = append(append(w.out, "\ndata: {\"type\":\""...), name...)
	w.out = strconv.AppendInt(append(w.out, `","sequence_number":`...), w.sequence, 10)
	w.sequence++
}

func (w *responseWriter) endEvent() { w.out = append(w.out, "}\n\n"...) }

// hash returns what the ids of the n-th item are made of. It is the same when an answer is
// made again, and different in each response.
func (w *responseWriter) hash(n int) string {
	sum := sha256.Sum256(strconv.AppendInt(append([]byte(w.id), 0), int64(n), 10))
	return hex.EncodeToString(sum[:])
}
