// Package rerank is what the gateway does with requests of package rerank and with their
// answers. It has the dialects of Cohere, Jina, Voyage and Text Embeddings Inference (TEI),
// the rules of fields, and the bounds of a price. It splits long lists of documents and merges
// their results.
package rerank

import (
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/rerank"
	"github.com/tollhouse-ai/gateway/upstream"
)

// MaxDocuments bounds a request, as Cohere does.
const MaxDocuments = 10_000

// Request is a parsed request. Its Documents are empty: they stay in the body.
type Request struct {
	rerank.Request
	object     rawjson.Object
	body       upstream.Body // as an upstream gets it
	problem    rule.Problem  // the first rule that the request breaks
	documents  []document    // of a list that is too long not all
	listed     int           // how many the list has
	topK       int64         // Voyage's word for TopN
	returnText bool          // TEI's word for ReturnDocuments
	rankFields []string
	family     Family
	tei        bool // the answer is a bare array
	rows       bool // the answer has its rows as Voyage's too
	part       bool // of a request that was split
}

// fields is the table of the fields, their rules and their places.
var fields = rule.Fields[Request]{
	{Name: "model", Check: rule.ModelID(), Into: func(r *Request) any { return &r.Model }},
	{Name: "query", Check: rule.NonEmptyString(), Into: func(r *Request) any { return &r.Query }},
	{Name: "top_n", Check: rule.Integer(1, math.MaxInt32), Into: func(r *Request) any { return &r.TopN }},
	{Name: "top_k", Check: rule.Integer(1, math.MaxInt32), Into: func(r *Request) any { return &r.topK }},
	{Name: "return_documents", Check: rule.Bool(), Into: func(r *Request) any { return &r.ReturnDocuments }},
	{Name: "return_text", Check: rule.Bool(), Into: func(r *Request) any { return &r.returnText }},
	{Name: "rank_fields", Check: differentStrings(64), Into: func(r *Request) any { return &r.rankFields }},
	{Name: "max_tokens_per_doc", Check: rule.Integer(1, math.MaxInt32)},
	{Name: "max_chunks_per_doc", Check: rule.Integer(1, math.MaxInt32)},
}

// differentStrings allows an array of at most most strings, all different. A field twice would
// make a document's text longer than the document.
func differentStrings(most int) rule.Check {
	list := rule.Strings(most)
	return rule.Check{Text: list.Text + ", none of them twice", OK: func(raw []byte) bool {
		if !list.OK(raw) {
			return false
		}
		different := true
		var seen []string
		rawjson.Each(raw, func(_ int, at rawjson.Span) {
			s, _ := rawjson.String(at.Of(raw))
			different = different && !slices.Contains(seen, s)
			seen = append(seen, s)
		})
		return different
	}}
}

// Parse reads a request body in one pass. It fails with a 400 that names the byte
// offset if data is not one strict JSON object; other rules are for [Request.Check].
// The Request refers to data, which must not change any more.
func Parse(data []byte) (*Request, error) { return read(data, nil) }

// Encode marshals a typed request and checks the bytes as [Parse] does.
func Encode(typed *rerank.Request) (*Request, error) {
	type members rerank.Request
	return rule.Encode(typed, (*members)(typed), len(typed.Extra) > 0, read)
}

// read indexes and checks a request body. The fields are typed's, or are decoded if
// that is nil.
func read(data []byte, typed *rerank.Request) (*Request, error) {
	r := &Request{}
	if typed != nil {
		r.Request = *typed
		r.Documents = nil
	}
	var err error
	r.object, err = rawjson.Index(data, rule.Documents, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "documents" || string(name) == "texts" {
			return r.readDocuments(rd, data, string(name))
		}
		_, err := rd.Skip()
		return err
	})
	if err != nil {
		return nil, rule.Unacceptable(err)
	}
	fields.Read(r, &r.object, &r.problem, typed != nil)
	if typed != nil && r.problem.Found() { // a field that breaks its rule stays unset
		return read(data, nil)
	}
	r.recognize()
	r.resolve()
	r.body = r.canonical()
	r.family = familyOf(r.Model)
	return r, nil
}

// recognize finds out which dialect the caller speaks: TEI names its documents "texts",
// Voyage its bound "top_k", which its client sends as null too.
func (r *Request) recognize() {
	has := func(name string) bool { return r.object.Raw(name) != nil }
	given := func(name string) bool { return !rawjson.IsNull(r.object.Raw(name)) }
	for _, pair := range [...][2]string{{"documents", "texts"}, {"top_n", "top_k"}, {"return_documents", "return_text"}} {
		if given(pair[0]) && given(pair[1]) {
			r.problem.Refuse(pair[1], fmt.Sprintf("%q and %q say the same. Send one of them.", pair[0], pair[1]))
		}
	}
	r.tei = given("texts")
	r.rows = has("top_k")
	r.TopN = max(r.TopN, r.topK)
	r.ReturnDocuments = r.ReturnDocuments || r.returnText
}

// Check reports the first rule of the API that the request breaks, nil if there is
// none.
func (r *Request) Check(*operation.Facts, *billing.Price, operation.Channels) error {
	if err := r.problem.Err(); err != nil {
		return err
	}
	switch {
	case r.Model == "":
		return rule.NoModel()
	case r.Query == "":
		return fault.Invalid("query", `"query" is missing: it holds the text that the documents are ranked for.`)
	case r.listed == 0:
		return fault.Invalid(r.list(), fmt.Sprintf("%q is missing: it holds the texts to rank, as an array of strings.", r.list()))
	case r.listed > MaxDocuments:
		return fault.Invalid(r.list(), fmt.Sprintf("%q must hold at most %d documents; it has %d.", r.list(), MaxDocuments, r.listed))
	}
	return nil
}

// list is what the caller calls the documents.
func (r *Request) list() string {
	if r.tei {
		return "texts"
	}
	return "documents"
}

// Source is the body as the caller sent it; for a part of [Request.Split], the whole body. It
// is nil for a Request that did not come from [Parse]. It must not be modified.
func (r *Request) Source() []byte { return r.object.Src }

// Outgoing is what an upstream gets, in the one form that is described at
// [upstream.Rerank]. Its typed view is made of the body by those who need one: the documents
// would lie in memory twice.
func (r *Request) Outgoing(int64) operation.Outgoing { return operation.Outgoing{Body: r.body} }

// canonical is the body in the form of [upstream.Rerank].
func (r *Request) canonical() upstream.Body {
	b := upstream.ObjectBody(r.object)
	if r.tei {
		b = b.Delete("documents").Rename("texts", "documents")
	}
	if slices.ContainsFunc(r.documents, document.isObject) {
		b = b.Set("documents", array(r.documents))
	}
	b = b.Delete("texts").Delete("top_k").Delete("return_text").Delete("rank_fields").Set("return_documents", []byte("false"))
	if string(r.object.Raw("raw_scores")) == "false" {
		b = b.Delete("raw_scores")
	}
	return bounded(b, r.TopN, len(r.documents))
}

// bounded is a body that asks for at most top of so many documents.
func bounded(b upstream.Body, top int64, documents int) upstream.Body {
	if top == 0 || top >= int64(documents) {
		return b.Delete("top_n")
	}
	return b.Set("top_n", fmt.Append(nil, top))
}

// Split cuts a request that has more documents than one upstream call of its model takes.
func (r *Request) Split(m *operation.Facts) []operation.Request {
	var parts []operation.Request
	for _, p := range r.split(m.Batch) {
		parts = append(parts, p)
	}
	return parts
}

// split cuts a request into parts of at most batch documents each, in order; nil if it need
// not be cut. A batch of 0 is the family's. Each part asks for as many results as the whole
// does, and [Request.Join] takes the best.
func (r *Request) split(batch int) []*Request {
	var parts []*Request
	for documents := range r.batches(batch) {
		part := *r
		part.part, part.documents, part.listed = true, documents, len(documents)
		part.TopN, part.ReturnDocuments, part.tei, part.rows = min(r.TopN, int64(len(documents))), false, false, false
		part.body = bounded(r.body.Set("documents", array(documents)), part.TopN, len(documents))
		parts = append(parts, &part)
	}
	if len(parts) == 1 {
		return nil
	}
	return parts
}

// batches are the documents of each upstream call.
func (r *Request) batches(batch int) func(yield func([]document) bool) {
	if batch == 0 {
		batch = r.family.Batch
	}
	return slices.Chunk(r.documents, batch)
}

// Unpriced refuses the first member that chooses another model or account than the
// gateway has priced, unless pass lets it through. pass gets the name as the table
// spells it and as the caller does.
func (r *Request) Unpriced(_ http.Header, pass func(name, spelled string) bool) error {
	return rule.CheckUnpriced(&r.object, rule.Other, nil, pass)
}

// Family is a group of models that obey the same rules.
type Family struct {
	Models []string // public ids
	Batch  int      // the most documents of one upstream call
}

// Families are the models that the gateway knows, with the limits of their vendors'
// pages. They are read-only.
var Families = []Family{
	{Models: []string{"rerank-v4.0-pro", "rerank-v4.0-fast", "rerank-v3.5", "rerank-english-v3.0", "rerank-multilingual-v3.0"}, Batch: 1000},
	{Models: []string{"jina-reranker-v3", "jina-reranker-m0", "jina-reranker-v2-base-multilingual", "jina-colbert-v2"}, Batch: 1000},
	{Models: []string{"rerank-2.5", "rerank-2.5-lite", "rerank-2", "rerank-2-lite"}, Batch: 1000},
	{Models: []string{"qwen3-rerank", "gte-rerank-v2"}, Batch: 500},
	{Models: []string{"bge-reranker-v2-m3", "bge-reranker-large", "bge-reranker-base"}, Batch: 1000},
}

// familyOf is the model's.
func familyOf(model string) Family {
	for _, f := range Families {
		if slices.Contains(f.Models, model) {
			return f
		}
	}
	return Family{Batch: 1000}
}
