package httpdo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/hop"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Post sends a body once: whatever fails is for the Router to repeat. header is
// all that travels, but for the key, which is then to be told how it did
// ([Judge]); nil if there is none. The response's body is to be read through
// [Decoded].
func (c *Client) Post(ctx context.Context, to *url.URL, header http.Header, body upstream.Body) (*http.Response, *upstream.Key, error) {
	open, size, err := body.Open()
	if err != nil {
		return nil, nil, fault.Wrap(fault.InternalError, "The gateway cannot read the request any more.", err)
	}
	key := c.key(header)
	resp, err := c.do(ctx, http.MethodPost, to, header, open, size)
	return resp, key, err
}

// Ask is [Client.Post] for a GET, which has no body. It may go out twice, over a
// connection that the vendor was about to close.
func (c *Client) Ask(ctx context.Context, to *url.URL, header http.Header) (*http.Response, *upstream.Key, error) {
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

// Item is the address of one of the things below an address. An id that would
// lead elsewhere is refused, and nothing is sent.
func Item(below *url.URL, id string) (*url.URL, error) {
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
	var s sending
	if trail := hop.FromContext(ctx); trail != nil {
		header[hop.Header] = trail.Values()
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
	resp, err := c.client.Do(req.WithContext(s.watch(ctx, c.Own != nil)))
	if c.closed.Load() {
		c.Own.CloseIdleConnections() // which the transport keeps again since this call
	}
	if err != nil {
		return nil, c.broken(ctx, s.sent(ctx, err), err)
	}
	return resp, nil
}

// Judge tells the key how it did, and err, which is what became of the call, if
// another key can serve.
func Judge(key *upstream.Key, err error) {
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
