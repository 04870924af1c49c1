package chat

import (
	"errors"
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Answer is a checked, non-streamed completion.
type Answer struct {
	Body  []byte // as the upstream sent it, with the public model id
	Usage billing.Usage
}

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway (decisions.md, Answers). The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b MediaBound) (Answer, error) {
	var s seen
	o := borrow()
	defer giveBack(o)
	err := rawjson.IndexInto(o, data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "choices" {
			return s.readChoices(rd, data, "message")
		}
		_, err := rd.Skip()
		return err
	})
	if err != nil {
		return Answer{}, badAnswer("The upstream's answer is not one JSON object.", err)
	}
	if e := o.Raw("error"); !rawjson.IsNull(e) {
		return Answer{}, errorFrame(e)
	}
	if !s.choices {
		return Answer{}, badAnswer("The upstream's answer has no choices.", nil)
	}
	var p report
	p.read(o.Raw("usage"))
	p.read(s.nested)
	var few [2]rawjson.Edit
	body := o.Apply(make([]byte, 0, len(data)+len(r.Model)+16), r.publicEdits(few[:0], o)...)
	return Answer{body, r.usage(&p, s.quarters, b)}, nil
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
	if raw := r.parsed.object.Raw("model"); raw != nil {
		return raw
	}
	return rawjson.Quote(nil, r.Model)
}

// usage is what was reported; a side of it that was not, or not as a usable
// count, is estimated from the text.
func (r *Request) usage(p *report, quarters int64, b MediaBound) billing.Usage {
	full := *p
	c := &full.counts
	if !p.has[prompt] {
		c[prompt] = max(r.InputEstimate(b), c[cached]+c[cacheWrite])
	}
	if !p.has[completion] {
		c[completion] = max(tokens(quarters), c[reasoning])
	}
	u := full.usage()
	u.Estimated = !p.has[prompt] || !p.has[completion]
	u.Zero = u.Zero && !u.Estimated
	return u
}

// badAnswer is an upstream's malformed 200. It may be asked elsewhere.
func badAnswer(message string, cause error) error {
	return fault.Wrap(fault.BadGateway, message, &upstream.Failure{Status: 200, Sent: true, Err: cause})
}

// errorFrame is the error that an upstream put into a 200 answer or stream. Its
// text may hold the operator's key or the caller's prompt: neither the caller
// nor the log gets more than the vendor's code.
func errorFrame(raw []byte) error {
	f := &upstream.Failure{Status: 200, Sent: true, Err: errors.New("an error in a 200 answer")}
	if o, err := rawjson.Index(raw, nil, nil); err == nil {
		for _, name := range [...]string{"code", "type"} {
			if s, ok := rawjson.String(o.Raw(name)); ok && word(s) {
				f.Err = fmt.Errorf("an error in a 200 answer: %s", s)
				f.Fatal = f.Fatal || fatal[s]
			}
		}
	}
	return fault.Wrap(fault.BadGateway, "The upstream reported an error.", f)
}

// fatal are the codes by which vendors say that the operator's key or account
// is at fault.
var fatal = map[string]bool{
	"invalid_api_key": true, "incorrect_api_key_error": true, "invalid_authentication_error": true, "authentication_error": true,
	"permission_error": true, "permission_denied_error": true, "account_deactivated": true, "billing_error": true,
	"insufficient_quota": true, "exceeded_current_quota_error": true, "insufficient_balance": true, "Arrearage": true,
}

// word reports whether s is a code and no text.
func word(s string) bool {
	const longest = 64
	for i := range len(s) {
		if c := s[i] | 0x20; (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && s[i] != '_' && s[i] != '.' {
			return false
		}
	}
	return s != "" && len(s) <= longest
}
