package messages

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Answer is a checked, non-streamed message.
type Answer struct {
	Body  []byte // as the upstream sent it, with the public model id
	Usage billing.Usage
	Said  int64 // output tokens by the text alone, whatever the upstream reports
}

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway (decisions.md, Answers). The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b chat.MediaBound) (Answer, error) {
	var w written
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	err := rawjson.IndexInto(o, data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "content" && rd.Kind() == '[' {
			w.content = true
			return rd.Array(func(int) error { return w.object(rd, data) })
		}
		_, err := rd.Skip()
		return err
	})
	if err := answer.Whole(o, err); err != nil {
		return Answer{}, err
	}
	if kind, _ := rawjson.String(o.Raw("type")); kind != "message" || !w.content {
		return Answer{}, answer.Bad("The upstream's answer is not a message with content.", nil)
	}
	var p report
	p.read(o.Raw("usage"))
	var edits []rawjson.Edit
	if o.Raw("model") != nil {
		edits = []rawjson.Edit{rawjson.Set("model", r.quotedModel())}
	}
	body := o.Apply(make([]byte, 0, len(data)+len(r.Model)+16), edits...)
	return Answer{body, r.usage(&p, w.quarters, b), tokencount.Tokens(w.quarters)}, nil
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

// quotedModel is the request's own spelling of the public model id.
func (r *Request) quotedModel() []byte {
	if r.parsed.gist != nil {
		return r.parsed.gist.model
	}
	if raw := r.parsed.object.Raw("model"); raw != nil {
		return raw
	}
	return rawjson.Quote(nil, r.Model)
}
