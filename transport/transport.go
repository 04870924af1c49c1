// Package transport has the SDKs of others call a gateway in place of the vendors, without a
// change of their code or of their base URL. Give it to any SDK that takes an http.Client:
//
//	client := &http.Client{Transport: transport.New(g, transport.Options{})}
//
//	openai.NewClient(option.WithHTTPClient(client))    // github.com/openai/openai-go
//	anthropic.NewClient(option.WithHTTPClient(client)) // github.com/anthropics/anthropic-sdk-go
//
// The gateway answers the requests to vendors' APIs that it serves itself, in process and
// without a socket: with its keys, limits, money and fail-over. All other requests go on as
// before.
package transport

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/internal/presets"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// Options say which requests the gateway answers. The zero value is the documented default.
type Options struct {
	// Hosts are the hosts whose requests the gateway answers, such as "api.openai.com". Case and
	// ports do not matter. None means the API hosts of all vendors that the gateway has a preset
	// for (docs/reference/vendors.md). A host that an account or a region is part of, as on Azure
	// and Bedrock, is not among those: name it, and all others beside it.
	Hosts []string
	// Next sends all other requests; http.DefaultTransport if nil. It also gets the paths of
	// Hosts that the gateway does not serve, such as /v1/files.
	Next http.RoundTripper
}

// New returns a transport. g answers a request to one of the hosts, with a path of the API of
// package server, as if it had come over HTTP: streams, error bodies, headers and cancellation
// included. What a vendor has before that path is cut off (/openai of Groq, /api of OpenRouter).
//
// The caller is the principal of the request's context (auth.NewContext). Without one, it is
// the owner of the key in the Authorization or x-api-key header, a key of the gateway and not
// of the vendor. A gateway without an Authenticator looks at neither.
//
// The transport is safe for concurrent use.
func New(g *gateway.Gateway, o Options) http.RoundTripper {
	handler := server.New(g, server.Options{})
	t := &roundTripper{gateway: server.Client(handler).Transport, prefixes: make(map[string][]string), next: o.Next}
	if t.next == nil {
		t.next = http.DefaultTransport
	}
	for _, r := range handler.Routes() {
		if !r.Open {
			t.routes = append(t.routes, r.Path)
		}
	}
	known := prefixes()
	hosts := o.Hosts
	if len(hosts) == 0 {
		for host := range known {
			hosts = append(hosts, host)
		}
	}
	for _, host := range hosts {
		if u, err := url.Parse("//" + host); err == nil && u.Hostname() != "" {
			name := strings.ToLower(u.Hostname())
			if t.prefixes[name] = known[name]; known[name] == nil {
				t.prefixes[name] = known[anyHost]
			}
		}
	}
	return t
}

// anyHost stands for the hosts of presets that a variable is part of.
const anyHost = ""

// prefixes are what the presets' vendors have before the paths of the API, by their hosts. The
// longest comes first; the last is empty.
func prefixes() map[string][]string {
	own := map[string]string{
		"anthropic": anthropic.DefaultBaseURL, "ark": ark.DefaultBaseURL, "dashscope": dashscope.DefaultBaseURL,
		"openai": openai.DefaultBaseURL, "voyage": voyage.DefaultBaseURL,
	}
	all := map[string][]string{anyHost: {""}}
	for _, a := range presets.Addresses() {
		base := strings.TrimPrefix(cmp.Or(a.BaseURL, own[a.Driver])+a.Path, "https://")
		host, path, _ := strings.Cut(base, "/")
		if strings.Contains(host, "${") {
			host = anyHost
		}
		all[host] = append(all[host], "", strings.TrimSuffix(strings.TrimSuffix("/"+path, "/v1"), "/"), a.Messages)
	}
	for host, found := range all {
		slices.SortFunc(found, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
		all[host] = slices.Compact(found)
	}
	return all
}

// roundTripper sends a request to the gateway, or on to next.
type roundTripper struct {
	gateway  http.RoundTripper
	routes   []string            // of the gateway's API
	prefixes map[string][]string // of each host that the gateway stands for
	next     http.RoundTripper
}

// RoundTrip sends one request.
func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	u, ours := t.rewrite(r.URL)
	if !ours {
		return t.next.RoundTrip(r)
	}
	in := r.WithContext(r.Context()) // the caller's request stays as it is
	in.URL = u
	if _, known := auth.FromContext(r.Context()); known {
		in.Header = r.Header.Clone()
		in.Header.Del("Authorization") // that of a vendor may have a form that the gateway refuses
		in.Header.Del("X-Api-Key")
	}
	resp, err := t.gateway.RoundTrip(in)
	if err == nil {
		resp.Request = r
	}
	return resp, err
}

// CloseIdleConnections closes those of Next, as http.Client asks for.
func (t *roundTripper) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// rewrite is the gateway's address for a vendor's; false if it serves none.
func (t *roundTripper) rewrite(u *url.URL) (*url.URL, bool) {
	for _, prefix := range t.prefixes[strings.ToLower(u.Hostname())] {
		rest, found := strings.CutPrefix(u.Path, prefix)
		if !found || !strings.HasPrefix(rest, "/") {
			continue
		}
		for _, version := range []string{"", "/v1"} { // of vendors whose path has another version, or none
			if t.serves(version + rest) {
				to := *u
				to.Path = version + rest
				if to.RawPath != "" {
					to.RawPath = version + strings.TrimPrefix(u.RawPath, prefix)
				}
				return &to, true
			}
		}
	}
	return nil, false
}

// serves reports whether the gateway's API has a path. An id has one segment or several.
func (t *roundTripper) serves(path string) bool {
	return slices.ContainsFunc(t.routes, func(route string) bool {
		before, after, id := strings.Cut(route, "{id}")
		if !id {
			return path == route
		}
		return len(path) > len(before)+len(after) && strings.HasPrefix(path, before) && strings.HasSuffix(path, after)
	})
}
