// Package openai is the driver for every vendor that speaks OpenAI's wire.
package openai

import (
	"cmp"
	"context"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [upstream.DriverOptions.BaseURL] is empty.
const DefaultBaseURL = "https://api.openai.com/v1"

// driver is the driver of one vendor. It is safe for concurrent use.
type driver struct{ *httpdo.Client }

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the driver when done.
func New(o upstream.DriverOptions) (upstream.Driver, error) {
	client, err := httpdo.New(o, httpdo.Vendor{BaseURL: DefaultBaseURL, Refused: refused, Status: status, Paths: map[upstream.Op]string{
		upstream.ChatCompletion: "/chat/completions",
		upstream.GenerateImage:  "/images/generations",
		upstream.EditImage:      "/images/edits",
		upstream.Embeddings:     "/embeddings",
		upstream.Speech:         "/audio/speech",
	}})
	if err != nil {
		return nil, err
	}
	return &driver{client}, nil
}

// Do makes one call, once: whatever fails is for the Router to repeat. The
// Reply streams from the vendor until its body is closed.
func (d *driver) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	to, err := d.URL(call.Op)
	if err != nil {
		return nil, err
	}
	accept := "application/json"
	switch {
	case call.Op == upstream.Speech:
		accept = "*/*"
	case call.Stream:
		accept = "text/event-stream"
	}
	header := httpdo.Header(accept, cmp.Or(call.Body.ContentType(), call.ContentType, "application/json"))
	resp, key, err := d.Post(ctx, call, to, header, call.Body)
	return d.Reply(call, resp, key, err)
}
