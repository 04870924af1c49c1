package httpdo_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/reranker"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// hostile is a vendor on a real socket, and the channel that leads to it.
type hostile struct {
	up    upstream.Driver
	conns sync.WaitGroup // of connections that the script still has
	ended chan struct{}  // closed when the test is over
	mute  chan struct{}  // the script says nothing more
	gone  chan time.Time // when a connection was over, as the vendor saw it
}

// listen starts a vendor whose connections are served by the script.
func listen(t *testing.T, o upstream.DriverOptions, script func(h *hostile, c net.Conn, r *bufio.Reader)) *hostile {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{ended: make(chan struct{}), mute: make(chan struct{}, 64), gone: make(chan time.Time, 64)}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.conns.Go(func() {
				defer c.Close()
				script(h, c, bufio.NewReader(c))
			})
		}
	}()
	o.BaseURL = "http://" + l.Addr().String()
	if h.up, err = openai.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(h.ended)
		_ = l.Close()
		_ = h.up.Close()
		<-accepted
		h.conns.Wait() // hangs, and fails the test, if the gateway keeps a connection
	})
	return h
}

// took reads a request; false at the end of the connection.
func took(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

// over says nothing more and waits until the other side has closed the connection.
func (h *hostile) over(r *bufio.Reader) {
	h.mute <- struct{}{}
	_, _ = io.Copy(io.Discard, r)
	h.gone <- time.Now()
}

func call(t testing.TB, stream bool, padding int) *upstream.Call {
	t.Helper()
	o, err := rawjson.Index([]byte(`{"model":"m","messages":[],"pad":"`+strings.Repeat("x", padding)+`"}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Call{Op: upstream.ChatCompletion, Model: "m", Stream: stream, RequestID: "req_1", Body: upstream.ObjectBody(o)}
}

// read makes a call through a Router, as the gateway does, and reads the answer
// to its end.
func (h *hostile) read(ctx context.Context, c *upstream.Call, limits router.Timeouts) (string, error) {
	router, err := router.New([]router.Channel{{
		Name: "only", Upstream: h.up, Models: map[string]string{"m": "m"}, Timeout: limits,
	}}, router.Options{})
	if err != nil {
		return "", err
	}
	reply, err := router.Do(ctx, c)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(reply.Body)
	return string(data), errors.Join(err, reply.Body.Close())
}

// badGateway reports whether err is a 502 of a request that the vendor has.
func badGateway(err error) bool {
	var f *upstream.Failure
	return fault.Is(err, fault.BadGateway) && errors.As(err, &f) && f.Sent
}

// says is a transport that gives one answer to everything.
type says struct {
	status           int
	kind, body, wait string
}

func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: s.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: -1,
		Header: http.Header{"Content-Type": {s.kind}, "Retry-After": {s.wait}}, Body: io.NopCloser(strings.NewReader(s.body)),
	}, nil
}

const vendorKey = "sk-vendor-0123456789"

// drivers are all that speak to a vendor over HTTP, with a call of each.
func drivers(t *testing.T, answer says) map[upstream.Op]upstream.Upstream {
	t.Helper()
	keys := []secret.String{secret.New(vendorKey)}
	o, err1 := openai.New(upstream.DriverOptions{Transport: answer, Keys: keys})
	a, err2 := anthropic.New(upstream.DriverOptions{Transport: answer, Keys: keys})
	d, err3 := dashscope.New(upstream.DriverOptions{Transport: answer, Keys: keys})
	k, err4 := ark.New(upstream.DriverOptions{Transport: answer, Keys: keys})
	v, err5 := voyage.New(upstream.DriverOptions{Transport: answer, Keys: keys})
	r, err6 := reranker.NewTEI(upstream.DriverOptions{Transport: answer, Keys: keys})
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	return map[upstream.Op]upstream.Upstream{
		upstream.ChatCompletion: o, upstream.Messages: a, upstream.GenerateImage: d, upstream.SubmitVideo: k, upstream.Embeddings: v, upstream.Rerank: r,
	}
}

// FuzzWhateverAVendorAnswersIsAReplyOrAFault: no driver panics, tells its key, or
// gives a caller a body that is no JSON; an error is a 4xx or 5xx with a message.
func FuzzWhateverAVendorAnswersIsAReplyOrAFault(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", "[]", `{"error":{"message":"m","type":"t","code":"c","param":"p"}}`, `{"error":"x"}`, `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`,
		`{"code":"InvalidParameter","message":"m","request_id":"r"}`, `{"detail":"m"}`, `[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]`, "<html>", `{"error":{"message":"` + vendorKey + `"}}`,
		`{"error":{"message":"a` + vendorKey + `","code":"` + vendorKey + `","param":"` + vendorKey + `"},"x":"` + vendorKey + `"}`,
		`{"code":"` + vendorKey + `","message":"a` + vendorKey + `"}`, `{"detail":"a` + vendorKey + `"}`, `{"detail":[{"loc":["` + vendorKey + `"],"msg":"a` + vendorKey + `"}]}`,
		"{\"error\":{\"message\":\"\xff\"}}", `{"error":{"message":1,"code":{},"param":[]}}`, "data: {}\n\n",
	} {
		for _, status := range []uint16{200, 201, 204, 302, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 503, 529, 999} {
			f.Add(status, "application/json", body, "7", true)
		}
		f.Add(uint16(200), "text/event-stream", body, "", true)
		f.Add(uint16(400), "text/html", body, "-1", false)
	}
	f.Fuzz(func(t *testing.T, status uint16, kind, body, wait string, stream bool) {
		for op, up := range drivers(t, says{int(status), kind, body, wait}) {
			c := call(t, stream, 0)
			c.Op = op
			reply, err := up.Do(t.Context(), c)
			if err == nil {
				_, err = io.Copy(io.Discard, reply.Body)
				if closeErr := reply.Body.Close(); reply.Status < 200 || reply.Status > 299 || closeErr != nil {
					t.Fatalf("%s: reply %+v, %v, %v", op, reply, err, closeErr)
				}
				continue
			}
			var e *fault.Error
			if !errors.As(err, &e) || e.HTTPStatus() < 400 || e.HTTPStatus() > 599 || e.Message == "" || e.RetryAfter < 0 {
				t.Fatalf("%s: %v", op, err)
			}
			if e.Body != nil && !json.Valid(e.Body) {
				t.Fatalf("%s: the caller gets %q", op, e.Body)
			}
			for _, text := range []string{err.Error(), e.Message, e.Param, string(e.Code), string(e.Body)} {
				if strings.Contains(text, vendorKey) {
					t.Fatalf("%s tells its key: %q", op, text)
				}
			}
		}
	})
}

const sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"

// TestAnAnswerThatIsCutAtAnyByteIsNoWholeOne is docs/reference/faults.md, row 3, for every way
// in which an answer says how long it is. What has no length ends where the
// connection does; that only a stream's terminator can tell.
func TestAnAnswerThatIsCutAtAnyByteIsNoWholeOne(t *testing.T) {
	for name, whole := range map[string]string{
		"a length": sseHead + "Content-Length: 14\r\n\r\ndata: [DONE]\n\n",
		"chunks": sseHead + "Transfer-Encoding: chunked\r\n\r\n" +
			"00000000b\r\ndata: {\"a\":\r\n0005;ext=\"x\"\r\n1}\n\n\n\r\nE\r\ndata: [DONE]\n\n\r\n0\r\nX-Trailer: a\r\n\r\n",
		"interim": "HTTP/1.1 100 Continue\r\n\r\n" + sseHead + "Content-Length: 2\r\n\r\n\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			cuts := make(chan int, 1)
			h := listen(t, upstream.DriverOptions{}, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				if took(r) {
					_, _ = io.WriteString(c, whole[:<-cuts])
				}
			})
			for cut := range len(whole) {
				cuts <- cut
				if data, err := h.read(t.Context(), call(t, true, 0), router.Timeouts{}); !badGateway(err) {
					t.Errorf("cut at %d of %d: %q, %v", cut, len(whole), data, err)
				}
			}
			cuts <- len(whole)
			if _, err := h.read(t.Context(), call(t, true, 0), router.Timeouts{}); err != nil {
				t.Errorf("whole: %v", err)
			}
		})
	}
}

// TestALengthThatIsALieIsTheVendorsFault is docs/reference/faults.md, row 3: what stands behind
// the declared end is nobody's answer.
func TestALengthThatIsALieIsTheVendorsFault(t *testing.T) {
	const stolen = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"
	for name, row := range map[string]struct {
		answer string
		want   string // the body; "502" if there is none
	}{
		"too large":            {"Content-Length: 10\r\n\r\n{}", "502"},
		"too small":            {"Content-Length: 2\r\n\r\n{}" + stolen, "{}"},
		"negative":             {"Content-Length: -1\r\n\r\n{}", "502"},
		"no number":            {"Content-Length: 2x\r\n\r\n{}", "502"},
		"larger than a number": {"Content-Length: 99999999999999999999\r\n\r\n{}", "502"},
		"a sign":               {"Content-Length: +2\r\n\r\n{}", "502"},
		"a list of two":        {"Content-Length: 2, 2\r\n\r\n{}", "502"},
		"twice the same":       {"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "{}"},
		"twice":                {"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "502"},
		"chunks and a length":  {"Transfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}"},
		"chunked twice":        {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "502"},
		"an unknown coding":    {"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "502"},
		"no chunk size":        {"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n", "502"},
		"a huge chunk size":    {"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n", "502"},
		"a negative chunk":     {"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", "502"},
		"no end of a chunk":    {"Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n", "502"},
	} {
		t.Run(name, func(t *testing.T) {
			h := listen(t, upstream.DriverOptions{}, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				for took(r) {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"+row.answer)
					if row.want == "502" {
						return // or the end of it would be waited for
					}
				}
			})
			for range 2 { // the second must not get what was left of the first
				data, err := h.read(t.Context(), call(t, false, 0), router.Timeouts{})
				if row.want == "502" && !badGateway(err) || row.want != "502" && (err != nil || data != row.want) {
					t.Errorf("%q, %v", data, err)
				}
			}
		})
	}
}

// TestWhatHasNoEndIsGivenUp is docs/reference/faults.md, row 8: parts of an answer that go on
// and on end the call before they take memory.
func TestWhatHasNoEndIsGivenUp(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, row := range map[string]struct{ start, again string }{
		"one header":           {ok + "X: ", "yyyyyyyyyyyyyyyy"},
		"headers":              {ok, "X-Y: y\r\n"},
		"a folded header":      {ok + "X: y\r\n", " y\r\n"},
		"a status line":        {"HTTP/1.1 200 ", "OK"},
		"100 Continue":         {"", "HTTP/1.1 100 Continue\r\n\r\n"},
		"103 Early Hints":      {"", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"},
		"no HTTP":              {"", "\x00\xff"},
		"a chunk's extension":  {ok + "Transfer-Encoding: chunked\r\n\r\n2;", "xxxxxxxxxxxxxxxx"},
		"extensions of chunks": {ok + "Transfer-Encoding: chunked\r\n\r\n", "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n"},
		"a trailer":            {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", "yyyyyyyyyyyyyyyy"},
		"trailers":             {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", "X: yyyyyyyyyyyyyyyy\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 8 << 20 // with what the system's buffers take
			sent := make(chan int, 1)
			h := listen(t, upstream.DriverOptions{}, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				if !took(r) {
					return
				}
				n, err := io.WriteString(c, row.start)
				block := strings.Repeat(row.again, 4096)
				for err == nil && n < 4*most {
					var more int
					more, err = io.WriteString(c, block)
					n += more
				}
				sent <- n
			})
			data, err := h.read(t.Context(), call(t, false, 0), router.Timeouts{})
			if !badGateway(err) || len(data) > 1<<20 {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			if n := <-sent; n > most {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

// TestACodingThatNobodyAskedForIsRefusedOrUnfoldedUnderACap is docs/reference/faults.md, rows 8
// and 9: a vendor is asked for no coding, and may say what it wants.
func TestACodingThatNobodyAskedForIsRefusedOrUnfoldedUnderACap(t *testing.T) {
	zip := string(vendortest.Gzip(t, 1<<20))
	for name, row := range map[string]struct {
		coding, body string
		want         int // bytes; below 0 for a 502
	}{
		"gzip":                {"gzip", zip, 1 << 20},
		"GZIP":                {" GZIP ", zip, 1 << 20},
		"identity":            {"identity", "{}", 2},
		"nothing":             {"", "{}", 2},
		"gzip that is none":   {"gzip", "{}", -1},
		"gzip that is cut":    {"gzip", zip[:len(zip)/2], -1},
		"gzip of nothing":     {"gzip", "", -1},
		"gzip and more":       {"gzip", zip + "{}", -1},
		"gzip in gzip":        {"gzip, gzip", zip, -1},
		"two headers":         {"gzip\r\nContent-Encoding: gzip", zip, -1},
		"deflate":             {"deflate", zip, -1},
		"br":                  {"br", "\x0b\x02\x80{}\x03", -1},
		"zstd":                {"zstd", "\x28\xb5\x2f\xfd", -1},
		"compress":            {"compress", zip, -1},
		"identity, then gzip": {"identity, gzip", zip, -1},
		"a word of no one":    {"x\x01", "{}", -1},
	} {
		t.Run(name, func(t *testing.T) {
			h := listen(t, upstream.DriverOptions{}, func(_ *hostile, c net.Conn, r *bufio.Reader) {
				if took(r) {
					_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", row.coding, len(row.body), row.body)
				}
			})
			data, err := h.read(t.Context(), call(t, false, 0), router.Timeouts{})
			if row.want < 0 && !badGateway(err) || row.want >= 0 && (err != nil || len(data) != row.want) {
				t.Errorf("%d bytes, %v", len(data), err)
			}
		})
	}
}

// silent are the ways in which a vendor that is half dead says nothing more.
var silent = map[string]struct {
	script func(h *hostile, c net.Conn, r *bufio.Reader)
	begun  bool // a byte of the answer has come
}{
	"accepts and never reads": {func(h *hostile, _ net.Conn, _ *bufio.Reader) { <-h.ended }, false},
	"never answers":           {falls(""), false},
	"half a header":           {falls("HTTP/1.1 200 OK\r\nContent-Ty"), false},
	"interim answers only":    {falls("HTTP/1.1 103 Early Hints\r\n\r\n"), false},
	"a head and no byte":      {falls("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"), false},
	"an event and no more":    {falls("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n"), true},
	"half a chunk's size":     {falls("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\na\r\ndata: {}\n\n\r\n1"), true},
}

// falls is a vendor that takes the request, says so much, and then nothing more.
func falls(said string) func(*hostile, net.Conn, *bufio.Reader) {
	return func(h *hostile, c net.Conn, r *bufio.Reader) {
		if took(r) {
			_, _ = io.WriteString(c, said)
			h.over(r)
		}
	}
}

// TestAVendorThatFallsSilentIsGivenUpInTime is docs/reference/faults.md, row 2, on sockets.
func TestAVendorThatFallsSilentIsGivenUpInTime(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, row := range silent {
		t.Run(name, func(t *testing.T) {
			h := listen(t, upstream.DriverOptions{}, row.script)
			limits := router.Timeouts{Headers: 50 * time.Millisecond, Idle: 50 * time.Millisecond, Total: time.Minute}
			what, size := "did not begin its answer within 50ms", 16<<20 // more than the system keeps of it
			if row.begun {
				limits.Headers, what, size = time.Minute, "fell silent for 50ms", 0
			}
			c := call(t, true, size)
			start := time.Now()
			_, err := h.read(t.Context(), c, limits)
			took := time.Since(start)
			if !fault.Is(err, fault.RequestTimeout) || !strings.Contains(fault.From(err).Message, what) || took > 30*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
	settled(t, before)
}

// TestACallThatIsGivenUpIsCancelledWithinATenthOfASecond is docs/reference/faults.md, row 1:
// what a vendor on a socket sees of a client that left.
func TestACallThatIsGivenUpIsCancelledWithinATenthOfASecond(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, row := range silent {
		if name == "accepts and never reads" {
			continue // it looks at nothing
		}
		t.Run(name, func(t *testing.T) {
			const tries, most = 20, 100 * time.Millisecond // a machine that is busy is late at times, a gateway always
			for range tries {
				late := outlived(t, row.script)
				if late <= most {
					return
				}
				t.Logf("the vendor saw it after %s", late)
			}
			t.Errorf("the vendor saw it too late each of %d times", tries)
		})
	}
	settled(t, before)
}

// outlived is by how much the call of a vendor outlives its client.
func outlived(t *testing.T, script func(h *hostile, c net.Conn, r *bufio.Reader)) time.Duration {
	t.Helper()
	h := listen(t, upstream.DriverOptions{}, script)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan time.Time, 1)
	go func() {
		<-h.mute
		left <- time.Now()
		cancel()
	}()
	if _, err := h.read(ctx, call(t, true, 0), router.Timeouts{}); !fault.Is(err, fault.ClientGone) {
		t.Errorf("%v", err)
	}
	return (<-h.gone).Sub(<-left)
}

// settled fails if goroutines stay.
func settled(t *testing.T, before int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; {
		if runtime.NumGoroutine() <= before {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	all := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, all[:runtime.Stack(all, true)])
}

// TestAKeyAtTheCutOfAVendorsTextIsMasked moves a key over the place where a text
// is cut for the log.
func TestAKeyAtTheCutOfAVendorsTextIsMasked(t *testing.T) {
	const key = "sk-vendor-0123456789-0123456789"
	call := &upstream.Call{Op: upstream.ChatCompletion, Model: "m", Stream: true, Body: vendortest.Body(t, `{"model":"m"}`)}
	var answer http.HandlerFunc
	up := vendortest.New(t, openai.New, upstream.DriverOptions{
		BaseURL: vendortest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) })), Keys: vendortest.Keys(key),
	})
	for at := 1024 - len(key) - 1; at <= 1025; at++ {
		text := strings.Repeat("x", at) + key + "y"
		for name, row := range map[string]http.HandlerFunc{
			"an error's body": vendortest.Responds(http.StatusInternalServerError, nil, text),
			"a location":      vendortest.Responds(http.StatusFound, map[string]string{"Location": "/" + text[1:]}, ""),
		} {
			answer = row
			e, _ := vendortest.Refused(t, up, call)
			if strings.Contains(e.Error(), key[:4]) {
				t.Fatalf("%s with a key at %d: %s", name, at, e.Error()[max(0, len(e.Error())-60):])
			}
		}
	}
}
