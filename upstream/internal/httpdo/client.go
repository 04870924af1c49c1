// Package httpdo makes one call to a vendor over HTTP, once, and says what its
// failure means. Every driver of a vendor uses it.
package httpdo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Defaults are what a driver knows of its vendor.
type Defaults struct {
	BaseURL   string                                // where it is if the options do not say
	KeyHeader func(key string) (name, value string) // the header of a key; nil means a bearer token
}

// Client calls one vendor. It is safe for concurrent use.
type Client struct {
	Base         *url.URL
	Keys         *upstream.Keys
	OwnTransport *http.Transport // nil if the Transport is somebody else's

	closed     atomic.Bool
	client     *http.Client // follows no redirect: one call is one request
	linkClient *http.Client
	now        func() time.Time
	keyHeader  func(key string) (name, value string)
}

// New returns a client. The error says which option is wrong and never holds a
// key. Close the Client when done.
func New(o upstream.DriverOptions, d Defaults) (*Client, error) {
	base, err := parseBase(o.BaseURL, d.BaseURL)
	if err != nil {
		return nil, err
	}
	if o.ConnectTimeout < 0 {
		return nil, fmt.Errorf("the connect time-out %s is negative", o.ConnectTimeout)
	}
	keys, err := upstream.NewKeys(o.Keys, o.Now)
	if err != nil {
		return nil, err
	}
	c := &Client{Base: base, Keys: keys, now: o.Now, keyHeader: d.KeyHeader}
	if c.now == nil {
		c.now = time.Now
	}
	if c.keyHeader == nil {
		c.keyHeader = bearer
	}
	c.linkClient = newLinkClient(o)
	if o.Transport == nil {
		c.OwnTransport = newTransport(o)
		o.Transport = c.OwnTransport
	}
	c.client = &http.Client{Transport: o.Transport, CheckRedirect: noRedirects}
	return c, nil
}

func bearer(key string) (name, value string) { return "Authorization", "Bearer " + key }

func parseBase(text, otherwise string) (*url.URL, error) {
	if text == "" {
		text = otherwise
	}
	base, err := url.Parse(text)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https":
		return nil, fmt.Errorf("the base URL must be an absolute http or https address such as %s", otherwise)
	case base.User != nil:
		return nil, fmt.Errorf("the base URL must not hold credentials; give the key as a key")
	case base.RawQuery != "" || base.ForceQuery || strings.Contains(text, "#"):
		return nil, fmt.Errorf("the base URL %s must have neither query nor fragment", base.Redacted())
	}
	if base.Path == "" {
		base.Path = "/" // without which JoinPath gives a relative path
	}
	return base, nil
}

// Close closes idle connections of the client's own transport. Calls under way
// go on, and later calls open connections anew, which do not outlast them: a
// reload may have a call that is late for a client which nobody uses any more.
func (c *Client) Close() error {
	if c.OwnTransport != nil {
		c.closed.Store(true)
		c.OwnTransport.CloseIdleConnections()
	}
	return nil
}

// URLs are the addresses of operations, whose paths are added to the base.
func (c *Client) URLs(paths map[upstream.Op]string) map[upstream.Op]*url.URL {
	all := make(map[upstream.Op]*url.URL, len(paths))
	for op, path := range paths {
		all[op] = c.Base.JoinPath(path)
	}
	return all
}

// Unsupported is the error of a call for an operation that the driver does not
// support.
func Unsupported() error {
	return fault.New(fault.InternalError, "The gateway sent the request to a channel that cannot serve it.")
}

// Post sends a body once: whatever fails is for the Router to repeat. header is
// all that travels, but for the key, for which the outcome is then to be reported
// ([ReportKey]); it is nil if there is none. The response's body is to be read
// through [Decompress].
func (c *Client) Post(ctx context.Context, to *url.URL, header http.Header, body upstream.Body) (*http.Response, *upstream.Key, error) {
	open, size, err := body.Open()
	if err != nil {
		return nil, nil, fault.Wrap(fault.InternalError, "The gateway cannot read the request any more.", err)
	}
	key := c.key(header)
	resp, err := c.do(ctx, http.MethodPost, to, header, open, size)
	return resp, key, err
}

// Get is [Client.Post] for a GET, which has no body. It may go out twice, over a
// connection that the vendor was about to close.
func (c *Client) Get(ctx context.Context, to *url.URL, header http.Header) (*http.Response, *upstream.Key, error) {
	key := c.key(header)
	resp, err := c.do(ctx, http.MethodGet, to, header, nil, 0)
	return resp, key, err
}

// key puts the next key into the header; nil if there is none.
func (c *Client) key(header http.Header) *upstream.Key {
	key := c.Keys.Next()
	if key != nil {
		name, value := c.keyHeader(key.Value().Reveal())
		header[name] = []string{value}
	}
	return key
}

// ItemURL is the address of an item below an address. An id that would
// lead elsewhere is refused, and nothing is sent.
func ItemURL(below *url.URL, id string) (*url.URL, error) {
	if strings.Trim(id, ".") == "" {
		return nil, fault.Wrap(fault.InternalError, "The gateway does not know the upstream's id of the task.", fmt.Errorf("the id %q", id))
	}
	return below.JoinPath(url.PathEscape(id)), nil
}

// UserAgent is what vendors know the gateway by.
const UserAgent = "tollhouse"

// do makes a request from scratch. It has no GetBody, without which
// http.Transport sends nothing twice.
func (c *Client) do(ctx context.Context, method string, to *url.URL, header http.Header, body io.ReadCloser, size int64) (*http.Response, error) {
	var s sendTracker
	if trail := via.FromContext(ctx); trail != nil {
		header[via.Header] = trail.Values()
	}
	for name, values := range upstream.Wire(ctx) {
		if _, set := header[name]; !set {
			header[name] = values
		}
	}
	req := &http.Request{
		Method: method, URL: to, Host: to.Host, Header: header, Body: body, ContentLength: size,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	req.Close = c.closed.Load()
	resp, err := c.client.Do(req.WithContext(s.watch(ctx, c.OwnTransport != nil)))
	if c.closed.Load() {
		c.OwnTransport.CloseIdleConnections() // which the transport keeps again since this call
	}
	if err != nil {
		return nil, c.transportError(ctx, s.sent(ctx, err), err)
	}
	return resp, nil
}

// ReportKey reports the outcome of a call to the key that it was made with, and
// notes in err whether another key can serve.
func ReportKey(key *upstream.Key, err error) {
	f := failure(err)
	switch {
	case key == nil, f != nil && f.Misrouted():
	case f == nil, f.Oversized, f.Status >= 400 && f.Status < 500 && f.Status != 429 && !f.Fatal:
		key.Worked()
	case f.Fatal:
		f.OtherKey = key.Refused()
	case f.Status == http.StatusTooManyRequests:
		f.OtherKey = key.Limited(fault.From(err).RetryAfter)
	}
}
