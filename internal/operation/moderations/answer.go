package moderations

import (
	"errors"
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// ReadAnswer checks an upstream's 200 answer to the request. Each text has a result; an array of
// parts has one in all, or one for each. An empty, cut or malformed body and an error
// in a 200 body are a fault.BadGateway. The answer gets an id and the model's public id. A
// result without "flagged" gets it by its categories. The answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, o operation.AnswerOptions) (operation.Answer, error) {
	object, err := rawjson.Index(data, nil, nil)
	if err := answer.Whole(&object, err); err != nil {
		return operation.Answer{}, err
	}
	results, n, err := publicResults(object.Raw("results"))
	if err == nil && n != r.items && (n != 1 || !r.parts) {
		err = fmt.Errorf("%d results for %d texts or parts", n, r.items)
	}
	if err != nil {
		return operation.Answer{}, upstream.BadAnswer("The upstream's answer does not judge the input.", err)
	}
	edits := []rawjson.Edit{rawjson.Set("model", rawjson.Quote(nil, r.Model)), rawjson.Set("results", results), rawjson.Delete("error")}
	if id, _ := rawjson.String(object.Raw("id")); id == "" {
		edits = append(edits, rawjson.Set("id", rawjson.Quote(nil, o.NewID("modr_"))))
	}
	return operation.Answer{Body: object.Apply(nil, edits...), Usage: billing.Usage{Requests: 1}}, nil
}

// publicResults are the results of an answer, each with "flagged", and how many there are.
func publicResults(raw []byte) (public []byte, n int, err error) {
	public = []byte{'['}
	n = rawjson.Each(raw, func(i int, at rawjson.Span) {
		var result []byte
		if err == nil {
			result, err = publicResult(at.Of(raw))
		}
		if i > 0 {
			public = append(public, ',')
		}
		public = append(public, result...)
	})
	switch {
	case err != nil:
		return nil, 0, err
	case n <= 0:
		return nil, 0, errors.New("there is no array of results")
	}
	return append(public, ']'), n, nil
}

// publicResult is a result with "flagged". A vendor that leaves it out says it by category.
func publicResult(raw []byte) ([]byte, error) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	switch flagged := o.Raw("flagged"); {
	case isBool(flagged):
		return raw, nil
	case !rawjson.IsNull(flagged):
		return nil, errors.New("flagged is neither true nor false")
	}
	categories, err := rawjson.Index(o.Raw("categories"), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("neither flagged nor categories: %w", err)
	}
	flagged := "false"
	for i := range categories.Members {
		is := categories.Members[i].Value.Of(categories.Src)
		if !isBool(is) && !rawjson.IsNull(is) {
			return nil, errors.New("a category is neither true nor false")
		}
		if string(is) == "true" {
			flagged = "true"
		}
	}
	return o.Apply(nil, rawjson.Set("flagged", []byte(flagged))), nil
}

// isBool reports whether raw is true or false.
func isBool(raw []byte) bool { return string(raw) == "true" || string(raw) == "false" }
