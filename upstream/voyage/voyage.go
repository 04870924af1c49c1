// Package voyage is the driver for Voyage AI's embeddings.
package voyage

import (
	"context"

	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/internal/embeddingsapi"
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
		BaseURL: DefaultBaseURL, Refused: refused, Paths: map[upstream.Op]string{upstream.Embeddings: "/embeddings"},
	})
	if err != nil {
		return nil, err
	}
	return &driver{client}, nil
}

// maxAnswer is how much of an answer is read.
const maxAnswer = 256 << 20

// Do makes one call, once: whatever fails is for the Router to repeat. The
// answer is read whole, since Voyage counts total_tokens only.
func (d *driver) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	to, err := d.URL(call.Op)
	if err != nil {
		return nil, err
	}
	resp, key, err := d.Post(ctx, call, to, httpdo.Header("application/json", "application/json"), translateBody(call.Body))
	if err != nil {
		return nil, err
	}
	data, err := d.ReadDocument(ctx, resp, maxAnswer)
	if err == nil {
		if data, err = embeddingsapi.CompleteUsage(data); err != nil {
			err = d.Malformed(resp.StatusCode, err)
		}
	}
	key.Report(err)
	if err != nil {
		return nil, err
	}
	reply := httpdo.DocumentReply(key, data)
	if !rawjson.IsNull(call.Body.Raw("user")) {
		reply.Dropped = []string{"user"}
	}
	return reply, nil
}

// translateBody is the body as Voyage takes it: dimensions under their own name, no
// word for the default encoding, no user. What only Voyage knows (input_type,
// truncation, output_dtype) passes.
func translateBody(body upstream.Body) upstream.Body {
	if !body.IsObject() {
		return body
	}
	if format, _ := rawjson.String(body.Raw("encoding_format")); format != embeddings.Base64 {
		body = body.Delete("encoding_format")
	}
	return body.Rename("dimensions", "output_dimension").Delete("user")
}
