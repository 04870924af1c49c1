package images

import (
	"errors"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Answer is a checked answer.
type Answer struct {
	Body  []byte // as the upstream sent it, with the public model id and our request id
	Usage billing.Usage
}

// ReadAnswer checks an upstream's 200 answer to the request: it has pictures. An
// empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway (decisions.md, Answers). The answer tells requestID as its
// own. tokens says that tokens are paid for, so that their number is estimated
// where the upstream does not report it. The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, requestID string, tokens bool) (Answer, error) {
	made := 0 // pictures that are in it
	o, err := rawjson.Index(data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "data" && rd.Kind() == '[' {
			return countData(rd, &made)
		}
		_, err := rd.Skip()
		return err
	})
	if err := answer.Whole(&o, err); err != nil {
		return Answer{}, err
	}
	output := o.Raw("output")
	if rawjson.IsNull(output) && !rawjson.IsNull(o.Raw("code")) {
		return Answer{}, answer.ErrorFrame(data)
	}
	made += countOutput(output)
	if made == 0 && (r.parsed.known || r.parsed.family.Messages) {
		return Answer{}, answer.Bad("The upstream's answer has no picture in it.", errors.New("no picture"))
	}
	usage := r.usage(o.Raw("usage"), int64(made), tokens)
	return Answer{o.Apply(nil, r.edits(&o, requestID)...), usage}, nil
}

// edits are those that the gateway owns in an answer.
func (r *Request) edits(o *rawjson.Object, requestID string) []rawjson.Edit {
	edits := []rawjson.Edit{rawjson.Delete("error")}
	if o.Raw("model") != nil {
		edits = append(edits, rawjson.Set("model", r.parsed.object.Raw("model")))
	}
	if r.parsed.family.Messages || o.Raw("request_id") != nil {
		edits = append(edits, rawjson.Set("request_id", rawjson.Quote(nil, requestID)))
	}
	return edits
}

// countData counts the pictures of OpenAI's form, whose bytes nobody looks at.
func countData(rd *rawjson.Reader, made *int) error {
	return rd.Array(func(int) error {
		if rd.Kind() != '{' {
			_, err := rd.Skip()
			return err
		}
		has := false
		err := rd.Object(func(name []byte, _ rawjson.Span) error {
			if s := string(name); (s == "b64_json" || s == "url") && rd.Kind() == '"' {
				has = true
			}
			_, err := rd.Skip()
			return err
		})
		if has {
			*made++
		}
		return err
	})
}

// countOutput counts the pictures of the alpha family's form, over all choices.
func countOutput(output []byte) (made int) {
	o, err := rawjson.Index(output, nil, nil)
	if err != nil {
		return 0
	}
	for _, choice := range rawjson.Elements(o.Raw("choices")) {
		for _, block := range rawjson.Elements(member(choice, "message", "content")) {
			if link, _ := rawjson.String(member(block, "image")); link != "" {
				made++
			}
		}
	}
	return made
}

// member is the value at the end of a path of names; nil if there is none.
func member(raw []byte, path ...string) []byte {
	for _, name := range path {
		o, err := rawjson.Index(raw, nil, nil)
		if err != nil {
			return nil
		}
		raw = o.Raw(name)
	}
	return raw
}
