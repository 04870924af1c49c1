package chat

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Answer is a checked, non-streamed completion.
type Answer struct {
	Body  []byte // as the upstream sent it, with the public model id
	Usage billing.Usage
	Said  int64 // output tokens by the text alone, whatever the upstream reports
}

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway (decisions.md, Answers). The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b MediaBound) (Answer, error) {
	var s seen
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	err := rawjson.IndexInto(o, data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "choices" {
			return s.readChoices(rd, data, "message")
		}
		_, err := rd.Skip()
		return err
	})
	if err := answer.Whole(o, err); err != nil {
		return Answer{}, err
	}
	if !s.choices {
		return Answer{}, answer.Bad("The upstream's answer has no choices.", nil)
	}
	var p report
	p.read(o.Raw("usage"))
	p.read(s.nested)
	var few [2]rawjson.Edit
	body := o.Apply(make([]byte, 0, len(data)+len(r.Model)+16), r.publicEdits(few[:0], o)...)
	return Answer{body, r.usage(&p, s.quarters, b), tokencount.Tokens(s.quarters)}, nil
}

// publicEdits are the edits that every answer and chunk gets: the public
// model id, and no `"error": null`, which kills clients.
func (r *Request) publicEdits(edits []rawjson.Edit, o *rawjson.Object) []rawjson.Edit {
	if model := o.Raw("model"); model != nil {
		edits = append(edits, rawjson.Set("model", r.quotedModel()))
	}
	if o.Raw("error") != nil {
		edits = append(edits, rawjson.Delete("error"))
	}
	return edits
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

// usage is what was reported; a side of it that was not, or not as a usable
// count, is estimated from the text.
func (r *Request) usage(p *report, quarters int64, b MediaBound) billing.Usage {
	full := *p
	c := &full.N
	if !p.Has[prompt] {
		c[prompt] = max(r.InputEstimate(b), c[cached]+c[cacheWrite])
	}
	if !p.Has[completion] {
		c[completion] = max(tokencount.Tokens(quarters), c[reasoning])
	}
	u := full.usage()
	u.Estimated = !p.Has[prompt] || !p.Has[completion]
	u.Zero = u.Zero && !u.Estimated
	return u
}
