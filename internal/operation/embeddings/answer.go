package embeddings

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
)

// ReadAnswer checks an upstream's 200 answer to the request: there is one
// vector for each input, under its index. The answer has them in that order. An empty,
// cut or malformed body, NaN or infinity in a vector, and an error in a 200 body are a
// fault.BadGateway. The other numbers of a vector are looked at only where the caller
// asked for the other encoding. The answer may lie in data.
func (r *Request) ReadAnswer(data []byte, _ operation.AnswerOptions) (operation.Answer, error) {
	l, err := readAnswer(data)
	if err != nil {
		return operation.Answer{}, upstream.BadAnswer("The upstream's answer cannot be read.", err)
	}
	if e := l.object.Raw("error"); !rawjson.IsNull(e) {
		return operation.Answer{}, answer.ErrorFrame(e)
	}
	if err := l.check(r.Count()); err != nil {
		return operation.Answer{}, upstream.BadAnswer("The upstream's answer does not have one vector for each input.", err)
	}
	usage, edits := r.usage(l.object.Raw("usage"))
	edits = append(edits, rawjson.Set("model", r.object.Raw("model")), rawjson.Delete("error"))
	vectors, err := l.public(r.EncodingFormat == FormatBase64)
	if err != nil {
		return operation.Answer{}, upstream.BadAnswer("The upstream's answer has a vector that cannot be read.", err)
	}
	if vectors != nil {
		edits = append(edits, rawjson.Set("data", vectors))
	}
	return operation.Answer{Body: l.object.ApplyInPlace(edits...), Usage: usage}, nil
}

// usage is what was reported, or an estimate. The edits give the answer the
// counts that it lacks.
func (r *Request) usage(raw []byte) (billing.Usage, []rawjson.Edit) {
	c, object := readCounts(raw)
	if !c.some {
		c.prompt = r.Estimate()
		c.total = c.prompt
	}
	u := billing.Usage{Input: c.prompt, Zero: c.some && c.prompt == 0, Estimated: !c.some}
	if c.all {
		return u, nil
	}
	return u, []rawjson.Edit{c.set(object)}
}

// Estimate estimates the tokens of the input: of its text, or the tokens that it consists of.
// It adds those of any other text in the request.
func (r *Request) Estimate() int64 {
	quarters := tokencount.ObjectQuarters(&r.object, uncounted)
	if r.tokens {
		return r.bound - int64(r.Count())*tokensAround - r.otherTextBound() + tokencount.Tokens(quarters)
	}
	for _, item := range r.items {
		quarters += tokencount.Quarters(item.Of(r.Source()))
	}
	return quarters/4 + int64(r.Count())
}

// Join makes one answer of the parts' answers, which [Request.ReadAnswer] has read. They are
// in the order of [Request.Split]. The result is the first answer with the items of all and
// the sum of the usage.
func (r *Request) Join(_ *operation.Facts, parts [][]byte) ([]byte, error) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	list := append(make([]byte, 0, size), '[')
	var first rawjson.Object
	var sum counts
	var before int64
	for i, part := range parts {
		l, err := readAnswer(part)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = l.object
		} else {
			list = append(list, ',')
		}
		list = append(list, l.shiftedItems(before)...)
		c, _ := readCounts(l.object.Raw("usage"))
		sum = sum.add(c)
		before += int64(len(l.items))
	}
	_, usage := readCounts(first.Raw("usage"))
	return first.Apply(nil, rawjson.Set("data", append(list, ']')), sum.set(usage)), nil
}

// counts are the members of usage that the API names. One that was not reported has the
// other's value: embeddings have no output. Without any, both are 0.
type counts struct {
	prompt, total int64
	some, all     bool // of them were reported
}

// readCounts reads usage leniently: what is no count was not reported.
func readCounts(raw []byte) (c counts, o rawjson.Object) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return c, rawjson.Object{Src: []byte("{}")}
	}
	prompt, hasPrompt, _ := tokencount.Count(o.Raw("prompt_tokens"))
	total, hasTotal, _ := tokencount.Count(o.Raw("total_tokens"))
	if !hasPrompt {
		prompt = total
	}
	if !hasTotal {
		total = prompt
	}
	c = counts{some: hasPrompt || hasTotal, all: hasPrompt && hasTotal}
	if c.some {
		c.prompt, c.total = prompt, total
	}
	return c, o
}

func (c counts) add(d counts) counts {
	return counts{prompt: c.prompt + d.prompt, total: c.total + d.total}
}

// set is usage with these counts and whatever else it holds.
func (c counts) set(usage rawjson.Object) rawjson.Edit {
	return rawjson.Set("usage", usage.Apply(nil,
		rawjson.Set("prompt_tokens", strconv.AppendInt(nil, c.prompt, 10)),
		rawjson.Set("total_tokens", strconv.AppendInt(nil, c.total, 10))))
}

// CompleteUsage gives an answer's usage the one of prompt_tokens and
// total_tokens that a vendor leaves out, for drivers. It is data itself if there
// is nothing to do, and fails if data is not one JSON object.
func CompleteUsage(data []byte) ([]byte, error) {
	l, err := readAnswer(data)
	if err != nil {
		return nil, err
	}
	c, usage := readCounts(l.object.Raw("usage"))
	if !c.some || c.all {
		return data, nil
	}
	return l.object.Apply(nil, c.set(usage)), nil
}
