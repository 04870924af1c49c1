package gateway_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"weak"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
)

// piped answers every call with the stream that a pipe gives.
type piped struct{ body io.ReadCloser }

func (p piped) Do(context.Context, *upstream.Call) (*upstream.Reply, error) {
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: p.body}, nil
}

const (
	chatOpens    = `data: {"id":"a","model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	messageOpens = "event: message_start\ndata: " + `{"type":"message_start","message":{"id":"a","model":"m","usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n"
)

// A prompt may have megabytes, and a stream may live for half an hour.
func TestAStreamThatHasBegunKeepsNothingOfItsRequest(t *testing.T) {
	for op, opens := range map[upstream.Op]string{upstream.ChatCompletion: chatOpens, upstream.Messages: messageOpens} {
		read, write := io.Pipe()
		h := newHouse(t, answering{op, piped{read}}, "100", func(o *gateway.Options) { o.Admission.Memory = 1 << 40 })
		go func() { _, _ = io.WriteString(write, opens) }()
		x := h.Begin()
		if err := x.Authenticate(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		r, request := begun(t, x, op)
		if out, err := r.Stream.Next(); err != nil || len(out) == 0 {
			t.Fatalf("%s: %q, %v", op, out, err)
		}
		runtime.GC()
		if request.Value() != nil {
			t.Errorf("%s: the request is still in memory", op)
		}
		if n := h.Load().Bodies; n != 0 {
			t.Errorf("%s: %d bytes of bodies are counted", op, n)
		}
		if err := r.Stream.Close(); err != nil {
			t.Error(err)
		}
		if n := h.Load().Bodies; n != 0 {
			t.Errorf("%s: %d bytes of bodies are counted after the end", op, n)
		}
		x.End(t.Context(), 200, nil)
	}
}

// begun calls with a long prompt, and returns the stream and where the request
// lies.
func begun(t *testing.T, x *gateway.Exchange, op upstream.Op) (*gateway.Result, weak.Pointer[byte]) {
	t.Helper()
	data := []byte(`{"model":"m","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 20_000) + `"}]}`)
	if err := x.Weigh(int64(len(data))); err != nil {
		t.Fatal(err)
	}
	r, err := x.Call(t.Context(), op, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, weak.Make(&data[0])
}

// answering speaks one operation only, so that nothing is translated.
type answering struct {
	op upstream.Op
	upstream.Upstream
}

func (a answering) Supports(op upstream.Op, _ string) bool { return op == a.op }
