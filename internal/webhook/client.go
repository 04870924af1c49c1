package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/internal/public"
)

const (
	timeout   = 10 * time.Second // for one try, the look-up of the name included
	mostRead  = 64 << 10         // bytes of an answer's body, which is then dropped
	mostAhead = 64 << 10         // bytes of an answer's headers
	userAgent = "tollhouse"
)

// Options are a Client's. Zero values are the real world, strictly.
type Options struct {
	// AllowPrivate allows http, every port, user names and every address.
	AllowPrivate bool
	Resolver     *net.Resolver  // net.DefaultResolver if nil
	RootCAs      *x509.CertPool // the system's if nil
	// Dial replaces the dialler and with it the check of the address that is
	// connected to: it is for tests and for those who check by themselves.
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Timeout time.Duration    // for one try; 10 s if zero
	Now     func() time.Time // time.Now if nil
}

// Client posts notices. It is safe for concurrent use and needs no closing: each
// try is a connection of its own, so that each address is checked.
type Client struct {
	private bool
	timeout time.Duration
	now     func() time.Time
	http    *http.Client
}

// NewClient returns a client.
func NewClient(o Options) *Client {
	c := &Client{private: o.AllowPrivate, timeout: cmp.Or(o.Timeout, timeout), now: o.Now}
	if c.now == nil {
		c.now = time.Now
	}
	dial := o.Dial
	if dial == nil {
		dial = o.dialer().DialContext
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy would look the name up again by itself
			DialContext:            dial,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: mostAhead,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs, Time: o.Now},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

func (o Options) dialer() *net.Dialer {
	d := &net.Dialer{Resolver: o.Resolver}
	if !o.AllowPrivate {
		d.ControlContext = public.Guard
	}
	return d
}

// Delivery is one try to deliver a notice.
type Delivery struct {
	ID      string // the same for each try
	URL     string
	Body    []byte // JSON
	At      time.Time
	Secrets []Secret // each signs
}

// Post makes one try. It takes as long as Timeout at most. At is the time that is
// signed, now if zero.
func (c *Client) Post(ctx context.Context, d Delivery) Result {
	u, err := parseURL(d.URL, c.private)
	if err != nil {
		return Result{Outcome: Refused, Reason: err.Error()}
	}
	if d.At.IsZero() {
		d.At = c.now()
	}
	header := Sign(d.ID, d.At, d.Body, d.Secrets...)
	if header.Get(headerSignature) == "" {
		return Result{Outcome: Retry, Reason: "the account has no secret to sign with"}
	}
	header["Content-Type"], header["User-Agent"] = []string{"application/json"}, []string{userAgent}

	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(d.Body))
	if err != nil {
		return unanswered(err)
	}
	request.URL, request.Host, request.Header = u, u.Host, header
	answer, err := c.http.Do(request)
	if err != nil {
		return unanswered(err)
	}
	defer func() { _ = answer.Body.Close() }() // nothing of it is used
	// A receiver that is cut off while it writes may take the notice for lost.
	_, _ = io.CopyN(io.Discard, answer.Body, mostRead)
	return answered(answer.StatusCode)
}
