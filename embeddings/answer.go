package embeddings

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/estimate"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Answer is a checked answer.
type Answer struct {
	Body  []byte // as the upstream sent it, with the public model id and the encoding that was asked for
	Usage billing.Usage
}

// ReadAnswer checks an upstream's 200 answer to the request: there is one vector
// for each input, under its index. An empty, cut or malformed body and an error
// in a 200 body are a fault.BadGateway (decisions.md, Answers). The numbers of a
// vector are looked at only where the caller asked for the other encoding. The
// Answer does not refer to data; its Body is appended to dst.
func (r *Request) ReadAnswer(dst, data []byte) (Answer, error) {
	l, err := read(data)
	if err != nil {
		return Answer{}, answer.Bad("The upstream's answer cannot be read.", err)
	}
	if e := l.object.Raw("error"); !rawjson.IsNull(e) {
		return Answer{}, answer.ErrorFrame(e)
	}
	if err := l.check(r.Count()); err != nil {
		return Answer{}, answer.Bad("The upstream's answer does not have one vector for each input.", err)
	}
	usage, edits := r.usage(l.object.Raw("usage"))
	edits = append(edits, rawjson.Set("model", r.parsed.object.Raw("model")), rawjson.Delete("error"))
	patches, err := l.public(r.EncodingFormat == Base64)
	if err != nil {
		return Answer{}, answer.Bad("The upstream's answer has a vector that cannot be read.", err)
	}
	if len(patches) > 0 {
		edits = append(edits, rawjson.Set("data", patched(data, l.list, patches)))
	}
	return Answer{l.object.Apply(dst, edits...), usage}, nil
}

// usage is what was reported, or an estimate. The edits give the answer the
// counts that it lacks.
func (r *Request) usage(raw []byte) (billing.Usage, []rawjson.Edit) {
	reported, object := readCounts(raw)
	some, all := reported.reported()
	var guess int64
	if !some {
		guess = r.Estimate()
	}
	c := reported.complete(guess)
	u := billing.Usage{Input: c.prompt, Zero: some && c.prompt == 0, Estimated: !some}
	if all {
		return u, nil
	}
	return u, []rawjson.Edit{c.set(object)}
}

// Estimate is about how many tokens the input is: those of its text, or the tokens
// that it is made of; and those of any other text that the request has.
func (r *Request) Estimate() int64 {
	quarters := estimate.Members(&r.parsed.object, uncounted)
	if r.parsed.tokens {
		return r.parsed.bound - int64(r.Count())*around - r.others() + estimate.Tokens(quarters)
	}
	for _, item := range r.parsed.items {
		quarters += estimate.Quarters(item.Of(r.Source()))
	}
	return quarters/4 + int64(r.Count())
}

// Join makes one answer of the parts' answers, in the order of [Request.Split],
// which were read by [Request.ReadAnswer]: the first, with the items of all and
// the sum of the usage.
func (r *Request) Join(parts [][]byte) ([]byte, error) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	list := append(make([]byte, 0, size), '[')
	var first rawjson.Object
	var sum counts
	var before int64
	for i, part := range parts {
		l, err := read(part)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = l.object
		} else {
			list = append(list, ',')
		}
		list = append(list, l.moved(before)...)
		c, _ := readCounts(l.object.Raw("usage"))
		sum = sum.add(c.complete(0))
		before += int64(len(l.items))
	}
	_, usage := readCounts(first.Raw("usage"))
	return first.Apply(nil, rawjson.Set("data", append(list, ']')), sum.set(usage)), nil
}
