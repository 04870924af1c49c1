package embeddings

import (
	"math"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is the endpoint of embeddings.
var Spec = operation.Spec{
	Op: upstream.Embeddings, Path: "/v1/embeddings", Kinds: []string{"embeddings"},
	Trace:    operation.Trace{Name: "embeddings", Silent: true},
	Units:    [][]billing.Unit{{billing.Input}},
	MostKept: 64 << 10, // they are large, and cost next to nothing to make again
	Parse:    operation.Parser(Parse),
	Models:   models,
	Words:    []operation.Word{{Text: "embed"}},
	Probe:    operation.Members(`"input":"Hi"`),
	Example:  operation.Members(`"input":"Hello!"`),
	Demo:     []operation.DemoModel{{ID: "text-embedding-v4", Rates: []billing.Rate{{Unit: billing.Input, Amount: "0.07"}}}},
}

// models are those of all families.
func models() map[string]operation.Facts {
	known := make(map[string]operation.Facts)
	for _, f := range Families {
		for _, id := range f.Models {
			known[id] = operation.Facts{Batch: f.Batch, Dimensions: f.Dimensions}
		}
	}
	return known
}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info {
	return operation.Info{Model: r.Model, Source: r.Source(), Parts: r}
}

// Quote is what the request may cost: no token is shorter than a byte.
func (r *Request) Quote(*operation.Facts, *billing.Price, bool) operation.Quote {
	most := billing.Usage{Input: r.bound}
	return operation.Exactly(most, operation.Plausible{Input: 2*most.Input + operation.CountSlack, Images: math.MaxInt64})
}

// Ordered is what a vendor counts at least that got the request and failed.
func (r *Request) Ordered(*operation.Facts, *billing.Price) billing.Usage {
	return billing.Usage{Input: r.Estimate(), Estimated: true}
}
