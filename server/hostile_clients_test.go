package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/server"
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

// TestAVendorIsCancelledWithinATenthOfASecondOfItsClientsDeath is docs/faults.md, row
// 1, on sockets: whatever the call was doing, and however the client went.
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
		"before an answer":      {"/v1/chat/completions", small, ""},
		"before a stream":       {"/v1/chat/completions", smallStream, ""},
		"before embeddings":     {"/v1/embeddings", `{"model":"m","input":"a"}`, ""},
		"before a message":      {"/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"stream":true}`, ""},
		"within the first line": {"/v1/chat/completions", smallStream, "data: {"},
		"after an event":        {"/v1/chat/completions", smallStream, "data: " + delta("a") + "\n\n"},
		"within an answer":      {"/v1/chat/completions", small, `{"id":`},
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
	if strings.HasSuffix(answer, "\n\n") { // an event, which then has come through
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

// TestNoReplyIsCutThatCameBeforeTheRequestWasRead is docs/faults.md, row 39: the vendor
// answers at the first byte of a body, and reads the rest of it only then.
func TestNoReplyIsCutThatCameBeforeTheRequestWasRead(t *testing.T) {
	times := 10_000
	if testing.Short() {
		times = 500
	}
	filling := strings.Repeat("x", 4<<10)
	answer := strings.Replace(vendorAnswer, "hi", filling, 1)
	events := "data: " + delta(filling) + "\n\ndata: [DONE]\n\n"
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
