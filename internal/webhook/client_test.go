package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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

// receiver is a house and a client, as strict as any, that finds it.
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
		result := client.Post(t.Context(), Delivery{ID: "evt_1", URL: "https://example.com/", Secrets: []Secret{newSecretOf(t)}})
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
	s, at := newSecretOf(t), time.Unix(1_700_000_000, 5)
	for range 2 {
		result := client.Post(t.Context(), Delivery{ID: "evt_1", URL: "https://example.com/hook?a=b#c", Body: []byte(body), At: at, Secrets: []Secret{s}})
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
	if err := Verify(got, sent, at, s); err != nil || string(sent) != body {
		t.Errorf("%v, %s", err, sent)
	}
	if n := server.dials.Load(); n != 2 {
		t.Errorf("%d connections for two tries", n)
	}
}

func TestTheHostsCertificateIsChecked(t *testing.T) {
	server, client := receiver(t, func(http.ResponseWriter, *http.Request) { t.Error("the notice was sent") })
	for name, c := range map[string]*Client{
		"nobody known signed it": NewClient(Options{Dial: server.dial, RootCAs: x509.NewCertPool()}),
		"it has expired":         NewClient(Options{Dial: server.dial, RootCAs: client.http.Transport.(*http.Transport).TLSClientConfig.RootCAs, Now: func() time.Time { return time.Now().AddDate(200, 0, 0) }}),
		"it is another host's": NewClient(Options{RootCAs: client.http.Transport.(*http.Transport).TLSClientConfig.RootCAs, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return server.dial(ctx, network, "example.com:443")
		}}),
	} {
		url := "https://example.com/"
		if strings.Contains(name, "another") {
			url = "https://other.example.org/"
		}
		result := c.Post(t.Context(), Delivery{ID: "evt_1", URL: url, Body: []byte(body), Secrets: []Secret{newSecretOf(t)}})
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
	s := newSecretOf(t)
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
		result := NewClient(o).Post(t.Context(), Delivery{ID: "evt_1", URL: "http://user:geheim@example.com/geheim?" + query, Body: []byte(body + "geheim"), Secrets: []Secret{s}})
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
			result := client.Post(ctx, Delivery{ID: "evt_1", URL: "http://example.com/", Body: []byte(body), Secrets: []Secret{newSecretOf(t)}})
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
	result := client.Post(t.Context(), Delivery{ID: "evt_1", URL: "http://example.com/", Secrets: []Secret{newSecretOf(t)}})
	if n := <-written; result.Outcome != Delivered || n < 32<<10 || n > 128<<10 {
		t.Errorf("%+v, %d bytes were taken", result, n)
	}
}

func TestNothingIsSentWithoutASecret(t *testing.T) {
	server, client := receiver(t, func(http.ResponseWriter, *http.Request) {})
	for _, secrets := range [][]Secret{nil, {Secret{}}} {
		if result := client.Post(t.Context(), Delivery{ID: "evt_1", URL: "https://example.com/", Secrets: secrets}); result.Outcome != Retry || !strings.Contains(result.Reason, "secret") {
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
		if result := client.Post(t.Context(), Delivery{ID: "evt_1", URL: "http://example.com/", Secrets: []Secret{newSecretOf(t)}}); result.Outcome != want {
			t.Errorf("%d bytes: %+v", length, result)
		}
	}
}
