package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/netguard"
	"github.com/tollhouse-ai/gateway/webhook"
)

// spellings lead to this machine or network, by one reader or another.
var spellings = []string{
	// IPv4: plain, short, decimal, octal, hexadecimal and mixed.
	"https://127.0.0.1/", "https://127.0.0.2/", "https://127.255.255.254/", "https://127.1/", "https://127.0.1/", "https://127/", "https://2130706433/", "https://017700000001/",
	"https://0177.0.0.1/", "https://0177.0.0.01/", "https://0x7f.0.0.1/", "https://0x7f000001/", "https://0X7F.1/", "https://0x7f.0x0.0x0.0x1/", "https://127.0.0.01/", "https://127.000.000.001/",
	"https://0/", "https://0.0.0.0/", "https://00000.0/", "https://4294967295/", "https://169.254.169.254/", "https://2852039166/", "https://0xa9fea9fe/", "https://169.16689662/",
	"https://10.0.0.1/", "https://10.1/", "https://172.16.0.1/", "https://192.168.1.1/", "https://100.64.0.1/", "https://100.100.100.200/", "https://192.0.0.192/", "https://198.18.0.1/",
	"https://192.0.2.1/", "https://224.0.0.1/", "https://240.0.0.1/", "https://255.255.255.255/", "https://168.63.129.16/", "https://127.0.0.1.:443/", "https://127.0.0.1./", "https://[127.0.0.1]/",
	// IPv6: short, long, with IPv4 in it, behind translators and in tunnels, with zones.
	"https://[::1]/", "https://[0:0:0:0:0:0:0:1]/", "https://[0000:0000:0000:0000:0000:0000:0000:0001]/", "https://[::]/", "https://[::127.0.0.1]/", "https://[::ffff:127.0.0.1]/",
	"https://[::ffff:7f00:1]/", "https://[::FFFF:7F00:0001]/", "https://[0:0:0:0:0:ffff:127.0.0.1]/", "https://[::ffff:169.254.169.254]/", "https://[::ffff:1.1.1.1]/", "https://[::ffff:0:127.0.0.1]/",
	"https://[64:ff9b::127.0.0.1]/", "https://[64:ff9b::a9fe:a9fe]/", "https://[64:ff9b:1::7f00:1]/", "https://[2002:7f00:1::]/", "https://[2002:a9fe:a9fe::1]/", "https://[2001:0:7f00:1::]/",
	"https://[2001::5601:80ff:fffe]/", "https://[fc00::1]/", "https://[fd00:ec2::254]/", "https://[fe80::1]/", "https://[fe80::1%25lo]/", "https://[::1%25lo]/", "https://[::1%251]/", "https://[fec0::1]/",
	"https://[ff02::1]/", "https://[2001:db8::1]/", "https://[100::1]/", "https://[::1%25%31]/",
	// Names, dots and other scripts.
	"https://localhost/", "https://LOCALHOST/", "https://localhost./", "https://localhost.localdomain/", "https://x.localhost/", "https://ip6-localhost/", "https://metadata.google.internal/", "https://metadata/",
	"https://１２７.０.０.１/", "https://①②⑦.⓪.⓪.①/", "https://127。0。0。1/", "https://127．0．0．1/", "https://ⓛocalhost/", "https://%31%32%37.0.0.1/", "https://127.0.0.1%2f.example.com/", "https://127.0.0.1%00.example.com/",
	// User names and other places where readers differ.
	"https://example.com@127.0.0.1/", "https://example.com:443@127.0.0.1/", "https://127.0.0.1@example.com/", "https://example.com%40127.0.0.1/", "https://example.com\\@127.0.0.1/", "https://127.0.0.1\\.example.com/",
	"https://127.0.0.1#@example.com/", "https://127.0.0.1?@example.com/", "https://example.com&@127.0.0.1#@example.com/", "https:127.0.0.1/", "https:/127.0.0.1/", "https:///127.0.0.1/", "https:\\\\127.0.0.1/", "//127.0.0.1/",
	"https://127.0.0.1:443/", "https://127.0.0.1:0443/", "https://127.0.0.1:/", "http://127.0.0.1/", "https://127.0.0.1:8443/", "https://127.0.0.1 /", " https://127.0.0.1/", "https://127.0.0.1\t/", "https://\n127.0.0.1/",
	// Names that the DNS gives a private address.
	"https://a.rebind.test/", "https://aaaa.rebind.test/", "https://mapped.rebind.test/", "https://nat64.rebind.test/", "https://cgnat.rebind.test/", "https://127.0.0.1.rebind.test/",
}

// private are the addresses of names that lead home.
func private(name string, six bool, _ int) []string {
	v4 := map[string]string{"cgnat.rebind.test": "100.64.0.1"}
	v6 := map[string]string{"aaaa.rebind.test": "::1", "mapped.rebind.test": "::ffff:127.0.0.1", "nat64.rebind.test": "64:ff9b::7f00:1"}
	switch {
	case six && v6[name] != "":
		return []string{v6[name]}
	case six || v6[name] != "":
		return nil
	case v4[name] != "":
		return []string{v4[name]}
	}
	return []string{"127.0.0.1"} // 2130706433 too, as some resolvers have it
}

// connectionLog listens where nobody must come.
type connectionLog struct {
	port string
	seen atomic.Int64
	came chan struct{}
}

func newConnectionLog(t *testing.T) *connectionLog {
	t.Helper()
	c := &connectionLog{came: make(chan struct{}, 16)}
	var four net.Listener
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		if c.port != "" {
			address += ":" + c.port
		} else {
			address += ":0"
		}
		l, err := net.Listen("tcp", address)
		if err != nil && four != nil {
			continue // there is no IPv6 here, and nobody who could use it
		} else if err != nil {
			t.Fatal(err)
		}
		four = l
		_, c.port, _ = net.SplitHostPort(l.Addr().String())
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c.seen.Add(1)
				select {
				case c.came <- struct{}{}:
				default:
				}
				_ = conn.Close()
			}
		}()
	}
	return c
}

// errAllowed ends a dial that the guard let pass, before a packet is sent.
var errAllowed = errors.New("the address is allowed")

// watched is the client's own dialler, but for the port, which is the connectionLog's,
// and for addresses that it would go to, which are noted and not dialled.
type watched struct {
	dialer *net.Dialer
	port   string
	mu     sync.Mutex
	passed []string
}

func watch(resolver *net.Resolver, port string) *watched {
	w := &watched{dialer: newDialer(false), port: port}
	w.dialer.Resolver = resolver
	guard := w.dialer.ControlContext
	w.dialer.ControlContext = func(ctx context.Context, network, address string, raw syscall.RawConn) error {
		if err := guard(ctx, network, address, raw); err != nil {
			return err
		}
		at := netip.MustParseAddrPort(address).Addr()
		if at.Unmap().IsLoopback() {
			return nil // the connectionLog will tell
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.passed = append(w.passed, at.String())
		return errAllowed
	}
	return w
}

func (w *watched) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return w.dialer.DialContext(ctx, network, net.JoinHostPort(host, w.port))
}

func TestNoSpellingOfAPrivateAddressIsConnectedTo(t *testing.T) {
	if len(spellings) < 60 {
		t.Fatalf("only %d spellings", len(spellings))
	}
	s, c := newSecret(t), newConnectionLog(t)
	w := watch((&names{answer: private}).serve(t), c.port)
	client := NewClient(Options{Dial: w.dial})
	for _, text := range spellings {
		result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: text, Body: []byte(body)}, time.Now(), []webhook.Secret{s})
		if result.Outcome != Refused || result.Reason == "" || result.Status != 0 {
			t.Errorf("%q: %+v", text, result)
		}
	}
	// The dialler alone refuses them too, whoever let them come so far.
	for _, text := range spellings {
		host := text
		if u, err := url.Parse(text); err == nil {
			host = u.Hostname()
		}
		if host == "example.com" || host == "" || host == "::ffff:1.1.1.1" {
			continue // a host that is not private; the last is dialled as 1.1.1.1
		}
		if conn, err := w.dial(t.Context(), "tcp", net.JoinHostPort(host, "443")); err == nil {
			_ = conn.Close()
			t.Errorf("%q was connected to", host)
		}
	}
	if n := c.seen.Load(); n != 0 || len(w.passed) != 0 {
		t.Errorf("the connectionLog saw %d connections, and %v were to be connected to", n, w.passed)
	}
}

func TestAConnectionIsCounted(t *testing.T) {
	c := newConnectionLog(t)
	client := NewClient(Options{AllowPrivate: true})
	for i, text := range []string{"http://127.0.0.1:", "http://localhost:", "http://user:pass@127.0.0.1:", "https://127.0.0.1:", "http://[::ffff:127.0.0.1]:"} {
		result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: text + c.port}, time.Now(), []webhook.Secret{newSecret(t)})
		if result.Outcome != Retry {
			t.Errorf("%s: %+v", text, result)
		}
		select {
		case <-c.came:
		case <-time.After(time.Minute):
		}
		if n := c.seen.Load(); n != int64(i)+1 {
			t.Fatalf("%s: the connectionLog saw %d connections", text, n)
		}
	}
}

func TestANameThatTurnsPrivateIsRefusedThen(t *testing.T) {
	const outside = "93.184.215.14"
	turns := map[string][]string{
		"a":    {outside, "127.0.0.1", outside, "169.254.169.254", "10.0.0.1", outside},
		"aaaa": {"2606:4700::1111", "::1", "64:ff9b::7f00:1", "2606:4700::1111", "fd00::1"},
	}
	for kind, turns := range turns {
		server := &names{answer: func(_ string, six bool, n int) []string {
			if six != (kind == "aaaa") {
				return nil
			}
			return []string{turns[(n-1)%len(turns)]}
		}}
		c := newConnectionLog(t)
		w := watch(server.serve(t), c.port)
		client := NewClient(Options{Dial: w.dial})
		var want []string
		for i, turn := range turns {
			result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "https://flip.test/"}, time.Now(), []webhook.Secret{newSecret(t)})
			outcome := Refused
			if netguard.Check(netip.MustParseAddr(turn)) == nil {
				outcome, want = Retry, append(want, turn)
			}
			if result.Outcome != outcome || server.count("flip.test "+strings.ToUpper(kind)) != i+1 {
				t.Errorf("%s is %s: %+v after %v", "flip.test", turn, result, server.asked)
			}
		}
		if got := strings.Join(w.passed, " "); got != strings.Join(want, " ") || c.seen.Load() != 0 {
			t.Errorf("connected to %s, want %v; the connectionLog saw %d", got, want, c.seen.Load())
		}
	}
}

func TestOfANamesAddressesOnlyThePublicOnesAreConnectedTo(t *testing.T) {
	c := newConnectionLog(t)
	w := watch((&names{answer: func(_ string, six bool, _ int) []string {
		if six {
			return []string{"::1", "fe80::1"}
		}
		return []string{"127.0.0.1", "93.184.215.14", "10.0.0.1"}
	}}).serve(t), c.port)
	result := NewClient(Options{Dial: w.dial}).Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "https://both.test/"}, time.Now(), []webhook.Secret{newSecret(t)})
	if result.Outcome == Delivered || len(w.passed) != 1 || w.passed[0] != "93.184.215.14" || c.seen.Load() != 0 {
		t.Errorf("%+v, connected to %v, the connectionLog saw %d", result, w.passed, c.seen.Load())
	}
}

func TestARedirectIsAFailureAndNotFollowed(t *testing.T) {
	c := newConnectionLog(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		server, client := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:"+c.port+"/", status)
		})
		result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "https://example.com/"}, time.Now(), []webhook.Secret{newSecret(t)})
		if result.Outcome != Retry || result.Status != status || !strings.Contains(result.Reason, "redirect") || server.dials.Load() != 1 {
			t.Errorf("%d: %+v", status, result)
		}
	}
	if c.seen.Load() != 0 {
		t.Error("the connectionLog saw a connection")
	}
}
