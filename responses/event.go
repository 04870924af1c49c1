package responses

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Event is one event of a streamed response. Which members are set depends on Type;
// members that have no field here are in Extra.
type Event struct {
	// Type is response.created, response.output_item.added, response.output_text.delta,
	// response.completed or another of the vendor's.
	Type           string
	SequenceNumber int64

	Response     *Response // of response.created, in_progress, completed, incomplete and failed
	OutputIndex  int64     // which item of the output, where Type names one
	ContentIndex int64     // which part of the item's content, where Type names one
	SummaryIndex int64     // which part of the item's summary, where Type names one
	ItemID       string
	Item         *Item          // of response.output_item.added and done
	Part         *Part          // of response.content_part and reasoning_summary_part
	Delta        string         // what is added to a text, to arguments or to an input
	Text         string         // of the done of a text
	Refusal      string         // of response.refusal.done
	Name         string         // of response.function_call_arguments.done
	Arguments    string         // of response.function_call_arguments.done
	Input        string         // of response.custom_tool_call_input.done
	Logprobs     jsontext.Value // of response.output_text.delta and done: an array
	Extra        jsontext.Value // a JSON object of every other member

	// Raw is the vendor's event data with the public model id and the gateway's number.
	Raw jsontext.Value
}

// wireEvent is Event on the wire, where the members that its type has are there even
// if they are zero.
type wireEvent struct {
	Type           string         `json:"type"`
	SequenceNumber int64          `json:"sequence_number"`
	Response       *Response      `json:"response,omitzero"`
	ItemID         string         `json:"item_id,omitzero"`
	OutputIndex    *int64         `json:"output_index,omitzero"`
	ContentIndex   *int64         `json:"content_index,omitzero"`
	SummaryIndex   *int64         `json:"summary_index,omitzero"`
	Item           *Item          `json:"item,omitzero"`
	Part           *Part          `json:"part,omitzero"`
	Delta          *string        `json:"delta,omitzero"`
	Text           *string        `json:"text,omitzero"`
	Refusal        *string        `json:"refusal,omitzero"`
	Name           *string        `json:"name,omitzero"`
	Arguments      *string        `json:"arguments,omitzero"`
	Input          *string        `json:"input,omitzero"`
	Logprobs       jsontext.Value `json:"logprobs,omitzero"`
	Extra          jsontext.Value `json:",embed"`
}

// typedObject is an object; only its type matters.
type typedObject struct {
	Type  string         `json:"type"`
	Extra jsontext.Value `json:",embed"`
}

// shape says which members an event's type has besides those that any event may have.
type shape struct {
	types   []string
	members []string // that are written even if they are zero
}

// shapes are the types of events that have fields here
// (https://platform.openai.com/docs/api-reference/responses-streaming).
var shapes = []shape{
	{[]string{"response.created", "response.in_progress", "response.queued", "response.completed", "response.incomplete", "response.failed"}, nil},
	{[]string{"response.output_item.added", "response.output_item.done"}, []string{"output_index"}},
	{[]string{"response.content_part.added", "response.content_part.done"}, []string{"output_index", "content_index"}},
	{[]string{"response.output_text.delta"}, []string{"output_index", "content_index", "delta", "logprobs"}},
	{[]string{"response.output_text.done"}, []string{"output_index", "content_index", "text", "logprobs"}},
	{[]string{"response.refusal.delta", "response.reasoning_text.delta"}, []string{"output_index", "content_index", "delta"}},
	{[]string{"response.refusal.done"}, []string{"output_index", "content_index", "refusal"}},
	{[]string{"response.reasoning_text.done"}, []string{"output_index", "content_index", "text"}},
	{[]string{"response.reasoning_summary_part.added", "response.reasoning_summary_part.done"}, []string{"output_index", "summary_index"}},
	{[]string{"response.reasoning_summary_text.delta"}, []string{"output_index", "summary_index", "delta"}},
	{[]string{"response.reasoning_summary_text.done"}, []string{"output_index", "summary_index", "text"}},
	{[]string{"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}, []string{"output_index", "delta"}},
	{[]string{"response.function_call_arguments.done"}, []string{"output_index", "name", "arguments"}},
	{[]string{"response.custom_tool_call_input.done"}, []string{"output_index", "input"}},
}

// shapeOf is the shape of an event's type; nil for one without fields here.
func shapeOf(kind string) *shape {
	for i := range shapes {
		if slices.Contains(shapes[i].types, kind) {
			return &shapes[i]
		}
	}
	return nil
}

// MarshalJSON writes the event's members; Raw is not looked at.
func (e Event) MarshalJSON() ([]byte, error) {
	w := wireEvent{Type: e.Type, SequenceNumber: e.SequenceNumber, Response: e.Response, ItemID: e.ItemID, Item: e.Item, Part: e.Part, Logprobs: e.Logprobs, Extra: e.Extra}
	if s := shapeOf(e.Type); s != nil {
		has := func(member string) bool { return slices.Contains(s.members, member) }
		w.OutputIndex, w.ContentIndex, w.SummaryIndex = given(&e.OutputIndex, has("output_index")), given(&e.ContentIndex, has("content_index")), given(&e.SummaryIndex, has("summary_index"))
		w.Delta, w.Text, w.Refusal = given(&e.Delta, has("delta")), given(&e.Text, has("text")), given(&e.Refusal, has("refusal"))
		w.Name, w.Arguments, w.Input = given(&e.Name, has("name")), given(&e.Arguments, has("arguments")), given(&e.Input, has("input"))
		if has("logprobs") && w.Logprobs == nil {
			w.Logprobs = jsontext.Value("[]")
		}
	}
	return json.Marshal(w)
}

// given is a value that is on the wire, or nil.
func given[T any](value *T, is bool) *T {
	if !is {
		return nil
	}
	return value
}

// UnmarshalJSON reads the event and keeps a copy of data in Raw. If a type has no fields here,
// all its members go to Extra.
func (e *Event) UnmarshalJSON(data []byte) error {
	raw := append(jsontext.Value{}, data...)
	var other struct {
		typedObject
		SequenceNumber jsontext.Value `json:"sequence_number,omitzero"`
	}
	if err := json.Unmarshal(raw, &other, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	if shapeOf(other.Type) == nil {
		*e = Event{Type: other.Type, Extra: other.Extra, Raw: raw}
		_ = json.Unmarshal(other.SequenceNumber, &e.SequenceNumber) // one that is no number is passed over
		return nil
	}
	var w wireEvent
	if err := json.Unmarshal(raw, &w, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	*e = Event{
		Type: w.Type, SequenceNumber: w.SequenceNumber, Response: w.Response, OutputIndex: value(w.OutputIndex), ContentIndex: value(w.ContentIndex),
		SummaryIndex: value(w.SummaryIndex), ItemID: w.ItemID, Item: w.Item, Part: w.Part, Delta: value(w.Delta), Text: value(w.Text), Refusal: value(w.Refusal),
		Name: value(w.Name), Arguments: value(w.Arguments), Input: value(w.Input), Logprobs: w.Logprobs, Extra: w.Extra, Raw: raw,
	}
	return nil
}

// value is what a pointer points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// ends reports whether the event is the last of a stream.
func (e *Event) ends() bool {
	return e.Response != nil && slices.Contains([]string{"completed", "incomplete", "failed"}, strings.TrimPrefix(e.Type, "response."))
}
