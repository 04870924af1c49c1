package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/sqlite"
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
	h := newTestGateway(t, chat.Serve(exactly), "0.01", func(o *gateway.Options) {
		o.Prices = pricedAt("m", price(t, "0", "1")) // input is free
	})
	ask := func() error { // each costs 100 micro-units
		_, err := h.ask(context.Background(), askChat)
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

// TestChunksLeaveAsTheyCome has an upstream that sends a chunk only after the
// one before it was received.
func TestChunksLeaveAsTheyCome(t *testing.T) {
	in, out := io.Pipe()
	h := newTestGateway(t, &scriptedUpstream{body: in}, "1.00", nil)
	received := make(chan struct{})
	defer close(received)
	events := strings.SplitAfter(chatStream(""), "\n\n")
	go func() {
		for _, e := range events {
			if _, err := io.WriteString(out, e); err != nil {
				return
			}
			<-received
		}
		_ = out.Close()
	}()
	r := h.must(t, upstream.ChatCompletion, askChatStream)
	for i, want := range events[:len(events)-1] {
		b, err := r.Stream.Next()
		must(t, err)
		if got := string(b); got != strings.Replace(want, "vendor-m", "m", 1) {
			t.Fatalf("event %d is %q", i, got)
		}
		received <- struct{}{}
	}
}

func TestASilentStreamHasAHeartbeatEvery15Seconds(t *testing.T) {
	for name, c := range map[string]struct {
		op              upstream.Op
		body, text      string
		not             upstream.Op
		prefix, suffix  string // of a heartbeat
		without, within string // of the rest
	}{
		"chat": {upstream.ChatCompletion, askChatStream, chatStream(usageChunk(20, 30)), onlyChat,
			`data: {"id":"chatcmpl-minted","object":"chat.completion.chunk",`, `"model":"m","choices":[{"index":0,"delta":{},"finish_reason":null}]}` + "\n\n",
			"up-1", `"id":"chatcmpl-minted"`}, // the id stays the same
		"messages":  {upstream.Messages, askMessageStream, strings.Join(messageEvents, ""), onlyMessages, "event: ping\ndata: {\"type\":", "\n\n", "vendor-m", "message_stop"},
		"responses": {upstream.Responses, askResponseStream, strings.Join(responseEvents, ""), onlyChat, ": keep-alive", "\n\n", "vendor-m", "response.completed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, out := io.Pipe()
				h := newTestGateway(t, speaker{&scriptedUpstream{body: in}, c.not}, "1.00", func(o *gateway.Options) {
					o.NewID = func(prefix string) string { return prefix + "minted" }
				})
				go func() {
					time.Sleep(40 * time.Second) // virtual
					_, _ = io.WriteString(out, c.text)
					_ = out.Close()
				}()
				var mu sync.Mutex
				var beats []string
				r, err := h.Do(t.Context(), gateway.Caller{Heartbeat: func(b []byte) {
					mu.Lock()
					defer mu.Unlock()
					beats = append(beats, string(b))
				}}, &gateway.Request{Op: c.op, Body: []byte(c.body)})
				must(t, err)
				rest := drain(t, r.Stream)
				mu.Lock()
				defer mu.Unlock()
				if len(beats) != 2 || !strings.HasPrefix(beats[0], c.prefix) || !strings.HasSuffix(beats[0], c.suffix) {
					t.Errorf("the heartbeats of 40 s are %q", beats)
				}
				if strings.Contains(rest, c.without) || !strings.Contains(rest, c.within) {
					t.Errorf("the rest is %q", rest)
				}
				if got := h.spent(t); got != micro(50) {
					t.Errorf("a heartbeat was charged: %s", got)
				}
			})
		})
	}
}

func TestTheOrderOfChecks(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer("")}, "0.00", func(o *gateway.Options) {
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
		_, err := h.ask(ctx, c.body)
		if f := fault.From(err); f == nil || f.Code != c.code || f.HTTPStatus() != c.status {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

func TestAShutdownSettlesOpenStreamsAndLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		in, out := io.Pipe()
		h := newTestGateway(t, &scriptedUpstream{body: in}, "1.00", nil)
		ctx, stopRun := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- h.Run(ctx) }()
		go func() { _, _ = io.WriteString(out, chunk(`{"content":"four"}`)) }()
		r := h.must(t, upstream.ChatCompletion, askChatStream)
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
		if got := h.spent(t); got != micro(estimatedInput+1) {
			t.Errorf("spent %s", got)
		}
		if _, err := h.ask(t.Context(), askChat); !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("a call after the shutdown: %v", err)
		}
		stopRun()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// awayFirst is a meter that cannot be reached at the first settlements.
type awayFirst struct {
	billing.Free
	mu   sync.Mutex
	left int
}

func (m *awayFirst) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left >= 0 {
		return billing.Receipt{}, errors.New("the disk is full")
	}
	return m.Free.Settle(ctx, h, u, with...)
}

// TestACaptureThatWaitsIsReportedUntilItIsSettled has Run at work from the start, which
// must not report an end before the beginning.
func TestACaptureThatWaitsIsReportedUntilItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []gateway.CaptureRetried
		g, err := gateway.New(gateway.Options{
			Upstream: inOrder(t, &scriptedUpstream{text: chatAnswer("")}), Meter: &awayFirst{left: 2}, SettleTimeout: time.Second,
			Observe: []gateway.Observer{{Event: func(_ context.Context, e gateway.Event) {
				c := e.(gateway.CaptureRetried)
				if c.State == gateway.CaptureQueued {
					time.Sleep(time.Second / 2) // Run goes first if it may
				}
				mu.Lock()
				defer mu.Unlock()
				events = append(events, c)
			}}},
		})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		if _, err := g.Chat(t.Context(), chatRequest()); !fault.Is(err, fault.ServiceUnavailable) || g.Backlog().Captures != 1 {
			t.Errorf("%v, %d captures wait", err, g.Backlog().Captures)
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil || g.Backlog().Captures != 0 {
			t.Errorf("%v, %d captures wait still", err, g.Backlog().Captures)
		}
		for i, state := range []string{gateway.CaptureQueued, gateway.CaptureFailed, gateway.CaptureSettled} {
			if len(events) != 3 {
				t.Fatalf("the events are %+v", events)
			}
			e, paid := events[i], state == gateway.CaptureSettled
			if e.State != state || e.Tries != i+1 || e.Account != "local" || e.RequestID == "" {
				t.Errorf("the event is %+v, want %s", e, state)
			}
			if paid != (e.Code == "") || paid != (e.Receipt != nil) || paid != e.Listed || paid && e.Receipt.Model != "m" {
				t.Errorf("the event is %+v", e)
			}
		}
	})
}

func TestAnObserverThatHangsKeepsNoOtherCaptureWaitingNorRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, hangs := &awayFirst{left: 2}, make(chan struct{})
		first := true
		g, err := gateway.New(gateway.Options{
			Upstream: &scriptedUpstream{text: chatAnswer("")}, Meter: m, SettleTimeout: time.Second,
			Observe: []gateway.Observer{{Event: func(_ context.Context, e gateway.Event) {
				if c, ok := e.(gateway.CaptureRetried); ok && c.State == gateway.CaptureQueued && first {
					first = false
					<-hangs
				}
			}}},
		})
		must(t, err)
		ended := make(chan struct{})
		for range 2 {
			go func() {
				_, _ = g.Chat(t.Context(), chatRequest())
				ended <- struct{}{}
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		time.Sleep(time.Minute)
		if n := g.Unsettled(); n != 1 {
			t.Errorf("%d captures wait", n)
		}
		began := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(began) > time.Second {
			t.Errorf("Run ended %s after its context with %v", time.Since(began), err)
		}
		close(hangs)
		<-ended
		<-ended
	})
}

// lingering is a body that takes its time to close.
type lingering struct {
	io.Reader
	closed *bool
}

func (l lingering) Close() error {
	time.Sleep(time.Second)
	*l.closed = true
	return nil
}

func TestTheGatewayIsClosedWhenNoUpstreamHasACallLeft(t *testing.T) {
	for name, text := range map[string]string{
		"complete": chatStream(usageChunk(20, 30)),
		"cut":      chunk(`{"role":"assistant","content":"x"}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := false
				h := newTestGateway(t, upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
					header := http.Header{"Content-Type": {"text/event-stream"}}
					return &upstream.Reply{Status: 200, Header: header, Body: lingering{strings.NewReader(text), &closed}}, nil
				}), "1", nil)
				r := h.must(t, upstream.ChatCompletion, askChatStream)
				go func() { _, _ = io.Copy(io.Discard, r.Stream) }()
				time.Sleep(time.Millisecond) // the body is being closed
				if err := h.Close(); err != nil || !closed {
					t.Errorf("Close returned with %v; the upstream's answer is closed: %t", err, closed)
				}
			})
		})
	}
}

func TestIdsFollowTheClockAndNeverRepeat(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer("")}, "1.00", func(o *gateway.Options) { o.Now = func() time.Time { return now } })
	seen := map[string]bool{}
	last := ""
	for range 1_000 {
		id := authenticated(t, t.Context(), h.Gateway).ID
		if !strings.HasPrefix(id, "req_") || len(id) != len("req_")+26 || seen[id] {
			t.Fatalf("%q after %d ids", id, len(seen))
		}
		seen[id] = true
		now = now.Add(time.Millisecond)
		if later := authenticated(t, t.Context(), h.Gateway).ID; later <= last || later <= id {
			t.Fatalf("%q comes before %q or %q", later, last, id)
		} else {
			last = later
		}
	}
}

func TestAnErrorInA200TellsNeitherCallerNorLogWhatTheVendorSaid(t *testing.T) {
	const said = "Incorrect API key provided: sk-OPERATOR. You wrote: my prompt."
	frame := `{"error":{"message":"` + said + `","code":"invalid_api_key"}}`
	for name, c := range map[string]struct {
		text, ask string
		code      fault.Code
	}{
		"answer":        {frame, askChat, fault.NoChannel},
		"first frame":   {"data: " + frame + "\n\n", askChatStream, fault.NoChannel},
		"later frame":   {chunk(`{"content":"x"}`) + "data: " + frame + "\n\n", askChatStream, fault.BadGateway},
		"event: error ": {chunk(`{"content":"x"}`) + "event: error\ndata: " + frame + "\n\n", askChatStream, fault.BadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h := newTestGateway(t, &scriptedUpstream{text: c.text}, "1.00", func(o *gateway.Options) {
				o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
			})
			r, err := h.ask(t.Context(), c.ask)
			out, err := finish(r, err)
			r.Close()
			if !fault.Is(err, c.code) {
				t.Errorf("error %v, want %s", err, c.code)
			}
			for _, never := range []string{"OPERATOR", "my prompt"} {
				if all := out + fault.From(err).Message + log.String(); strings.Contains(all, never) {
					t.Errorf("%q is told: %s", never, all)
				}
			}
			if !strings.Contains(log.String(), "invalid_api_key") {
				t.Errorf("the log lacks the vendor's code: %s", log.String())
			}
		})
	}
}

func TestAModelThatWillBeWithdrawnSaysWhen(t *testing.T) {
	day := time.Date(2100, 1, 31, 0, 0, 0, 0, time.UTC)
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer("")}, "1.00", func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", Withdrawn: day}}
	})
	r := h.must(t, upstream.ChatCompletion, askChat)
	if r.Header.Get("Sunset") != "Sun, 31 Jan 2100 00:00:00 GMT" || !strings.HasPrefix(r.Header.Get("Deprecation"), "@") {
		t.Errorf("headers %v", r.Header)
	}
}

func TestNewRefusesWhatDoesNotFit(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "books.db"), sqlite.Options{})
	must(t, err)
	defer db.Close()
	ledger, inMemory := db.Ledger(), memory.NewLedger(memory.LedgerOptions{})
	keeping := func(mode gateway.ResponsesMode, store state.Store) gateway.ResponsesOptions {
		return gateway.ResponsesOptions{Mode: mode, Store: store}
	}
	secrets := []secret.String{secret.New("the secret of the deployment")}
	for _, row := range []struct {
		name string
		o    gateway.Options
		want string // in the error; empty for none
	}{
		{"nothing", gateway.Options{}, ""},
		{"a durable meter, and tasks in memory", gateway.Options{Meter: ledger, Tasks: memory.NewTasks(nil, nil)}, "db.Ledger()"},
		{"a durable meter, and idempotency keys in memory", gateway.Options{Meter: ledger, Idempotency: &memory.Answers{}}, "leave Idempotency nil"},
		{"idempotency keys in memory beside a ledger in memory", gateway.Options{Meter: inMemory, Idempotency: &memory.Answers{}}, ""},
		{"a durable meter", gateway.Options{Meter: ledger}, ""},
		{"a durable meter that keeps the tasks", gateway.Options{Meter: ledger, Tasks: ledger}, ""},
		{"all in memory", gateway.Options{Meter: inMemory, Tasks: memory.NewTasks(nil, nil)}, ""},
		{"keys that are claimed with holds, and another meter", gateway.Options{Idempotency: onlyLooks{}}, "Options.Meter"},
		{"affinity of no kind", gateway.Options{Affinity: "on"}, `"on"`},
		{"a model's affinity of no kind", gateway.Options{Models: []gateway.Model{{ID: "m", Affinity: "on"}}}, `"on"`},
		{"responses of no mode", gateway.Options{Responses: keeping("On", nil)}, `Options.Responses.Mode is "On"; it is one of off, native, on`},
		{"responses in a durable store without a secret", gateway.Options{Responses: keeping("on", brokenResponses{})}, "Options.Secrets is empty"},
		{"responses in a durable store", gateway.Options{Responses: keeping("on", brokenResponses{}), Secrets: secrets}, ""},
		{"responses in memory", gateway.Options{Responses: keeping("on", &memory.Responses{})}, ""},
		{"responses in the usual store", gateway.Options{Responses: keeping("on", nil)}, ""},
		{"responses at the vendor", gateway.Options{Responses: keeping("native", brokenResponses{})}, ""},
		{"no responses", gateway.Options{Responses: keeping("off", brokenResponses{})}, ""},
		{"no responses by default", gateway.Options{Responses: keeping("", brokenResponses{})}, ""},
	} {
		row.o.Upstream = &scriptedUpstream{}
		g, err := gateway.New(row.o)
		if (err != nil) != (row.want != "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		if g != nil {
			_ = g.Close()
		}
	}
}
