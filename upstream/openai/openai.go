// Package openai is the driver for every vendor that speaks OpenAI's wire.
package openai

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [Options.BaseURL] is empty.
const DefaultBaseURL = "https://api.openai.com/v1"

// Options say where the vendor is. The zero value is OpenAI itself, without a
// key.
type Options = upstream.DriverOptions

// Upstream is one vendor. It is safe for concurrent use.
type Upstream struct {
	paths   map[upstream.Op]*url.URL
	client  *httpdo.Client
	dialect httpdo.ErrorFormat
}

// paths are what is added to the base address.
var paths = map[upstream.Op]string{
	upstream.ChatCompletion: "/chat/completions",
	upstream.GenerateImage:  "/images/generations",
	upstream.EditImage:      "/images/edits",
	upstream.Embeddings:     "/embeddings",
	upstream.Speech:         "/audio/speech",
}

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the Upstream when done.
func New(o Options) (*Upstream, error) {
	client, err := httpdo.New(o, httpdo.Defaults{BaseURL: DefaultBaseURL})
	if err != nil {
		return nil, err
	}
	u := &Upstream{paths: client.URLs(paths), client: client}
	u.dialect = httpdo.ErrorFormat{Refused: u.refused, Status: status}
	return u, nil
}

// Supports reports whether the driver knows the operation; the model is the
// vendor's business.
func (u *Upstream) Supports(op upstream.Op, _ string) bool { return paths[op] != "" }

// Close closes idle connections of the driver's own transport. Calls under way
// go on, and later calls open connections anew.
func (u *Upstream) Close() error { return u.client.Close() }

// Do makes one call, once: whatever fails is for the Router to repeat. The
// Reply streams from the vendor until its body is closed.
func (u *Upstream) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	to, known := u.paths[call.Op]
	if !known {
		return nil, httpdo.Unsupported()
	}
	resp, key, err := u.client.Post(ctx, to, header(call), call.Body)
	if err != nil {
		return nil, err
	}
	return u.client.Reply(resp, key, call.Stream, u.dialect)
}

// header is made from scratch: nothing of the client's headers travels.
func header(call *upstream.Call) http.Header {
	accept := "application/json"
	switch {
	case call.Op == upstream.Speech:
		accept = "*/*"
	case call.Stream:
		accept = "text/event-stream"
	}
	return http.Header{
		"Accept": {accept}, "Content-Type": {contentType(call)}, "User-Agent": {httpdo.UserAgent},
	}
}

func contentType(call *upstream.Call) string {
	return cmp.Or(call.Body.ContentType(), call.ContentType, "application/json")
}
