package gateway_test

import (
	"context"
	"fmt"
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
	r, err := h.do(ctx, upstream.ChatCompletion, strings.Replace(askChatStream, `"max_tokens":100`, `"max_tokens":5000`, 1), key)
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
		most         int // drains at once; 0 for the default
		want         int64
		took         time.Duration
	}{
		"to its end":            {30 * time.Second, 10 * time.Second, 0, reported, 10 * time.Second},
		"no longer than it may": {5 * time.Second, 10 * time.Second, 0, estimated, 5 * time.Second},
		"not without a drain":   {0, 10 * time.Second, 0, estimated, 0},
		"not above the bound":   {30 * time.Second, 10 * time.Second, -1, estimated, 0},
	} {
		for how, leave := range map[string]func(cancel func(), s *gateway.Stream){
			"by closing":        func(_ func(), s *gateway.Stream) { _ = s.Close() },
			"while it reads":    func(cancel func(), s *gateway.Stream) { go cancel(); _, _ = io.Copy(io.Discard, s); _ = s.Close() },
			"between reads":     func(cancel func(), s *gateway.Stream) { cancel(); synctest.Wait(); _ = s.Close() },
			"and reads no more": func(cancel func(), s *gateway.Stream) { cancel(); synctest.Wait(); _, _ = io.Copy(io.Discard, s) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newReasoningGateway(t, &reasoningVendor{pause: row.pause}, row.drain, func(o *gateway.Options) { o.MaxDrains = row.most })
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

func TestTheDrainsAtOnceAreBoundedAndNoAccountHasAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newReasoningGateway(t, &reasoningVendor{pause: 10 * time.Second}, 30*time.Second, func(o *gateway.Options) { o.MaxDrains = 8 })
		must(t, h.ledger.CreateAccount(t.Context(), "other", billing.One))
		ctx, cancel := context.WithCancel(t.Context())
		leave := func(account string, n int) (cut int) {
			ctx, cancel := context.WithCancel(auth.NewContext(ctx, &auth.Principal{Account: account, Key: "k"}))
			var all []*gateway.Stream
			for range n {
				_, s := fourWords(t, ctx, h, "")
				all = append(all, s)
			}
			cancel()
			synctest.Wait()
			for _, s := range all {
				if r, ok := s.Receipt(); ok && r.Reason == billing.ReasonClientGone {
					cut++
				}
			}
			return cut
		}
		if cut := leave("local", 9); cut != 3 {
			t.Errorf("%d of 9 streams of one account were cancelled at once, want all but 6", cut)
		}
		if cut := leave("other", 1); cut != 0 {
			t.Error("another account's stream was cancelled at once")
		}
		cancel()
		time.Sleep(time.Minute)
	})
}

func TestAShutdownEndsADrain(t *testing.T) {
	for name, end := range map[string]func(h *testGateway) error{
		"at once":       (*testGateway).Close,
		"with patience": func(h *testGateway) error { return h.Shutdown(context.Background()) },
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
				must(t, end(h))
				<-done
				if r, ok := x.Receipt(); !ok || r.Reason != billing.ReasonClientGone || r.Charge != micro(estimatedInput+estimatedOutput) || time.Since(before) != 0 {
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

// Of a model that reasons without showing it only the last usage tells what it made, so
// that its streams are drained once an answer, read in either wire, has said so. An answer
// that shows its reasoning, which any caller can ask for, does not end that for all.
func TestTheStreamsOfAModelThatHidesItsReasoningAreDrained(t *testing.T) {
	const message = `{"model":"m","max_tokens":5000,"stream":true,"messages":[{"role":"user","content":"Count to six."}]}`
	long := strings.Replace(askChatStream, `"max_tokens":100`, `"max_tokens":5000`, 1)
	once := func(body string) string { return strings.Replace(body, `,"stream":true`, "", 1) }
	answer := func(reasoning int, text string) string {
		usage := fmt.Sprintf(`,"usage":{"prompt_tokens":20,"completion_tokens":1000,"completion_tokens_details":{"reasoning_tokens":%d}}`, reasoning)
		return strings.Replace(chatAnswer(usage), `"content":"one`, text+`"content":"one`, 1)
	}
	shown := `"reasoning_content": "` + strings.Repeat("I think so. ", 320) + `",`
	little := strings.NewReplacer(`"completion_tokens":1000`, `"completion_tokens":5`, `"reasoning_tokens":990`, `"reasoning_tokens":0`).Replace(hiddenUsage)
	type lesson struct {
		op         upstream.Op
		body, text string
	}
	for name, row := range map[string]struct {
		lessons []lesson
		drained bool
	}{
		"a stream that hid it":             {[]lesson{{upstream.ChatCompletion, long, chatStream(hiddenUsage)}}, true},
		"one that hid none":                {[]lesson{{upstream.ChatCompletion, long, chatStream(little)}}, false},
		"an answer that hid it":            {[]lesson{{upstream.ChatCompletion, once(long), answer(990, "")}}, true},
		"one that showed it":               {[]lesson{{upstream.ChatCompletion, once(long), answer(990, shown)}}, false},
		"a stream of messages that hid it": {[]lesson{{upstream.Messages, message, chatStream(hiddenUsage)}}, true},
		"a whole message that hid it":      {[]lesson{{upstream.Messages, once(message), answer(0, "")}}, true},
		"hidden, then shown":               {[]lesson{{upstream.Messages, message, chatStream(hiddenUsage)}, {upstream.ChatCompletion, askChat, answer(900, shown)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, text := &reasoningVendor{pause: 10 * time.Second}, ""
				h := newTestGateway(t, answering{upstream.ChatCompletion, upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
					if text != "" {
						return (&scriptedUpstream{text: text}).Do(ctx, c)
					}
					return v.Do(ctx, c)
				})}, "1.00", nil)
				for _, l := range row.lessons {
					text = l.text
					h.complete(t, l.op, l.body)
				}
				text = ""
				x, s := fourWords(t, t.Context(), h, "")
				_ = s.Close()
				want := micro(estimatedInput + estimatedOutput)
				if row.drained {
					want = micro(1_020)
				}
				if r, ok := x.Receipt(); !ok || r.Charge != want {
					t.Errorf("receipt %+v, want %s", r, want)
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
	used  billing.Usage // what the client owes
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
	return h.Do(ctx, q)
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

// abandoned is a vendor that is at the first request when its client leaves, and
// fails all others.
func abandoned(leave func(), f upstream.Failure) upstream.Func {
	var asked atomic.Bool
	return func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
		if asked.Swap(true) {
			return nil, (&upstream.Failure{Status: 500, Sent: true}).Fault()
		}
		leave()
		<-ctx.Done()
		return nil, f.Fault()
	}
}

func TestWhoLeavesBeforeTheAnswerPaysForWhatTheVendorWasAskedFor(t *testing.T) {
	for _, l := range everyOperation() {
		for _, key := range []string{"", "k"} {
			t.Run(l.name+key, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				h := l.over(t, abandoned(leave, upstream.Failure{Sent: true, Err: context.Canceled}))
				x, err := l.start(ctx, t, h, key)
				if !fault.Is(err, fault.ClientGone) {
					t.Fatalf("error %v", err)
				}
				want, err := rates(t, l.price...).Cost(l.used)
				must(t, err)
				r, tries, err := h.ledger.Request(t.Context(), x.ID)
				if err != nil || want == 0 || r.Charge != want || r.Reason != billing.ReasonClientGone || r.Channel != "c0" {
					t.Errorf("receipt %+v, %v; want a charge of %s by c0", r, err, want)
				}
				if r.Usage.Images != l.used.Images || r.Usage.Characters != l.used.Characters {
					t.Errorf("used %+v, want %+v", r.Usage, l.used)
				}
				if len(tries) != 1 || tries[0].Channel != "c0" || tries[0].Code != string(fault.ClientGone) || !tries[0].Billable || tries[0].Waste != 0 {
					t.Errorf("tries %+v, want one at c0 that the vendor may bill and the operator does not bear", tries)
				}
				if key == "" {
					return
				}
				_, err = l.start(t.Context(), t, h, key)
				if f := fault.From(err); !fault.Is(err, fault.IdempotencyConflict) || f.Retry != fault.RetryNo || !strings.Contains(f.Message, "charged") || !strings.Contains(f.Message, "left") {
					t.Errorf("a duplicate: %v, want a conflict that is not to be repeated and names both reasons", err)
				}
			})
		}
	}
}

func TestWhoLeavesBeforeAVendorWasAskedPaysNothing(t *testing.T) {
	for name, f := range map[string]upstream.Failure{
		"refused":    {Status: 429, Sent: true, Refused: true},
		"an error":   {Status: 400, Sent: true},
		"never sent": {Err: context.Canceled},
	} {
		for _, l := range everyOperation() {
			t.Run(name+", "+l.name, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				h := l.over(t, abandoned(leave, f))
				x, err := l.start(ctx, t, h, "k")
				if r, ok := x.Receipt(); !fault.Is(err, fault.ClientGone) || !ok || r.Charge != 0 || r.Status != billing.Released {
					t.Errorf("%v, receipt %+v", err, r)
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

func TestAShutdownBeforeTheAnswerIsPaidByTheOperator(t *testing.T) {
	for _, l := range everyOperation() {
		t.Run(l.name, func(t *testing.T) {
			asked := make(chan struct{})
			h := l.over(t, abandoned(func() { close(asked) }, upstream.Failure{Sent: true, Err: context.Canceled}))
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
