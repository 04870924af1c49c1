package rerank

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is the endpoint of rankings, which are sold by search units, tokens or requests.
var Spec = operation.Spec{
	Op: upstream.Rerank, Path: "/v1/rerank", Kinds: []string{"rerank"},
	Paths:   []string{"/v2/rerank", "/rerank"},
	Dialect: operation.Rerank, Trace: operation.Trace{Name: "rerank", Silent: true},
	Units:   [][]billing.Unit{{billing.SearchUnit}, {billing.Input}, {billing.Request}},
	Parse:   operation.Parser(Parse),
	Models:  models,
	Words:   []operation.Word{{Text: "rerank"}},
	Probe:   operation.Members(`"query":"Hi","documents":["Hi"]`),
	Example: operation.Members(`"query":"Hello!","documents":["Goodbye.","Hello."]`),
	Demo:    []operation.DemoModel{{ID: "rerank-v3.5", Rates: []billing.Rate{{Unit: billing.SearchUnit, Amount: "0.002"}}}},
}

// models are those of all families.
func models() map[string]operation.Facts {
	known := make(map[string]operation.Facts)
	for _, f := range Families {
		for _, id := range f.Models {
			known[id] = operation.Facts{Batch: f.Batch}
		}
	}
	return known
}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info {
	return operation.Info{Model: r.Model, Source: r.Source(), Parts: r}
}

// Quote is what the request may cost.
func (r *Request) Quote(m *operation.Facts, price *billing.Price, _ bool) operation.Quote {
	all := r.Bound(m.Batch)
	return operation.Exactly(Sold(all, price), operation.Plausible{Input: 2*all.Input + operation.CountSlack, SearchUnits: all.SearchUnits})
}

// Ordered is what a vendor counts at least that got the request and failed.
func (r *Request) Ordered(_ *operation.Facts, price *billing.Price) billing.Usage {
	return Sold(r.Estimate(), price)
}
