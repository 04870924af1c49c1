package chat

import (
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Unfold makes the events of a stream out of the whole completion with which an upstream
// answered a streamed request.
func (*Request) Unfold(data []byte) ([]sse.Event, error) {
	o, err := answer.Document(data)
	if err != nil {
		return nil, err
	}
	usage := o.Raw("usage")
	r, err := conversation.Decode[chat.Response](o, form.Wrong)
	if err != nil {
		return nil, err
	}
	if rawjson.IsNull(usage) && form.IsEmpty(o) {
		return nil, upstream.BadAnswer(form.Wrong, nil)
	}
	var events []sse.Event
	for _, c := range r.Chunks() {
		events = append(events, sse.Event{Data: rawjson.Encoded(c)})
	}
	if !rawjson.IsNull(usage) { // as it came: vendors count in more ways than chat.Usage has
		events = append(events, sse.Event{Data: o.Apply(nil, rawjson.Set("object", []byte(`"chat.completion.chunk"`)), rawjson.Set("choices", []byte("[]")))})
	}
	return append(events, sse.Event{Data: []byte("[DONE]")}), nil
}
