package httpdo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/upstream"
)

// wireVendor is a vendor whose every request gets the answer that a script writes.
type wireVendor struct {
	url         string
	connections atomic.Int32
	ended       chan struct{} // gets one for each connection that the client closed
}

func newWireVendor(t *testing.T, answer func(c net.Conn, n int)) *wireVendor {
	t.Helper()
	v := &wireVendor{ended: make(chan struct{}, 64)}
	v.url = "http://" + servertest.Listen(t, func(c net.Conn) {
		v.connections.Add(1)
		defer func() { v.ended <- struct{}{} }()
		r := bufio.NewReader(c)
		for n := 0; ; n++ {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			answer(c, n)
		}
	})
	return v
}

// client returns a client of the vendor.
func (v *wireVendor) client(t *testing.T) *Client {
	t.Helper()
	c := newClient(t, upstream.DriverOptions{BaseURL: v.url}, Vendor{})
	if c.direct == nil {
		t.Fatal("the client has no direct transport")
	}
	return c
}

// post makes a call with a body, and returns its response.
func post(ctx context.Context, c *Client, body string) (*http.Response, error) {
	resp, _, err := c.Post(ctx, new(upstream.Call), c.Base, Header("*/*", "text/plain"), upstream.BytesBody([]byte(body)))
	return resp, err
}

// TestAConnectionIsUsedAgainAfterAWholeAnswerOnly has each answer read by two calls, one
// after the other.
func TestAConnectionIsUsedAgainAfterAWholeAnswerOnly(t *testing.T) {
	const stolen = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"
	for name, row := range map[string]struct {
		answer string
		reads  int64 // bytes of the body, before it is closed; below 0 for all of it
		want   int32 // connections
	}{
		"a length":                 {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", -1, 1},
		"a length, not to its end": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 1, 2},
		"a length, unread":         {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 0, 2},
		"a body that is cut short": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}", 2, 2},
		"length 0":                 {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, 1},
		"204":                      {"HTTP/1.1 204 No Content\r\n\r\n", 0, 1},
		"chunks":                   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", -1, 1},
		"chunks without their end": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 1, 2},
		"a trailer":                {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-A: b\r\n\r\n", -1, 1},
		"interim answers":          {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", -1, 1},
		"Connection: close":        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", -1, 2},
		"HTTP/1.0":                 {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", -1, 2},
		"a status below 100":       {"HTTP/1.1 099 X\r\nContent-Length: 2\r\n\r\n{}", -1, 2},
		"101":                      {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 0, 2},
		"more behind a length":     {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + stolen, -1, 2},
		"more behind a 204":        {"HTTP/1.1 204 No Content\r\n\r\n" + stolen, 0, 2},
		"more behind chunks":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + stolen, -1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			v := newWireVendor(t, func(c net.Conn, _ int) { _, _ = io.WriteString(c, row.answer) })
			c := v.client(t)
			for range 2 {
				resp, err := post(t.Context(), c, "{}")
				if err != nil {
					t.Fatal(err)
				}
				body := io.Reader(resp.Body)
				if row.reads >= 0 {
					body = io.LimitReader(body, row.reads)
				}
				data, err := io.ReadAll(body)
				if err != nil || !strings.HasPrefix("{}", string(data)) {
					t.Errorf("%q, %v", data, err)
				}
				_ = resp.Body.Close()
			}
			if got := v.connections.Load(); got != row.want {
				t.Errorf("%d connections for two calls, want %d", got, row.want)
			}
			if row.want == 2 {
				<-v.ended // closed by the client: the vendor would wait
				<-v.ended
			}
		})
	}
}

// TestNoAnswerReachesAnotherCaller has many callers read all, read a part or give up, by
// chance, of answers in several forms.
func TestNoAnswerReachesAnotherCaller(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		switch len(data) % 3 {
		case 0:
			w.Header().Set("Content-Length", fmt.Sprint(2*len(data)))
		case 1:
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = w.Write(data)
		runtime.Gosched()
		_, _ = w.Write(data)
	}))
	t.Cleanup(s.Close)
	c := newClient(t, upstream.DriverOptions{BaseURL: s.URL}, Vendor{})
	var callers sync.WaitGroup
	var read atomic.Int32
	for caller := range 16 {
		callers.Go(func() {
			chance := rand.New(rand.NewPCG(1, uint64(caller)))
			for n := range 100 {
				text := strings.Repeat(fmt.Sprintf("%d/%d ", caller, n), 1+chance.IntN(2000))
				ctx, cancel := context.WithCancel(t.Context())
				how := chance.IntN(4)
				if how == 0 {
					go func() { runtime.Gosched(); cancel() }()
				}
				resp, err := post(ctx, c, text)
				if err == nil {
					body := io.Reader(resp.Body)
					if how == 1 {
						body = io.LimitReader(body, int64(chance.IntN(len(text))))
					}
					var data []byte
					data, err = io.ReadAll(body)
					if !strings.HasPrefix(text+text, string(data)) || err == nil && how > 1 && string(data) != text+text {
						t.Errorf("caller %d got what is not its own: %.60q", caller, data)
					}
					_ = resp.Body.Close()
				}
				switch {
				case err == nil:
					read.Add(1)
				case how != 0 || !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	if n := read.Load(); n < 600 {
		t.Errorf("%d of 1,600 calls were answered", n)
	}
}

// TestASmallRequestIsAnsweredBeforeItIsRead is docs/reference/faults.md, row 39: the vendor reads the
// body only when all of a large answer was taken.
func TestASmallRequestIsAnsweredBeforeItIsRead(t *testing.T) {
	const size = 16 << 20
	address := servertest.Listen(t, func(c net.Conn) {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
		_, _ = io.Copy(io.Discard, c)
	})
	c := newClient(t, upstream.DriverOptions{BaseURL: "http://" + address}, Vendor{})
	resp, err := post(t.Context(), c, strings.Repeat("y", maxDirectBody))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestAVendorThatRefusesBeforeItHasRead is docs/reference/faults.md, row 39: the refusal is read though
// the request could not be written to its end. Now and then the system drops it when the
// connection is reset.
func TestAVendorThatRefusesBeforeItHasRead(t *testing.T) {
	address := servertest.Listen(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}")
	})
	c := newClient(t, upstream.DriverOptions{BaseURL: "http://" + address}, Vendor{})
	refused := 0
	for range 100 {
		resp, err := post(t.Context(), c, strings.Repeat("y", maxDirectBody))
		if err != nil {
			continue
		}
		if data := readRefusal(resp.Body); resp.StatusCode != http.StatusTooManyRequests || string(data) != "{}" {
			t.Fatalf("%d %q", resp.StatusCode, data)
		}
		refused++
	}
	if refused < 50 {
		t.Errorf("%d refusals of 100 were read", refused)
	}
}

func TestTheConnectionOfACancelledCallIsNotUsedAgain(t *testing.T) {
	v := newWireVendor(t, func(c net.Conn, _ int) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") })
	c := v.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := post(ctx, c, "{}")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _ = io.ReadAll(resp.Body) // it is here, all of it
	if n := len(c.direct.idle); n != 0 {
		t.Errorf("%d idle connections", n)
	}
}

// brokenSocket is a connection that takes nothing.
type brokenSocket struct{ *net.TCPConn }

func (brokenSocket) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestARequestOfWhichNothingWasWrittenIsNotSent(t *testing.T) {
	v := newWireVendor(t, func(net.Conn, int) {})
	c := v.client(t)
	dial := c.OwnTransport.DialContext
	c.OwnTransport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			conn.(*countingConn).Conn = brokenSocket{conn.(*countingConn).Conn.(*net.TCPConn)}
		}
		return conn, err
	}
	var failure *upstream.Failure
	if _, err := post(t.Context(), c, "{}"); !errors.As(err, &failure) || failure.Sent {
		t.Errorf("%v, %+v", err, failure)
	}
	<-v.ended
}

// TestAHeadIsAsLargeAsItMayBe is docs/reference/faults.md, row 8, to the byte.
func TestAHeadIsAsLargeAsItMayBe(t *testing.T) {
	for name, row := range map[string]struct {
		more int
		want bool // an answer
	}{"at the bound": {0, true}, "a byte above it": {1, false}} {
		t.Run(name, func(t *testing.T) {
			v := newWireVendor(t, func(c net.Conn, _ int) {
				const interim, start, end = "HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 204 No Content\r\nA: ", "\r\n\r\n"
				pad := maxHeader + row.more - len(interim) - len(start) - len(end)
				_, _ = io.WriteString(c, interim+start+strings.Repeat("b", pad)+end)
			})
			if _, err := post(t.Context(), v.client(t), "{}"); (err == nil) != row.want {
				t.Error(err)
			}
		})
	}
}

func TestACancelledCallSendsNothing(t *testing.T) {
	v := newWireVendor(t, func(c net.Conn, _ int) { _, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n") })
	c := v.client(t)
	if _, err := post(t.Context(), c, "{}"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var failure *upstream.Failure
	if _, err := post(ctx, c, "{}"); !errors.Is(err, context.Canceled) || !errors.As(err, &failure) || failure.Sent {
		t.Errorf("%v, %+v", err, failure)
	}
}

func TestIdleConnectionsAreBounded(t *testing.T) {
	v := newWireVendor(t, func(c net.Conn, _ int) { _, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n") })
	c := v.client(t)
	c.OwnTransport.MaxIdleConnsPerHost = 0
	for range 2 {
		if _, err := post(t.Context(), c, "{}"); err != nil {
			t.Fatal(err)
		}
		<-v.ended
	}
}

func TestAnIdleConnectionIsClosedAfterItsTimeout(t *testing.T) {
	closed := make(chan struct{}, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := newClient(t, upstream.DriverOptions{BaseURL: s.URL}, Vendor{})
	c.OwnTransport.IdleConnTimeout = time.Millisecond
	for range 2 { // the second resets the timer, if it has the same connection
		resp, err := post(t.Context(), c, "{}")
		if err != nil {
			t.Fatal(err)
		}
		readRefusal(resp.Body)
	}
	<-closed
}

// TestWhatIsNotMadeDirectly checks which requests are left to http.Transport, which refuses
// what it must not send.
func TestWhatIsNotMadeDirectly(t *testing.T) {
	fallback := newTransport(upstream.DriverOptions{})
	for _, base := range []string{"https://vendor.example", "http://vendör.example"} {
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		if newDirectTransport(u, fallback) != nil {
			t.Errorf("%s has a direct transport", base)
		}
	}
	fallback.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example"})
	vendor := &url.URL{Scheme: "http", Host: "vendor.example"}
	if newDirectTransport(vendor, fallback) != nil {
		t.Error("what goes by a proxy has a direct transport")
	}
	d := newDirectTransport(vendor, newTransport(upstream.DriverOptions{}))
	if d == nil || d.address != "vendor.example:80" {
		t.Fatalf("%+v", d)
	}
	for name, row := range map[string]struct {
		change func(*http.Request)
		want   bool
	}{
		"a small body":             {func(*http.Request) {}, true},
		"a large body":             {func(r *http.Request) { r.ContentLength++ }, false},
		"a body of unknown length": {func(r *http.Request) { r.ContentLength = -1 }, false},
		"no body":                  {func(r *http.Request) { r.Body, r.ContentLength = nil, 0 }, false},
		"a GET":                    {func(r *http.Request) { r.Method = http.MethodGet }, false},
		"another host":             {func(r *http.Request) { r.URL.Host = "elsewhere.example" }, false},
		"another port":             {func(r *http.Request) { r.URL.Host += ":8080" }, false},
		"TLS":                      {func(r *http.Request) { r.URL.Scheme = "https" }, false},
		"a line break in a value":  {func(r *http.Request) { r.Header["A"] = []string{"b", "b\r\nC: d"} }, false},
		"a space in a name":        {func(r *http.Request) { r.Header["A b"] = []string{"c"} }, false},
	} {
		to := *vendor
		req := &http.Request{Method: http.MethodPost, URL: &to, Header: http.Header{}, Body: http.NoBody, ContentLength: maxDirectBody}
		row.change(req)
		if got := d.handles(req); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
