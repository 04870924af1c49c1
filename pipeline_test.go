package gateway_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// exactly is a model in Go that produces exactly max_tokens tokens.
func exactly(_ context.Context, r *chat.Request) (*chat.Response, error) {
	n := max(r.OutputBound(), 1)
	return &chat.Response{
		ID: "x", Object: "chat.completion", Model: r.Model,
		Choices: []chat.Choice{{Message: chat.Message{Role: "assistant", Content: chat.Text("ok")}, FinishReason: "length"}},
		Usage:   &chat.Usage{PromptTokens: 1, CompletionTokens: n, TotalTokens: n + 1},
	}, nil
}

func TestOfTenThousandCallsOnABalanceForAHundredExactlyAHundredSucceed(t *testing.T) {
	h := newHouse(t, chat.Serve(exactly), "0.01", func(o *gateway.Options) {
		o.Prices = billing.NewPriceList(map[string]*billing.Price{"m": price(t, "0", "1")}) // input is free
	})
	ask := func() error { // each costs 100 micro-units
		_, _, err := h.ask(context.Background(), askWhole)
		return err
	}
	var ok, poor, other atomic.Int64
	var all sync.WaitGroup
	for range 10_000 {
		all.Go(func() {
			switch err := ask(); {
			case err == nil:
				ok.Add(1)
			case fault.Is(err, fault.InsufficientBalance):
				poor.Add(1)
			default:
				other.Add(1)
			}
		})
	}
	all.Wait()
	if ok.Load() != 100 || poor.Load() != 9_900 || other.Load() != 0 {
		t.Errorf("%d succeeded, %d had no money, %d failed otherwise", ok.Load(), poor.Load(), other.Load())
	}
	if b := h.balance(t); b.Posted != 0 || b.Held != 0 {
		t.Errorf("the balance is %+v", b)
	}
}

func TestUnknownFieldsReachTheUpstreamAndComeBackUnchanged(t *testing.T) {
	request := "{ \"x_big\" : 12345678901234567890.10,\"model\":\"m\" , \"messages\":[{\"content\":\"hi\",\"role\":\"user\",\"cache_control\":{\"a\":[1.0,1e5]}}],\n\t\"seed\":9007199254740993, \"max_tokens\": 5, \"zz\":null}"
	answer := "{ \"id\":\"a\", \"x\" : 1.0e+2, \"model\" : \"vendor\", \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"ok\",\"odd\":9007199254740993},\"finish_reason\":\"stop\"}] ,\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"more\":{}} }"
	up := &scripted{text: answer}
	h := newHouse(t, up, "1.00", nil)
	_, r, err := h.ask(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(request, up.sent(t)); diff != "" {
		t.Errorf("the upstream got another request:\n%s", diff)
	}
	if diff := cmp.Diff(strings.Replace(answer, `"vendor"`, `"m"`, 1), string(r.Body)); diff != "" {
		t.Errorf("the client got another answer:\n%s", diff)
	}
}

func TestUsageIsAskedOfEveryStreamAndNothingElseIsChanged(t *testing.T) {
	up := &scripted{text: recorded(usageChunk(1, 1))}
	h := newHouse(t, up, "1.00", nil)
	_, r, err := h.ask(t.Context(), askStream)
	if err != nil {
		t.Fatal(err)
	}
	drain(t, r.Stream)
	want := strings.TrimSuffix(askStream, "}") + `,"stream_options":{"include_usage":true}}`
	if diff := cmp.Diff(want, up.sent(t)); diff != "" {
		t.Error(diff)
	}
}

// TestChunksLeaveAsTheyCome has an upstream that sends a chunk only after the
// one before it was received.
func TestChunksLeaveAsTheyCome(t *testing.T) {
	in, out := io.Pipe()
	h := newHouse(t, &scripted{body: in}, "1.00", nil)
	received := make(chan struct{})
	events := strings.SplitAfter(recorded(""), "\n\n")
	go func() {
		for _, e := range events {
			if _, err := io.WriteString(out, e); err != nil {
				return
			}
			<-received
		}
		_ = out.Close()
	}()
	_, r, err := h.ask(t.Context(), askStream)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range events[:len(events)-1] {
		b, err := r.Stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(b); got != strings.Replace(want, "vendor-m", "m", 1) {
			t.Fatalf("event %d is %q", i, got)
		}
		received <- struct{}{}
	}
}

func TestASilentStreamBeatsEvery15Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		h := newHouse(t, &scripted{body: in}, "1.00", func(o *gateway.Options) {
			o.NewID = func(prefix string) string { return prefix + "minted" }
		})
		go func() {
			time.Sleep(40 * time.Second) // virtual
			_, _ = io.WriteString(out, recorded(usageChunk(20, 30)))
			_ = out.Close()
		}()
		var mu sync.Mutex
		var beats []string
		x := h.Begin()
		if err := x.Authenticate(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		r, err := x.Call(t.Context(), upstream.ChatCompletion, []byte(askStream), func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			beats = append(beats, string(b))
		})
		if err != nil {
			t.Fatal(err)
		}
		rest := drain(t, r.Stream)
		mu.Lock()
		defer mu.Unlock()
		if len(beats) != 2 {
			t.Fatalf("%d beats in 40 s: %q", len(beats), beats)
		}
		if !strings.HasPrefix(beats[0], `data: {"id":"chatcmpl-minted","object":"chat.completion.chunk",`) ||
			!strings.HasSuffix(beats[0], `"model":"m","choices":[{"index":0,"delta":{},"finish_reason":null}]}`+"\n\n") {
			t.Errorf("beat %q", beats[0])
		}
		if strings.Contains(rest, "up-1") || !strings.Contains(rest, `"id":"chatcmpl-minted"`) {
			t.Errorf("the id changed: %q", rest)
		}
		if got := h.spent(t, "1.00"); got != micro(50) {
			t.Errorf("a beat was charged: %s", got)
		}
	})
}

func TestTheOrderOfChecks(t *testing.T) {
	h := newHouse(t, &scripted{text: whole("")}, "0.00", func(o *gateway.Options) {
		o.Models = append(o.Models, gateway.Model{ID: "old", Withdrawn: time.Unix(1, 0)})
		o.Prices = nil
		o.RequirePrice = false
	})
	p := &auth.Principal{Account: "local", Key: "k", Models: []string{"m", "old"}}
	ctx := auth.NewContext(t.Context(), p)
	for _, c := range []struct {
		name, body string
		code       fault.Code
		status     int
	}{
		{"a body before the model", `{"model":"nope"`, fault.InvalidRequest, 400},
		{"a model is required", `{"messages":[]}`, fault.InvalidRequest, 400},
		{"an unknown model before its fields", `{"model":"","messages":7}`, fault.InvalidRequest, 400},
		{"a withdrawn model does not exist any more", `{"model":"old","messages":7}`, fault.ModelNotFound, 404},
		{"a forbidden model before the fields", `{"model":"other","messages":7}`, fault.PermissionDenied, 403},
		{"the fields", `{"model":"m","messages":7}`, fault.InvalidRequest, 400},
	} {
		_, _, err := h.ask(ctx, c.body)
		if f := fault.From(err); f == nil || f.Code != c.code || f.HTTPStatus() != c.status {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

func TestTwoGatewaysInOneProcessShareNothing(t *testing.T) {
	a := newHouse(t, chat.Serve(exactly), "1.00", nil)
	b := newHouse(t, chat.Serve(exactly), "1.00", nil)
	if _, _, err := a.ask(t.Context(), askWhole); err != nil {
		t.Fatal(err)
	}
	if a.spent(t, "1.00") == 0 || b.spent(t, "1.00") != 0 {
		t.Errorf("spent %s and %s", a.spent(t, "1.00"), b.spent(t, "1.00"))
	}
}

func TestAShutdownSettlesOpenStreamsAndLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		in, out := io.Pipe()
		h := newHouse(t, &scripted{body: in}, "1.00", nil)
		ctx, stopRun := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- h.Run(ctx) }()
		go func() { _, _ = io.WriteString(out, chunk(`{"content":"four"}`, "")) }()
		_, r, err := h.ask(t.Context(), askStream)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Stream.Next(); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() {
			patience, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			closed <- h.Shutdown(patience)
		}()
		rest := drain(t, r.Stream)
		if err := <-closed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown: %v", err)
		}
		if !strings.Contains(rest, `"code":"ServiceUnavailable"`) {
			t.Errorf("the stream ends with %q", rest)
		}
		if got := h.spent(t, "1.00"); got != micro(estimatedInput+1) {
			t.Errorf("spent %s", got)
		}
		if _, _, err := h.ask(t.Context(), askWhole); !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("a call after the shutdown: %v", err)
		}
		stopRun()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
