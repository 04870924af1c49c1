package responses

import (
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Unfold makes the events of a stream out of the whole response with which an upstream
// answered a streamed request.
func (*Request) Unfold(data []byte) ([]sse.Event, error) {
	o, err := answer.Document(data)
	if err != nil {
		return nil, err
	}
	output := o.Raw("output")
	r, err := conversation.Decode[responses.Response](o, form.Wrong)
	switch {
	case err != nil:
		return nil, err
	case len(output) == 0 || output[0] != '[' || rawjson.IsNull(o.Raw("usage")) && form.IsEmpty(o):
		return nil, upstream.BadAnswer(form.Wrong, nil)
	case r.Status == "failed" && len(r.Output) == 0:
		return nil, vendorError(o.Raw("error"))
	case r.Status == "queued" || r.Status == "in_progress" || r.Status == "cancelled":
		return nil, upstream.BadAnswer("The upstream's answer is not complete.", nil)
	}
	var events []sse.Event
	all := r.Events()
	for i, e := range all {
		raw := rawjson.Encoded(e)
		if i == len(all)-1 {
			raw = rawjson.Apply(raw, rawjson.Set("response", o.Apply(nil)))
		}
		events = append(events, sse.Event{Name: e.Type, Data: raw})
	}
	return events, nil
}
