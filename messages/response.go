package messages

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/estimate"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Response is a message of the model's. Fields that are not named here are in
// Extra, here and in its parts.
type Response struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`  // "message"
	Role         string         `json:"role"`  // "assistant"
	Model        string         `json:"model"` // public id
	Content      []Block        `json:"content"`
	StopReason   *string        `json:"stop_reason"`   // end_turn, max_tokens, stop_sequence, tool_use, pause_turn, refusal, …; nil while a stream is open
	StopSequence *string        `json:"stop_sequence"` // the one that was met
	Usage        Usage          `json:"usage"`
	Extra        jsontext.Value `json:",embed"`

	// Raw is the answer as it came, but for the model's id.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Usage is the upstream's count of tokens, in disjoint buckets: InputTokens
// excludes what was read from and written to the cache. OutputTokens includes
// thinking.
type Usage struct {
	InputTokens              int64          `json:"input_tokens"`
	CacheCreationInputTokens int64          `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64          `json:"cache_read_input_tokens"`
	OutputTokens             int64          `json:"output_tokens"`
	OutputTokensDetails      *OutputDetails `json:"output_tokens_details,omitzero"`
	Extra                    jsontext.Value `json:",embed"`
}

// OutputDetails says what the output consists of.
type OutputDetails struct {
	ThinkingTokens int64          `json:"thinking_tokens"`
	Extra          jsontext.Value `json:",embed"`
}

// Count is how many input tokens a message would take.
type Count struct {
	InputTokens int64          `json:"input_tokens"`
	Extra       jsontext.Value `json:",embed"`

	// Estimated says that no upstream counted: the number is the gateway's guess.
	Estimated bool `json:"-"`
}

// Answer is a checked, non-streamed message.
type Answer struct {
	Body  []byte // as the upstream sent it, with the public model id
	Usage billing.Usage
	Said  int64 // output tokens by the text alone, whatever the upstream reports
}

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b chat.MediaBound) (Answer, error) {
	var s answerScan
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	err := rawjson.IndexInto(o, data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "content" && rd.Kind() == '[' {
			s.content = true
			return rd.Array(func(int) error { return s.object(rd, data) })
		}
		_, err := rd.Skip()
		return err
	})
	if err := answer.Whole(o, err); err != nil {
		return Answer{}, err
	}
	if kind, _ := rawjson.String(o.Raw("type")); kind != "message" || !s.content {
		return Answer{}, answer.Bad("The upstream's answer is not a message with content.", nil)
	}
	var p report
	p.read(o.Raw("usage"))
	var edits []rawjson.Edit
	if o.Raw("model") != nil {
		edits = []rawjson.Edit{rawjson.Set("model", r.parsed.Model(r.Model))}
	}
	body := o.Apply(make([]byte, 0, len(data)+len(r.Model)+16), edits...)
	return Answer{body, r.usage(&p, s.text.Quarters, b), estimate.Tokens(s.text.Quarters)}, nil
}

// ReadCount checks an upstream's 200 answer to a request to count tokens, and
// returns it with the count. It fails as [Request.ReadAnswer] does. The body
// does not refer to data.
func ReadCount(data []byte) (body []byte, tokens int64, err error) {
	o, err := rawjson.Index(data, nil, nil)
	if err := answer.Whole(&o, err); err != nil {
		return nil, 0, err
	}
	tokens, ok := rawjson.Int(o.Raw("input_tokens"))
	if !ok || tokens < 0 {
		return nil, 0, answer.Bad("The upstream's answer has no count of input tokens.", nil)
	}
	return o.Apply(nil), tokens, nil
}

// Event is one event of a streamed message. Which members are set depends on
// Type; an event of another type has all of its own in Extra.
type Event struct {
	// Type is message_start, content_block_start, content_block_delta,
	// content_block_stop, message_delta, message_stop, ping or another of the
	// vendor's.
	Type string

	Message      *Response      // of message_start: the message without content
	Index        int64          // which block of the content, where Type names one
	ContentBlock *Block         // of content_block_start
	Delta        *Delta         // of content_block_delta and message_delta
	Usage        *Usage         // of message_delta; cumulative
	Extra        jsontext.Value // a JSON object of every other member

	// Raw is the event's data as it came, but for the model's id.
	Raw jsontext.Value
}

// Delta is what an event adds to a block, or to the message in message_delta.
type Delta struct {
	// Type is text_delta, input_json_delta, thinking_delta, signature_delta,
	// citations_delta or another of the vendor's; empty in message_delta.
	Type string `json:"type,omitzero"`

	Text        string         `json:"text,omitzero"`
	PartialJSON string         `json:"partial_json,omitzero"` // a piece of a tool's input
	Thinking    string         `json:"thinking,omitzero"`
	Signature   string         `json:"signature,omitzero"`
	Citation    jsontext.Value `json:"citation,omitzero"`

	StopReason   *string        `json:"stop_reason,omitzero"`
	StopSequence *string        `json:"stop_sequence,omitzero"`
	Extra        jsontext.Value `json:",embed"`
}

// plainDelta is a Delta as its fields alone say.
type plainDelta Delta

// MarshalJSON writes the delta with the members that its type needs.
func (d Delta) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plainDelta(d))
	if edits := requiredIfEmpty[d.Type]; err == nil && len(edits) > 0 {
		return addMissing(data, edits)
	}
	return data, err
}

// typedObject is an object of which only the type matters.
type typedObject struct {
	Type  string         `json:"type"`
	Extra jsontext.Value `json:",embed"`
}

// deltaTypes are the deltas that have fields here; message_delta's has no type.
var deltaTypes = []string{"", "text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta"}

// UnmarshalJSON reads the delta. Of a type that has no fields here the members
// go to Extra, whatever they are.
func (d *Delta) UnmarshalJSON(data []byte) error {
	var other typedObject
	err := json.Unmarshal(data, &other, jsontext.AllowDuplicateNames(true))
	if err == nil && slices.Contains(deltaTypes, other.Type) {
		return json.Unmarshal(data, (*plainDelta)(d), jsontext.AllowDuplicateNames(true))
	}
	*d = Delta{Type: other.Type, Extra: other.Extra}
	return err
}

// wireEvent is Event on the wire, where the index is there for blocks alone.
type wireEvent struct {
	Type         string         `json:"type"`
	Message      *Response      `json:"message,omitzero"`
	Index        *int64         `json:"index,omitzero"`
	ContentBlock *Block         `json:"content_block,omitzero"`
	Delta        *Delta         `json:"delta,omitzero"`
	Usage        *Usage         `json:"usage,omitzero"`
	Extra        jsontext.Value `json:",embed"`
}

// blockEvents are the events that are about one block.
var blockEvents = []string{"content_block_start", "content_block_delta", "content_block_stop"}

// MarshalJSON writes the event's members; Raw is not looked at.
func (e Event) MarshalJSON() ([]byte, error) {
	w := wireEvent{Type: e.Type, Message: e.Message, ContentBlock: e.ContentBlock, Delta: e.Delta, Usage: e.Usage, Extra: e.Extra}
	if slices.Contains(blockEvents, e.Type) {
		w.Index = &e.Index
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the event and keeps a copy of data in Raw.
func (e *Event) UnmarshalJSON(data []byte) error {
	raw := append(jsontext.Value{}, data...)
	var other typedObject
	if err := json.Unmarshal(raw, &other, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	if !slices.Contains(eventTypes, other.Type) {
		*e = Event{Type: other.Type, Extra: other.Extra, Raw: raw}
		return nil
	}
	var w wireEvent
	if err := json.Unmarshal(raw, &w, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	*e = Event{Type: w.Type, Message: w.Message, ContentBlock: w.ContentBlock, Delta: w.Delta, Usage: w.Usage, Extra: w.Extra, Raw: raw}
	if w.Index != nil {
		e.Index = *w.Index
	}
	return nil
}

// answerScan is what one answer or event holds, gathered in the one pass that
// checks it.
type answerScan struct {
	text    completion.Text
	content bool   // there is a content array
	kind    []byte // the type of the block or delta
	stopped bool   // there is a stop_reason
}

// object reads a block or a delta.
func (s *answerScan) object(rd *rawjson.Reader, src []byte) error {
	if rd.Kind() != '{' {
		_, err := rd.Skip()
		return err
	}
	return rd.Object(func(name []byte, _ rawjson.Span) error { return s.member(rd, src, name) })
}

// member reads one member of a block or a delta, and counts what the model wrote.
func (s *answerScan) member(rd *rawjson.Reader, src, name []byte) error {
	var text, object, kind, stop bool
	switch string(name) {
	case "text", "thinking", "partial_json", "name":
		text = true
	case "input":
		object = true
	case "type":
		kind = true
	case "stop_reason":
		stop = true
	}
	span, err := rd.Skip()
	if err != nil {
		return err
	}
	switch raw := span.Of(src); {
	case text:
		s.text.Add(raw, span)
	case object && len(raw) > len("{}"):
		s.text.Quarters += estimate.Quarters(raw)
	case kind:
		s.kind = raw
	case stop && !rawjson.IsNull(raw):
		s.stopped = true
	}
	return nil
}
