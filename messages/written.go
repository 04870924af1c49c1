package messages

import (
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// written is what the model wrote in one answer or event, gathered in the one
// pass that checks it.
type written struct {
	content  bool         // there is a content array
	quarters int64        // text, in quarter tokens
	texts    int          // the strings that it is in
	text     rawjson.Span // the last of them
	kind     []byte       // the type of the block or delta
	stopped  bool         // there is a stop_reason
}

// object counts the members of a block or delta that the model wrote.
func (w *written) object(rd *rawjson.Reader, src []byte) error {
	if rd.Kind() != '{' {
		_, err := rd.Skip()
		return err
	}
	return rd.Object(func(name []byte, _ rawjson.Span) error { return w.member(rd, src, name) })
}

func (w *written) member(rd *rawjson.Reader, src, name []byte) error {
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
		if quarters := tokencount.StringQuarters(raw); quarters > 0 {
			w.quarters += quarters
			w.texts++
			w.text = span
		}
	case object && len(raw) > len("{}"):
		w.quarters += tokencount.Quarters(raw)
	case kind:
		w.kind = raw
	case stop && !rawjson.IsNull(raw):
		w.stopped = true
	}
	return nil
}
