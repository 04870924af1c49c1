package chat

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is the endpoint of chat completions.
var Spec = operation.Spec{
	Op: upstream.ChatCompletion, Path: "/v1/chat/completions", Kinds: conversation.Kinds(),
	Trace:   operation.Trace{Name: "chat"},
	Units:   [][]billing.Unit{{billing.Input, billing.Output}},
	Parse:   operation.Parser(Parse),
	Unknown: UnknownModel,
	Scope:   rule.Generation, Translated: []string{"cache_control"},
	Models:  models,
	Probe:   operation.Members(`"max_tokens":1,"messages":[{"role":"user","content":"Hi"}]`),
	Example: operation.Members(`"stream":true,"messages":[{"role":"user","content":"Hello!"}]`),
	Demo: []operation.DemoModel{
		{ID: "delta-k3", Rates: []billing.Rate{
			{Unit: billing.Input, Amount: "0.60"}, {Unit: billing.CachedInput, Amount: "0.15"}, {Unit: billing.Output, Amount: "2.50"},
		}},
		{ID: "sim-chat", Rates: []billing.Rate{{Unit: billing.Input, Amount: "0.10"}, {Unit: billing.Output, Amount: "0.40"}}},
	},
}

// models are those of all families.
func models() map[string]operation.Facts {
	known := make(map[string]operation.Facts)
	for _, f := range Families() {
		for _, m := range f.Models {
			known[m.ID] = operation.Facts{MaxOutput: m.MaxOutput}
		}
	}
	return known
}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info {
	info := r.Parsed.Info(r.Model)
	if r.Stream {
		info.Stream = r
	}
	return info
}

// Check checks the request by the rules of the API, and what it names at the vendor.
func (r *Request) Check(_ *operation.Facts, _ *billing.Price, c operation.Channels) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return r.CheckFiles(c)
}

// Quote is what the request may cost. A channel that speaks messages gets max_tokens instead
// of max_completion_tokens. One that speaks responses gets max_output_tokens instead of
// either.
func (r *Request) Quote(m *operation.Facts, price *billing.Price, passed bool) operation.Quote {
	t := r.Tokens(m, price, r.Stream, passed)
	t.CallerBound, t.Candidates = r.OutputBound(), r.Candidates()
	newer := r.MaxTokens == 0 && r.MaxCompletionTokens > 0
	t.Dropped = m.Dropped.MaxTokens || newer && m.Dropped.MaxCompletionTokens || m.Dropped.MaxOutputTokens
	return t.Quote(m)
}
