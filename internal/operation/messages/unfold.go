package messages

import (
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Unfold makes the events of a stream out of the whole message with which an upstream
// answered a streamed request.
func (*Request) Unfold(data []byte) ([]sse.Event, error) {
	o, err := answer.Document(data)
	if err != nil {
		return nil, err
	}
	if content := o.Raw("content"); len(content) == 0 || content[0] != '[' || rawjson.IsNull(o.Raw("usage")) && form.IsEmpty(o) {
		return nil, upstream.BadAnswer(form.Wrong, nil)
	}
	r, err := conversation.Decode[messages.Response](o, form.Wrong)
	if err != nil {
		return nil, err
	}
	usage := o.Raw("usage")
	counted := len(usage) > 0 && usage[0] == '{'
	r.Type, r.Role = "message", "assistant"
	var events []sse.Event
	for _, e := range r.Events() {
		raw := rawjson.Encoded(e)
		switch e.Type { // counts pass as they came: the typed ones would be zeros where none is reported
		case "message_start":
			if counted {
				begun := rawjson.Apply(rawjson.Lookup(raw, "message"), rawjson.Set("usage", rawjson.Apply(usage, rawjson.Set("output_tokens", []byte("0")))))
				raw = rawjson.Apply(raw, rawjson.Set("message", begun))
			}
		case "message_delta":
			if raw = rawjson.Apply(raw, rawjson.Delete("usage")); counted {
				raw = rawjson.Apply(raw, rawjson.Set("usage", usage))
			}
		}
		events = append(events, sse.Event{Name: e.Type, Data: raw})
	}
	return events, nil
}
