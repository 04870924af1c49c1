package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/server"
)

// measureCrowd opens very many streams in one gateway and tells what it needs for
// them, and what is left of that when they have ended. The vendor is a process of
// its own and speaks HTTP/2 over TLS, as vendors do.
func measureCrowd(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := certify(dir); err != nil {
		return err
	}
	vendor, err := start(ctx, runtime.NumCPU(), "slowvendor", dir)
	if err != nil {
		return err
	}
	defer vendor.stop()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "crowd", vendor.address, strconv.Itoa(o.crowd), strconv.Itoa(o.memory), o.profile, strconv.Itoa(o.prompt))
	cmd.Env = append(os.Environ(), certificateVariable+"="+filepath.Join(dir, certificateFile))
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}

// playCrowd is a gateway under very many streams. Its clients are connections in
// memory, since a process has fewer files than this has streams; all else is as
// it is with sockets. The arguments are the vendor's address, the number of
// streams, the memory limit in MiB, a file for a heap profile and the length of
// the prompts.
func playCrowd(ctx context.Context, args []string, _ io.Reader, out io.Writer) error {
	streams, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	memory, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	prompt, err := strconv.Atoi(args[4])
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(int64(memory) << 20)
	c, err := newCrowd(ctx, args[0], prompt)
	if err != nil {
		return err
	}
	defer c.stop()
	if _, err := c.fill(100); err != nil { // what is made once and kept
		return err
	}
	c.closeAll()
	if err := c.tell(out, "before"); err != nil {
		return err
	}
	for wave := range 2 {
		began := time.Now()
		opened, err := c.fill(streams)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d streams opened in %.1f s\n", opened, time.Since(began).Seconds())
		if opened < streams {
			fmt.Fprintln(out, "the others were refused: memory was short")
		}
		if err := c.tell(out, "open"); err != nil {
			return err
		}
		if wave == 0 && args[3] != "" {
			if err := heapProfile(args[3]); err != nil {
				return err
			}
		}
		c.closeAll()
		if err := c.tell(out, "closed"); err != nil {
			return err
		}
	}
	const idle = 35 * time.Second // the vendor's connections are closed after 30
	time.Sleep(idle)
	return c.tell(out, "idle")
}

func heapProfile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}

// crowd is a gateway with its clients.
type crowd struct {
	g       *gateway.Gateway
	server  *http.Server
	clients *pipeListener // their connections
	request []byte
	open    []*sink
}

func newCrowd(ctx context.Context, vendor string, prompt int) (*crowd, error) {
	keys, key, err := oneKey(ctx)
	if err != nil {
		return nil, err
	}
	o, err := gatewayOptions("https://" + vendor)
	if err != nil {
		return nil, err
	}
	if _, err := openLedger(ctx, &o, false); err != nil {
		return nil, err
	}
	o.Authenticator = &auth.Keys{Store: keys}
	g, err := gateway.New(o)
	if err != nil {
		return nil, err
	}
	c := &crowd{
		g: g, clients: newPipeListener(),
		server: &http.Server{Handler: server.New(g, server.Options{}), ReadHeaderTimeout: 5 * time.Second},
	}
	body := `{"stream":true,"model":"gate-1","messages":[{"role":"user","content":"` + strings.Repeat("x", prompt) + `"}]}`
	c.request = []byte("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer " +
		key.Reveal() + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	go func() { _ = c.server.Serve(c.clients) }() // ends with stop
	return c, nil
}

func (c *crowd) stop() {
	_ = c.server.Close()
	_ = c.g.Close()
}

// fill opens streams, as many at once as are being answered, until there are so
// many or the gateway has refused them for several seconds.
func (c *crowd) fill(count int) (opened int, err error) {
	const atOnce, patience = 64, 8
	for refusals := 0; opened < count && refusals < patience; {
		batch, before := min(atOnce, count-opened), opened
		begun := make(chan error, batch)
		for range batch {
			s := newSink(c.request, begun)
			c.open = append(c.open, s)
			c.clients.conns <- s
		}
		for range batch {
			if err := <-begun; err == nil {
				opened++
			} else if !errors.Is(err, errRefused) {
				return opened, err
			}
		}
		if refusals++; opened > before {
			refusals = 0
			continue
		}
		time.Sleep(time.Second) // Retry-After
	}
	return opened, nil
}

// errRefused is the gateway's 503.
var errRefused = errors.New("refused")

// closeAll closes every stream from the client's side, and waits until the gateway
// is done with them.
func (c *crowd) closeAll() {
	for _, s := range c.open {
		_ = s.Close()
	}
	c.open = nil
	for c.g.Load().Running > 0 {
		time.Sleep(10 * time.Millisecond)
	}
}

// tell writes what the process needs now.
func (c *crowd) tell(out io.Writer, what string) error {
	const settled, mib = time.Second, 1 << 20
	time.Sleep(settled)
	_, resident, err := used()
	if err != nil {
		return err
	}
	runtime.GC()
	debug.FreeOSMemory()
	_, least, err := used()
	if err != nil {
		return err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Fprintf(out, "%-7s %6d calls %7d goroutines %6.0f MiB resident; after a collection %.0f (heap %.0f, stacks %.0f)\n", what+":",
		c.g.Load().Running, runtime.NumGoroutine(), float64(resident)/mib, float64(least)/mib, float64(m.HeapAlloc)/mib, float64(m.StackInuse)/mib)
	return nil
}

// pipeListener is a listener in memory.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements [net.Listener].
func (d *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (d *pipeListener) Close() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

// Addr implements [net.Listener].
func (d *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// sink is the server's end of a client that sends one request and takes every
// answer at once.
type sink struct {
	mu      sync.Mutex
	request []byte
	begun   chan<- error // told of the first answer; nil after that
	closed  chan struct{}
	late    bool
	timer   *time.Timer   // of the read deadline
	expired chan struct{} // closed by it
}

func newSink(request []byte, begun chan<- error) *sink {
	return &sink{request: request, begun: begun, closed: make(chan struct{}), expired: make(chan struct{})}
}

// Read gives the request and then blocks until the client disconnects.
func (s *sink) Read(p []byte) (int, error) {
	s.mu.Lock()
	if len(s.request) > 0 {
		defer s.mu.Unlock()
		n := copy(p, s.request)
		s.request = s.request[n:]
		return n, nil
	}
	expired := s.expired
	s.mu.Unlock()
	select {
	case <-s.closed:
		return 0, io.EOF
	case <-expired:
		return 0, os.ErrDeadlineExceeded
	}
}

// Write takes all.
func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late {
		return 0, net.ErrClosed
	}
	if s.begun != nil {
		var err error
		switch {
		case bytes.HasPrefix(p, []byte("HTTP/1.1 503 ")):
			err = errRefused
		case !bytes.HasPrefix(p, []byte("HTTP/1.1 200 ")):
			err = fmt.Errorf("a stream did not begin: %q", p[:min(len(p), 500)])
		}
		s.begun <- err
		s.begun = nil
	}
	return len(p), nil
}

// Close disconnects the client.
func (s *sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.late {
		s.late = true
		close(s.closed)
	}
	return nil
}

// SetReadDeadline bounds the reads.
func (s *sink) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil && !s.timer.Stop() {
		s.expired = make(chan struct{})
	}
	s.timer = nil
	if t.IsZero() {
		return nil
	}
	expired := s.expired
	s.timer = time.AfterFunc(time.Until(t), func() { close(expired) })
	return nil
}

// SetDeadline bounds the reads: writes never wait.
func (s *sink) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements [net.Conn].
func (s *sink) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements [net.Conn].
func (s *sink) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// playSlowVendor is a vendor that begins a stream for each request, and goes on
// with a chunk each 20 s until nobody listens. The argument is the directory of
// its certificate.
func playSlowVendor(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	config, err := tlsConfig(args[0], "h2")
	if err != nil {
		return err
	}
	return serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			slowStream(w, r)
		}
	}), config, "", in, out)
}

func slowStream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for {
		if _, err := io.WriteString(w, openAIWire.chunk); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(20 * time.Second):
		}
	}
}
