package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/longtest"
)

// slack is how much longer than the drain a server should take to end. It is
// told and not asserted: the machine may be busy.
const slack = 2 * time.Second

// delivered is how many tokens each stream has when the server is told to end.
const delivered = 5

// hanging is a vendor whose streams stop after the tokens that are delivered.
func hanging(t testing.TB) *vendor {
	v := newVendor(t)
	v.token = func(r *http.Request, _ vendorCall, i int64) {
		if i == delivered {
			<-r.Context().Done()
		}
	}
	return v
}

// openStreams opens so many streams, and reads what they have. Each is a
// request id with the rest of its body.
func openStreams(t testing.TB, c *client, n *node, count int) map[string]*bufio.Reader {
	t.Helper()
	type stream struct {
		id   string
		body *bufio.Reader
		err  error
	}
	opened := make(chan stream, count)
	go each(64, count, func(i int) {
		resp, err := c.opened(n, request{text: fmt.Sprint("stream ", i), max: 100, stream: true})
		if err != nil {
			opened <- stream{err: err}
			return
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		body := bufio.NewReader(resp.Body)
		for tokens := 0; tokens < delivered; {
			line, err := body.ReadString('\n')
			if err != nil {
				opened <- stream{err: fmt.Errorf("status %d, after %d tokens: %w", resp.StatusCode, tokens, err)}
				return
			}
			tokens += strings.Count(line, `"word"`)
		}
		opened <- stream{resp.Header.Get("X-Request-Id"), body, nil}
	})
	streams := map[string]*bufio.Reader{}
	for range count {
		s := await(t, opened, "a stream")
		if s.err != nil {
			t.Fatal(s.err)
		}
		streams[s.id] = s.body
	}
	return streams
}

func TestAThousandOpenStreamsAreSettledWhenTheServerEnds(t *testing.T) {
	for name, row := range map[string]struct {
		drain  time.Duration
		hasten bool // by a second signal
	}{"time is up": {time.Second, false}, "a second signal": {time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stores(t, func(t *testing.T, store string, _ int) { drained(t, store, row.drain, row.hasten) }, 1)
		})
	}
}

func drained(t *testing.T, store string, drain time.Duration, hasten bool) {
	count := longtest.Count(1000, 200)
	n := newInstallation(t, settings{store: store, vendor: hanging(t).url, credit: "25"}.text(), "--drain", drain.String()).start(t)
	c := newClient(t, count+10)
	streams := openStreams(t, c, n, count)
	began := time.Now()
	signal(t, n, syscall.SIGTERM)
	var ready time.Duration
	if hasten { // until then it drains; of a short drain nothing may be left by the time we ask
		ready = until(t, patience, "/readyz is 503", func() bool { return c.get(n, "/readyz", "").status == http.StatusServiceUnavailable })
		drain = time.Since(began)
		signal(t, n, os.Interrupt)
	}
	ends := make(chan string, count)
	for id, body := range streams {
		go func() {
			rest, err := io.ReadAll(body)
			if errors.Is(err, io.ErrUnexpectedEOF) { // a loaded machine settles a thousand in more than the closeTimeout of connections
				err = nil
			}
			if err != nil || !strings.Contains(string(rest), `"error":{"message":"The gateway is shutting down.`) || strings.Contains(string(rest), "[DONE]") {
				t.Errorf("the stream %s ended with %q, %v", id, rest, err)
			}
			ends <- id
		}()
	}
	for range count {
		await(t, ends, "the end of a stream")
	}
	await(t, n.ended, "the end of the server")
	took := time.Since(began)
	t.Logf("/readyz was 503 after %s (0 if not asked), the server ended after %s, within %s: %t", ready, took.Round(time.Millisecond), drain+slack, took <= drain+slack)
	if n.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the server took %s to end, with %v:\n%s", took, n.cmd.ProcessState, n.log)
	}
	b := openDatabase(t, store)
	if open := b.openHolds(); open != 0 {
		t.Errorf("%d holds are open", open)
	}
	receipts := b.captured()
	for id := range streams {
		if r := receipts[id]; r.charge != delivered*price || r.reason != billing.ReasonShutdown {
			t.Errorf("%s is charged %d for the reason %q", id, r.charge, r.reason)
		}
	}
	if len(receipts) != count {
		t.Errorf("%d charges for %d streams", len(receipts), count)
	}
	if r := n.at.command(t, "ledger", "verify"); !r.ok || !strings.Contains(r.stdout, "The ledger is sound") {
		t.Errorf("ledger verify: %s%s", r.stdout, r.stderr)
	}
}

func signal(t testing.TB, n *node, s os.Signal) {
	t.Helper()
	must(t, n.cmd.Process.Signal(s))
}

// A client that reads nothing has the server wait for it no longer than others.
func TestClientsThatTakeNothingDoNotKeepAServerFromEnding(t *testing.T) {
	t.Parallel()
	const count, drain = 10, time.Second
	v := newVendor(t)
	full := make(chan struct{}, count)
	v.token = func(_ *http.Request, _ vendorCall, i int64) {
		if i == 10_000 { // 1.5 MB are on their way
			full <- struct{}{}
		}
	}
	store := sqliteFile(t)
	n := newInstallation(t, settings{store: store, vendor: v.url, credit: "25"}.text(), "--drain", drain.String()).start(t)
	for i := range count {
		conn, err := net.Dial("tcp", n.api)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		must(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
		body := request{text: fmt.Sprint("stalled ", i), max: 1_000_000, stream: true}.body()
		if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", acmeKey, len(body), body); err != nil {
			t.Fatal(err)
		}
	}
	for range count {
		await(t, full, "a stream that nobody reads")
	}
	began := time.Now()
	signal(t, n, syscall.SIGTERM)
	await(t, n.ended, "the end of the server")
	took := time.Since(began)
	t.Logf("the server ended after %s, within %s: %t", took.Round(time.Millisecond), drain+slack, took <= drain+slack)
	if n.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the server took %s to end, with %v:\n%s", took, n.cmd.ProcessState, n.log)
	}
	b := openDatabase(t, store)
	if open, captured := b.openHolds(), len(b.captured()); open != 0 || captured != count {
		t.Errorf("%d holds are open, %d calls are charged", open, captured)
	}
}
