package gateway_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/upstream"
)

const reported = `,"usage":{"prompt_tokens":20,"completion_tokens":30}`

func TestADuplicateGetsTheFirstAnswerAndIsNotCharged(t *testing.T) {
	up := &scriptedUpstream{text: whole(reported)}
	h := newTestGateway(t, up, "1.00", nil)
	first := h.must(t, upstream.ChatCompletion, askWhole, "k")
	again := h.must(t, upstream.ChatCompletion, askWhole, "k")
	if string(again.Body) != string(first.Body) || !again.Replayed || again.Header.Get("Idempotent-Replayed") != "true" ||
		again.Header.Get("X-Gateway-Charge") != first.Header.Get("X-Gateway-Charge") || !strings.HasPrefix(again.Header.Get("X-Request-Id"), "req_") {
		t.Errorf("first %v, again %v", first, again)
	}
	if up.count() != 1 || h.spent(t, "1.00") != micro(50) {
		t.Errorf("%d calls, spent %s", up.count(), h.spent(t, "1.00"))
	}
}

func TestAnotherBodyUnderTheSameKeyIsAConflict(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: whole(reported)}, "1.00", nil)
	h.must(t, upstream.ChatCompletion, askWhole, "k")
	_, err := h.ask(t.Context(), strings.Replace(askWhole, "four", "five", 1), "k")
	if f := fault.From(err); f == nil || f.Code != fault.IdempotencyConflict || f.Retry != fault.RetryNo {
		t.Errorf("error %v", err)
	}
	if _, err := h.ask(t.Context(), askWhole, strings.Repeat("k", 256)); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("a key of 256 bytes: %v", err)
	}
}

func TestAnyNumberOfParallelDuplicatesMakeOneCallAndOneCharge(t *testing.T) {
	up := &scriptedUpstream{text: whole(reported)}
	h := newTestGateway(t, up, "1.00", nil)
	var answered, running atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			r, err := h.ask(t.Context(), askWhole, "k")
			switch f := fault.From(err); {
			case err == nil && len(r.Body) > 0:
				answered.Add(1)
			case f != nil && f.Code == fault.IdempotencyConflict && f.Retry == fault.RetryYes && f.RetryAfter == time.Second:
				running.Add(1)
			default:
				t.Errorf("error %v", err)
			}
		})
	}
	all.Wait()
	if up.count() != 1 || answered.Load() < 1 || h.spent(t, "1.00") != micro(50) {
		t.Errorf("%d calls, %d answers, %d conflicts", up.count(), answered.Load(), running.Load())
	}
}

func TestAFailureFreesTheKey(t *testing.T) {
	for name, first := range map[string]*scriptedUpstream{
		"upstream":   {err: fault.New(fault.BadGateway, "down")},
		"bad answer": {text: "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			up := upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
				if calls.Add(1) == 1 {
					return first.Do(ctx, call)
				}
				return (&scriptedUpstream{text: whole(reported)}).Do(ctx, call)
			})
			h := newTestGateway(t, up, "1.00", nil)
			if _, err := h.ask(t.Context(), askWhole, "k"); err == nil {
				t.Fatal("no error")
			}
			if r, err := h.ask(t.Context(), askWhole, "k"); err != nil || r.Replayed {
				t.Errorf("again %v, %v", r, err)
			}
		})
	}
}

func TestAStreamIsReplayedAsAStream(t *testing.T) {
	for name, c := range map[string]struct {
		op         upstream.Op
		body, text string
		not        upstream.Op
	}{
		"chat":     {upstream.ChatCompletion, askStream, recorded(usageChunk(20, 30)), onlyChat},
		"messages": {upstream.Messages, tellStream, strings.Join(told, ""), onlyMessages},
	} {
		t.Run(name, func(t *testing.T) {
			up := &scriptedUpstream{text: c.text}
			h := newTestGateway(t, speaker{up, c.not}, "1.00", nil)
			first := h.must(t, c.op, c.body, "k")
			if _, err := h.do(t.Context(), c.op, c.body, "k"); !fault.Is(err, fault.IdempotencyConflict) {
				t.Errorf("while the first runs: %v", err)
			}
			want := drain(t, first.Stream)
			again := h.must(t, c.op, c.body, "k")
			if string(again.Body) != want || !again.Replayed || again.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("again %q, want %q", again.Body, want)
			}
			if up.count() != 1 || h.spent(t, "1.00") != micro(50) {
				t.Errorf("%d calls, spent %s", up.count(), h.spent(t, "1.00"))
			}
		})
	}
}

func TestADuplicateOfAnInterruptedStreamSeesThatItIsNotWhole(t *testing.T) {
	in, out := io.Pipe()
	h := newTestGateway(t, &scriptedUpstream{body: in}, "1.00", nil)
	go func() { _, _ = io.WriteString(out, chunk(`{"content":"four"}`, "")) }()
	first := h.must(t, upstream.ChatCompletion, askStream, "k")
	received, err := first.Stream.Next()
	if err != nil {
		t.Fatal(err)
	}
	want := string(received)
	if err := first.Stream.Close(); err != nil {
		t.Fatal(err)
	}
	again := h.must(t, upstream.ChatCompletion, askStream, "k")
	if rest, ok := strings.CutPrefix(string(again.Body), want); !ok || !strings.HasPrefix(rest, `data: {"error":{`) || strings.Count(rest, "\n\n") != 1 {
		t.Errorf("again %q after %q", again.Body, want)
	}
}

func TestAnAnswerThatIsTooLargeIsNotKeptButNotRunAgain(t *testing.T) {
	big := strings.Replace(whole(reported), "one two", strings.Repeat("x", 1<<20), 1)
	up := &scriptedUpstream{text: big}
	h := newTestGateway(t, up, "1.00", nil)
	h.must(t, upstream.ChatCompletion, askWhole, "k")
	_, err := h.ask(t.Context(), askWhole, "k")
	if f := fault.From(err); f == nil || f.Code != fault.IdempotencyConflict || f.Retry != fault.RetryNo || up.count() != 1 {
		t.Errorf("error %v after %d calls", err, up.count())
	}
}

func TestTypedCallsCarryAnIdempotencyKeyInTheirContext(t *testing.T) {
	up := &scriptedUpstream{text: whole(reported)}
	h := newTestGateway(t, up, "1.00", nil)
	ctx := gateway.WithIdempotencyKey(t.Context(), "k")
	ask := &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}}
	first, err := h.Chat(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	again, err := h.Chat(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	if again.RequestID != first.RequestID || again.Charge != first.Charge || up.count() != 1 {
		t.Errorf("first %+v, again %+v, %d calls", first, again, up.count())
	}
}

// onlyLooks is a store of answers that claims keys with holds, as that of a database.
type onlyLooks struct{}

func (onlyLooks) Lookup(context.Context, idempotency.Key, idempotency.Content) (*idempotency.Answer, error) {
	return nil, nil
}

func TestAStoreThatClaimsKeysWithHoldsHasToBeTheMeter(t *testing.T) {
	_, err := gateway.New(gateway.Options{Upstream: &scriptedUpstream{}, Idempotency: onlyLooks{}})
	if err == nil || !strings.Contains(err.Error(), "Options.Meter") {
		t.Errorf("New: %v", err)
	}
}

// A count has no hold, which would claim its key.
func TestAKeyedCountIsClaimedWhileItRuns(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		asked <- struct{}{}
		<-answer
		return nil, fault.New(fault.BadGateway, "down")
	})
	h := newTestGateway(t, up, "1.00", nil)
	count := func() error {
		_, err := h.do(t.Context(), upstream.CountTokens, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "k")
		return err
	}
	first := make(chan error)
	go func() { first <- count() }()
	<-asked
	if f := fault.From(count()); f == nil || f.Code != fault.IdempotencyConflict || f.Retry != fault.RetryYes {
		t.Errorf("a duplicate while it runs: %v", f)
	}
	close(answer)
	if err := <-first; err != nil {
		t.Errorf("the first: %v", err)
	}
	go func() { first <- count() }()
	<-asked
	if err := <-first; err != nil {
		t.Errorf("one after it: %v", err)
	}
}
