package httpdo

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// newClient is a client of a vendor, at an address of no one's unless the options say one. It
// is closed with the test.
func newClient(t *testing.T, o upstream.DriverOptions, v Vendor) *Client {
	t.Helper()
	v.BaseURL = "http://vendor.example"
	c, err := New(o, v)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestTheHeadersOfAContextTravelBesideTheDriversOwn(t *testing.T) {
	var got http.Header
	vendor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer vendor.Close()
	c := newClient(t, upstream.DriverOptions{BaseURL: vendor.URL}, Vendor{})
	wire := http.Header{"Traceparent": {"00-1-2-01"}, "X-Version": {"theirs"}, "Authorization": {"Bearer theirs"}}
	header := http.Header{"X-Version": {"ours"}, "Authorization": {"Bearer ours"}}
	resp, _, err := c.Get(upstream.WithWire(t.Context(), wire), new(upstream.Call), c.Base, header)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for name, want := range map[string]string{"Traceparent": "00-1-2-01", "X-Version": "ours", "Authorization": "Bearer ours"} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
	if len(wire) != 3 || upstream.Wire(t.Context()) != nil {
		t.Error("the context's headers were changed, or come from nowhere")
	}
}

// A call that comes late, to a client that a reload has replaced, is answered
// and leaves no connection behind; nor do those that were running.
func TestAfterCloseNoConnectionOutlastsItsCall(t *testing.T) {
	closed, arrived, proceed := make(chan net.Conn, 10), make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			arrived <- struct{}{}
			<-proceed
			_, _ = io.WriteString(w, "{}")
		}
	}))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- c
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := newClient(t, upstream.DriverOptions{BaseURL: s.URL}, Vendor{})
	c.OwnTransport.IdleConnTimeout = time.Hour
	ask := func(path string) {
		resp, _, err := c.Post(t.Context(), new(upstream.Call), c.Base.JoinPath(path), Header("*/*", "text/plain"), upstream.BytesBody([]byte("{}")))
		if err != nil {
			t.Error(err)
			return
		}
		readRefusal(resp.Body)
	}
	done := make(chan struct{})
	go func() { ask("long"); close(done) }()
	<-arrived
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ask("late")
	<-closed // the late one's
	close(proceed)
	<-done
	<-closed // the long one's
}

// A transport of the caller's may be a fake that leaves things out.
func TestATransportWithoutBodyOrResponse(t *testing.T) {
	for name, row := range map[string]struct {
		resp *http.Response
		want bool // an answer
	}{"no body": {&http.Response{StatusCode: 200}, true}, "nothing at all": {nil, false}} {
		c := newClient(t, upstream.DriverOptions{Transport: roundTripFunc(func(*http.Request) (*http.Response, error) { return row.resp, nil })}, Vendor{})
		resp, _, err := c.Get(t.Context(), new(upstream.Call), c.Base, http.Header{})
		if (err == nil) != row.want || err == nil && len(readRefusal(resp.Body)) > 0 {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
	}
}

func TestACompressedAnswerUnfoldsUnderACap(t *testing.T) {
	const size = 3 << 20
	for left, want := range map[int64]error{size: nil, size - 1: errTooLarge} {
		body := &gzipBody{body: io.NopCloser(bytes.NewReader(vendortest.Gzip(t, size))), left: left}
		if n, err := io.Copy(io.Discard, body); err != want || want == nil && n != size {
			t.Errorf("a cap of %d: %d bytes, %v", left, n, err)
		}
	}
	if maxDecoded != 256<<20 {
		t.Error("the cap is not that of the answers")
	}
}

func TestATransportOfTheCallerSendsWhatItDidNotFailToDial(t *testing.T) {
	for _, row := range []struct {
		err  error
		sent bool
	}{{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, false}, {&net.DNSError{}, false}, {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true}, {io.ErrUnexpectedEOF, true}} {
		c := newClient(t, upstream.DriverOptions{Transport: roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, row.err })}, Vendor{})
		_, _, err := c.Get(t.Context(), new(upstream.Call), c.Base, http.Header{})
		if f, _ := upstream.FailureOf(err); f.Sent != row.sent || !errors.Is(err, row.err) {
			t.Errorf("%v: %v, %+v", row.err, err, f)
		}
	}
}

func TestConnectingTakesFiveSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for given, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Second: time.Second} {
			c := newClient(t, upstream.DriverOptions{ConnectTimeout: given, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}, Vendor{})
			start := time.Now()
			_, _, err := c.Delete(t.Context(), new(upstream.Call), c.Base, http.Header{}) // a GET connects twice
			if f, _ := upstream.FailureOf(err); time.Since(start) != want || f.Sent || !fault.Is(err, fault.NoChannel) {
				t.Errorf("after %s: %v", time.Since(start), err)
			}
		}
	})
}

func TestHTTP2(t *testing.T) {
	requests := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests > 1 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	c := newClient(t, upstream.DriverOptions{BaseURL: server.URL}, Vendor{})
	c.OwnTransport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	c.OwnTransport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
	ask := func() (*http.Response, error) {
		resp, _, err := c.Post(t.Context(), new(upstream.Call), c.Base, http.Header{}, upstream.BytesBody([]byte("{}")))
		return resp, err
	}
	resp, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	if proto := readRefusal(resp.Body); string(proto) != "HTTP/2.0" {
		t.Errorf("the vendor was spoken to in %s", proto)
	}
	_, err = ask()
	if f, _ := upstream.FailureOf(err); !fault.Is(err, fault.BadGateway) || !f.Sent || requests != 2 {
		t.Errorf("a stream that was reset: %v, %+v, %d requests", err, f, requests)
	}
}

func TestWhatAServerDidNotLookAtIsKnownByItsWords(t *testing.T) {
	if !notProcessed(errors.New("stream error: stream ID 3; REFUSED_STREAM")) || notProcessed(io.EOF) {
		t.Error("what a server did not look at is known by its words")
	}
}

func TestABaseURLThatCannotWorkIsRefused(t *testing.T) {
	for base, want := range map[string]string{
		"api.example/v1":            "absolute http or https address",
		"ftp://api.example":         "absolute http or https address",
		"http://":                   "absolute http or https address",
		"https://a b/":              "absolute http or https address",
		"https://me:sk-1@api/v1":    "must not hold credentials",
		"https://api.example/v1?a":  "neither query nor fragment",
		"https://api.example/v1#":   "neither query nor fragment",
		"https://api.example/v1?":   "neither query nor fragment",
		"https://api.example/#/v1/": "neither query nor fragment",
	} {
		if _, err := New(upstream.DriverOptions{BaseURL: base}, Vendor{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-1") {
			t.Errorf("%s: %v", base, err)
		}
	}
}

func TestANegativeConnectTimeoutIsRefused(t *testing.T) {
	if _, err := New(upstream.DriverOptions{BaseURL: "https://api.example", ConnectTimeout: -1}, Vendor{}); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Error(err)
	}
}

func TestTheIDOfATaskLeadsNowhereElse(t *testing.T) {
	c := newClient(t, upstream.DriverOptions{BaseURL: "http://vendor.example/v1"}, Vendor{Paths: map[upstream.Op]string{upstream.PollVideo: "/tasks"}})
	for id, want := range map[string]string{
		"cgt-20260901-a": "/v1/tasks/cgt-20260901-a",
		"../a/b?c#d%2f":  "/v1/tasks/..%2Fa%2Fb%3Fc%23d%252f",
		"a b":            "/v1/tasks/a%20b",
		"":               "", ".": "", "..": "", // no request can be made
	} {
		to, err := c.TaskURL(&upstream.Call{Op: upstream.PollVideo, TaskID: id})
		if err == nil && to.RequestURI() != want || (err == nil) != (want != "") || err != nil && !fault.Is(err, fault.InternalError) {
			t.Errorf("%q: %v, %v, want %s", id, to, err, want)
		}
	}
}

func TestHowLongAVendorAsksToWait(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		ms, after string
		want      time.Duration
	}{
		{"", "", 0},
		{"", "7", 7 * time.Second},
		{"", " 1.5 ", 1500 * time.Millisecond},
		{"250.5", "7", 250500 * time.Microsecond},
		{"soon", "7", 7 * time.Second},
		{"", "-1", 0},
		{"", "NaN", 0},
		{"", "1e300", time.Hour},
		{"Inf", "", time.Hour},
		{"", "86400", time.Hour},
		{"", "Tue, 01 Sep 2026 12:00:30 GMT", 30 * time.Second},
		{"", "Tue, 01 Sep 2026 11:00:00 GMT", 0},
		{"", "Wed, 02 Sep 2026 12:00:00 GMT", time.Hour},
		{"", "tomorrow", 0},
	} {
		if got := retryAfter(http.Header{"Retry-After-Ms": {row.ms}, "Retry-After": {row.after}}, now); got != row.want {
			t.Errorf("ms %q, after %q: %s, want %s", row.ms, row.after, got, row.want)
		}
	}
}

// FuzzRetryAfter: a wait is between nothing and an hour, whatever the vendor
// says, and a plain number of seconds is what it says.
func FuzzRetryAfter(f *testing.F) {
	for _, row := range [][2]string{
		{"", "7"}, {"250", ""}, {"", "-1"}, {"", "99999999999999999999"}, {"", "0x10"}, {"", "1_000"}, {"NaN", "Inf"}, {"", "1e-400"},
		{"", "Tue, 01 Sep 2026 12:00:30 GMT"}, {"", "Thu, 01 Jan 1970 00:00:00 GMT"}, {"", "Fri, 31 Dec 9999 23:59:59 GMT"}, {"\x00", "7\r\nX: y"},
	} {
		f.Add(row[0], row[1])
	}
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, ms, after string) {
		d := retryAfter(http.Header{"Retry-After-Ms": {ms}, "Retry-After": {after}}, now)
		if d < 0 || d > MaxWait {
			t.Fatalf("%q, %q: %s", ms, after, d)
		}
		if n, err := strconv.ParseUint(after, 10, 32); err == nil && ms == "" && d != min(time.Duration(n)*time.Second, MaxWait) {
			t.Errorf("%q: %s", after, d)
		}
	})
}

// recordingConn is a connection that tells the largest of its writes.
type recordingConn struct {
	net.Conn
	largest *atomic.Int64
}

func (c recordingConn) Write(p []byte) (int, error) {
	if n := int64(len(p)); n > c.largest.Load() {
		c.largest.Store(n)
	}
	return c.Conn.Write(p)
}

func TestALongBodyIsWrittenAsItLiesInMemory(t *testing.T) {
	text := `"` + strings.Repeat("clip, clop. ", 1<<16) + `"`
	got := make(chan string, 1)
	vendor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got <- string(data)
	}))
	defer vendor.Close()
	var largest atomic.Int64
	c := newClient(t, upstream.DriverOptions{BaseURL: vendor.URL, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return recordingConn{conn, &largest}, err
	}}, Vendor{})
	o, err := rawjson.Index([]byte(`{"model":"a","text":`+text+`,"n":1}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := upstream.ObjectBody(o).Set("model", []byte(`"b"`))
	resp, _, err := c.Post(t.Context(), new(upstream.Call), c.Base, Header("*/*", "application/json"), body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if <-got != `{"model":"b","text":`+text+`,"n":1}` {
		t.Error("the vendor got another body")
	}
	if largest.Load() != int64(len(text)) {
		t.Errorf("the largest write has %d bytes of a text of %d", largest.Load(), len(text))
	}
}
