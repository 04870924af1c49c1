// Package reranker has the drivers for two wires that only rank: Cohere's and that of Text
// Embeddings Inference (TEI). Jina, vLLM, llama.cpp, Infinity and Xinference rank by the
// form that package openai speaks.
package reranker

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// CohereBaseURL and TEIBaseURL are where calls go if [upstream.DriverOptions.BaseURL] is
// empty. TEI is a server of one's own, by default where its documentation starts it.
const (
	CohereBaseURL = "https://api.cohere.com"
	TEIBaseURL    = "http://127.0.0.1:8080"
)

// driver is the driver of one vendor. It is safe for concurrent use.
type driver struct {
	*httpdo.Client
	request func(upstream.Body) (_ upstream.Body, dropped []string)
	answer  httpdo.Translate // nil where it is the public wire
	list    httpdo.Listing
}

// NewCohere returns the driver of Cohere's rerankers (docs.cohere.com/reference/rerank).
// Its chat and embeddings are served by package openai, at /compatibility/v1. The error
// says which option is wrong and never holds a key. Close the driver when done.
func NewCohere(o upstream.DriverOptions) (upstream.Driver, error) {
	return newDriver(o, CohereBaseURL, "/v2/rerank", "message", &driver{request: cohereRequest, list: httpdo.Listing{
		Query: url.Values{"endpoint": {"rerank"}, "page_size": {"1000"}}, // of all that it lists, what ranks
	}}, "/v1/models")
}

// NewTEI returns the driver of a reranker that Text Embeddings Inference serves
// (huggingface.github.io/text-embeddings-inference). The error says which option is wrong
// and never holds a key. Close the driver when done.
func NewTEI(o upstream.DriverOptions) (upstream.Driver, error) {
	return newDriver(o, TEIBaseURL, "/rerank", "error", &driver{request: teiRequest, answer: teiAnswer}, "/info")
}

// newDriver completes the driver of a vendor. Its errors have their text in the member called
// message, and its models are listed at the path models.
func newDriver(o upstream.DriverOptions, base, path, message string, d *driver, models string) (upstream.Driver, error) {
	client, err := httpdo.New(o, httpdo.Vendor{
		BaseURL: base, Paths: map[upstream.Op]string{upstream.Rerank: path},
		Refused: func(c *httpdo.Client, status int, data []byte, h http.Header) error {
			return refused(c, message, status, data, h)
		},
	})
	if err != nil {
		return nil, err
	}
	d.Client, d.list.URL, d.list.Header = client, client.Base.JoinPath(models), httpdo.Header("application/json", "")
	return d, nil
}

// ListModels implements [upstream.Lister] by Cohere's GET /v1/models, and by TEI's GET
// /info, which has the one model that it serves.
func (d *driver) ListModels(ctx context.Context) (*upstream.ModelList, error) {
	return d.Client.ListModels(ctx, d.list)
}

// Do makes one call, once; a Router decides whether to repeat it. The answer is read whole.
func (d *driver) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	body, dropped := call.Body, []string(nil)
	if body.IsObject() {
		body, dropped = d.request(body)
	}
	return d.Exchange(ctx, call, body, dropped, httpdo.MaxRanking, d.answer)
}

// cohereRequest leaves out what Cohere's second version does not know, since it answers
// 422 to that. return_documents is for the gateway alone; the others are fields of the
// first version and of other vendors.
func cohereRequest(body upstream.Body) (_ upstream.Body, dropped []string) {
	return httpdo.DropFields(body.Delete("return_documents"), "max_chunks_per_doc", "truncation")
}

// teiRequest returns TEI's form, which serves one model and cannot bound the results. TEI
// refuses long texts unless truncate is true; Voyage calls that truncation.
func teiRequest(body upstream.Body) (_ upstream.Body, dropped []string) {
	body, dropped = httpdo.DropFields(body, "max_tokens_per_doc", "max_chunks_per_doc")
	for _, name := range [...]string{"model", "top_n", "return_documents"} {
		body = body.Delete(name)
	}
	return body.Rename("documents", "texts").Rename("truncation", "truncate"), dropped
}

// teiAnswer makes an object of TEI's bare array of {"index", "score"}. A header says what was
// consumed.
func teiAnswer(data []byte, h http.Header) ([]byte, error) {
	out := []byte(`{"results":[`)
	r := rawjson.NewReader(data)
	defer r.Close()
	err := r.Array(func(i int) error {
		span, err := r.Skip()
		if err != nil {
			return err
		}
		row, err := rawjson.Index(span.Of(data), nil, nil)
		if err != nil {
			return err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = row.Apply(out, rawjson.Delete("relevance_score"), rawjson.Rename("score", "relevance_score"))
		return nil
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err
	}
	out = append(out, ']')
	if tokens, ok, _ := tokencount.Count([]byte(h.Get("X-Compute-Tokens"))); ok {
		out = strconv.AppendInt(append(out, `,"usage":{"total_tokens":`...), tokens, 10)
		out = append(out, '}')
	}
	return append(out, '}'), nil
}

// refused makes the error of a refusal. It is the caller's fault, with the vendor's text, or
// else the operator's or the vendor's fault.
func refused(c *httpdo.Client, member string, status int, data []byte, h http.Header) error {
	e, f := c.Refused(status, string(data), h)
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		o = rawjson.Object{}
	}
	message, _ := rawjson.String(o.Raw(member))
	text := strings.ToLower(message)
	switch {
	case status == invalidToken, status == http.StatusTooManyRequests && strings.Contains(text, "trial key") && strings.Contains(text, "month"):
		e = c.OperatorFault(f)
	case status == http.StatusNotFound && strings.Contains(text, "model"):
		f.NoModel = true
		e = f.Fault()
	}
	if e.Code == fault.InvalidRequest {
		c.QuoteError(e, httpdo.VendorError{Code: e.Code, Message: message, Said: data})
	}
	return e
}

// invalidToken is the status of Cohere's for a key that is blocked or malformed.
const invalidToken = 498
