package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

const reported = `,"usage":{"prompt_tokens":20,"completion_tokens":30}`

func TestADuplicateGetsTheFirstAnswerAndIsNotCharged(t *testing.T) {
	for _, l := range everyOperation() {
		t.Run(l.name, func(t *testing.T) {
			var asked atomic.Int64
			h := l.over(t, l.answered(func() { asked.Add(1) }))
			first, err := l.start(t.Context(), t, h, "k")
			must(t, err)
			if first.Body == nil {
				if _, err := l.start(t.Context(), t, h, "k"); !fault.Is(err, fault.IdempotencyConflict) {
					t.Errorf("while the first runs: %v", err)
				}
			}
			want, err := finish(first, nil)
			receipt, _ := first.Receipt()
			calls := asked.Load()
			if err != nil || receipt.Charge == 0 {
				t.Fatalf("%v, receipt %+v", err, receipt)
			}
			again, err := l.start(t.Context(), t, h, "k")
			if err != nil || string(again.Body) != want || !again.Replayed || asked.Load() != calls || h.spent(t) != receipt.Charge {
				t.Fatalf("again %+v, %v, %d calls, spent %s", again, err, asked.Load(), h.spent(t))
			}
			if again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("X-Request-Id") != first.ID || again.Header.Get("Content-Type") != first.Header.Get("Content-Type") ||
				first.Body != nil && again.Header.Get("X-Gateway-Charge") != first.Header.Get("X-Gateway-Charge") {
				t.Errorf("the headers are %v, after %v", again.Header, first.Header)
			}
		})
	}
}

// TestTypedCallsCarryAnIdempotencyKeyInTheirContext has answers, streams and audio.
func TestTypedCallsCarryAnIdempotencyKeyInTheirContext(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, h *testGateway) (id, text string, err error){
		"chat": func(ctx context.Context, h *testGateway) (string, string, error) {
			r, err := h.Chat(ctx, chatRequest())
			return r.RequestID, string(r.Raw), err
		},
		"speech": func(ctx context.Context, h *testGateway) (string, string, error) {
			data, r, err := h.speak(ctx, &speech.Request{Model: flash, Input: "hello", ResponseFormat: "wav"})
			if receipt, ok := r.Receipt(); !ok || receipt.Charge != micro(5) || r.ContentType != "audio/wav" {
				err = errors.Join(err, fmt.Errorf("%s, receipt %+v", r.ContentType, receipt))
			}
			return r.RequestID, data, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := speaker{&scriptedUpstream{text: chatAnswer(reported)}, onlyChat}
			h := newTestGateway(t, up, "1.00", func(o *gateway.Options) {
				o.Prices = billing.NewPriceList(map[string]*billing.Price{"m": price(t, "1", "1"), flash: rates(t, "character", "1")})
			})
			ctx := gateway.WithIdempotencyKey(t.Context(), "k")
			id, text, err := call(ctx, h)
			spent := h.spent(t)
			again, same, againErr := call(ctx, h)
			if err := errors.Join(err, againErr); err != nil || again != id || same != text || h.spent(t) != spent || spent == 0 {
				t.Errorf("%v; %s %q, again %s %q, spent %s", err, id, text, again, same, h.spent(t))
			}
		})
	}
}

func TestAnAnswerThatIsTooLargeIsNotKeptAndNotMadeAgain(t *testing.T) {
	vectors := func(size int) string {
		return `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1` + strings.Repeat(",1", size/2) + `]}],"model":"v","usage":{"prompt_tokens":3,"total_tokens":3}}`
	}
	for name, row := range map[string]struct {
		op           upstream.Op
		body, answer string
		kept         bool
	}{
		"chat":              {upstream.ChatCompletion, askChat, strings.Replace(chatAnswer(reported), "one two", strings.Repeat("x", idempotency.MaxAnswer), 1), false},
		"stream":            {upstream.ChatCompletion, askChatStream, strings.Repeat(chunk(`{"content":"`+strings.Repeat("x", 64<<10)+`"}`), idempotency.MaxAnswer>>16) + usageChunk(1, 1) + "data: [DONE]\n\n", false},
		"embeddings":        {upstream.Embeddings, `{"model":"m","input":"a"}`, vectors(68 << 10), false},
		"embeddings, small": {upstream.Embeddings, `{"model":"m","input":"a"}`, vectors(60 << 10), true},
	} {
		t.Run(name, func(t *testing.T) {
			up := &scriptedUpstream{text: row.answer}
			h := newTestGateway(t, up, "10", nil)
			h.complete(t, row.op, row.body, "k")
			again, err := h.do(t.Context(), row.op, row.body, "k")
			f := fault.From(err)
			if row.kept != (err == nil && again.Replayed) || !row.kept && (f.Code != fault.IdempotencyConflict || f.Retry != fault.RetryNo) || up.count() != 1 {
				t.Errorf("error %v after %d calls", err, up.count())
			}
		})
	}
}

func TestAnyNumberOfParallelDuplicatesMakeOneCallAndOneCharge(t *testing.T) {
	up := &scriptedUpstream{text: chatAnswer(reported)}
	h := newTestGateway(t, up, "1.00", nil)
	var answered, running atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			r, err := h.ask(t.Context(), askChat, "k")
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
	if up.count() != 1 || answered.Load() < 1 || h.spent(t) != micro(50) {
		t.Errorf("%d calls, %d answers, %d conflicts", up.count(), answered.Load(), running.Load())
	}
}

func TestAFailureFreesTheKey(t *testing.T) {
	for name, row := range map[string]struct {
		body, then string
		first      *scriptedUpstream
	}{
		"upstream":   {askChat, chatAnswer(reported), &scriptedUpstream{err: fault.New(fault.BadGateway, "down")}},
		"bad answer": {askChat, chatAnswer(reported), &scriptedUpstream{text: "{}"}},
		"a stream that is cut before its content": {askChatStream, chatStream(usageChunk(20, 30)), &scriptedUpstream{text: chunk(`{"role":"assistant","content":""}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			up := upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
				if calls.Add(1) == 1 {
					return row.first.Do(ctx, call)
				}
				return (&scriptedUpstream{text: row.then}).Do(ctx, call)
			})
			h := newTestGateway(t, up, "1.00", nil)
			if _, err := finish(h.ask(t.Context(), row.body, "k")); err == nil || h.spent(t) != 0 {
				t.Fatalf("%v, spent %s", err, h.spent(t))
			}
			again, err := h.ask(t.Context(), row.body, "k")
			if _, ended := finish(again, err); ended != nil || again.Replayed || h.spent(t) != micro(50) {
				t.Errorf("again %+v, %v, spent %s", again, ended, h.spent(t))
			}
		})
	}
}

func TestADuplicateOfAnInterruptedStreamSeesThatItIsNotWhole(t *testing.T) {
	in, out := io.Pipe()
	h := newTestGateway(t, &scriptedUpstream{body: in}, "1.00", nil)
	go func() { _, _ = io.WriteString(out, chunk(`{"content":"four"}`)) }()
	first := h.must(t, upstream.ChatCompletion, askChatStream, "k")
	received, err := first.Stream.Next()
	must(t, err)
	want := string(received)
	must(t, first.Stream.Close())
	again := h.must(t, upstream.ChatCompletion, askChatStream, "k")
	if rest, ok := strings.CutPrefix(string(again.Body), want); !ok || !strings.HasPrefix(rest, `data: {"error":{`) || strings.Count(rest, "\n\n") != 1 {
		t.Errorf("again %q after %q", again.Body, want)
	}
}

// onlyLooks is a store of answers that claims keys with holds, as that of a database.
type onlyLooks struct{}

func (onlyLooks) Lookup(context.Context, idempotency.Key, idempotency.Content) (*idempotency.Answer, error) {
	return nil, nil
}

// failingClaims is a store of answers that cannot claim.
type failingClaims struct{ idempotency.Claimer }

func (failingClaims) Lookup(context.Context, idempotency.Key, idempotency.Content) (*idempotency.Answer, error) {
	return nil, nil
}

func (failingClaims) Claim(context.Context, idempotency.Key, idempotency.Content, string) error {
	return errors.New("away")
}

func (failingClaims) Free(context.Context, idempotency.Key, string) error { return nil }

func TestACountWhoseKeyCannotBeClaimedIsA503(t *testing.T) {
	up := &scriptedUpstream{text: `{"input_tokens":7}`}
	h := newTestGateway(t, up, "1.00", func(o *gateway.Options) { o.Idempotency = failingClaims{} })
	if _, err := h.do(t.Context(), upstream.CountTokens, askChat, "k"); !fault.Is(err, fault.ServiceUnavailable) || up.count() != 0 {
		t.Errorf("%v after %d calls", err, up.count())
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

// keepingMeter is a meter that keeps answers.
type keepingMeter struct {
	billing.Meter
	idempotency.Store
}

func TestAMeterThatKeepsAnswersIsAskedForThem(t *testing.T) {
	asked := new(lookups)
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer(reported)}, "1.00", func(o *gateway.Options) {
		o.Meter, o.Tasks = &keepingMeter{o.Meter, asked}, noTasks{}
	})
	_, err := h.ask(t.Context(), askChat, "k")
	if err == nil || !strings.Contains(err.Error(), "idempotency.Claim with a hold") || asked.n != 1 { // which a ledger in memory cannot keep
		t.Errorf("%v, asked %d times", err, asked.n)
	}
}

// lookups counts them; every key is free.
type lookups struct{ n int }

func (l *lookups) Lookup(context.Context, idempotency.Key, idempotency.Content) (*idempotency.Answer, error) {
	l.n++
	return nil, nil
}

// noTasks is a store of videos that is never asked.
type noTasks struct{ video.Store }
