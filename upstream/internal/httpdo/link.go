package httpdo

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/tollhouse-ai/gateway/internal/netguard"
	"github.com/tollhouse-ai/gateway/upstream"
)

// origin is where an answer came from; nil if that is not known.
type origin = atomic.Pointer[netip.Addr]

type (
	originContext struct{}
	vendorContext struct{} // with the one address that a link may lead to though it is not public
)

// TrackOrigin returns a context for a call whose answer may contain a link. Fetch the link
// with the same context ([Client.FetchLink]).
func TrackOrigin(ctx context.Context) context.Context {
	o := new(origin)
	return httptrace.WithClientTrace(context.WithValue(ctx, originContext{}, o), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { at := remote(info.Conn); o.Store(&at) },
	})
}

// remote returns the address of a connection's other end; the zero address if it has none, as
// a pipe.
func remote(c net.Conn) netip.Addr {
	end := c.RemoteAddr()
	if end == nil {
		return netip.Addr{}
	}
	at, _ := netip.ParseAddrPort(end.String())
	return at.Addr().Unmap()
}

// FetchLink fetches what a vendor's answer links to. It sends nothing of the gateway's,
// above all no key, and follows no redirect. A link must lead to a public address
// (docs/reference/faults.md, row 33) at a port of the web, or to where the vendor's
// answer came from. The address is checked when it is dialled, whatever its host's name
// resolved to earlier. It can be http, as in some vendors' stores.
func (c *Client) FetchLink(ctx context.Context, link string) (*http.Response, error) {
	from, err := url.Parse(link)
	if err != nil || from.Host == "" || from.User != nil || from.Scheme != "http" && from.Scheme != "https" {
		return nil, errors.New("the link is no web address")
	}
	home := strings.EqualFold(from.Hostname(), c.Base.Hostname())
	if port := from.Port(); !home && port != "" && port != webPorts[from.Scheme] {
		return nil, errors.New("the link leads to a port that is not the web's")
	}
	if o, ok := ctx.Value(originContext{}).(*origin); ok && home && !c.usesProxy() {
		ctx = context.WithValue(ctx, vendorContext{}, o.Load())
	}
	if ip, err := netip.ParseAddr(from.Hostname()); err == nil {
		if err := checkAddress(ctx, ip); err != nil {
			return nil, err
		}
	}
	resp, err := roundTrip(ctx, c.links, &http.Request{Method: http.MethodGet, URL: from, Header: http.Header{"User-Agent": {userAgent}}}, false)
	return resp, withoutURL(err) // the URL may grant access
}

// webPorts are those of the web.
var webPorts = map[string]string{"http": "80", "https": "443"}

// usesProxy reports whether calls go by a proxy, so that where an answer came from
// says nothing of the vendor.
func (c *Client) usesProxy() bool {
	by := http.ProxyFromEnvironment
	if c.OwnTransport != nil {
		by = c.OwnTransport.Proxy
	}
	return goesByProxy(by, c.Base)
}

// goesByProxy reports whether requests to an address go by a proxy, or fail to find theirs.
func goesByProxy(proxyOf func(*http.Request) (*url.URL, error), to *url.URL) bool {
	proxy, err := proxyOf(&http.Request{URL: to})
	return proxy != nil || err != nil
}

// checkAddress fails unless a link may lead to an address.
func checkAddress(ctx context.Context, ip netip.Addr) error {
	if home, _ := ctx.Value(vendorContext{}).(*netip.Addr); home != nil && home.IsValid() && *home == ip.Unmap() {
		return nil
	}
	return netguard.Check(ip)
}

// checkDial checks each address of a link's host before it is connected to.
func checkDial(ctx context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return checkAddress(ctx, at.Addr())
}

// newLinkTransport makes the transport that fetches links. It uses no proxy, which would
// resolve names itself. Each fetch has its own connection, so that each address is checked.
// With a dialler of the caller's, the address is checked after dialling. A transport of the
// caller's must check names itself.
func newLinkTransport(o upstream.DriverOptions) http.RoundTripper {
	if o.Transport != nil {
		return o.Transport
	}
	dial := o.Dial
	o.Dial = (&net.Dialer{KeepAliveConfig: keepAlive(), ControlContext: checkDial}).DialContext
	if dial != nil {
		o.Dial = checkedDial(dial)
	}
	own := newTransport(o)
	own.Proxy, own.DisableKeepAlives = nil, true
	own.ForceAttemptHTTP2, own.HTTP2 = false, nil
	return own
}

// checkedDial dials, and closes at once a connection to an address that no link may
// lead to.
func checkedDial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		at := remote(c)
		if !at.IsValid() {
			return c, nil // it is no network
		}
		if err := checkAddress(ctx, at); err != nil {
			_ = c.Close()
			return nil, err
		}
		return c, nil
	}
}
