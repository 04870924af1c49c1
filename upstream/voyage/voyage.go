// Package voyage is the driver for Voyage AI's embeddings and rerankers.
package voyage

import (
	"context"
	"net/http"

	embeddingsop "github.com/tollhouse-ai/gateway/internal/operation/embeddings"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [upstream.DriverOptions.BaseURL] is empty.
const DefaultBaseURL = "https://api.voyageai.com/v1"

// driver is the driver of one vendor. It is safe for concurrent use.
type driver struct{ *httpdo.Client }

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the driver when done.
func New(o upstream.DriverOptions) (upstream.Driver, error) {
	client, err := httpdo.New(o, httpdo.Vendor{
		BaseURL: DefaultBaseURL, Refused: refused, Paths: map[upstream.Op]string{upstream.Embeddings: "/embeddings", upstream.Rerank: "/rerank"},
	})
	if err != nil {
		return nil, err
	}
	return &driver{client}, nil
}

// maxAnswer is how much of an answer is read.
const maxAnswer = 256 << 20

// Do makes one call, once; a Router decides whether to repeat it. The answer is read whole,
// since Voyage reports only total_tokens for embeddings, and calls the results of a ranking
// data.
func (d *driver) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Op == upstream.Rerank {
		return d.rank(ctx, call)
	}
	body, dropped := translateBody(call.Body)
	return d.Exchange(ctx, call, body, dropped, maxAnswer, func(data []byte, _ http.Header) ([]byte, error) {
		return embeddingsop.CompleteUsage(data)
	})
}

// rank asks for a ranking. Voyage answers 400 to every argument that it does not know. So the
// request has no return_documents, which is for the gateway, and no bound of a document, which
// Cohere has. The vendor cuts what is too long, unless truncation is false.
func (d *driver) rank(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	body, dropped := httpdo.DropFields(call.Body, "max_tokens_per_doc", "max_chunks_per_doc")
	if body.IsObject() {
		body = body.Delete("return_documents").Rename("top_n", "top_k")
	}
	return d.Exchange(ctx, call, body, dropped, httpdo.MaxRanking, func(data []byte, _ http.Header) ([]byte, error) {
		o, err := rawjson.Index(data, nil, nil)
		if err != nil {
			return nil, err
		}
		return o.Apply(nil, rawjson.Delete("results"), rawjson.Rename("data", "results")), nil
	})
}

// translateBody is the body as Voyage takes it: dimensions under their own name, no
// word for the default encoding, no user. What only Voyage knows (input_type,
// truncation, output_dtype) passes.
func translateBody(body upstream.Body) (_ upstream.Body, dropped []string) {
	if !body.IsObject() {
		return body, nil
	}
	body, dropped = httpdo.DropFields(body, "user")
	if format, _ := rawjson.String(body.Raw("encoding_format")); format != embeddingsop.FormatBase64 {
		body = body.Delete("encoding_format")
	}
	return body.Rename("dimensions", "output_dimension"), dropped
}
