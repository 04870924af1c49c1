package moderations

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/moderations"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is the endpoint of moderations, which are sold by requests or given away.
var Spec = operation.Spec{
	Op: upstream.Moderations, Path: "/v1/moderations", Kinds: []string{"moderation"},
	Trace:   operation.Trace{Name: "moderation", Silent: true},
	Units:   [][]billing.Unit{{billing.Request}},
	Parse:   operation.Parser(Parse),
	Models:  models,
	Words:   []operation.Word{{Text: "moderation"}},
	Probe:   operation.Members(`"input":"Hi"`),
	Example: operation.Members(`"input":["Hello!","I will hurt you."]`),
	Demo:    []operation.DemoModel{{ID: moderations.DefaultModel, Rates: []billing.Rate{{Unit: billing.Request, Amount: "0"}}}},
}

// models are OpenAI's.
func models() map[string]operation.Facts {
	return map[string]operation.Facts{moderations.DefaultModel: {}, "text-moderation-latest": {}}
}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info { return operation.Info{Model: r.Model, Source: r.Source()} }

// Quote is what the request costs: one request.
func (r *Request) Quote(*operation.Facts, *billing.Price, bool) operation.Quote {
	return operation.Exactly(billing.Usage{Requests: 1}, operation.Unchecked())
}

// Ordered is what a vendor counts at least that got the request and failed.
func (r *Request) Ordered(*operation.Facts, *billing.Price) billing.Usage {
	return billing.Usage{Requests: 1}
}
