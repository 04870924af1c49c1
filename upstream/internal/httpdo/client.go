// Package httpdo makes one call to a vendor over HTTP, once, and tells what its
// failure means. Every driver with a vendor stands on it.
package httpdo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Options say where a vendor is and how it is reached. Those of a driver are the
// same fields in the same order, so that they convert to these.
type Options struct {
	BaseURL        string          // absolute http or https address
	Keys           []secret.String // in turn (see upstream.Keys); with none, calls carry no key
	ConnectTimeout time.Duration   // bounds the connection, and the TLS handshake once more; 5 s if zero
	Dial           func(ctx context.Context, network, address string) (net.Conn, error)
	Transport      http.RoundTripper // replaces the client's own; the caller closes it
	Now            func() time.Time  // dates rests of keys and Retry-After; time.Now if nil
}

// Site is what a driver knows of its vendor without being told.
type Site struct {
	BaseURL   string                                // where it is if the options do not say
	KeyHeader func(key string) (name, value string) // the header of a key; nil means a bearer token
}

// Client calls one vendor. It is safe for concurrent use.
type Client struct {
	Base *url.URL
	Keys *upstream.Keys
	Own  *http.Transport // nil if the Transport is somebody else's

	closed    atomic.Bool
	client    *http.Client // follows no redirect: one call is one request
	links     *http.Client
	now       func() time.Time
	keyHeader func(key string) (name, value string)
}

// New returns a client. The error says which option is wrong and never holds a
// key. Close the Client when done.
func New(o Options, site Site) (*Client, error) {
	base, err := parseBase(o.BaseURL, site.BaseURL)
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
	c := &Client{Base: base, Keys: keys, now: o.Now, keyHeader: site.KeyHeader}
	if c.now == nil {
		c.now = time.Now
	}
	if c.keyHeader == nil {
		c.keyHeader = bearer
	}
	c.links = newLinks(o)
	if o.Transport == nil {
		c.Own = newTransport(o)
		o.Transport = c.Own
	}
	c.client = &http.Client{Transport: o.Transport, CheckRedirect: stay}
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
	if c.Own != nil {
		c.closed.Store(true)
		c.Own.CloseIdleConnections()
	}
	return nil
}
