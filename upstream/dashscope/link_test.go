package dashscope

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// linking are the ways in which a vendor's answer has a link.
var linking = map[string]func(link string) (kind, body string){
	"in events": func(link string) (string, string) { return "text/event-stream", event(1, nil, `"stop"`, link) },
	"in a document": func(link string) (string, string) {
		return "application/json", strings.Split(strings.Split(event(1, nil, `"stop"`, link), "data:")[1], "\n")[0]
	},
}

// links is a vendor whose every answer has a link, which get serves.
func links(how func(string) (string, string), link func(host string) string, get http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			get(w, r)
			return
		}
		kind, body := how(link(r.Host))
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}
}

// listen starts a server at another address than that of the vendors of these
// tests, and returns what it heard and its port.
func listen(t *testing.T, address string) (heard *atomic.Int64, port string) {
	t.Helper()
	heard = new(atomic.Int64)
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("this machine has no address ", address)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		heard.Add(1)
		_, _ = w.Write(file("abcd"))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return heard, port
}

func TestALinkThatLeadsInsideIsNotFetched(t *testing.T) {
	inside, port := listen(t, "127.0.0.2:0")
	local, at := listen(t, "127.0.0.1:0")
	for _, link := range []string{
		"http://127.0.0.2:" + port + "/x.wav", "http://localhost:" + at + "/x.wav", "https://localhost:" + at + "/x.wav", "http://[::ffff:127.0.0.2]:" + port + "/x.wav",
		"http://[::1]/x.wav", "http://0.0.0.0:" + port + "/", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "http://[fd00:ec2::254]/", "http://[64:ff9b::7f00:1]/",
		"http://name:word@127.0.0.1:" + at + "/x.wav", "ftp://127.0.0.2:" + port + "/x.wav", "file:///etc/passwd", "gopher://127.0.0.2:" + port, "//127.0.0.2:" + port, "x.wav", "http://", "http:127.0.0.1",
	} {
		for how, answer := range linking {
			up := newDriver(t, links(answer, func(string) string { return link }, func(http.ResponseWriter, *http.Request) { t.Error("the vendor was asked again") }))
			_, err := up.Do(t.Context(), asking(t, true))
			if e := fault.From(err); e == nil || e.Code != fault.BadGateway || vendortest.Failure(t, err).Status != 200 {
				t.Errorf("%s %s: %v", link, how, err)
			}
		}
	}
	if inside.Load() != 0 || local.Load() != 0 {
		t.Errorf("inside %d requests were heard, and %d at another name of the vendor's host", inside.Load(), local.Load())
	}
}

// A name is judged by the address that it is dialled to.
func TestALinkByANameThatLeadsInsideIsNotDialled(t *testing.T) {
	for _, link := range []string{"http://localhost/x.wav", "https://localhost/x.wav", "http://localhost:80/x.wav"} {
		up := newDriver(t, links(linking["in events"], func(string) string { return link }, nil))
		_, err := up.Do(t.Context(), asking(t, true))
		if e := fault.From(err); e == nil || e.Code != fault.BadGateway || !strings.Contains(vendortest.Failure(t, err).Error(), "not public") {
			t.Errorf("%s: %v", link, err)
		}
	}
}

// An on-premise vendor may have its files beside it.
func TestAVendorInsideMayLinkToItsOwnHost(t *testing.T) {
	heard, port := listen(t, "127.0.0.1:0")
	up := newDriver(t, links(linking["in events"], func(string) string { return "http://127.0.0.1:" + port + "/x.wav" }, nil))
	if _, audio := vendortest.Answer(t, up, asking(t, true)); audio != string(file("abcd")) || heard.Load() != 1 {
		t.Errorf("audio %q", audio)
	}
}

func TestALinkGetsNothingOfTheGateways(t *testing.T) {
	for how, answer := range linking {
		var got http.Header
		up := newDriver(t, links(answer, func(host string) string { return "http://" + host + "/x.wav" }, func(w http.ResponseWriter, r *http.Request) {
			got = r.Header
			_, _ = w.Write(file("abcd"))
		}))
		ctx := upstream.WithWire(t.Context(), http.Header{"Proxy-Authorization": {"Basic eDp5"}, "Traceparent": {"00-1-2-3"}})
		reply, err := up.Do(ctx, asking(t, true))
		if err != nil {
			t.Fatal(err)
		}
		audio, err := io.ReadAll(reply.Body)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"Connection", "User-Agent"}) || reply.Body.Close() != nil || err != nil || string(audio) != string(file("abcd")) {
			t.Errorf("%s: the link got %v; audio %q, %v", how, got, audio, err)
		}
	}
}

func TestALinkThatRedirectsIsNotFollowed(t *testing.T) {
	up := newDriver(t, links(linking["in events"], func(host string) string { return "http://" + host + "/x.wav" }, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/x.wav" {
			t.Error("the redirect was followed")
		}
		http.Redirect(w, r, "/y.wav", http.StatusFound)
	}))
	if _, err := up.Do(t.Context(), asking(t, true)); !fault.Is(err, fault.BadGateway) {
		t.Errorf("error %v", err)
	}
}

// placed is a connection that says that it leads to some address.
type placed struct {
	net.Conn
	at netip.Addr
}

func (p placed) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.at, 80)) }

// names are a network in which each dial of a host leads to the next of its
// addresses, the last for good, and a vendor on the loopback answers for all.
func names(t *testing.T, vendor http.Handler, turns map[string][]string) func(context.Context, string, string) (net.Conn, error) {
	_, real, _ := strings.Cut(vendortest.Serve(t, vendor), "//")
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(address)
		turn := turns[host]
		if len(turn) == 0 {
			return nil, errors.New("no such host")
		}
		if len(turn) > 1 {
			turns[host] = turn[1:]
		}
		c, err := new(net.Dialer).DialContext(ctx, network, real)
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
		fetched := false
		vendor := links(linking["in events"], func(string) string { return row.link }, func(w http.ResponseWriter, _ *http.Request) {
			fetched = true
			_, _ = w.Write(file("abcd"))
		})
		dial := names(t, vendor, map[string][]string{"vendor.example": row.vendor, "VENDOR.example": row.vendor, "files.example": row.files})
		up := vendortest.New(t, New, upstream.DriverOptions{BaseURL: "http://vendor.example/api/v1", Dial: dial, Keys: vendortest.Keys("sk-vendor-1")})
		reply, err := up.Do(t.Context(), asking(t, true))
		if err == nil {
			_ = reply.Body.Close()
		}
		if fetched != row.fetched || (err == nil) != row.fetched {
			t.Errorf("%s: fetched %v, %v", name, fetched, err)
		}
	}
}

// A transport of somebody else's checks names by itself.
func TestAForeignTransportGetsNoAddressInside(t *testing.T) {
	link := "http://10.0.0.1/x.wav"
	base := vendortest.Serve(t, links(linking["in events"], func(string) string { return link }, nil))
	up := vendortest.New(t, New, upstream.DriverOptions{BaseURL: base, Transport: lax{t}})
	if _, err := up.Do(t.Context(), asking(t, true)); !fault.Is(err, fault.BadGateway) {
		t.Errorf("error %v", err)
	}
	link = "http://files.example/x.wav"
	if _, audio := vendortest.Answer(t, up, asking(t, true)); audio != string(file("abcd")) {
		t.Errorf("audio %q", audio)
	}
}

// lax is a transport that has every file.
type lax struct{ t *testing.T }

func (l lax) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.URL.Hostname() {
	case "10.0.0.1":
		l.t.Error("an address inside was asked")
	case "files.example":
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(string(file("abcd"))))}, nil
	}
	return http.DefaultTransport.RoundTrip(r)
}
