package messagesapi

import (
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b chat.MediaBound) (completion.Answer, error) {
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
		return completion.Answer{}, err
	}
	if kind, _ := rawjson.String(o.Raw("type")); kind != "message" || !s.content {
		return completion.Answer{}, answer.Bad("The upstream's answer is not a message with content.", nil)
	}
	var p report
	p.read(o.Raw("usage"))
	var edits []rawjson.Edit
	if o.Raw("model") != nil {
		edits = []rawjson.Edit{rawjson.Set("model", r.parsed.Model(r.Model))}
	}
	body := o.Apply(make([]byte, 0, len(data)+len(r.Model)+16), edits...)
	return completion.Answer{Body: body, Usage: r.usage(&p, s.text.Quarters, b), Said: tokencount.Tokens(s.text.Quarters)}, nil
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
		s.text.Quarters += tokencount.Quarters(raw)
	case kind:
		s.kind = raw
	case stop && !rawjson.IsNull(raw):
		s.stopped = true
	}
	return nil
}
