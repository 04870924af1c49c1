//go:build !race

package server_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The chunks are all of another form, and so is the end: each wants the stack that parsing,
// the ledger and the log want. (The race detector makes frames larger.)
func TestTheGoroutinesOfAStreamKeepLittleStack(t *testing.T) {
	const streams, most = 200, 14 << 10 // bytes: 8 KiB for the one that waits, once the collector has halved it
	up := make(streamVendor, streams)
	s := newFixture(t, fixtureOptions{upstream: up, credit: 1000 * billing.One})
	before := stacks()
	clients, voices := make([]*bufio.Reader, streams), make([]*io.PipeWriter, streams)
	for i := range streams {
		clients[i] = bufio.NewReader(s.dial(t, "/v1/chat/completions", smallStream, true))
		voices[i] = <-up
	}
	for _, chunk := range []string{servertest.Delta("one"), strings.Replace(servertest.Delta("two"), `"index":0,`, `"of":[{"a":{"b":[1,2]}}],"index":0,`, 1)} {
		for i, v := range voices {
			if _, err := io.WriteString(v, "data: "+chunk+"\n\n"); err != nil {
				t.Fatal(err)
			}
			for line := ""; !strings.HasPrefix(line, "data: {"); {
				var err error
				if line, err = clients[i].ReadString('\n'); err != nil {
					t.Fatalf("stream %d: %v", i, err)
				}
			}
		}
	}
	took := (stacks() - before) / streams
	t.Logf("a stream's goroutines have %d bytes of stack", took)
	if took > most {
		t.Errorf("a stream's goroutines have %d bytes of stack, want at most %d", took, most)
	}
}

func stacks() int64 {
	runtime.GC() // which ends what is not needed
	sample := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// streamVendor is an upstream that gives its streams to the test.
type streamVendor chan *io.PipeWriter

func (u streamVendor) Do(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
	in, out := io.Pipe()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Cause(ctx)) })
	u <- out
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in}, nil
}
