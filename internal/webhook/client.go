package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tollhouse-ai/gateway/internal/netguard"
	"github.com/tollhouse-ai/gateway/webhook"
)

const (
	timeout   = 10 * time.Second // of one attempt, DNS included
	maxBody   = 64 << 10         // bytes of an answer's body, which is then dropped
	maxHeader = 64 << 10         // bytes of an answer's headers
	userAgent = "tollhouse"
)

// Options are a Client's. Zero values are the real world, strictly.
type Options struct {
	// AllowPrivate allows http, every port, user names and every address.
	AllowPrivate bool
	RootCAs      *x509.CertPool // the system's if nil
	// Dial replaces the dialler of tests, and with it the check of the address that is
	// connected to.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Now  func() time.Time // time.Now if nil; certificates are checked by it
}

// Client posts events. It is safe for concurrent use and needs no closing: each attempt opens
// a connection, so that each address is checked.
type Client struct {
	private bool
	http    *http.Client
}

// NewClient returns a client.
func NewClient(o Options) *Client {
	dial := o.Dial
	if dial == nil {
		dial = newDialer(o.AllowPrivate).DialContext
	}
	return &Client{private: o.AllowPrivate, http: &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy would resolve the name again
			DialContext:            dial,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs, Time: o.Now},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func newDialer(allowPrivate bool) *net.Dialer {
	d := &net.Dialer{}
	if !allowPrivate {
		d.ControlContext = netguard.Guard
	}
	return d
}

// Post makes one attempt, which takes at most ten seconds. Each of the secrets
// signs it, with the time at.
func (c *Client) Post(ctx context.Context, d webhook.Delivery, at time.Time, secrets []webhook.Secret) Result {
	u, err := parseURL(d.URL, c.private)
	if err != nil {
		return Result{Outcome: Refused, Reason: err.Error()}
	}
	header := Sign(d.ID, at, d.Body, secrets...)
	if header.Get(headerSignature) == "" {
		return Result{Outcome: Retry, Reason: "the account has no secret to sign with"}
	}
	header["Content-Type"], header["User-Agent"] = []string{"application/json"}, []string{userAgent}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "", bytes.NewReader(d.Body))
	if err != nil {
		return resultOfError(err)
	}
	request.URL, request.Host, request.Header = u, u.Host, header
	answer, err := c.http.Do(request)
	if err != nil {
		return resultOfError(err)
	}
	defer func() { _ = answer.Body.Close() }() // nothing of it is used
	// A receiver that is cut off while it writes may count the event as lost.
	_, _ = io.CopyN(io.Discard, answer.Body, maxBody)
	return resultOfStatus(answer.StatusCode)
}

// The headers of Standard Webhooks, as net/http spells them.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Sign returns the three headers of Standard Webhooks. They are the id of the delivery, the
// time of this attempt in Unix seconds, and a signature by each secret, in their order. Two
// secrets sign while one replaces the other.
func Sign(id string, at time.Time, body []byte, secrets ...webhook.Secret) http.Header {
	stamp := strconv.FormatInt(at.Unix(), 10)
	var signatures []string
	for _, s := range secrets {
		key := s.Key()
		if len(key) == 0 {
			continue
		}
		h := hmac.New(sha256.New, key)
		h.Write([]byte(id + "." + stamp + "."))
		h.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	}
	return http.Header{headerID: {id}, headerTimestamp: {stamp}, headerSignature: {strings.Join(signatures, " ")}}
}

// Outcome is the kind of result of one attempt.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered" // a 2xx answer
	Gone      Outcome = "gone"      // a 410 answer: the receiver wants no more attempts
	Retry     Outcome = "retry"     // any other failure
	// Refused means that the address is not allowed. It is retried like any failure: the name
	// may resolve to another address later.
	Refused Outcome = "refused"
)

// Result is the result of one attempt.
type Result struct {
	Outcome Outcome
	Status  int // of the answer; 0 if none came
	// Reason says for an operator why the event was not delivered. It is made of
	// our own words: no byte of the body, a secret, the address or the answer
	// is in it.
	Reason string
}

// resultOfStatus is the result of an answer's status.
func resultOfStatus(status int) Result {
	said := "the receiver answered with " + strconv.Itoa(status)
	switch {
	case status >= 200 && status <= 299:
		return Result{Outcome: Delivered, Status: status}
	case status == http.StatusGone:
		return Result{Gone, status, said + ": it wants no more tries"}
	case status >= 300 && status <= 399:
		return Result{Retry, status, said + ": redirects are not followed"}
	}
	return Result{Retry, status, said}
}

// resultOfError returns the result of a request that failed. An error's text may hold bytes of
// the answer or the address, so the reason names only the error's kind.
func resultOfError(err error) Result {
	var closed *netguard.Inside
	if errors.As(err, &closed) {
		return Result{Outcome: Refused, Reason: closed.Error()}
	}
	return Result{Outcome: Retry, Reason: reason(err)}
}

func reason(err error) string {
	var (
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		alert       tls.AlertError
		record      tls.RecordHeaderError
		op          *net.OpError
		timeout     net.Error
	)
	switch {
	case errors.Is(err, context.Canceled):
		return "the gateway stopped before an answer came"
	case errors.As(err, &name) && name.IsNotFound:
		return "the host's name is not known"
	case errors.As(err, &name):
		return "the host's name could not be looked up"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer came in time"
	case errors.As(err, &certificate):
		return "the host's certificate is not valid for it, or nobody known signed it"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the host does not speak TLS"
	case errors.As(err, &alert):
		return "the host broke off the TLS handshake"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the host refused the connection"
	case errors.As(err, &op) && op.Op == "dial":
		return "the host could not be reached"
	}
	return "the host broke off the connection, or its answer was not HTTP"
}

const (
	maxURL        = 8192 // bytes; signed addresses are long
	maxHostLength = 253  // characters of a name in the DNS
	https         = "443"
)

// CheckURL says what is wrong with an address for webhooks, without looking its host up.
// The address must be https on port 443, without a user name. It must not name what only
// this machine or network can reach. With private, it can be http too, with any port,
// host and user name. The error never holds the address.
func CheckURL(text string, private bool) error {
	_, err := parseURL(text, private)
	return err
}

func parseURL(text string, private bool) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, errors.New("the address is longer than " + strconv.Itoa(maxURL) + " bytes")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || u.Host == "":
		return nil, errors.New("the address must be of the form https://host/path")
	case u.Scheme != "https" && !(private && u.Scheme == "http"):
		return nil, errors.New("the address must begin with https://")
	case u.User != nil && !private:
		return nil, errors.New("the address must not have a user name or a password")
	case u.Port() != "" && u.Port() != https && !private:
		return nil, errors.New("the address must be on port 443")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, errors.New("the address's port must be a number up to 65535")
		}
	}
	return u, checkHost(u, private)
}

// checkHost takes names of the DNS in ASCII and addresses in their one plain
// form: what resolvers and libraries read differently is refused.
func checkHost(u *url.URL, private bool) error {
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		if private {
			return nil
		}
		return netguard.Check(ip)
	}
	switch {
	case strings.HasPrefix(u.Host, "["):
		return errors.New("the address has an invalid IPv6 address as its host")
	case !isName(host):
		return errors.New("the address's host must be a name of letters a to z, digits, hyphens and dots, without a dot at its end; write others in their xn-- form")
	case endsInNumber(host):
		return errors.New("the address's host must be a name, or an IPv4 address of four decimal numbers")
	case !private && isLocal(host):
		return errors.New("the address's host must be public")
	}
	return nil
}

// isName reports whether host is a name as the DNS has them.
func isName(host string) bool {
	if len(host) > maxHostLength {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return true
}

// endsInNumber reports whether some resolvers would read host as an IPv4 address:
// 2130706433, 0x7f.1, 017700000001.
func endsInNumber(host string) bool {
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// isLocal reports whether a name stands for this machine or network everywhere. Such names
// have no dot, or RFC 6761, RFC 6762 or ICANN set them aside.
func isLocal(host string) bool {
	dot := strings.LastIndexByte(host, '.')
	last := strings.ToLower(host[dot+1:])
	return dot < 0 || last == "localhost" || last == "local" || last == "internal"
}
