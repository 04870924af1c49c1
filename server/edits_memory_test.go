package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/upstream"
)

const (
	atOnce    = 50
	fileBytes = 50 << 20
	mostKiB   = 300 << 10 // that the process may ever have had in memory, its 50 clients included
)

// TestFiftyEditsOfFiftyMiBStayWithin300MiBOfMemory runs in a process of its own,
// so that nothing else counts.
func TestFiftyEditsOfFiftyMiBStayWithin300MiBOfMemory(t *testing.T) {
	const variable = "EDITS_IN_A_PROCESS_OF_THEIR_OWN"
	switch {
	case os.Getenv(variable) != "":
		debug.SetMemoryLimit(math.MaxInt64)
		editsAtOnce(t)
		return
	case !longtest.Enabled():
		t.Skip("a long test, which moves 5 GB: run with TOLLHOUSE_LONG=1")
	case peak(t) == 0:
		t.Skip("there is no /proc that tells the memory of a process")
	}
	run := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "5m")
	run.Env = append(os.Environ(), variable+"=1", "GOMEMLIMIT=off", "GOGC=100")
	out, err := run.CombinedOutput()
	found := regexp.MustCompile(`peak (\d+) KiB`).FindSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil || kib > mostKiB || kib < 1<<10 {
		t.Errorf("%d KiB, %v", kib, err)
	}
	t.Logf("%d MiB", kib>>10)
}

// peak is the most memory that this process had, in KiB; 0 if that is not known.
func peak(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	_, _ = fmt.Sscan(rest, &kib)
	return kib
}

func editsAtOnce(t *testing.T) {
	s := newImagesFixture(t, fixtureOptions{upstream: &swallowing{all: make(chan struct{})}, credit: 100 * billing.One})
	var clients sync.WaitGroup
	for range atOnce {
		clients.Go(func() {
			if err := s.upload(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	if s.posted(t) != 95*billing.One {
		t.Errorf("posted %s", s.posted(t))
	}
	t.Logf("peak %d KiB", peak(t))
}

// upload sends one edit and takes next to no memory.
func (s *fixture) upload(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	const header = "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x10\x00\x00\x00\x10\x08\x00\x00\x00\x00\x3a\x98\xa0\xbd"
	const end = "\x00\x00\x00\x00IEND\xaeB`\x82"
	head := "--B\r\nContent-Disposition: form-data; name=\"image\"; filename=\".\"\r\n\r\n" + header
	tail := end + "\r\n--B\r\nContent-Disposition: form-data; name=model\r\n\r\nimagegen-2\r\n--B\r\nContent-Disposition: form-data; name=prompt\r\n\r\nblue\r\n--B--\r\n"
	filler := fileBytes - len(header) - len(end)
	if _, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: %d\r\n\r\n%s",
		edits, s.key.Reveal(), len(head)+filler+len(tail), head); err != nil {
		return err
	}
	for chunk := make([]byte, 32<<10); filler > 0; filler -= len(chunk) {
		if _, err = conn.Write(chunk[:min(filler, len(chunk))]); err != nil {
			return err
		}
	}
	if _, err = io.WriteString(conn, tail); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return errors.Join(err, resp.Body.Close())
}

// swallowing is an upstream that reads a form to its end, once all are there.
type swallowing struct {
	mu      sync.Mutex
	arrived int
	all     chan struct{}
}

func (s *swallowing) Do(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
	s.mu.Lock()
	if s.arrived++; s.arrived == atOnce {
		close(s.all)
	}
	s.mu.Unlock()
	select {
	case <-s.all:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	body, size, err := c.Body.Open()
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(io.Discard, body)
	if err = errors.Join(err, body.Close()); err != nil || n != size || n < fileBytes {
		return nil, fmt.Errorf("%d of %d bytes: %w", n, size, err)
	}
	const answer = `{"created":1,"data":[{"b64_json":"aGk="}]}`
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer))}, nil
}
