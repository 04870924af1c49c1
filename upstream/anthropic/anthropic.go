// Package anthropic is the driver for every vendor that speaks Anthropic's
// Messages wire.
package anthropic

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// DefaultBaseURL is where calls go if [upstream.DriverOptions.BaseURL] is empty.
const DefaultBaseURL = "https://api.anthropic.com"

// driver is the driver of one vendor. It is safe for concurrent use.
type driver struct{ *httpdo.Client }

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the driver when done.
func New(o upstream.DriverOptions) (upstream.Driver, error) {
	own := upstream.Auth{By: upstream.ByHeader, Name: "X-Api-Key"}
	client, err := httpdo.New(o, httpdo.Vendor{BaseURL: DefaultBaseURL, Auth: own, Refused: refused, Paths: map[upstream.Op]string{
		upstream.Messages:    "/v1/messages",
		upstream.CountTokens: "/v1/messages/count_tokens",
	}})
	if err != nil {
		return nil, err
	}
	return &driver{client}, nil
}

// Do makes one call, once; a Router decides whether to repeat it. The Reply streams from the
// vendor until its body is closed.
func (d *driver) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	to, err := d.URL(call.Op)
	if err != nil {
		return nil, err
	}
	if call.Query != "" {
		asked := *to
		asked.RawQuery = call.Query
		to = &asked
	}
	resp, key, err := d.Post(ctx, call, to, header(call), call.Body)
	return d.Reply(call, resp, key, err)
}

// The header that names the version of the wire, and what it says for a client
// that does not.
const (
	versionHeader  = "Anthropic-Version"
	defaultVersion = "2023-06-01"
)

// header has of the client's headers only the vendor's own.
func header(call *upstream.Call) http.Header {
	accept := "application/json"
	if call.Stream {
		accept = "text/event-stream"
	}
	h := httpdo.Header(accept, "application/json")
	for name, values := range call.Header {
		if name = http.CanonicalHeaderKey(name); strings.HasPrefix(name, "Anthropic-") {
			h[name] = append(h[name], values...)
		}
	}
	if h.Get(versionHeader) == "" {
		h[versionHeader] = []string{defaultVersion}
	}
	return h
}

// listPageSize is the most models that the vendor gives at once.
const listPageSize = "1000"

// ListModels implements [upstream.Lister] by GET /v1/models, which has pages.
func (d *driver) ListModels(ctx context.Context) (*upstream.ModelList, error) {
	h := httpdo.Header("application/json", "")
	h[versionHeader] = []string{defaultVersion}
	return d.Client.ListModels(ctx, httpdo.Listing{
		URL: d.Base.JoinPath("/v1/models"), Header: h, Query: url.Values{"limit": {listPageSize}}, Cursor: "after_id",
	})
}
