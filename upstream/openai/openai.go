// Package openai is the driver for every vendor that speaks OpenAI's wire.
package openai

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// DefaultBaseURL is where calls go if [Options.BaseURL] is empty.
const DefaultBaseURL = "https://api.openai.com/v1"

// Options say where the vendor is. The zero value is OpenAI itself, without a
// key.
type Options struct {
	// BaseURL is the absolute http or https address to which the paths of the
	// API are added, without credentials, query or fragment.
	BaseURL string
	// Keys are sent as bearer tokens, in turn (see upstream.Keys). With none,
	// calls carry no Authorization header.
	Keys []secret.String
	// ConnectTimeout bounds the connection, and the TLS handshake once more;
	// 5 s if zero. Every other time-out is the Router's.
	ConnectTimeout time.Duration
	// Dial makes connections; a net.Dialer if nil. Transport makes it unused.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Transport replaces the driver's own, which refuses to decompress, to
	// follow redirects and to send a request twice. The caller closes it.
	Transport http.RoundTripper
	// Now dates rests of keys and Retry-After; time.Now if nil.
	Now func() time.Time
}

// Upstream is one vendor. It is safe for concurrent use.
type Upstream struct {
	paths  map[upstream.Op]*url.URL
	keys   *upstream.Keys
	client *retryablehttp.Client
	own    *http.Transport // nil if the Transport is somebody else's
	now    func() time.Time
}

// paths are what is added to the base address.
var paths = map[upstream.Op]string{
	upstream.ChatCompletion: "/chat/completions",
}

// New returns the driver. The error says which option is wrong and never holds
// a key. Close the Upstream when done.
func New(o Options) (*Upstream, error) {
	base, err := parseBase(o.BaseURL)
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
	u := &Upstream{paths: make(map[upstream.Op]*url.URL), keys: keys, now: o.Now}
	if u.now == nil {
		u.now = time.Now
	}
	for op, path := range paths {
		u.paths[op] = base.JoinPath(path)
	}
	if o.Transport == nil {
		u.own = newTransport(o)
		o.Transport = u.own
	}
	u.client = newClient(o.Transport)
	return u, nil
}

func parseBase(text string) (*url.URL, error) {
	if text == "" {
		text = DefaultBaseURL
	}
	base, err := url.Parse(text)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https":
		return nil, fmt.Errorf("the base URL must be an absolute http or https address such as %s", DefaultBaseURL)
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

// Supports reports whether the driver knows the operation; the model is the
// vendor's business.
func (u *Upstream) Supports(op upstream.Op, _ string) bool { return paths[op] != "" }

// Close closes idle connections of the driver's own transport. Calls under way
// go on, and later calls open connections anew.
func (u *Upstream) Close() error {
	if u.own != nil {
		u.own.CloseIdleConnections()
	}
	return nil
}

// Do makes one call, once: whatever fails is for the Router to repeat. The
// Reply streams from the vendor until its body is closed.
func (u *Upstream) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	key := u.keys.Next()
	var s sending
	req, err := u.request(s.watch(ctx, u.own != nil), call, key)
	if err != nil {
		return nil, err
	}
	resp, err := u.client.Do(&retryablehttp.Request{Request: req})
	if err != nil {
		return nil, u.broken(ctx, s.sent(ctx, err), err)
	}
	reply, err := u.answer(call, resp)
	u.judge(key, err)
	return reply, err
}

// request is built from scratch: nothing of the client's headers travels. It
// has no GetBody, without which http.Transport sends nothing twice.
func (u *Upstream) request(ctx context.Context, call *upstream.Call, key *upstream.Key) (*http.Request, error) {
	to, known := u.paths[call.Op]
	if !known {
		return nil, fault.New(fault.InternalError, "The gateway sent the request to a channel that cannot serve it.")
	}
	body, size, err := call.Body.Open()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The gateway cannot read the request any more.", err)
	}
	header := http.Header{
		"Accept":       {"application/json"},
		"Content-Type": {contentType(call)},
		"User-Agent":   {"tollhouse"},
	}
	if call.Stream {
		header["Accept"] = []string{"text/event-stream"}
	}
	if key != nil {
		header["Authorization"] = []string{"Bearer " + key.Value().Reveal()}
	}
	req := &http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Header: header, Body: body, ContentLength: size,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	return req.WithContext(ctx), nil
}

func contentType(call *upstream.Call) string {
	if call.ContentType != "" && !call.Body.IsObject() {
		return call.ContentType
	}
	return "application/json"
}

// judge tells the key how it did.
func (u *Upstream) judge(key *upstream.Key, err error) {
	f := failure(err)
	switch {
	case key == nil:
	case f == nil, f.Status >= 400 && f.Status < 500 && f.Status != 429 && !f.Fatal:
		key.Worked()
	case f.Fatal:
		key.Refused()
	}
}
