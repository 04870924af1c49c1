// Package httpdo makes one call to a vendor over HTTP, once, and says what its
// failure means. Every driver of a vendor uses it.
package httpdo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/header"
)

// Vendor is what a driver knows of its vendor.
type Vendor struct {
	BaseURL string                 // where it is if the options do not say
	Paths   map[upstream.Op]string // of the operations that the driver supports, below the base
	Auth    upstream.Auth          // how it wants a key if the options do not say; zero means a bearer token
	// Refused makes the error of an error body: the caller's fault, the
	// operator's or the vendor's.
	Refused func(c *Client, status int, data []byte, h http.Header) error
}

// Client calls one vendor. It is safe for concurrent use. A driver embeds it.
type Client struct {
	Base         *url.URL
	Keys         *upstream.Keys
	OwnTransport *http.Transport // nil if the Transport is the caller's

	vendor    Vendor
	urls      map[upstream.Op]*url.URL
	auth      upstream.Auth
	extra     http.Header // goes with every call, under canonical names; its values are shared
	closed    atomic.Bool
	direct    *directTransport  // nil where all goes through OwnTransport, or the caller's
	transport http.RoundTripper // without an http.Client, since one call is one request and redirects are not followed
	gets      http.RoundTripper // the transport for GETs, which retries a failed one once
	links     http.RoundTripper // fetches what vendors' answers link to, with one retry too
	now       func() time.Time
}

// New returns a client. The error says which option is wrong and never holds a
// key. Close the Client when done.
func New(o upstream.DriverOptions, v Vendor) (*Client, error) {
	base, err := parseBase(o.BaseURL, v.BaseURL)
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
	extra, err := header.ParseExtra(o.Headers)
	if err != nil {
		return nil, err
	}
	auth, err := chooseAuth(o, v.Auth)
	if err != nil {
		return nil, err
	}
	c := &Client{
		Base: base, Keys: keys, vendor: v, urls: make(map[upstream.Op]*url.URL), auth: auth, extra: extra,
		now: o.Now, transport: o.Transport,
	}
	if c.now == nil {
		c.now = time.Now
	}
	for op, path := range v.Paths {
		c.urls[op] = base.JoinPath(path)
	}
	if o.Transport == nil {
		c.OwnTransport = newTransport(o)
		c.transport = c.OwnTransport
	}
	if o.Transport == nil && o.Dial == nil { // whose connections need not be sockets
		if c.direct = newDirectTransport(base, c.OwnTransport); c.direct != nil {
			c.transport = c.direct
		}
	}
	c.gets, c.links = c.repeating(c.transport), c.repeating(newLinkTransport(o))
	return c, nil
}

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

// Close closes idle connections of the client's own transports. Calls under way go on. Later
// calls still work, on connections that close after them. After a reload a late call can come
// to a client that is no longer in use.
func (c *Client) Close() error {
	if c.OwnTransport != nil {
		c.closed.Store(true)
		c.OwnTransport.CloseIdleConnections()
	}
	if c.direct != nil {
		c.direct.close()
	}
	return nil
}

// Vendor implements [upstream.Vendored] by the vendor's address.
func (c *Client) Vendor() string { return c.Base.Host }

// OnlyKey is the id of the one key by which all calls are made, which a Router asks for;
// false if there are several.
func (c *Client) OnlyKey() (id string, ok bool) { return c.Keys.Only() }

// Supports reports whether the driver knows the operation; the model is the
// vendor's business.
func (c *Client) Supports(op upstream.Op, _ string) bool { return c.urls[op] != nil }

// URL returns the address of an operation. It fails for an operation that the driver does not
// support.
func (c *Client) URL(op upstream.Op) (*url.URL, error) {
	if to := c.urls[op]; to != nil {
		return to, nil
	}
	return nil, fault.New(fault.InternalError, "The gateway sent the request to a channel that cannot serve it.")
}

// Header is the beginning of a request's header, which is made from scratch: nothing of
// the client's travels unless a driver adds it.
func Header(accept, contentType string) http.Header {
	v := []string{accept, contentType, userAgent} // which are one allocation
	return http.Header{"Accept": v[:1:1], "Content-Type": v[1:2:2], "User-Agent": v[2:]}
}

// Post sends a body once. A Router decides whether to repeat it. Only header travels, and the
// key for the call: report the outcome to it ([upstream.Key.Report]). Read the response's body
// with [Client.Reply], [Client.Document] or [Client.Body].
func (c *Client) Post(ctx context.Context, call *upstream.Call, to *url.URL, header http.Header, body upstream.Body) (*http.Response, *upstream.Key, error) {
	open, size, err := body.Open()
	if err != nil {
		return nil, nil, fault.Wrap(fault.InternalError, "The gateway cannot read the request any more.", err)
	}
	return c.do(ctx, call, c.transport, &http.Request{Method: http.MethodPost, URL: to, Header: header, Body: open, ContentLength: size})
}

// Get is [Client.Post] for a GET, which has no body. A GET that fails, or that the vendor puts
// off, is sent once more: after the vendor's Retry-After, if the context lasts that long.
func (c *Client) Get(ctx context.Context, call *upstream.Call, to *url.URL, header http.Header) (*http.Response, *upstream.Key, error) {
	delete(header, "Content-Type")
	return c.do(ctx, call, c.gets, &http.Request{Method: http.MethodGet, URL: to, Header: header})
}

// Delete is [Client.Post] for a DELETE, which has no body.
func (c *Client) Delete(ctx context.Context, call *upstream.Call, to *url.URL, header http.Header) (*http.Response, *upstream.Key, error) {
	delete(header, "Content-Type")
	return c.do(ctx, call, c.transport, &http.Request{Method: http.MethodDelete, URL: to, Header: header})
}

// TaskURL is the address of what the vendor has by the call's TaskID, a video's task or a
// response, below that of the call's operation. An id that would lead elsewhere is refused,
// and nothing is sent.
func (c *Client) TaskURL(call *upstream.Call) (*url.URL, error) {
	if strings.Trim(call.TaskID, ".") == "" {
		return nil, fault.Wrap(fault.InternalError, "The gateway does not know the upstream's id of the task.", fmt.Errorf("the id %q", call.TaskID))
	}
	return c.urls[call.Op].JoinPath(url.PathEscape(call.TaskID)), nil
}

// userAgent is what vendors know the gateway by.
const userAgent = "tollhouse"

// do makes a request with the call's key, if there is one. It has no GetBody, without
// which http.Transport sends nothing twice.
func (c *Client) do(ctx context.Context, call *upstream.Call, by http.RoundTripper, req *http.Request) (*http.Response, *upstream.Key, error) {
	key, err := c.Keys.Next(call)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // nothing of it is sent
		}
		return nil, nil, err
	}
	maps.Copy(req.Header, c.extra)
	if key != nil {
		c.authorize(req, key.Value().Reveal())
	}
	if trail := via.FromContext(ctx); trail != nil {
		req.Header[via.Header] = trail.Values()
	}
	for name, values := range upstream.Wire(ctx) {
		if _, set := req.Header[name]; !set {
			req.Header[name] = values
		}
	}
	var s sendTracker
	resp, err := roundTrip(s.watch(ctx, c.OwnTransport != nil), by, req, c.closed.Load())
	if c.closed.Load() {
		c.OwnTransport.CloseIdleConnections() // which the transport keeps again since this call
	}
	if err != nil {
		return nil, key, c.transportError(ctx, s.sent(ctx, err), withoutURL(err))
	}
	return resp, key, nil
}

// roundTrip makes a request made from scratch, and makes good what a transport of the
// caller's may leave out of the response.
func roundTrip(ctx context.Context, transport http.RoundTripper, req *http.Request, last bool) (*http.Response, error) {
	req.Host, req.Proto, req.ProtoMajor, req.ProtoMinor, req.Close = req.URL.Host, "HTTP/1.1", 1, 1, last
	resp, err := transport.RoundTrip(req.WithContext(ctx))
	switch {
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errors.New("the transport gave neither a response nor an error")
	case resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, nil
}
