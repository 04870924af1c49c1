package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
)

// singleConn is a listener with one connection, in memory and without any buffer: what
// is not read is not written.
type singleConn struct {
	conn chan net.Conn
	done chan struct{}
}

func (o *singleConn) Accept() (net.Conn, error) {
	select {
	case c := <-o.conn:
		return c, nil
	case <-o.done:
		return nil, net.ErrClosed
	}
}

func (o *singleConn) Close() error {
	close(o.done)
	return nil
}

func (o *singleConn) Addr() net.Addr { return &net.TCPAddr{} }

// slowVendor is a vendor that goes on for as long as somebody listens.
type slowVendor struct {
	gone chan struct{} // closed when the call has ended
}

func (v *slowVendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	context.AfterFunc(ctx, func() { close(v.gone) })
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = r.CloseWithError(context.Cause(ctx)) })
	kind, piece := "audio/wav", bytes.Repeat([]byte{1, 2}, 16<<10)
	if call.Stream {
		kind, piece = "text/event-stream", []byte("data: "+servertest.Delta("word")+"\n\n")
	}
	go func() {
		first := wave
		if call.Stream {
			first = piece
		}
		for _, err := w.Write(first); err == nil; _, err = w.Write(piece) {
			if !call.Stream {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second): // virtual
			}
		}
	}()
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {kind}}, Body: r}, nil
}

// wave is how a WAV begins whose length is not known.
var wave = []byte("RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\xff\xff\xff\xff")

// meteredFixture is a gateway on a pipe, which charges the account "local".
type meteredFixture struct {
	t      *testing.T
	ledger memory.Ledger
	g      *gateway.Gateway
	conn   net.Conn
}

func newMeteredFixture(t *testing.T, up upstream.Upstream) *meteredFixture {
	t.Helper()
	h := &meteredFixture{t: t, ledger: memory.NewLedger(memory.LedgerOptions{})}
	price := rates(t, "input", "1", "output", "1", "character", "1")
	err := h.ledger.CreateAccount(t.Context(), "local", billing.One)
	if err != nil {
		t.Fatal(err)
	}
	if h.g, err = gateway.New(gateway.Options{
		Heartbeat: -1, // a heartbeat would wait for a lock, which does not let virtual time pass
		Upstream:  up, Meter: h.ledger, Prices: billing.NewPriceList(map[string]*billing.Price{"m": price, "alpha3-tts-flash": price}),
	}); err != nil {
		t.Fatal(err)
	}
	l := &singleConn{make(chan net.Conn), make(chan struct{})}
	s := &http.Server{Handler: server.New(h.g, server.Options{})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	near, far := net.Pipe()
	l.conn <- far
	h.conn = near
	t.Cleanup(func() {
		_ = s.Close()
		if err := errors.Join(h.g.Close(), h.ledger.Verify(context.Background())); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return h
}

// begin sends a request and reads the headers of the answer and its first bytes.
func (h *meteredFixture) begin(path, body string) *bufio.Reader {
	h.t.Helper()
	if _, err := fmt.Fprintf(h.conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body); err != nil {
		h.t.Fatal(err)
	}
	r := bufio.NewReaderSize(h.conn, 16)
	if status, err := r.ReadString('\n'); err != nil || !strings.Contains(status, " 200 ") {
		h.t.Fatalf("%q, %v", status, err)
	}
	return r
}

// A client that has stopped reading is cut off when a write has lasted 30 s.
func TestAClientThatStopsReadingIsCutOffAndPaysForWhatItGot(t *testing.T) {
	for name, c := range map[string]struct{ path, body string }{
		"a stream": {"/v1/chat/completions", smallStream},
		"audio":    {"/v1/audio/speech", `{"model":"alpha3-tts-flash","input":"hello","response_format":"wav"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := &slowVendor{make(chan struct{})}
				h := newMeteredFixture(t, up)
				h.begin(c.path, c.body)
				began := time.Now()
				<-up.gone
				if took := time.Since(began); took < 20*time.Second || took > 35*time.Second {
					t.Errorf("the vendor was cancelled after %v", took)
				}
				synctest.Wait()
				b, err := h.ledger.Balance(t.Context(), "local")
				if err != nil || b.Held != 0 || b.Posted >= billing.One {
					t.Errorf("%+v, %v", b, err)
				}
				if l := h.g.Load(); l.Running != 0 {
					t.Errorf("%+v", l)
				}
			})
		})
	}
}

// whole is a vendor whose answer is 4 MiB long.
var whole = upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
	body := `{"id":"u","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("x", 4<<20) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
})

func TestAWholeAnswerIsCutOffWhenNobodyReadsItAndNotWhenItIsReadSlowly(t *testing.T) {
	t.Run("not at all", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newMeteredFixture(t, whole)
			r := h.begin("/v1/chat/completions", small)
			time.Sleep(31 * time.Second) // virtual
			synctest.Wait()
			if l := h.g.Load(); l.Running != 0 {
				t.Errorf("%+v", l)
			}
			if n, err := io.Copy(io.Discard, r); n > 64<<10 || err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	})
	t.Run("slowly", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newMeteredFixture(t, whole)
			r := h.begin("/v1/chat/completions", small)
			began, n := time.Now(), int64(0)
			for n < 4<<20 { // 1 MiB in 20 s
				more, err := io.CopyN(io.Discard, r, 64<<10)
				if n += more; err != nil {
					t.Fatalf("cut off after %v and %d bytes: %v", time.Since(began), n, err)
				}
				time.Sleep(1250 * time.Millisecond)
			}
			if took := time.Since(began); took < 75*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	})
}
