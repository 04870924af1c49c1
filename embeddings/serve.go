package embeddings

import (
	"context"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Handler embeds texts in Go. It is safe for concurrent use. An error that is
// a *fault.Error reaches the caller as it is; any other becomes an internal
// error that tells nothing. The request is read-only; its base64 is made by the
// gateway.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Serve makes an upstream of a Go function.
func Serve(h Handler) upstream.Upstream {
	return serve.Function[Request, Response]{Op: upstream.Embeddings, Read: serve.Parsed(Parse), Answer: h}
}

// Inputs are the texts to embed, in order; nil if the input is of tokens.
func (r *Request) Inputs() []string {
	var texts []string
	for _, item := range r.parsed.items {
		text, ok := rawjson.String(item.Of(r.Source()))
		if !ok {
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}
