package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/openapitest"
	"github.com/tollhouse-ai/gateway/internal/servertest"
)

// environment is one that a test owns.
type environment map[string]string

func (e environment) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// nowhere is an address at which nothing listens, also not a server of the user's own.
const nowhere = "127.0.0.1:1"

// tollhouse runs a command to its end.
func tollhouse(t *testing.T, env environment, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := &program{env: env.lookup, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, admin: nowhere, lockWait: time.Nanosecond}
	code := p.run(t.Context(), args)
	return result{code, stdout.String(), stderr.String()}
}

// instance is a server that runs in a test.
type instance struct {
	t              *testing.T
	stdout, stderr *servertest.Output
	api, admin     string // base addresses
	data           string
	signals        chan os.Signal
	ticks          chan time.Time
	cancel         context.CancelFunc
	code           chan int
	ended          bool
}

// start runs serve on ports of the system's choice and waits for the banner.
func start(t *testing.T, env environment, args ...string) *instance {
	t.Helper()
	return startEdited(t, func(*program) {}, env, args...)
}

// startEdited starts a server of which the test replaces something.
func startEdited(t *testing.T, edit func(*program), env environment, args ...string) *instance {
	t.Helper()
	i := &instance{
		t: t, stdout: new(servertest.Output), stderr: new(servertest.Output), data: filepath.Join(t.TempDir(), "data"),
		signals: make(chan os.Signal, 2), ticks: make(chan time.Time), code: make(chan int, 1),
	}
	if n := slices.Index(args, "--data"); n >= 0 {
		i.data = args[n+1]
	}
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	p := &program{env: env.lookup, stdout: i.stdout, stderr: i.stderr, signals: i.signals, ticks: i.ticks}
	edit(p)
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", i.data}, args...)
	go func() {
		i.code <- p.run(ctx, args)
		_ = i.stdout.Close()
		_ = i.stderr.Close()
	}()
	m := i.stdout.Await(`(?s)API +(http://\S+)/v1\n  Admin +(\S+)`)
	if m == nil {
		t.Fatalf("serve ended with %d:\n%s%s", <-i.code, i.stdout, i.stderr)
	}
	i.api, i.admin = m[1], strings.TrimPrefix(m[2], "http://")
	t.Cleanup(func() { i.stop() })
	return i
}

// stop ends the server as SIGTERM does and gives its exit code.
func (i *instance) stop() int {
	if i.ended {
		return 0
	}
	i.cancel()
	return i.wait()
}

func (i *instance) wait() int {
	i.ended = true
	return <-i.code
}

// command runs a command beside the server.
func (i *instance) command(args ...string) result {
	i.t.Helper()
	return tollhouse(i.t, environment{"TOLLHOUSE_ADMIN": i.admin, "TOLLHOUSE_DATA": i.data}, args...)
}

// good runs a command that must succeed and gives its output.
func (i *instance) good(args ...string) string {
	i.t.Helper()
	r := i.command(args...)
	if r.code != exitOK || r.stderr != "" {
		i.t.Fatalf("%v ended with %d: %s", args, r.code, r.stderr)
	}
	return r.stdout
}

// ask sends a request to the API and reads the whole answer.
func (i *instance) ask(method, path, key, body string) (int, string) {
	i.t.Helper()
	r := read(i.t, i.open(method, path, key, body))
	return r.status, r.body
}

// open sends a request to the API.
func (i *instance) open(method, path, key, body string) *http.Response {
	i.t.Helper()
	header := []string{"Content-Type: application/json"}
	if key != "" {
		header = append(header, "Authorization: Bearer "+key)
	}
	return servertest.Send(i.t, i.t.Context(), openapitest.Client(i.t), method, i.api+path, body, header...)
}

// reply is a response that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// read reads a response to its end.
func read(t *testing.T, resp *http.Response) reply {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(data)}
}

// firstKey is the key that a command printed.
func firstKey(t *testing.T, stdout string) string {
	t.Helper()
	m := regexp.MustCompile(`\n  (sk-[a-z0-9]{20,})\n`).FindStringSubmatch(stdout)
	if m == nil {
		t.Fatalf("no key is printed:\n%s", stdout)
	}
	return m[1]
}

// chatBody is a small request to a model.
func chatBody(model string, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"Tell me of the sea, of its ships and of all that swims in it."}]}`, model, stream)
}

// file writes a file of the test's own.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tollhouse.yaml")
	write(t, name, text)
	return name
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fakeVendor is a vendor on the loopback that gives one answer and records what it
// is asked.
type fakeVendor struct {
	url   string // without a path
	calls atomic.Int64

	mu     sync.Mutex
	status int
	header http.Header
	answer string
	last   vendorRequest
}

// vendorRequest is a request that a fakeVendor got.
type vendorRequest struct {
	uri    string // "POST /v1/chat/completions"
	header http.Header
	body   string
}

// newFakeVendor starts a vendor; header are pairs of names and values of its answers.
func newFakeVendor(t *testing.T, status int, answer string, header ...string) *fakeVendor {
	t.Helper()
	v := &fakeVendor{status: status, answer: answer, header: http.Header{"Content-Type": {"application/json"}}}
	for i := 0; i < len(header); i += 2 {
		v.header.Set(header[i], header[i+1])
	}
	s := httptest.NewServer(v)
	t.Cleanup(s.Close)
	v.url = s.URL
	return v
}

// ServeHTTP gives the answer of the moment.
func (v *fakeVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	defer v.mu.Unlock()
	if !strings.HasSuffix(r.URL.Path, "/models") { // which is asked for in the background
		v.calls.Add(1)
		v.last = vendorRequest{r.Method + " " + r.RequestURI, r.Header, string(body)}
	}
	maps.Copy(w.Header(), v.header)
	w.WriteHeader(v.status)
	_, _ = io.WriteString(w, v.answer)
}

// set changes the answer.
func (v *fakeVendor) set(status int, answer string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status, v.answer = status, answer
}

// got is the last request.
func (v *fakeVendor) got() vendorRequest {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}
