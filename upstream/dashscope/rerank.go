package dashscope

import (
	"context"
	"errors"
	"net/http"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// rank makes a call for a ranking, which gte-rerank-v2 and qwen3-rerank answer in the same
// form (help.aliyun.com/zh/model-studio/text-rerank-api). Errors have the form of the
// endpoint, not the vendor's.
func (d *driver) rank(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	body, dropped := httpdo.DropFields(call.Body, "max_tokens_per_doc", "max_chunks_per_doc", "truncation")
	reply, err := d.Exchange(ctx, call, rankingBody(body), dropped, httpdo.MaxRanking, d.publicRanking)
	if err != nil {
		return nil, fault.From(err).With(func(e *fault.Error) { e.Body = nil })
	}
	return reply, nil
}

// rankingBody puts what is ranked under input, and how under parameters. Only qwen3-rerank
// takes instruct.
func rankingBody(body upstream.Body) upstream.Body {
	if !body.IsObject() {
		return body
	}
	inner := func(names ...string) []byte {
		o := rawjson.Object{Src: []byte("{}")}
		var edits []rawjson.Edit
		for _, name := range names {
			if v := body.Raw(name); !rawjson.IsNull(v) {
				edits = append(edits, rawjson.Set(name, v))
			}
		}
		return o.Apply(nil, edits...)
	}
	input, parameters := inner("query", "documents"), inner("top_n", "instruct")
	for _, name := range [...]string{"query", "documents", "top_n", "instruct", "return_documents"} {
		body = body.Delete(name)
	}
	return body.Set("input", input).Set("parameters", parameters)
}

// publicRanking is an answer in the public wire.
func (d *driver) publicRanking(data []byte, h http.Header) ([]byte, error) {
	data, err := d.accepted(data, h)
	if err != nil {
		return nil, err
	}
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return nil, err
	}
	output, err := rawjson.Index(o.Raw("output"), nil, nil)
	results := output.Raw("results")
	if err != nil || results == nil {
		return nil, errors.New("the answer has no output.results")
	}
	return o.Apply(nil, rawjson.Delete("output"), rawjson.Delete("id"), rawjson.Rename("request_id", "id"), rawjson.Set("results", results)), nil
}
