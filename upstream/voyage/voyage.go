// Package voyage is the driver for Voyage AI's embeddings.
package voyage

import (
	"context"
	"net/http"
	"net/url"

	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/internal/embeddingsapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [Options.BaseURL] is empty.
const DefaultBaseURL = "https://api.voyageai.com/v1"

// Options say where the vendor is. The zero value is Voyage itself, without a
// key.
type Options = upstream.DriverOptions

// Upstream is Voyage. It is safe for concurrent use.
type Upstream struct {
	client *httpdo.Client
	path   *url.URL
}

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the Upstream when done.
func New(o Options) (*Upstream, error) {
	client, err := httpdo.New(o, httpdo.Defaults{BaseURL: DefaultBaseURL})
	if err != nil {
		return nil, err
	}
	return &Upstream{client, client.Base.JoinPath("/embeddings")}, nil
}

// Supports reports whether op is embeddings; the model is the vendor's business.
func (u *Upstream) Supports(op upstream.Op, _ string) bool { return op == upstream.Embeddings }

// Close closes idle connections of the driver's own transport. Calls under way
// go on, and later calls open connections anew.
func (u *Upstream) Close() error { return u.client.Close() }

// Do makes one call, once: whatever fails is for the Router to repeat. The
// answer is read whole.
func (u *Upstream) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Op != upstream.Embeddings {
		return nil, httpdo.Unsupported()
	}
	header := http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {httpdo.UserAgent},
	}
	resp, key, err := u.client.Post(ctx, u.path, header, translateBody(call.Body))
	if err != nil {
		return nil, err
	}
	data, err := u.answer(ctx, resp)
	httpdo.ReportKey(key, err)
	if err != nil {
		return nil, err
	}
	reply := httpdo.DocumentReply(resp.StatusCode, data)
	if !rawjson.IsNull(call.Body.Raw("user")) {
		reply.Dropped = []string{"user"}
	}
	return reply, nil
}

// translateBody is the body as Voyage takes it: dimensions under their own name, no
// word for the default encoding, no user. What only
// Voyage knows (input_type, truncation, output_dtype) passes.
func translateBody(body upstream.Body) upstream.Body {
	if !body.IsObject() {
		return body
	}
	if format, _ := rawjson.String(body.Raw("encoding_format")); format != embeddings.Base64 {
		body = body.Delete("encoding_format")
	}
	return body.Rename("dimensions", "output_dimension").Delete("user")
}

// maxAnswer is how much of an answer is read.
const maxAnswer = 256 << 20

// answer reads a response, in the public wire: Voyage counts total_tokens only.
func (u *Upstream) answer(ctx context.Context, resp *http.Response) ([]byte, error) {
	data, err := u.client.ReadDocument(ctx, resp, maxAnswer, u.refused)
	if err != nil {
		return nil, err
	}
	if data, err = embeddingsapi.CompleteUsage(data); err != nil {
		return nil, u.client.Malformed(resp.StatusCode, err)
	}
	return data, nil
}
