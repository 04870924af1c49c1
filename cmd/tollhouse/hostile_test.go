package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/servertest"
)

// recordingVendor records the requests that it gets, byte for byte.
type recordingVendor struct {
	url   string
	more  string // sent behind each answer
	mu    sync.Mutex
	heads []string
}

const chatAnswer = `{"id":"u","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// newRecordingVendor starts a vendor that sends something more behind each answer.
func newRecordingVendor(t *testing.T, more string) *recordingVendor {
	t.Helper()
	n := &recordingVendor{more: more}
	n.url = "http://" + servertest.Listen(t, n.serve)
	return n
}

// serve reads requests line by line, as nobody's parser would have them.
func (n *recordingVendor) serve(c net.Conn) {
	for r := bufio.NewReader(c); ; {
		var head strings.Builder
		length := 0
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
			_, _ = fmt.Sscanf(line, "Content-Length: %d", &length)
			if line == "\r\n" {
				break
			}
		}
		if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
			return
		}
		n.mu.Lock()
		n.heads = append(n.heads, head.String())
		n.mu.Unlock()
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(chatAnswer), chatAnswer+n.more)
	}
}

// takeHeads gives what was asked since the last time.
func (n *recordingVendor) takeHeads() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	heads := n.heads
	n.heads = nil
	return heads
}

// sentinel is a request that a server answers with "ok" if it has read all before
// it as it was meant, and after which it closes.
const sentinel = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

// raw sends bytes and the sentinel on a connection of their own, and gives the
// statuses of all that is answered.
func raw(t *testing.T, address, text string) (statuses []string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(c, text+sentinel) }() // of which the server may not take all
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses
		}
		data, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			return statuses
		case strings.HasPrefix(string(data), `{"status":"ok"`):
			statuses = append(statuses, "ok")
		case resp.StatusCode != http.StatusContinue:
			statuses = append(statuses, fmt.Sprint(resp.StatusCode))
		}
	}
}

const hostileBody = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// hostileRequest is a request for an answer with further header lines.
func hostileRequest(lines ...string) string {
	return "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

// sized is one whose length is as it should be.
func sized(lines ...string) string {
	return hostileRequest(append(lines, fmt.Sprintf("Content-Length: %d", len(hostileBody)))...) + hostileBody
}

// inChunks is a body in chunks.
func inChunks() string {
	return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hostileBody), hostileBody)
}

// smuggled would be a second request, if the end of the first were misread.
const smuggled = "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n"

// hostileRequests are raw bytes, what they are answered with, and how often the
// vendor is asked.
var hostileRequests = []struct {
	name, text string
	want       string
	asked      int
}{
	{"as it should be", sized(), "200 ok", 1},
	{"two in a row", sized() + sized(), "200 200 ok", 2},
	{"chunks", hostileRequest("Transfer-Encoding: chunked") + inChunks(), "200 ok", 1},
	{"bare line feeds", strings.ReplaceAll(sized(), "\r\n", "\n"), "200 ok", 1},
	{"a folded header", sized("X: a\r\n b"), "200 ok", 1},
	{"a length and chunks", hostileRequest("Content-Length: 5", "Transfer-Encoding: chunked") + inChunks() + smuggled, "200 200 ok", 1},
	{"chunks and a length", hostileRequest("Transfer-Encoding: chunked", "Content-Length: 5") + inChunks() + smuggled, "200 200 ok", 1},
	{"chunked twice", hostileRequest("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + inChunks(), "501", 0},
	{"chunked, identity", hostileRequest("Transfer-Encoding: chunked, identity") + inChunks(), "501", 0},
	{"gzip, chunked", hostileRequest("Transfer-Encoding: gzip, chunked") + inChunks(), "501", 0},
	{"a space before the colon", hostileRequest("Transfer-Encoding : chunked") + inChunks(), "400", 0},
	{"a folded coding", hostileRequest("Transfer-Encoding:\r\n chunked") + inChunks(), "200 ok", 1},
	{"chunks in HTTP/1.0", strings.Replace(hostileRequest("Transfer-Encoding: chunked"), "HTTP/1.1", "HTTP/1.0", 1) + inChunks(), "400", 0},
	{"the same length twice", hostileRequest("Content-Length: 57", "Content-Length: 57") + hostileBody, "200 ok", 1},
	{"two lengths", hostileRequest("Content-Length: 57", "Content-Length: 5") + hostileBody, "400", 0},
	{"a length with a sign", hostileRequest("Content-Length: +57") + hostileBody, "400", 0},
	{"a length below zero", hostileRequest("Content-Length: -1") + hostileBody, "400", 0},
	{"a length that overflows", hostileRequest("Content-Length: 18446744073709551673") + hostileBody, "400", 0},
	{"a length that is too short", hostileRequest("Content-Length: 5") + hostileBody, "400 400", 0},
	{"a length that is too long", hostileRequest("Content-Length: 99") + hostileBody, "400 400", 0},
	{"no length", hostileRequest() + hostileBody, "400 400", 0},
	{"a chunk's size with a sign", hostileRequest("Transfer-Encoding: chunked") + "+39\r\n" + hostileBody + "\r\n0\r\n\r\n", "400", 0},
	{"a chunk's size that overflows", hostileRequest("Transfer-Encoding: chunked") + "10000000000000039\r\n" + hostileBody + "\r\n0\r\n\r\n", "400", 0},
	{"a chunk without its end", hostileRequest("Transfer-Encoding: chunked") + "39\r\n" + hostileBody + "0\r\n\r\n", "400", 0},
	{"a line feed in a chunk's extension", hostileRequest("Transfer-Encoding: chunked") + "39;a\nb\r\n" + hostileBody + "\r\n0\r\n\r\n", "400", 0},
	{"a key in the trailer", strings.Replace(hostileRequest("Transfer-Encoding: chunked", "Trailer: Authorization"), "Authorization: Bearer KEY\r\n", "", 1) + fmt.Sprintf("%x\r\n%s\r\n0\r\nAuthorization: Bearer KEY\r\n\r\n", len(hostileBody), hostileBody), "401 ok", 0},
	{"a body where none belongs", strings.Replace(sized(), "POST /v1/chat/completions", "GET /v1/models", 1) + smuggled, "200 200 ok", 0},
	{"an absolute address with a name", strings.Replace(sized(), "POST /", "POST http://a:b@evil.example/", 1), "200 ok", 1},
	{"two hosts", sized("Host: y"), "400", 0},
	{"no host", strings.Replace(sized(), "Host: x\r\n", "", 1), "400", 0},
	{"a NUL in a value", sized("X: a\x00b"), "400", 0},
	{"a CR in a value", sized("X: a\rY: b"), "400", 0},
	{"no colon", sized("X"), "400", 0},
	{"a long header", sized("X: " + strings.Repeat("y", 128<<10)), "431", 0},
	{"many headers", sized(strings.TrimSuffix(strings.Repeat("X: y\r\n", 20_000), "\r\n")), "431", 0},
	{"a long address", strings.Replace(sized(), "POST /v1/", "POST /v1/"+strings.Repeat("x", 128<<10), 1), "431", 0},
	{"a line without an end", strings.Repeat("x", 256<<10), "431", 0},
	{"HTTP/1.0", strings.Replace(sized(), "HTTP/1.1", "HTTP/1.0", 1), "200", 1},
	{"HTTP/2.0 in words", strings.Replace(sized(), "HTTP/1.1", "HTTP/2.0", 1), "505", 0},
	{"HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "404", 0},
	{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400", 0},
	{"an upgrade to h2c", sized("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"), "200 ok", 1},
	{"CONNECT", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nAuthorization: Bearer KEY\r\n\r\n", "404 ok", 0},
	{"TRACE", "TRACE /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n", "405 ok", 0},
	{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n", "200 ok", 0},
	{"a method in small letters", strings.Replace(sized(), "POST", "post", 1), "405 ok", 0},
	{"another method by a header", sized("X-HTTP-Method-Override: GET", "X-Method-Override: DELETE"), "200 ok", 1},
	{"what to expect", sized("Expect: 100-continue"), "200 ok", 1},
	{"what not to expect", sized("Expect: 200-ok"), "417", 0},
	{"two keys", sized("Authorization: Bearer sk-other"), "401 ok", 0},
	{"the key named as hop by hop", sized("Connection: close, Authorization"), "200", 1},
	{"two keys that differ", sized("X-Api-Key: k"), "401 ok", 0},
	{"headers of a proxy", sized("X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: evil.example", "X-Real-IP: ::1", "Forwarded: for=_x;host=evil", "Via: 1.1 x", "X-Original-URL: /admin/v1/accounts", "X-Rewrite-URL: /admin/v1/accounts", "X-Request-Id: mine", "Cookie: a=b", "Proxy-Authorization: Basic x", "TE: trailers, gzip", "Accept-Encoding: gzip", "X-Api-Key: KEY", "Anthropic-Beta: x", "OpenAI-Organization: o", "Range: bytes=0-1", "If-None-Match: *"), "200 ok", 1},
}

// TestWhatIsNoCleanRequestIsRefusedOrReadInOneWay is docs/reference/faults.md, row 36.
func TestWhatIsNoCleanRequestIsRefusedOrReadInOneWay(t *testing.T) {
	n := newRecordingVendor(t, "")
	i := start(t, acme, "--config", file(t, `billing: count
channels:
  - {name: main, driver: openai, base_url: `+n.url+`/v1, keys: [sk-vendor], models: {m: m}}
accounts:
  - {name: acme, keys: [{env: ACME_KEY}]}
`))
	address := strings.TrimPrefix(i.api, "http://")
	for _, row := range hostileRequests {
		got := strings.Join(raw(t, address, strings.ReplaceAll(row.text, "KEY", acme["ACME_KEY"])), " ")
		heads := n.takeHeads()
		if got != row.want || len(heads) != row.asked {
			t.Errorf("%s: answered %q, want %q; the vendor was asked %d times, want %d", row.name, got, row.want, len(heads), row.asked)
		}
		for _, head := range heads {
			checkHead(t, row.name, head)
		}
	}
}

// checkHead is what goes to a vendor: made from scratch, whatever came.
func checkHead(t *testing.T, name, head string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(head, "\r\n\r\n"), "\r\n")
	want := []string{"Host", "User-Agent", "Content-Length", "Accept", "Authorization", "Content-Type", "Via"}
	var got []string
	for _, line := range lines[1:] {
		field, _, _ := strings.Cut(line, ":")
		got = append(got, field)
	}
	slices.Sort(want)
	slices.Sort(got)
	if lines[0] != "POST /v1/chat/completions HTTP/1.1" || !slices.Equal(got, want) || !strings.Contains(head, "Authorization: Bearer sk-vendor\r\n") || strings.Contains(head, "evil") {
		t.Errorf("%s: the vendor gets %q", name, head)
	}
}

// asProgram is the variable of the environment that makes this binary the program.
const asProgram = "TOLLHOUSE_TEST_AS_PROGRAM"

// TestMain runs the tests, or main in a process that a test has started for it: to build
// the program once more, with the flags of these tests, takes minutes.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestWhatAVendorSendsUnaskedIsNotPrinted runs the program itself, whose standard
// logger net/http prints to.
func TestWhatAVendorSendsUnaskedIsNotPrinted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	name := file(t, "billing: count\nstore: \"memory:\"\nchannels:\n  - {name: main, driver: openai, base_url: "+newRecordingVendor(t, "HTTP/1.1 200 OK\r\nX: stolen\r\n\r\nstolen").url+"/v1, models: {m: m}}\naccounts:\n  - {name: acme, keys: [{env: ACME_KEY}]}\n")
	cmd := exec.CommandContext(ctx, os.Args[0], "serve", "--config", name, "--listen", "127.0.0.1:0", "--admin", "off", "--data", filepath.Join(t.TempDir(), "data"))
	cmd.Env = append(os.Environ(), asProgram+"=1", "ACME_KEY="+acme["ACME_KEY"])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	api := ""
	lines := bufio.NewScanner(out)
	for api == "" && lines.Scan() {
		if m := regexp.MustCompile(`API +(http://\S+)/v1`).FindStringSubmatch(lines.Text()); m != nil {
			api = m[1]
		}
	}
	for i := range 3 {
		req, err := http.NewRequestWithContext(ctx, "POST", api+"/v1/chat/completions", strings.NewReader(hostileBody))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+acme["ACME_KEY"])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if i == 0 && resp.StatusCode != 200 { // what follows an answer may still be taken for the next
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	if text := stderr.String() + string(rest); strings.Contains(text, "stolen") || strings.Count(text, `request_id`) < 3 {
		t.Errorf("printed:\n%s", text)
	}
}
