package sim

import (
	"context"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	rerankop "github.com/tollhouse-ai/gateway/internal/operation/rerank"
	"github.com/tollhouse-ai/gateway/rerank"
	"github.com/tollhouse-ai/gateway/upstream"
)

// rank answers a request to rank documents: the score of one is the share of the query's
// words that it has.
func (u *Upstream) rank(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	parsed, data, err := request(u, call, rerankop.Parse, obeys[*rerankop.Request])
	if err != nil {
		return nil, err
	}
	r, err := funcmodel.Decode[rerank.Request](data)
	if err != nil { // documents that are no strings, which no gateway sends
		return nil, u.refusal(fault.Invalid("documents", "The simulated vendor takes texts only."), call.Model)
	}
	results := make([]rerank.Result, len(r.Documents))
	var counted int64
	query := wordSet(r.Query)
	for i, text := range r.Documents {
		shared := 0
		for word := range wordSet(text) {
			if query[word] {
				shared++
			}
		}
		results[i] = rerank.Result{Index: int64(i), RelevanceScore: float64(shared) / max(float64(len(query)), 1)}
		counted += tokens(r.Query) + tokens(text)
	}
	answer := object{"results": results, "model": call.Model}
	usage := func(tokens, units int64) object { return object{"total_tokens": tokens, "search_units": units} }
	f.report(answer, usage(counted, parsed.Estimate().SearchUnits), usage(0, 0))
	return u.sendJSON(ctx, answer, f)
}

// wordSet is the words of a text, in small letters.
func wordSet(text string) map[string]bool {
	all := make(map[string]bool)
	for word := range strings.FieldsSeq(strings.ToLower(text)) {
		if word = strings.Trim(word, ".,:;!?\"'()"); word != "" {
			all[word] = true
		}
	}
	return all
}
