package messages

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Accumulator builds the message that a stream's events make up. The zero
// Accumulator is ready. It is not safe for concurrent use.
type Accumulator struct {
	message *Response
	usage   []byte   // the usage until now
	inputs  [][]byte // the input of each block as JSON text
}

// Add takes in the next event. Events and deltas of unknown types are passed
// over. It fails with a fault.BadGateway if an event is out of order.
func (a *Accumulator) Add(e *Event) error {
	switch {
	case e.Type == "message_start" && e.Message != nil && a.message == nil:
		return a.begin(e)
	case e.Type == "message_start", ordered(e.Type) && a.message == nil:
		return outOfOrder(e.Type)
	}
	switch e.Type {
	case "content_block_start":
		if e.ContentBlock == nil || e.Index != int64(len(a.message.Content)) {
			return outOfOrder(e.Type)
		}
		a.message.Content = append(a.message.Content, *e.ContentBlock)
		a.inputs = append(a.inputs, nil)
	case "content_block_delta", "content_block_stop":
		if e.Index < 0 || e.Index >= int64(len(a.message.Content)) {
			return outOfOrder(e.Type)
		}
		if e.Delta != nil {
			a.piece(&a.message.Content[e.Index], e.Index, e.Delta)
		}
	case "message_delta":
		return a.end(e)
	}
	return nil
}

func outOfOrder(kind string) error {
	return fault.New(fault.BadGateway, "The stream's "+kind+" event is out of order.")
}

func (a *Accumulator) begin(e *Event) error {
	m := *e.Message
	m.Content = append([]Block{}, m.Content...)
	a.inputs = make([][]byte, len(m.Content))
	usage, err := json.Marshal(m.Usage)
	a.message, a.usage = &m, usage
	return err
}

// piece adds a delta to a block.
func (a *Accumulator) piece(b *Block, index int64, d *Delta) {
	switch d.Type {
	case "text_delta":
		b.Text += d.Text
	case "thinking_delta":
		b.Thinking += d.Thinking
	case "signature_delta":
		signature := d.Signature
		b.Signature = &signature
	case "input_json_delta":
		a.inputs[index] = append(a.inputs[index], d.PartialJSON...)
	case "citations_delta":
		b.Citations = appended(b.Citations, d.Citation)
	}
}

// appended is a JSON array with one element more; null counts as an empty one.
func appended(array, element jsontext.Value) jsontext.Value {
	var all []jsontext.Value
	if err := json.Unmarshal(array, &all); err != nil {
		all = nil
	}
	out, err := json.Marshal(append(all, element))
	if err != nil {
		return array
	}
	return out
}

// end takes in message_delta.
func (a *Accumulator) end(e *Event) error {
	if d := e.Delta; d != nil {
		if d.StopReason != nil {
			a.message.StopReason = d.StopReason
		}
		if d.StopSequence != nil {
			a.message.StopSequence = d.StopSequence
		}
		extra, err := merged(a.message.Extra, d.Extra)
		if err != nil {
			return err
		}
		a.message.Extra = extra
	}
	usage, err := e.usage()
	if err == nil {
		a.usage, err = merged(a.usage, usage)
	}
	if err != nil {
		return err
	}
	a.message.Usage = Usage{}
	return json.Unmarshal(a.usage, &a.message.Usage, jsontext.AllowDuplicateNames(true))
}

// usage is the event's usage with those members alone that it was given.
func (e *Event) usage() ([]byte, error) {
	if e.Raw != nil {
		o, err := rawjson.Index(e.Raw, nil, nil)
		return o.Raw("usage"), err
	}
	if e.Usage == nil {
		return nil, nil
	}
	return json.Marshal(e.Usage)
}

// merged is an object with the members of a newer one that are not null.
func merged(object, newer []byte) ([]byte, error) {
	if rawjson.IsNull(newer) {
		return object, nil
	}
	if rawjson.IsNull(object) {
		object = []byte("{}")
	}
	old, err := rawjson.Index(object, nil, nil)
	if err != nil {
		return nil, err
	}
	add, err := rawjson.Index(newer, nil, nil)
	if err != nil {
		return nil, err
	}
	var edits []rawjson.Edit
	for _, m := range add.Members {
		if raw := m.Value.Of(add.Src); !rawjson.IsNull(raw) {
			edits = append(edits, rawjson.Set(m.Name, raw))
		}
	}
	return old.Apply(nil, edits...), nil
}

// Message is the message until now; nil before message_start. The input of a
// tool's use that the stream ended within is left as the block began. The
// Message is the caller's own.
func (a *Accumulator) Message() *Response {
	if a.message == nil {
		return nil
	}
	m := *a.message
	m.Content = append([]Block{}, m.Content...)
	for i, text := range a.inputs {
		input := jsontext.Value(text)
		if len(text) == 0 || !input.IsValid() {
			continue
		}
		m.Content[i].setInput(append(jsontext.Value{}, input...))
	}
	return &m
}

// setInput gives a block its input; one of a type that has no fields here has it
// in Extra.
func (b *Block) setInput(input jsontext.Value) {
	if _, known := needs(b.Type); known {
		b.Input = input
		return
	}
	if o, err := rawjson.Index(b.Extra, nil, nil); err == nil {
		b.Extra = o.Apply(nil, rawjson.Set("input", input))
	}
}

// Turn is the message as a turn of the next request's conversation, with all of
// its blocks: an upstream wants thinking back unchanged.
func (r *Response) Turn() Message {
	return Message{Role: r.Role, Content: Blocks(r.Content...)}
}
