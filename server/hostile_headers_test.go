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
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

var update = flag.Bool("update", false, "write the golden files anew")

// socketVendor is a vendor on a real socket: script gets every connection.
func socketVendor(t *testing.T, script func(c net.Conn, r *bufio.Reader)) upstream.Upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				script(c, bufio.NewReader(c))
			}()
		}
	}()
	up, err := openai.New(upstream.DriverOptions{BaseURL: "http://" + l.Addr().String()})
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

// TestNoHeaderOfAVendorReachesAClientButTheseFew is docs/faults.md, row 8.
func TestNoHeaderOfAVendorReachesAClientButTheseFew(t *testing.T) {
	stream := "data: " + delta("hi") + "\n\ndata: [DONE]\n\n"
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
