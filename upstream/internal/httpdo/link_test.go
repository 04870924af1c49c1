package httpdo

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

// fetch asks a vendor for an answer, and then for what that has a link to.
func fetch(ctx context.Context, t *testing.T, o upstream.DriverOptions, link string) (file string, err error) {
	t.Helper()
	c := newClient(t, o, Vendor{})
	ctx = TrackOrigin(ctx)
	answer, _, err := c.Get(ctx, new(upstream.Call), c.Base.JoinPath("answer"), http.Header{})
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	resp, err := c.FetchLink(ctx, link)
	if err != nil {
		return "", err
	}
	return string(readRefusal(resp.Body)), nil
}

// store is a vendor that has a file beside its answers, and counts who fetched it.
func store(fetched *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/answer") {
			fetched.Add(1)
			_, _ = io.WriteString(w, "file")
		}
	}
}

// serve starts a store at an address, and returns its port.
func serve(t *testing.T, address string) (fetched *atomic.Int64, port string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("this machine has no address ", address)
	}
	fetched = new(atomic.Int64)
	server := &http.Server{Handler: store(fetched)}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return fetched, port
}

func TestALinkThatLeadsInsideIsNotFetched(t *testing.T) {
	inside, port := serve(t, "127.0.0.2:0")
	local, at := serve(t, "127.0.0.1:0")
	_, vendor := serve(t, "127.0.0.1:0")
	const notPublic = "not public" // a name is judged by the address that it is dialled to
	for link, want := range map[string]string{
		"http://127.0.0.2:" + port + "/x.wav": "", "http://localhost:" + at + "/x.wav": "", "https://localhost:" + at + "/x.wav": "", "http://[::ffff:127.0.0.2]:" + port + "/x.wav": "",
		"http://[::1]/x.wav": notPublic, "http://0.0.0.0:" + port + "/": "", "http://169.254.169.254/latest/meta-data": notPublic, "http://10.0.0.1/": notPublic,
		"http://[fd00:ec2::254]/": notPublic, "http://[64:ff9b::7f00:1]/": notPublic,
		"http://localhost/x.wav": notPublic, "https://localhost/x.wav": notPublic, "http://localhost:80/x.wav": notPublic,
		"http://name:word@127.0.0.1:" + at + "/x.wav": "", "ftp://127.0.0.2:" + port + "/x.wav": "", "file:///etc/passwd": "", "gopher://127.0.0.2:" + port: "", "//127.0.0.2:" + port: "",
		"x.wav": "", "http://": "", "http:127.0.0.1": "",
	} {
		_, err := fetch(t.Context(), t, upstream.DriverOptions{BaseURL: "http://127.0.0.1:" + vendor}, link)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", link, err)
		}
	}
	if inside.Load() != 0 || local.Load() != 0 {
		t.Errorf("inside %d requests came, and %d at another name of the vendor's host", inside.Load(), local.Load())
	}
}

// An on-premise vendor may have its files beside it.
func TestAVendorInsideMayLinkToItsOwnHost(t *testing.T) {
	_, vendor := serve(t, "127.0.0.1:0")
	fetched, port := serve(t, "127.0.0.1:0")
	file, err := fetch(t.Context(), t, upstream.DriverOptions{BaseURL: "http://127.0.0.1:" + vendor}, "http://127.0.0.1:"+port+"/x.wav")
	if file != "file" || fetched.Load() != 1 || err != nil {
		t.Errorf("got %q, error %v", file, err)
	}
}

func TestALinkGetsNothingOfTheGateways(t *testing.T) {
	var got http.Header
	vendor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer vendor.Close()
	ctx := upstream.WithWire(t.Context(), http.Header{"Proxy-Authorization": {"Basic eDp5"}, "Traceparent": {"00-1-2-3"}})
	_, err := fetch(ctx, t, upstream.DriverOptions{BaseURL: vendor.URL, Headers: map[string]string{"X-Title": "shop"}}, vendor.URL+"/x.wav")
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"Connection", "User-Agent"}) || err != nil {
		t.Errorf("the link got %v, error %v", got, err)
	}
}

// placed is a connection that says that it leads to some address.
type placed struct {
	net.Conn
	at netip.Addr
}

func (p placed) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.at, 80)) }

// names are a network in which each dial of a host leads to the next of its addresses, the
// last for good, and one server answers for all.
func names(server string, turns map[string][]string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(address)
		turn := turns[host]
		if len(turn) == 0 {
			return nil, errors.New("no such host")
		}
		if len(turn) > 1 {
			turns[host] = turn[1:]
		}
		c, err := new(net.Dialer).DialContext(ctx, network, server)
		return placed{c, netip.MustParseAddr(turn[0])}, err
	}
}

func TestWhereALinkMayLeadIsDecidedByTheAddressThatItIsDialledTo(t *testing.T) {
	const public, other = "93.184.215.14", "1.1.1.1"
	for name, row := range map[string]struct {
		link          string
		vendor, files []string // their addresses, dial by dial
		fetched       bool
	}{
		"a public store":                    {"http://files.example/x", []string{public}, []string{other}, true},
		"a public store's other port":       {"http://files.example:8080/x", []string{public}, []string{other}, false},
		"a public store's port for TLS":     {"http://files.example:443/x", []string{public}, []string{other}, false},
		"a public store's port for http":    {"http://files.example:80/x", []string{public}, []string{other}, true},
		"a store inside":                    {"http://files.example/x", []string{public}, []string{"10.0.0.1"}, false},
		"a store that turned private":       {"http://files.example/x", []string{public}, []string{"169.254.169.254", other}, false},
		"the vendor's host, public":         {"http://vendor.example/x", []string{public}, nil, true},
		"the vendor's host, turned private": {"http://vendor.example/x", []string{public, "10.0.0.1"}, nil, false},
		"the vendor's host, inside":         {"http://VENDOR.example:9000/x", []string{"10.0.0.9"}, nil, true},
		"its neighbour under its name":      {"http://vendor.example/x", []string{"10.0.0.9", "10.0.0.1"}, nil, false},
		"its address under another name":    {"http://files.example/x", []string{"10.0.0.9"}, []string{"10.0.0.9"}, false},
		"a public store of one inside":      {"http://files.example/x", []string{"10.0.0.9"}, []string{public}, true},
	} {
		fetched, port := serve(t, "127.0.0.1:0")
		dial := names("127.0.0.1:"+port, map[string][]string{"vendor.example": row.vendor, "VENDOR.example": row.vendor, "files.example": row.files})
		_, err := fetch(t.Context(), t, upstream.DriverOptions{BaseURL: "http://vendor.example/api/v1", Dial: dial}, row.link)
		if (fetched.Load() == 1) != row.fetched || (err == nil) != row.fetched {
			t.Errorf("%s: fetched %d times, %v", name, fetched.Load(), err)
		}
	}
}

// The address that an answer came from is then the proxy's, which is inside.
func TestBehindAProxyALinkMayNotLeadInside(t *testing.T) {
	for _, row := range []struct {
		proxy   string
		fetched int64
	}{{"", 1}, {"http://proxy.example:3128", 0}} {
		fetched, port := serve(t, "127.0.0.1:0")
		all := func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
		}
		c := newClient(t, upstream.DriverOptions{Dial: all}, Vendor{})
		c.OwnTransport.Proxy = func(*http.Request) (*url.URL, error) {
			if row.proxy == "" {
				return nil, nil
			}
			return url.Parse(row.proxy)
		}
		ctx := TrackOrigin(t.Context())
		answer, _, err := c.Get(ctx, new(upstream.Call), c.Base.JoinPath("answer"), http.Header{})
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		file, err := c.FetchLink(ctx, "http://vendor.example/file")
		if err == nil {
			_ = file.Body.Close()
		} else if !strings.Contains(err.Error(), "not public") {
			t.Errorf("proxy %q: %v", row.proxy, err)
		}
		if fetched.Load() != row.fetched {
			t.Errorf("proxy %q: fetched %d times, %v", row.proxy, fetched.Load(), err)
		}
	}
}

// A transport of somebody else's checks names by itself.
func TestAForeignTransportGetsNoAddressInside(t *testing.T) {
	o := upstream.DriverOptions{BaseURL: "http://vendor.example", Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if r.URL.Hostname() == "10.0.0.1" {
			t.Error("an address inside was asked")
		}
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("file"))}, nil
	})}
	if _, err := fetch(t.Context(), t, o, "http://10.0.0.1/x.wav"); err == nil {
		t.Error("the file was fetched")
	}
	if file, err := fetch(t.Context(), t, o, "http://files.example/x.wav"); file != "file" || err != nil {
		t.Errorf("got %q, error %v", file, err)
	}
}
