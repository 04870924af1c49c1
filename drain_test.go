package gateway_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// hiddenUsage is the last chunk of a model that reasoned and did not show it.
const hiddenUsage = `data: {"id":"up-1","object":"chat.completion.chunk","created":7,"model":"vendor-m","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":1000,"completion_tokens_details":{"reasoning_tokens":990}}}` + "\n\n"

// reasoningVendor is a vendor's stream whose first words come at once, and whose end comes
// after a pause.
type reasoningVendor struct {
	pause time.Duration
	cut   chan struct{} // closed when the call's context ended before the end
}

func (v *reasoningVendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	in, out := io.Pipe()
	text := chatStream(hiddenUsage)
	first := strings.Index(text, `{"content":"four"}`)
	first += strings.Index(text[first:], "\n\n") + 2
	cut := make(chan struct{})
	v.cut = cut
	go func() {
		_, _ = io.WriteString(out, text[:first])
		select {
		case <-time.After(v.pause): // virtual
			_, _ = io.WriteString(out, text[first:])
		case <-ctx.Done():
			close(cut)
		}
		_ = out.Close()
	}()
	return (&scriptedUpstream{body: in}).Do(ctx, call)
}

// newReasoningGateway is a gateway whose one channel drains for so long.
func newReasoningGateway(t *testing.T, v *reasoningVendor, drain time.Duration, edit func(*gateway.Options)) *testGateway {
	t.Helper()
	routing := newRouter(t, router.Channel{Name: "c0", Upstream: v, Models: map[string]string{"m": "m"}, Drain: drain})
	return newTestGateway(t, routing, "1.00", edit)
}

// fourWords begins the stream and reads what comes at once.
func fourWords(t *testing.T, ctx context.Context, h *testGateway, key string) (*gateway.Response, *gateway.Stream) {
	t.Helper()
	return fourWordsOf(t, ctx, h, strings.Replace(askChatStream, `"max_tokens":100`, `"max_tokens":5000`, 1), key)
}

func fourWordsOf(t *testing.T, ctx context.Context, h *testGateway, body, key string) (*gateway.Response, *gateway.Stream) {
	t.Helper()
	r, err := h.ask(ctx, body, key)
	must(t, err)
	for got := ""; !strings.Contains(got, "four"); {
		b, err := r.Stream.Next()
		must(t, err)
		got += string(b)
	}
	return r, r.Stream
}

func TestAStreamIsReadOnAfterItsClientLeftWhereItsChannelDrains(t *testing.T) {
	const reported, estimated = 1_020, estimatedInput + estimatedOutput
	for name, row := range map[string]struct {
		drain, pause time.Duration
		want         int64
		took         time.Duration
	}{
		"to its end":            {30 * time.Second, 10 * time.Second, reported, 10 * time.Second},
		"no longer than it may": {5 * time.Second, 10 * time.Second, estimated, 5 * time.Second},
		"not without a drain":   {0, 10 * time.Second, estimated, 0},
	} {
		for how, leave := range map[string]func(cancel func(), s *gateway.Stream){
			"by closing":     func(_ func(), s *gateway.Stream) { _ = s.Close() },
			"while it reads": func(cancel func(), s *gateway.Stream) { go cancel(); _, _ = io.Copy(io.Discard, s); _ = s.Close() },
			"between reads":  func(cancel func(), s *gateway.Stream) { cancel(); synctest.Wait(); _ = s.Close() },
			"and reads on":   func(cancel func(), s *gateway.Stream) { cancel(); synctest.Wait(); _, _ = io.Copy(io.Discard, s) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newReasoningGateway(t, &reasoningVendor{pause: row.pause}, row.drain, nil)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					x, s := fourWords(t, ctx, h, "")
					before := time.Now()
					leave(cancel, s)
					if took := time.Since(before); took != row.took {
						t.Errorf("it took %s, want %s", took, row.took)
					}
					r, ok := x.Receipt()
					if !ok || r.Charge != micro(row.want) || r.Reason != billing.ReasonClientGone || r.Usage.Estimated != (row.want == estimated) {
						t.Errorf("receipt %+v, want a charge of %s", r, micro(row.want))
					}
					if !fault.Is(s.Err(), fault.ClientGone) {
						t.Errorf("the stream's error is %v", s.Err())
					}
				})
			})
		}
	}
}

func TestADrainThatNobodyWaitsForEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newReasoningGateway(t, &reasoningVendor{pause: time.Hour}, 5*time.Second, nil)
		ctx, cancel := context.WithCancel(t.Context())
		x, _ := fourWords(t, ctx, h, "")
		cancel()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if r, ok := x.Receipt(); !ok || r.Charge != micro(estimatedInput+estimatedOutput) || r.Reason != billing.ReasonClientGone {
			t.Errorf("receipt %+v", r)
		}
	})
}

// TestAShutdownWaitsForAStreamThatIsReadOn treats it as any running call.
func TestAShutdownWaitsForAStreamThatIsReadOn(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(h *testGateway) error
		took time.Duration
	}{
		"not when it closes":    {(*testGateway).Close, 0},
		"for as long as it may": {func(h *testGateway) error { return h.Shutdown(context.Background()) }, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newReasoningGateway(t, &reasoningVendor{pause: time.Hour}, 30*time.Second, nil)
				x, s := fourWords(t, t.Context(), h, "")
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = s.Close()
				}()
				synctest.Wait()
				before := time.Now()
				must(t, row.end(h))
				<-done
				if r, ok := x.Receipt(); !ok || r.Reason != billing.ReasonClientGone || r.Charge != micro(estimatedInput+estimatedOutput) || time.Since(before) != row.took {
					t.Errorf("receipt %+v after %s", r, time.Since(before))
				}
			})
		})
	}
}

func TestADrainedStreamIsKeptWholeForItsDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newReasoningGateway(t, &reasoningVendor{pause: 10 * time.Second}, 30*time.Second, nil)
		_, s := fourWords(t, t.Context(), h, "k")
		_ = s.Close()
		again, err := h.ask(t.Context(), strings.Replace(askChatStream, `"max_tokens":100`, `"max_tokens":5000`, 1), "k")
		if err != nil || !again.Replayed || !strings.HasSuffix(string(again.Body), "data: [DONE]\n\n") || strings.Count(string(again.Body), "four") != 1 {
			t.Errorf("again %+v, %v", again, err)
		}
	})
}

// Of a model that reasons without showing it only the last usage tells what it made. Whether
// it does is known beforehand: nothing that one account's answers show changes what others pay.
func TestStreamsWhoseReasoningMayBeHiddenAreReadOn(t *testing.T) {
	long := strings.Replace(askChatStream, `"max_tokens":100`, `"max_tokens":5000`, 1)
	with := func(member string) string { return strings.Replace(long, `{"model"`, "{"+member+`,"model"`, 1) }
	for name, row := range map[string]struct {
		upstream  string // the vendor's id of the model
		reasoning gateway.Reasoning
		body      string
		readOn    bool
	}{
		"a model that nobody knows":                     {"m", "", long, false},
		"after an answer that hid its reasoning":        {"m", "", long, false},
		"the operator says so":                          {"m", gateway.ReasoningHidden, long, true},
		"the operator says so, of a short drain":        {"m", gateway.ReasoningHidden, long, true},
		"the table says so of the vendor's id":          {"openai/gpt-5-mini", "", long, true},
		"the operator knows better than the table":      {"o3", gateway.ReasoningShown, long, false},
		"the request asks for reasoning":                {"m", "", with(`"reasoning_effort":"low"`), true},
		"in the words of another vendor":                {"m", "", with(`"thinking":{"type":"enabled"}`), true},
		"it asks for none":                              {"m", "", with(`"reasoning_effort":"none"`), false},
		"it switches reasoning off, in another's words": {"m", "", with(`"thinking":{"type":"disabled"}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &reasoningVendor{pause: 10 * time.Second}
				channel := router.Channel{Name: "c0", Upstream: v, Models: map[string]string{"m": row.upstream}}
				if strings.HasSuffix(name, "drain") {
					channel.Drain = time.Second
				}
				h := newTestGateway(t, newRouter(t, channel), "1.00", func(o *gateway.Options) {
					o.Models = []gateway.Model{{ID: "m", Reasoning: row.reasoning}}
				})
				if strings.HasPrefix(name, "after") {
					h.complete(t, upstream.ChatCompletion, long)
				}
				before := h.spent(t)
				_, s := fourWordsOf(t, t.Context(), h, row.body, "")
				_ = s.Close()
				if readOn := h.spent(t)-before == micro(1_020); readOn != row.readOn {
					t.Errorf("charged %s: read on %t, want %t", h.spent(t)-before, readOn, row.readOn)
				}
			})
		})
	}
}

// operationRequest is a request whose client leaves while the vendor is at it.
type operationRequest struct {
	name  string
	op    upstream.Op
	model string
	price []string
	body  string        // empty for the form of an edit
	used  billing.Usage // what a vendor may bill that fails
}

// everyOperation are one request of each operation.
func everyOperation() []operationRequest {
	tokens, words := []string{"input", "1", "output", "1"}, strings.Repeat("a", 23)
	return []operationRequest{
		{name: "chat", op: upstream.ChatCompletion, model: "m", price: tokens, body: askChat, used: billing.Usage{Input: estimatedInput}},
		{name: "chat, streamed", op: upstream.ChatCompletion, model: "m", price: tokens, body: askChatStream, used: billing.Usage{Input: estimatedInput}},
		{name: "messages", op: upstream.Messages, model: "m", price: tokens, body: askMessage, used: billing.Usage{Input: estimatedInput}},
		{name: "messages, streamed", op: upstream.Messages, model: "m", price: tokens, body: askMessageStream, used: billing.Usage{Input: estimatedInput}},
		{name: "responses", op: upstream.Responses, model: "m", price: tokens, body: askResponse, used: billing.Usage{Input: estimatedInput}},
		{name: "responses, streamed", op: upstream.Responses, model: "m", price: tokens, body: askResponseStream, used: billing.Usage{Input: estimatedInput}},
		{name: "pictures by the piece", op: upstream.GenerateImage, model: "imagegen-1", price: []string{"image", "0.2"},
			body: `{"model":"imagegen-1","prompt":"a boat","n":3}`, used: billing.Usage{Input: 2, Images: 3}},
		{name: "pictures by the token", op: upstream.GenerateImage, model: "imagegen-1", price: []string{"input", "1000", "image_output", "10"},
			body: `{"model":"imagegen-1","prompt":"a boat","n":3}`, used: billing.Usage{Input: 2, Images: 3}},
		{name: "a stream of pictures by the piece", op: upstream.GenerateImage, model: "imagegen-2", price: []string{"image", "0.2"},
			body: `{"model":"imagegen-2","prompt":"a boat","stream":true,"partial_images":2}`, used: billing.Usage{Input: 2, Images: 1}},
		{name: "an edit by the piece", op: upstream.EditImage, model: "imagegen-1", price: []string{"image", "0.2"},
			used: billing.Usage{Input: 4, ImageInput: 65 + 129, Images: 1}},
		{name: "an edit by the token", op: upstream.EditImage, model: "imagegen-1", price: []string{"input", "1000", "image_input", "100"},
			used: billing.Usage{Input: 4, ImageInput: 65 + 129, Images: 1}},
		{name: "speech", op: upstream.Speech, model: flash, price: []string{"character", "1"},
			body: `{"model":"` + flash + `","input":"` + words + `","response_format":"wav"}`, used: billing.Usage{Characters: 23}},
		{name: "speech in parts, of which one was sent", op: upstream.Speech, model: flash, price: []string{"character", "1"},
			body: `{"model":"` + flash + `","input":"` + words + words + `","response_format":"wav"}`, used: billing.Usage{Characters: 23}},
		{name: "embeddings", op: upstream.Embeddings, model: "e", price: []string{"input", "1"},
			body: `{"model":"e","input":["abcd"]}`, used: billing.Usage{Input: 2}},
		{name: "a ranking by the unit", op: upstream.Rerank, model: "e", price: []string{"search_unit", "1"},
			body: `{"model":"e","query":"q","documents":["1"]}`, used: billing.Usage{SearchUnits: 1}},
		{name: "a ranking by the request", op: upstream.Rerank, model: "e", price: []string{"request", "1"},
			body: `{"model":"e","query":"q","documents":["1"]}`, used: billing.Usage{Requests: 1}},
	}
}

// wholeAnswers are answers to those of them that do not stream.
var wholeAnswers = map[upstream.Op]string{
	upstream.ChatCompletion: chatAnswer(reported), upstream.Messages: messageAnswer, upstream.Responses: responseAnswer,
	upstream.GenerateImage: threeLinks, upstream.EditImage: edited,
}

// streamedAnswers are those to the others.
var streamedAnswers = map[upstream.Op]string{
	upstream.ChatCompletion: chatStream(usageChunk(20, 30)), upstream.Messages: strings.Join(messageEvents, ""), upstream.Responses: strings.Join(responseEvents, ""),
	upstream.GenerateImage: "event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\",\"b64_json\":\"aGk=\"}\n\n",
}

// start sends the request.
func (l *operationRequest) start(ctx context.Context, t *testing.T, h *testGateway, key string) (*gateway.Response, error) {
	t.Helper()
	q := &gateway.Request{Op: l.op, Body: []byte(l.body), IdempotencyKey: key}
	if l.op == upstream.EditImage {
		q.Form = editForm(t, l.model).Form
	}
	return h.Do(ctx, gateway.Caller{}, q)
}

// over is a gateway whose one channel, "c0", asks up for the request's model.
func (l *operationRequest) over(t *testing.T, up upstream.Upstream, edit ...func(*gateway.Options)) *testGateway {
	t.Helper()
	routing := newRouter(t, router.Channel{Name: "c0", Upstream: up, Models: map[string]string{l.model: l.model}})
	return newTestGateway(t, routing, "10", func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: flash, Batch: 23}}
		o.Prices = pricedAt(l.model, rates(t, l.price...))
		for _, e := range edit {
			e(o)
		}
	})
}

// answered is a vendor that answers the request, after it has called before.
func (l *operationRequest) answered(before func()) upstream.Func {
	return func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		before()
		switch text := wholeAnswers[l.op]; {
		case l.op == upstream.Embeddings:
			return vectorsFor(ctx, c)
		case l.op == upstream.Rerank:
			return rankedBy(ctx, c)
		case l.op == upstream.Speech:
			return (&fakeSpeechVendor{answers: []reading{{audio: wav("aaab")}}}).Do(ctx, c)
		case c.Stream:
			return (&scriptedUpstream{text: streamedAnswers[l.op]}).Do(ctx, c)
		default:
			return (&scriptedUpstream{text: text}).Do(ctx, c)
		}
	}
}

// refusing is a vendor that fails each request after it has called before.
func refusing(before func(), f upstream.Failure) upstream.Func {
	return func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		before()
		return nil, f.Fault()
	}
}

// TestWhoLeavesBeforeTheAnswerPaysForIt compares the charge with that of a client who stays:
// a vendor makes and bills an answer whether or not somebody waits for it.
func TestWhoLeavesBeforeTheAnswerPaysForIt(t *testing.T) {
	for _, l := range everyOperation() {
		t.Run(l.name, func(t *testing.T) {
			stays := l.over(t, l.answered(func() {}))
			x, err := l.start(t.Context(), t, stays, "")
			must(t, err)
			body, err := finish(x, nil)
			must(t, err)
			want, _ := x.Receipt()

			ctx, leave := context.WithCancel(t.Context())
			h := l.over(t, l.answered(leave))
			x, err = l.start(ctx, t, h, "k")
			must(t, err)
			_, _ = finish(x, nil)
			got, _ := x.Receipt()
			if x.Body == nil && l.op != upstream.GenerateImage { // what comes piece by piece follows its client from the first piece on
				if got.Charge == 0 || got.Charge > want.Charge {
					t.Errorf("receipt %+v, want at most %s and more than nothing", got, want.Charge)
				}
				return
			}
			if got.Charge != want.Charge || want.Charge == 0 || got.Status != billing.Captured {
				t.Errorf("charged %+v, want %s", got, want.Charge)
			}
			again, err := l.start(t.Context(), t, h, "k")
			if x.Body != nil && (err != nil || !again.Replayed || len(again.Body) != len(body)) {
				t.Errorf("a duplicate gets %+v, %v", again, err)
			}
			if h.spent(t) != got.Charge {
				t.Errorf("spent %s, want %s", h.spent(t), got.Charge)
			}
		})
	}
}

// TestNoFurtherChannelIsAskedForAClientThatHasLeft has two channels, of which the first is
// asked and fails.
func TestNoFurtherChannelIsAskedForAClientThatHasLeft(t *testing.T) {
	for name, f := range map[string]upstream.Failure{
		"refused":    {Status: 429, Sent: true, Refused: true},
		"failed":     {Status: 500, Sent: true},
		"never sent": {Err: io.ErrUnexpectedEOF},
	} {
		for _, l := range everyOperation() {
			t.Run(name+", "+l.name, func(t *testing.T) {
				var asked atomic.Int64
				ctx, leave := context.WithCancel(t.Context())
				vendor := refusing(func() { asked.Add(1); leave() }, f)
				h := l.over(t, vendor, func(o *gateway.Options) {
					o.Upstream = newRouter(t,
						router.Channel{Name: "c0", Upstream: vendor, Models: map[string]string{l.model: l.model}},
						router.Channel{Name: "c1", Upstream: vendor, Models: map[string]string{l.model: l.model}})
				})
				x, err := l.start(ctx, t, h, "k")
				if r, ok := x.Receipt(); err == nil || !ok || r.Charge != 0 || r.Status != billing.Released || asked.Load() != 1 {
					t.Errorf("%v, receipt %+v, asked %d times", err, r, asked.Load())
				}
				if b := h.balance(t); b.Held != 0 || h.spent(t) != 0 {
					t.Errorf("balance %+v", b)
				}
				again, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := l.start(again, t, h, "k"); fault.Is(err, fault.IdempotencyConflict) {
					t.Errorf("the key is not free: %v", err)
				}
			})
		}
	}
}

// TestWhoLeavesTheQueuePaysNothing has a channel whose one slot is taken.
func TestWhoLeavesTheQueuePaysNothing(t *testing.T) {
	for _, l := range everyOperation() {
		t.Run(l.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				proceed := make(chan struct{})
				vendor := refusing(func() { asked.Add(1); <-proceed }, upstream.Failure{Status: 400, Sent: true})
				h := l.over(t, vendor, func(o *gateway.Options) {
					o.Upstream = newRouter(t, router.Channel{Name: "c0", Upstream: vendor, Models: map[string]string{l.model: l.model}, MaxConcurrent: 1})
				})
				first := make(chan struct{})
				go func() {
					defer close(first)
					_, _ = l.start(t.Context(), t, h, "")
				}()
				synctest.Wait()
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(100*time.Millisecond, leave)
				before := time.Now()
				_, err := l.start(ctx, t, h, "")
				if took := time.Since(before); !fault.Is(err, fault.ClientGone) || took != 100*time.Millisecond {
					t.Errorf("%v after %s", err, took)
				}
				close(proceed)
				<-first
				if h.spent(t) != 0 || asked.Load() != 1 {
					t.Errorf("spent %s, asked %d times", h.spent(t), asked.Load())
				}
			})
		})
	}
}

// TestWhoLeavesAgainAndAgainHasNoMoreCallsThanHeMay has a key with two slots.
func TestWhoLeavesAgainAndAgainHasNoMoreCallsThanItsKeyMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		proceed := make(chan struct{})
		up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			asked.Add(1)
			<-proceed
			return (&scriptedUpstream{text: chatAnswer(reported)}).Do(ctx, c)
		})
		h := newTestGateway(t, up, "1.00", nil)
		principal := &auth.Principal{Account: "local", Key: "k", Limits: auth.Limits{MaxConcurrent: 2}}
		done := make(chan error)
		for range 10 {
			ctx, leave := context.WithTimeout(auth.NewContext(t.Context(), principal), 100*time.Millisecond)
			go func() {
				defer leave()
				_, err := h.ask(ctx, askChat)
				done <- err
			}()
			time.Sleep(150 * time.Millisecond)
		}
		refused := 0
		for range 8 {
			if err := <-done; fault.Is(err, fault.RateLimitExceeded) {
				refused++
			}
		}
		if asked.Load() != 2 || refused != 8 {
			t.Errorf("%d calls run, %d were refused; want 2 and 8", asked.Load(), refused)
		}
		close(proceed)
		<-done
		<-done
		if h.spent(t) != 2*micro(50) {
			t.Errorf("spent %s, want two answers", h.spent(t))
		}
	})
}

func TestAShutdownBeforeTheAnswerIsPaidByTheOperator(t *testing.T) {
	for _, l := range everyOperation() {
		t.Run(l.name, func(t *testing.T) {
			asked := make(chan struct{})
			h := l.over(t, upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
				close(asked)
				<-ctx.Done()
				return nil, (&upstream.Failure{Sent: true, Err: ctx.Err()}).Fault()
			}))
			done := make(chan struct{})
			var x *gateway.Response
			go func() {
				defer close(done)
				x, _ = l.start(t.Context(), t, h, "")
			}()
			<-asked
			must(t, h.Close())
			<-done
			want, err := rates(t, l.price...).Cost(l.used)
			if tries := h.tries(t, x.ID); err != nil || h.spent(t) != 0 || len(tries) != 1 || tries[0].Waste != want {
				t.Errorf("spent %s, tries %+v, want a waste of %s", h.spent(t), tries, want)
			}
		})
	}
}
