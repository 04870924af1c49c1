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

// DefaultBaseURL is where calls go if [Options.BaseURL] is empty.
const DefaultBaseURL = "https://api.anthropic.com"

// Options say where the vendor is. The zero value is Anthropic itself, without a
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
	upstream.Messages:    "/v1/messages",
	upstream.CountTokens: "/v1/messages/count_tokens",
}

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the Upstream when done.
func New(o Options) (*Upstream, error) {
	keyHeader := apiKey
	if o.Bearer {
		keyHeader = nil // which is a bearer token
	}
	client, err := httpdo.New(o, httpdo.Defaults{BaseURL: DefaultBaseURL, KeyHeader: keyHeader})
	if err != nil {
		return nil, err
	}
	u := &Upstream{paths: client.URLs(paths), client: client}
	u.dialect = httpdo.ErrorFormat{Refused: u.refused, Status: status}
	return u, nil
}

func apiKey(key string) (name, value string) { return "X-Api-Key", key }

// Supports reports whether op is messages or the count of their tokens; the
// model is the vendor's business.
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
	if call.Query != "" {
		asked := *to
		asked.RawQuery = call.Query
		to = &asked
	}
	resp, key, err := u.client.Post(ctx, to, header(call), call.Body)
	if err != nil {
		return nil, err
	}
	return u.client.Reply(resp, key, call.Stream, u.dialect)
}

// The header that names the version of the wire, and what it says for a client
// that does not.
const (
	versionHeader  = "Anthropic-Version"
	defaultVersion = "2023-06-01"
)

// header is made from scratch: of the client's headers only the vendor's own
// travel.
func header(call *upstream.Call) http.Header {
	accept := "application/json"
	if call.Stream {
		accept = "text/event-stream"
	}
	h := http.Header{"Accept": {accept}, "Content-Type": {"application/json"}, "User-Agent": {httpdo.UserAgent}}
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
