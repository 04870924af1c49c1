package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/openapitest"
)

// client is clients that share their connections.
type client struct {
	http  *http.Client
	again atomic.Int64 // requests that were repeated since the database was away
}

// newClient has so many connections to each node, and checks what goes over them
// against the document of the API.
func newClient(t testing.TB, connections int) *client {
	t.Helper()
	rt := &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, DisableCompression: true}
	t.Cleanup(rt.CloseIdleConnections)
	c := &client{http: &http.Client{Transport: openapitest.Transport(t, rt), Timeout: 2 * time.Minute}}
	t.Cleanup(func() {
		if n := c.again.Load(); n > 0 {
			t.Logf("%d requests were repeated since the database was away", n)
		}
	})
	return c
}

// request is one question of a client.
type request struct {
	model  string // m, if not given
	text   string
	max    int64
	stream bool
	wire   string // the endpoint: chat, if not given, or responses
	key    string // acmeKey, if not given
	header map[string]string
}

const responses = "responses"

func (q request) path() string {
	if q.wire == responses {
		return "/v1/responses"
	}
	return "/v1/chat/completions"
}

func (q request) body() string {
	if q.model == "" {
		q.model = "m"
	}
	bound, text := "max_tokens", fmt.Sprintf(`"messages":[{"role":"user","content":%q}]`, q.text)
	if q.wire == responses {
		bound, text = "max_output_tokens", fmt.Sprintf(`"input":%q`, q.text)
	}
	limit := ""
	if q.max > 0 {
		limit = fmt.Sprintf(`%q:%d,`, bound, q.max)
	}
	return fmt.Sprintf(`{"model":%q,%s"stream":%t,%s}`, q.model, limit, q.stream, text)
}

// answer is what a client saw.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // the connection broke
}

// id is the gateway's name of the request; empty if the client never heard.
func (a answer) id() string { return a.header.Get("X-Request-Id") }

// whole says that the client has all of a good answer.
func (a answer) whole() bool {
	if a.status != http.StatusOK || a.err != nil {
		return false
	}
	return !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") ||
		strings.HasSuffix(a.body, "data: [DONE]\n\n") && !strings.Contains(a.body, "event: error\n") // a broken response has both
}

// withheld says that the answer came to its end, but its charge was not durable
// in time; it is recorded later.
func (a answer) withheld() bool {
	return strings.Contains(a.body, "could not be recorded")
}

// unavailable demands what a caller gets while the database is away.
func (a answer) unavailable(t testing.TB, what string) {
	t.Helper()
	if a.err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("%s: %d, Retry-After %q, %s (%v)", what, a.status, a.header.Get("Retry-After"), a.body, a.err)
	}
}

func (a answer) String() string { return fmt.Sprintf("%d %s %v", a.status, a.body, a.err) }

// chat asks for a completion and reads the whole answer.
func (c *client) chat(n *node, q request) answer {
	resp, err := c.open(n, q)
	if err != nil {
		return answer{err: err}
	}
	return read(resp)
}

// isUnavailable is what a caller gets while the database is away, and where a charge was
// withheld.
func isUnavailable(status int, h http.Header) bool {
	return status == http.StatusServiceUnavailable && h.Get("Retry-After") != ""
}

// pause is the time between two tries of a request.
func (c *client) pause() {
	c.again.Add(1)
	<-time.After(200 * time.Millisecond)
}

// open asks for a completion.
func (c *client) open(n *node, q request) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+n.api+q.path(), strings.NewReader(q.body()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if q.key == "" {
		q.key = acmeKey
	}
	req.Header.Set("Authorization", "Bearer "+q.key)
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	return c.http.Do(req)
}

// opened asks as open does, and again where the database was away, as clients do.
func (c *client) opened(n *node, q request) (*http.Response, error) {
	resp, err := c.open(n, q)
	for tries := 0; tries < 30 && err == nil && isUnavailable(resp.StatusCode, resp.Header); tries++ {
		_ = resp.Body.Close()
		c.pause()
		resp, err = c.open(n, q)
	}
	return resp, err
}

func read(resp *http.Response) answer {
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	_, err := io.Copy(&b, resp.Body)
	return answer{resp.StatusCode, resp.Header, b.String(), err}
}

// get asks for a path of the API.
func (c *client) get(n *node, path, key string) answer {
	return c.fetch(http.MethodGet, "http://"+n.api+path, key, "")
}

func (c *client) fetch(method, address, bearer, body string) answer {
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	return read(resp)
}

// each runs do for 0 to count-1, by so many workers at once.
func each(workers, count int, do func(i int)) {
	var running sync.WaitGroup
	next := make(chan int)
	for range workers {
		running.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	running.Wait()
}

// until asks again and again, and reports how long it took until yes.
func until(t testing.TB, most time.Duration, what string, ask func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ask() {
		if time.Since(began) > most {
			t.Fatalf("%s: not within %s", what, most)
		}
		<-tick.C
	}
	return time.Since(began).Round(time.Millisecond)
}

// await is what comes out of a channel, which must not take for ever.
func await[T any](t testing.TB, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatalf("%s: not within a minute", what)
	}
	return v
}
