// Package rerank is the rerank capability: documents in the order of their relevance
// to a query. It has the requests and answers, and models that are written in Go.
// A *gateway.Gateway answers requests; g stands for one here:
//
//	answer, err := g.Rerank(ctx, &rerank.Request{Model: "my-model", Query: "tolls", Documents: texts})
//	best := texts[answer.Results[0].Index] // the most relevant first
//	up := rerank.Serve(handler)            // a model that is a Go function
package rerank

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request asks for the documents that are most relevant to a query. A field that the
// API does not name goes into Extra and travels unchanged.
type Request struct {
	Model string `json:"model"`
	Query string `json:"query"`
	// Documents are the texts to rank: 1 to 10,000, none of them empty. Equal documents get a
	// result each.
	Documents []string `json:"documents"`
	// TopN is how many results are wanted, the most relevant first; 0, or more than
	// there are documents, means all.
	TopN int64 `json:"top_n,omitzero"`
	// ReturnDocuments repeats each document in its result. A [Handler] need not look
	// at it: the gateway adds them.
	ReturnDocuments bool `json:"return_documents,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field
}

// MarshalJSON writes the members of Extra beside the others, also for the classic
// encoding/json, which does not know embedded members.
func (r Request) MarshalJSON() ([]byte, error) {
	type members Request
	return json.Marshal(members(r))
}

// Handler ranks documents in Go. It must be safe for concurrent use and must not change the
// request. It returns each index at most once, in any order and without documents: all of
// them, or at least TopN. The caller gets a *fault.Error as it is; any other error becomes an
// internal error without details.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Serve makes an upstream of a Go function.
func Serve(h Handler) upstream.Upstream {
	return funcmodel.Function[Request, Response]{Op: upstream.Rerank, Read: funcmodel.View[Request], Answer: h}
}

// Response is a ranking. Fields that the API does not name are in Extra, here and in
// its parts.
type Response struct {
	ID      string         `json:"id,omitzero"`
	Object  string         `json:"object,omitzero"` // "list"
	Model   string         `json:"model,omitzero"`  // public id
	Results []Result       `json:"results"`         // the most relevant first; at most TopN
	Meta    Meta           `json:"meta,omitzero"`
	Usage   Usage          `json:"usage,omitzero"`
	Extra   jsontext.Value `json:",embed"`

	// Raw is the answer as JSON.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Result is the relevance of one document.
type Result struct {
	Index int64 `json:"index"` // which document of the request
	// RelevanceScore grows with the relevance. Its range is the model's own, often 0 to
	// 1; scores of different models cannot be compared.
	RelevanceScore float64        `json:"relevance_score"`
	Document       *Document      `json:"document,omitzero"` // if the request wants it
	Extra          jsontext.Value `json:",embed"`
}

// Document is a document of the request.
type Document struct {
	Text  string         `json:"text,omitzero"`
	Extra jsontext.Value `json:",embed"`
}

// Meta is what Cohere's clients read of an answer.
type Meta struct {
	BilledUnits BilledUnits    `json:"billed_units,omitzero"`
	Extra       jsontext.Value `json:",embed"`
}

// BilledUnits is what an upstream bills that sells by search units.
type BilledUnits struct {
	// SearchUnits is how many there were. A query with up to 100 documents is one. Each
	// further 500 tokens of a document count as one more document (Cohere's page
	// "Pricing").
	SearchUnits int64          `json:"search_units,omitzero"`
	Extra       jsontext.Value `json:",embed"`
}

// Usage is the count of tokens, query and documents together.
type Usage struct {
	TotalTokens int64          `json:"total_tokens,omitzero"`
	Extra       jsontext.Value `json:",embed"`
}
