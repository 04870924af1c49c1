package messages

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Event is one event of a streamed message. Type says which members are set. An event of
// another type has all of its members in Extra.
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

	// Raw is the vendor's event data with the public model id.
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
		return rawjson.AddMissing(data, edits)
	}
	return data, err
}

// typedObject is an object; only its type matters.
type typedObject struct {
	Type  string         `json:"type"`
	Extra jsontext.Value `json:",embed"`
}

// deltaTypes are the deltas that have fields here; message_delta's has no type.
var deltaTypes = []string{"", "text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta"}

// UnmarshalJSON reads the delta. If a type has no fields here, all its members go to Extra.
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

// eventTypes are the events that the vendor documents.
var eventTypes = []string{
	"message_start", "content_block_start", "content_block_delta", "content_block_stop",
	"message_delta", "message_stop", "ping", "error",
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
