package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tollhouse-ai/gateway/internal/netguard"
	"github.com/tollhouse-ai/gateway/webhook"
)

// TestMain names a proxy to all tests, which no notice may go by: net/http reads
// the environment once.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// testReceiver is a receiver behind TLS, which is example.com.
type testReceiver struct {
	*httptest.Server
	dials atomic.Int64
}

// receiver is a receiver and a client, with the strict checks, that finds it.
func receiver(t *testing.T, h http.HandlerFunc) (*testReceiver, *Client) {
	t.Helper()
	s := &testReceiver{Server: httptest.NewUnstartedServer(h)}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // it tells of handshakes that are to fail
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, NewClient(Options{RootCAs: roots, Dial: s.dial})
}

func (s *testReceiver) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address != "example.com:443" {
		return nil, &net.DNSError{Err: "it is not example.com: " + address, IsNotFound: true}
	}
	s.dials.Add(1)
	return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
}

func TestTheAnswersStatusDecides(t *testing.T) {
	var status int
	_, client := receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	for s, want := range map[int]Outcome{
		200: Delivered, 201: Delivered, 202: Delivered, 204: Delivered, 299: Delivered,
		300: Retry, 304: Retry, 400: Retry, 401: Retry, 404: Retry, 409: Retry, 429: Retry, 500: Retry, 502: Retry, 503: Retry, 599: Retry,
		410: Gone,
	} {
		status = s
		result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "https://example.com/"}, time.Now(), []webhook.Secret{newSecret(t)})
		if result.Outcome != want || result.Status != s || (result.Reason == "") != (want == Delivered) {
			t.Errorf("%d: %+v, want %s", s, result, want)
		}
	}
}

func TestARequestHasTheseHeadersAndNoOthers(t *testing.T) {
	var got http.Header
	var sent []byte
	server, client := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		sent, _ = io.ReadAll(r.Body)
		got = r.Header
		if r.Method != http.MethodPost || r.URL.String() != "/hook?a=b" || r.Host != "example.com" || r.ContentLength != int64(len(body)) {
			t.Errorf("%s %s of %s, %d bytes", r.Method, r.URL, r.Host, r.ContentLength)
		}
	})
	s, at := newSecret(t), time.Unix(1_700_000_000, 5)
	for range 2 {
		result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "https://example.com/hook?a=b#c", Body: []byte(body)}, at, []webhook.Secret{s})
		if result != (Result{Outcome: Delivered, Status: 200}) {
			t.Fatalf("%+v", result)
		}
	}
	want := Sign("evt_1", at, []byte(body), s)
	want.Set("Content-Type", "application/json")
	want.Set("User-Agent", "tollhouse")
	want.Set("Content-Length", got.Get("Content-Length"))
	want.Set("Connection", "close")
	for name := range got {
		if got.Get(name) != want.Get(name) {
			t.Errorf("%s: %q, want %q", name, got[name], want[name])
		}
	}
	if got.Get(headerSignature) == "" || string(sent) != body {
		t.Errorf("signed %q, the body %s", got.Get(headerSignature), sent)
	}
	if n := server.dials.Load(); n != 2 {
		t.Errorf("%d connections for two tries", n)
	}
}

func TestTheHostsCertificateIsChecked(t *testing.T) {
	server, client := receiver(t, func(http.ResponseWriter, *http.Request) { t.Error("the notice was sent") })
	for name, c := range map[string]*Client{
		"no known authority signed it": NewClient(Options{Dial: server.dial, RootCAs: x509.NewCertPool()}),
		"it has expired":               NewClient(Options{Dial: server.dial, RootCAs: client.http.Transport.(*http.Transport).TLSClientConfig.RootCAs, Now: func() time.Time { return time.Now().AddDate(200, 0, 0) }}),
		"it is another host's": NewClient(Options{RootCAs: client.http.Transport.(*http.Transport).TLSClientConfig.RootCAs, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return server.dial(ctx, network, "example.com:443")
		}}),
	} {
		url := "https://example.com/"
		if strings.Contains(name, "another") {
			url = "https://other.example.org/"
		}
		result := c.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: url, Body: []byte(body)}, time.Now(), []webhook.Secret{newSecret(t)})
		if result.Outcome != Retry || !strings.Contains(result.Reason, "certificate") {
			t.Errorf("%s: %+v", name, result)
		}
	}
}

// script answers a connection by hand. It returns when the client is gone.
func script(handle func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer func() { _ = far.Close() }()
			handle(far)
		}()
		return near, nil
	}
}

func TestAReasonTellsNothingThatIsSecret(t *testing.T) {
	s := newSecret(t)
	const query = "token=geheim"
	echo := func(prefix string) func(net.Conn) {
		return func(c net.Conn) {
			buffer := make([]byte, 4096)
			n, _ := c.Read(buffer)
			_, _ = c.Write(append([]byte(prefix), buffer[:n]...))
		}
	}
	for name, o := range map[string]Options{
		"echo":           {Dial: script(echo(""))},
		"echo as status": {Dial: script(echo("HTTP/1.1 "))},
		"echo as header": {Dial: script(echo("HTTP/1.1 200 OK\r\n"))},
		"echo as length": {Dial: script(echo("HTTP/1.1 200 OK\r\nContent-Length: "))},
		"cut":            {Dial: script(func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })},
		"headers too long": {Dial: script(func(c net.Conn) {
			go echo("")(c)
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("geheim", 30_000)))
		})},
		"no such host": {Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", Name: query, IsNotFound: true}
		}},
		"no name server": {Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "server misbehaving", Name: query}
		}},
		"unreachable": {Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: io.ErrClosedPipe}
		}},
		"a redirect": {Dial: script(echo("HTTP/1.1 302 Found\r\nLocation: /?" + query + "\r\n\r\n"))},
		"a refusal":  {Dial: script(echo("HTTP/1.1 500 geheim\r\nContent-Length: 0\r\n\r\n"))},
		"strict":     {},
	} {
		o.AllowPrivate = name != "strict"
		result := NewClient(o).Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "http://user:geheim@example.com/geheim?" + query, Body: []byte(body + "geheim")}, time.Now(), []webhook.Secret{s})
		if result.Outcome != Retry && name != "strict" || result.Reason == "" || strings.Contains(result.Reason, "geheim") || strings.Contains(result.Reason, s.Reveal()[6:]) || strings.Contains(result.Reason, "evt_1") {
			t.Errorf("%s: %+v", name, result)
		}
		t.Logf("%s: %s", name, result.Reason)
	}
}

func TestATryIsOverAfterTenSeconds(t *testing.T) {
	for name, handle := range map[string]func(net.Conn){
		"silence":          func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"not even reading": nil,
		"a dripping header": func(c net.Conn) {
			drip(c, "HTTP/1.1 200 OK\r\n", "A: b\r\n")
		},
		"a dripping body": func(c net.Conn) {
			drip(c, "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", "a")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			client := NewClient(Options{AllowPrivate: true, Dial: script(func(c net.Conn) {
				if handle == nil {
					<-ctx.Done()
					return
				}
				handle(c)
			})})
			began := time.Now()
			result := client.Post(ctx, webhook.Delivery{ID: "evt_1", URL: "http://example.com/", Body: []byte(body)}, time.Now(), []webhook.Secret{newSecret(t)})
			want := Retry
			if name == "a dripping body" {
				want = Delivered // the status said so
			}
			if took := time.Since(began); took != 10*time.Second || result.Outcome != want {
				t.Errorf("%s: %s, %+v", name, took, result)
			}
			end()
			time.Sleep(2 * time.Second) // of the bubble: until the dripping ends
		})
	}
}

// ask reads the request, before which no answer may come.
func ask(c net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// drip writes slowly until nobody reads.
func drip(c net.Conn, first, more string) {
	ask(c)
	_, err := io.WriteString(c, first)
	for err == nil {
		time.Sleep(time.Second) // of a bubble
		_, err = io.WriteString(c, more)
	}
}

func TestOnlyTheBeginningOfAnAnswerIsRead(t *testing.T) {
	written := make(chan int64, 1)
	client := NewClient(Options{AllowPrivate: true, Dial: script(func(c net.Conn) {
		ask(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		n, _ := io.Copy(c, bytes.NewReader(make([]byte, 10<<20)))
		written <- n
	})})
	result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "http://example.com/"}, time.Now(), []webhook.Secret{newSecret(t)})
	if n := <-written; result.Outcome != Delivered || n < 32<<10 || n > 128<<10 {
		t.Errorf("%+v, %d bytes were taken", result, n)
	}
}

func TestNothingIsSentWithoutASecret(t *testing.T) {
	server, client := receiver(t, func(http.ResponseWriter, *http.Request) {})
	for _, secrets := range [][]webhook.Secret{nil, {webhook.Secret{}}} {
		if result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "https://example.com/"}, time.Now(), secrets); result.Outcome != Retry || !strings.Contains(result.Reason, "secret") {
			t.Errorf("%+v", result)
		}
	}
	if server.dials.Load() != 0 {
		t.Error("it was connected to")
	}
}

func TestAnAnswersHeadersAreBounded(t *testing.T) {
	for length, want := range map[int]Outcome{32 << 10: Delivered, 128 << 10: Retry} {
		client := NewClient(Options{AllowPrivate: true, Dial: script(func(c net.Conn) {
			ask(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("a", length)+"\r\nContent-Length: 0\r\n\r\n")
		})})
		if result := client.Post(t.Context(), webhook.Delivery{ID: "evt_1", URL: "http://example.com/"}, time.Now(), []webhook.Secret{newSecret(t)}); result.Outcome != want {
			t.Errorf("%d bytes: %+v", length, result)
		}
	}
}

// names is a DNS server on the loopback. It answers the nth question for the
// addresses of a name by what answer gives.
type names struct {
	answer func(name string, six bool, n int) []string

	mu    sync.Mutex
	asked map[string]int
}

// serve returns a resolver that asks the server alone.
func (s *names) serve(t *testing.T) *net.Resolver {
	t.Helper()
	s.asked = make(map[string]int)
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		for packet := make([]byte, 1500); ; {
			n, from, err := socket.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply := s.reply(packet[:n]); reply != nil {
				_, _ = socket.WriteTo(reply, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
}

// reply answers one question (RFC 1035, 4.1).
func (s *names) reply(question []byte) []byte {
	const a, aaaa = 1, 28
	var labels []string
	at := 12
	for at < len(question) && question[at] != 0 {
		end := at + 1 + int(question[at])
		labels, at = append(labels, string(question[at+1:end])), end
	}
	end := at + 5
	if end > len(question) {
		return nil
	}
	kind := binary.BigEndian.Uint16(question[at+1:])
	name := strings.ToLower(strings.Join(labels, "."))
	var found []string
	if kind == a || kind == aaaa {
		key := name + map[uint16]string{a: " A", aaaa: " AAAA"}[kind]
		s.mu.Lock()
		s.asked[key]++
		n := s.asked[key]
		s.mu.Unlock()
		found = s.answer(name, kind == aaaa, n)
	}
	reply := append([]byte{}, question[:2]...)
	reply = append(reply, 0x81, 0x80, 0, 1, 0, byte(len(found)), 0, 0, 0, 0)
	reply = append(reply, question[12:end]...)
	for _, text := range found {
		ip := netip.MustParseAddr(text).AsSlice()
		reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(ip)))
		reply = append(reply, ip...)
	}
	return reply
}

func (s *names) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[key]
}

func TestAnAddressHasItsForm(t *testing.T) {
	const (
		never   = iota
		private // with AllowPrivate alone
		always
	)
	for text, want := range map[string]int{
		"https://example.com": always, "https://example.com/": always, "https://EXAMPLE.com:443/hook?a=b#c": always, "HTTPS://example.com/": always,
		"https://a.b-c.example.co.uk/x": always, "https://xn--bcher-kva.example/": always, "https://_x.example.com/": always, "https://1.example.com/": always, "https://example.a1/": always,
		"https://1.1.1.1/": always, "https://[2606:4700::1111]/": always, "https://[2606:4700::1111]:443/": always, "https://example.com:/": always,

		"http://example.com/": private, "https://example.com:8443/": private, "https://example.com:80/": private, "http://example.com:443/": private,
		"https://user@example.com/": private, "https://user:pass@example.com/": private, "https://@example.com/": private,
		"https://127.0.0.1/": private, "http://127.0.0.1:8080/hook": private, "https://[::1]/": private, "http://[::1]:8080/": private, "https://10.0.0.1/": private,
		"https://localhost/": private, "https://printer.local/": private, "https://metadata.google.internal/": private, "https://intranet/": private, "https://a.localhost/": private,
		"https://[fe80::1%25eth0]/": private, "https://[2606:4700::1111%25eth0]/": private, "https://[::ffff:1.1.1.1]/": private,
		"https://example.com:65535/": private, "https://example.com:1/": private,

		"": never, "https://": never, "https:///x": never, "https:example.com": never, "//example.com/": never, "/hook": never, "example.com": never, "example.com:443": never,
		"ftp://example.com/": never, "file:///etc/passwd": never, "gopher://example.com/": never, "unix:///run/x.sock": never, "javascript:alert(1)": never,
		"https://example.com:0/": never, "https://example.com:65536/": never, "https://example.com:x/": never, "https://example.com:-1/": never, "https://:443/": never,
		"https://example.com./": never, "https://example..com/": never, "https://.example.com/": never, "https://-a.example.com/": never, "https://a-.example.com/": never,
		"https://exämple.com/": never, "https://example.com\x00/": never, "https://exa mple.com/": never, "https://exam%70le.com/": never, "https://ex%C3%A4mple.com/": never,
		"https://example.com\\@127.0.0.1/": never, "https://[example.com]/": never, "https://[::1/": never, "https://[1.1.1.1]/": never, "https://a*b.example/": never,
		"https://" + strings.Repeat("a", 64) + ".example/": never, "https://" + strings.Repeat("a.", 127) + "com/": never, "https://example.com/" + strings.Repeat("a", 8192): never,
		"https://2130706433/": never, "https://127.1/": never, "https://0x7f.0.0.1/": never, "https://example.0x7f/": never, "https://example.0x/": never, "https://1.1.1.1.1/": never, "https://256.1.1.1/": never, "https://01.1.1.1/": never,
	} {
		if err := CheckURL(text, false); (err == nil) != (want == always) {
			t.Errorf("%.80q: %v", text, err)
		} else if err != nil && len(text) > 9 && strings.Contains(err.Error(), text) {
			t.Errorf("the error tells the address: %v", err)
		}
		if err := CheckURL(text, true); (err == nil) != (want != never) {
			t.Errorf("%.80q, private allowed: %v", text, err)
		}
	}
}

func FuzzAnAddressThatIsAcceptedHasAnAllowedForm(f *testing.F) {
	for _, s := range spellings {
		f.Add(s)
	}
	for _, s := range []string{"https://example.com/hook?a=b", "https://1.1.1.1:443", "https://[2606:4700::1111]/", "http://user@10.0.0.1:8080/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parseURL(text, false)
		if _, lax := parseURL(text, true); err == nil && lax != nil {
			t.Errorf("%q is refused where private addresses are allowed: %v", text, lax)
		}
		if err != nil {
			return
		}
		host := u.Hostname()
		if u.Scheme != "https" || u.User != nil || u.Port() != "" && u.Port() != "443" || host == "" || len(text) > maxURL || u.Opaque != "" {
			t.Fatalf("%q was accepted as %#v", text, u)
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			if netguard.Check(ip) != nil || ip.Zone() != "" {
				t.Fatalf("%q was accepted", text)
			}
			return
		}
		for _, c := range host {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", c) {
				t.Fatalf("%q was accepted with the host %q", text, host)
			}
		}
		last := host[strings.LastIndexByte(host, '.')+1:]
		if last == "" || !strings.Contains(host, ".") || strings.Trim(last, "0123456789") == "" || strings.EqualFold(last, "localhost") {
			t.Fatalf("%q was accepted with the host %q", text, host)
		}
	})
}

// body is an event as the gateway sends it.
const body = `{"id":"evt_1","object":"event","created_at":1700000000,"type":"video.generation.succeeded","data":{"id":"vid_1","note":"ä.\u0000"}}`

func newSecret(t testing.TB) webhook.Secret {
	t.Helper()
	s, err := webhook.NewSecret(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTheLibraryOfStandardWebhooksVerifiesASignature checks signatures while two
// secrets sign, as in a rotation. OpenAI's SDK does so in examples/clients.
func TestTheLibraryOfStandardWebhooksVerifiesASignature(t *testing.T) {
	older, newer, other := newSecret(t), newSecret(t), newSecret(t)
	header := Sign("evt_1", time.Now(), []byte(body), newer, older)
	if n := len(strings.Fields(header.Get(headerSignature))); n != 2 {
		t.Fatalf("%d signatures, want 2", n)
	}
	verify := func(secret webhook.Secret, body string, h http.Header) error {
		receiver, err := standardwebhooks.NewWebhook(secret.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		return receiver.Verify([]byte(body), h)
	}
	for _, c := range []struct {
		name   string
		secret webhook.Secret
		body   string
		ok     bool
	}{
		{"the newer secret", newer, body, true},
		{"the older secret", older, body, true},
		{"another secret", other, body, false},
		{"another body", newer, body + " ", false},
	} {
		if err := verify(c.secret, c.body, header); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if h := Sign("evt_1", time.Now(), []byte(body), webhook.Secret{}); h.Get(headerSignature) != "" {
		t.Errorf("an empty secret signed: %v", h)
	}
}
