package server_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// dial opens a connection to the server, with as little room for answers as the
// system gives, and sends the beginning of a request.
func (s *fixture) dial(t *testing.T, path, body string, whole bool) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	tcp := c.(*net.TCPConn)
	if err := tcp.SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	length := len(body)
	if !whole {
		length++
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, s.key.Reveal(), length, body); err != nil {
		t.Fatal(err)
	}
	return tcp
}

// TestAVendorIsCancelledWithinATenthOfASecondOfItsClientsDeath is docs/reference/faults.md, row
// 1, on sockets: of a stream that has begun, however the client went.
func TestAVendorIsCancelledWithinATenthOfASecondOfItsClientsDeath(t *testing.T) {
	deaths := map[string]func(*net.TCPConn) error{
		"closes": func(c *net.TCPConn) error { return c.Close() },
		"resets": func(c *net.TCPConn) error {
			if err := c.SetLinger(0); err != nil {
				return err
			}
			return c.Close()
		},
	}
	for name, row := range map[string]struct{ path, body, answer string }{
		"after an event":         {"/v1/chat/completions", smallStream, "data: " + servertest.Delta("a") + "\n\n"},
		"within the second line": {"/v1/chat/completions", smallStream, "data: " + servertest.Delta("a") + "\n\ndata: {"},
	} {
		for how, die := range deaths {
			t.Run(name+", "+how, func(t *testing.T) {
				const tries, most = 20, 100 * time.Millisecond // a machine that is busy is late at times, a gateway always
				for range tries {
					if late := surviveClient(t, row.path, row.body, row.answer, die); late > most {
						t.Logf("the vendor saw it after %s", late)
						continue
					}
					return
				}
				t.Errorf("the vendor saw it too late each of %d times", tries)
			})
		}
	}
}

// surviveClient is by how much the call of a vendor outlives its client.
func surviveClient(t *testing.T, path, body, answer string, die func(*net.TCPConn) error) time.Duration {
	t.Helper()
	reached, gone := make(chan struct{}, 1), make(chan time.Time, 1)
	s := newFixture(t, fixtureOptions{upstream: socketVendor(t, func(c net.Conn, r *bufio.Reader) {
		if readRequest(r) == nil {
			return
		}
		if answer != "" {
			kind := "application/json"
			if strings.HasPrefix(answer, "data") {
				kind = "text/event-stream"
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n\r\n%s", kind, answer)
		}
		reached <- struct{}{}
		_, _ = io.Copy(io.Discard, r)
		gone <- time.Now()
	})})
	c := s.dial(t, path, body, true)
	<-reached
	if strings.Contains(answer, "\n\n") { // an event, which then has come through
		if _, err := io.ReadFull(c, make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now()
	if err := die(c); err != nil {
		t.Fatal(err)
	}
	select {
	case seen := <-gone:
		return seen.Sub(at)
	case <-time.After(time.Minute):
		t.Fatal("the vendor is still asked")
	}
	return 0
}

// TestNoReplyIsCutThatCameBeforeTheRequestWasRead is docs/reference/faults.md, row 39: the vendor
// answers at the first byte of a body, and reads the rest of it only then.
func TestNoReplyIsCutThatCameBeforeTheRequestWasRead(t *testing.T) {
	times := longtest.Count(10_000, 500)
	filling := strings.Repeat("x", 4<<10)
	answer := strings.Replace(vendorAnswer, "hi", filling, 1)
	events := "data: " + servertest.Delta(filling) + "\n\ndata: [DONE]\n\n"
	s := newFixture(t, fixtureOptions{credit: 1_000_000_000_000, upstream: socketVendor(t, func(c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, kind := answer, "application/json"
			if req.Header.Get("Accept") == "text/event-stream" {
				body, kind = events, "text/event-stream"
			}
			if _, err := io.ReadFull(req.Body, make([]byte, 1)); err != nil {
				return
			}
			if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body); err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
		}
	})})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	var cut atomic.Int64
	done := make(chan struct{})
	for worker := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := worker; i < times; i += 4 {
				ask := small
				if i%2 == 0 {
					ask = smallStream
				}
				if !s.wholeReply(t, client, strings.Replace(ask, "hi", filling, 1), filling) {
					cut.Add(1)
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
	if n := cut.Load(); n != 0 {
		t.Errorf("%d of %d replies were cut", n, times)
	}
}

// wholeReply reports whether the answer to a request is whole.
func (s *fixture) wholeReply(t *testing.T, client *http.Client, body, want string) bool {
	resp, err := client.Do(s.request(t, t.Context(), "/v1/chat/completions", strings.NewReader(body)))
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return err == nil && resp.StatusCode == 200 && strings.Contains(string(data), want) && !strings.Contains(string(data), `"error"`)
}

// TestARefusalIsReadByAClientThatIsStillSending is row 39 the other way round: we
// answer before the body was read.
func TestARefusalIsReadByAClientThatIsStillSending(t *testing.T) {
	s := newFixture(t, fixtureOptions{server: server.Options{MaxBody: 1 << 20}})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	for name, row := range map[string]struct {
		size   int64 // of the body; below 0 for one that does not say so
		key    string
		status int
	}{
		"a wrong key":        {2 << 20, "sk-wrong", 401},
		"too large":          {2 << 20, s.key.Reveal(), 413},
		"too large, chunked": {-2 << 20, s.key.Reveal(), 413},
	} {
		for range 50 {
			size := max(row.size, -row.size)
			req := s.request(t, t.Context(), "/v1/chat/completions", io.NopCloser(io.LimitReader(zero{}, size)))
			if req.ContentLength = size; row.size < 0 {
				req.ContentLength = -1
			}
			req.Header.Set("Authorization", "Bearer "+row.key)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			data, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != row.status || !strings.HasSuffix(string(data), "}\n") {
				t.Fatalf("%s: %d %s, %v", name, resp.StatusCode, data, err)
			}
		}
	}
}

// zero is a body of spaces.
type zero struct{}

func (zero) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

var update = flag.Bool("update", false, "write the golden files anew")

// socketVendor is a vendor on a real socket: script gets every connection.
func socketVendor(t *testing.T, script func(c net.Conn, r *bufio.Reader)) upstream.Upstream {
	t.Helper()
	address := servertest.Listen(t, func(c net.Conn) { script(c, bufio.NewReader(c)) })
	up, err := openai.New(upstream.DriverOptions{BaseURL: "http://" + address, Wire: []upstream.Op{upstream.ChatCompletion, upstream.Responses}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	return up
}

// readRequest reads one request of a connection; nil at its end.
func readRequest(r *bufio.Reader) *http.Request {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(req.Body)
	if err != nil {
		return nil
	}
	req.Body = io.NopCloser(bytes.NewReader(data))
	return req
}

const vendorAnswer = `{"id":"u","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// vendorHeads are heads of a vendor's answers. LENGTH stands for that of the body,
// which follows.
var vendorHeads = []struct{ name, head string }{
	{"plain", "200 OK\r\nContent-Length: LENGTH"},
	{"cookies", "200 OK\r\nContent-Length: LENGTH\r\nSet-Cookie: session=stolen; Domain=.example.com\r\nSet-Cookie2: a=b"},
	{"hop by hop", "200 OK\r\nContent-Length: LENGTH\r\nConnection: X-Api, keep-alive\r\nX-Api: a\r\nKeep-Alive: timeout=1\r\nProxy-Authenticate: Basic\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nTE: trailers\r\nTrailer: X-Late"},
	{"who the vendor is", "200 OK\r\nContent-Length: LENGTH\r\nServer: vendor/1.0\r\nX-Request-Id: of-the-vendor\r\nRequest-Id: of-the-vendor\r\nOpenAI-Organization: org-secret\r\nCF-Ray: x\r\nVia: 1.1 inside.vendor.example\r\nX-Powered-By: y"},
	{"policies", "200 OK\r\nContent-Length: LENGTH\r\nAccess-Control-Allow-Origin: *\r\nStrict-Transport-Security: max-age=0\r\nContent-Security-Policy: default-src *\r\nAlt-Svc: h3=\"evil:443\"\r\nClear-Site-Data: \"*\"\r\nRefresh: 0; url=http://evil/\r\nLink: <http://evil/>; rel=preload\r\nX-Content-Type-Options: any\r\nContent-Disposition: attachment; filename=x.exe"},
	{"our own words", "200 OK\r\nContent-Length: LENGTH\r\nX-Gateway-Charge: 0.00\r\nX-Gateway-Dropped: all\r\nX-Ratelimit-Remaining-Requests: 9999\r\nIdempotent-Replayed: true\r\nX-Should-Retry: true\r\nRetry-After: 7\r\nDeprecation: @1\r\nSunset: tomorrow"},
	{"caching", "200 OK\r\nContent-Length: LENGTH\r\nCache-Control: public, max-age=31536000\r\nETag: \"x\"\r\nExpires: Tue, 01 Jan 2999 00:00:00 GMT\r\nAge: 1\r\nVary: *\r\nLast-Modified: x"},
	{"a script", "200 OK\r\nContent-Length: LENGTH\r\nContent-Type: text/html; charset=utf-7"},
	{"a language", "200 OK\r\nContent-Length: LENGTH\r\nContent-Language: de\r\nContent-Location: http://evil/\r\nContent-MD5: x\r\nContent-Range: bytes 0-1/2\r\nDigest: x"},
	{"a bare CR", "200 OK\r\nContent-Length: LENGTH\r\nX: y\rSet-Cookie: stolen=1"},
	{"a folded header", "200 OK\r\nContent-Length: LENGTH\r\nX: y\r\n Set-Cookie: stolen=1"},
	{"a NUL", "200 OK\r\nContent-Length: LENGTH\r\nX: \x00"},
	{"a space before the colon", "200 OK\r\nContent-Length: LENGTH\r\nSet-Cookie : stolen=1"},
	{"no colon", "200 OK\r\nContent-Length: LENGTH\r\nSet-Cookie"},
	{"a line that begins with a blank", "200 OK\r\n stolen words\r\nContent-Length: LENGTH"},
	{"a length of words", "200 OK\r\nContent-Length: stolen"},
	{"a coding of words", "200 OK\r\nTransfer-Encoding: stolen"},
	{"two lengths", "200 OK\r\nContent-Length: LENGTH\r\nContent-Length: stolen"},
	{"a status of words", "stolen words"},
	{"a status of two digits", "99 Low\r\nContent-Length: LENGTH"},
	{"a status of four digits", "2000 OK\r\nContent-Length: LENGTH"},
	{"a status of 999", "999 High\r\nContent-Length: LENGTH"},
	{"no content", "204 No Content"},
	{"reset content", "205 Reset Content\r\nContent-Length: 0"},
	{"a part", "206 Partial Content\r\nContent-Length: LENGTH\r\nContent-Range: bytes 0-1/9"},
	{"not modified", "304 Not Modified"},
	{"a redirect", "307 Temporary Redirect\r\nContent-Length: LENGTH\r\nLocation: http://user:stolen@127.0.0.1:1/v1"},
	{"a login", "401 Unauthorized\r\nContent-Length: LENGTH\r\nWWW-Authenticate: Basic realm=\"give me your key\""},
	{"payment", "402 Payment Required\r\nContent-Length: LENGTH\r\nLocation: http://pay.evil/"},
	{"a proxy's login", "407 Proxy Authentication Required\r\nContent-Length: LENGTH\r\nProxy-Authenticate: Basic"},
	{"a wait below zero", "429 Too Many\r\nContent-Length: LENGTH\r\nRetry-After: -5"},
	{"a wait of ages", "429 Too Many\r\nContent-Length: LENGTH\r\nRetry-After: 99999999999999999999"},
	{"a wait until long ago", "503 Away\r\nContent-Length: LENGTH\r\nRetry-After: Thu, 01 Jan 1970 00:00:00 GMT"},
	{"a wait until far", "503 Away\r\nContent-Length: LENGTH\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT"},
	{"a wait with a break", "429 Too Many\r\nContent-Length: LENGTH\r\nRetry-After: 5\rX-Evil: 1"},
	{"two waits", "429 Too Many\r\nContent-Length: LENGTH\r\nRetry-After: 5\r\nRetry-After: 9"},
	{"upgrade required", "426 Upgrade Required\r\nContent-Length: LENGTH\r\nUpgrade: evil"},
}

var ownID = regexp.MustCompile(`req_[0-9A-Za-z]+`)

// headersOf shows what reaches a client of an answer with the head.
func headersOf(t *testing.T, head, body, ask, kind string) string {
	t.Helper()
	head = strings.Replace(head, "LENGTH", fmt.Sprint(len(body)), 1)
	if !strings.Contains(head, "Content-Type") {
		head += "\r\nContent-Type: " + kind
	}
	s := newFixture(t, fixtureOptions{upstream: socketVendor(t, func(c net.Conn, r *bufio.Reader) {
		for readRequest(r) != nil {
			if _, err := io.WriteString(c, "HTTP/1.1 "+head+"\r\n\r\n"+body); err != nil || !strings.Contains(head, "Content-Length") {
				return
			}
		}
	})})
	resp, err := http.DefaultClient.Do(s.request(t, t.Context(), "/v1/chat/completions", strings.NewReader(ask)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "stolen") || strings.Contains(s.log.String(), "stolen") {
		t.Errorf("%q shows in %s\n%s", head, data, s.log)
	}
	resp.Header.Del("Date")
	resp.Header.Del("Content-Length")
	var out strings.Builder
	fmt.Fprintf(&out, "  %d\n", resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		fmt.Fprintf(&out, "    %s: %s\n", name, ownID.ReplaceAllString(strings.Join(resp.Header[name], " | "), "req_…"))
	}
	return out.String()
}

// TestNoHeaderOfAVendorReachesAClientButTheseFew is docs/reference/faults.md, row 8.
func TestNoHeaderOfAVendorReachesAClientButTheseFew(t *testing.T) {
	stream := "data: " + servertest.Delta("hi") + "\n\ndata: [DONE]\n\n"
	var got strings.Builder
	for _, n := range vendorHeads {
		fmt.Fprintf(&got, "%s\n%s  a stream:\n%s", n.name, headersOf(t, n.head, vendorAnswer, small, "application/json"), headersOf(t, n.head, stream, smallStream, "text/event-stream"))
	}
	path := filepath.Join("testdata", "hostile_headers.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-want +got); -update writes it anew:\n%s", path, diff)
	}
}
