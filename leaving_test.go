package gateway_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// leaving is a request whose client leaves while the vendor is at it.
type leaving struct {
	name  string
	op    upstream.Op
	model string
	price []string
	body  string        // empty for the form of an edit
	used  billing.Usage // what the client owes
}

// leavings are one request of each operation.
func leavings() []leaving {
	tokens, words := []string{"input", "1", "output", "1"}, strings.Repeat("a", 23)
	return []leaving{
		{name: "chat", op: upstream.ChatCompletion, model: "m", price: tokens, body: askWhole, used: billing.Usage{Input: estimatedInput}},
		{name: "chat, streamed", op: upstream.ChatCompletion, model: "m", price: tokens, body: askStream, used: billing.Usage{Input: estimatedInput}},
		{name: "messages", op: upstream.Messages, model: "m", price: tokens, body: tellWhole, used: billing.Usage{Input: estimatedInput}},
		{name: "messages, streamed", op: upstream.Messages, model: "m", price: tokens, body: tellStream, used: billing.Usage{Input: estimatedInput}},
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
	}
}

// wholeAnswers are answers to those of them that do not stream.
var wholeAnswers = map[upstream.Op]string{
	upstream.ChatCompletion: whole(reported), upstream.Messages: toldWhole,
	upstream.GenerateImage: threeLinks, upstream.EditImage: edited,
}

// start sends the request through the one path.
func (l *leaving) start(ctx context.Context, t *testing.T, h *house, key string) (*gateway.Exchange, error) {
	t.Helper()
	x := h.Begin()
	x.IdempotencyKey = key
	if err := x.Authenticate(ctx, ""); err != nil {
		t.Fatal(err)
	}
	var err error
	if l.op == upstream.EditImage {
		_, err = x.CallForm(ctx, l.op, editForm(t, l.model).Form, nil)
	} else {
		_, err = x.Call(ctx, l.op, []byte(l.body), nil)
	}
	return x, err
}

// over is a gateway whose one channel, "c0", asks up for the request's model.
func (l *leaving) over(t *testing.T, up upstream.Upstream) *house {
	t.Helper()
	routing, err := router.New([]router.Channel{{Name: "c0", Upstream: up, Models: map[string]string{l.model: l.model}}}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newHouse(t, routing, "10", func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: flash, Batch: 23}}
		o.Prices = billing.NewPriceList(map[string]*billing.Price{l.model: rates(t, l.price...)})
	})
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
	for _, l := range leavings() {
		for _, key := range []string{"", "k"} {
			t.Run(l.name+key, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				h := l.over(t, abandoned(leave, upstream.Failure{Sent: true, Err: context.Canceled}))
				x, err := l.start(ctx, t, h, key)
				if !fault.Is(err, fault.ClientGone) {
					t.Fatalf("error %v", err)
				}
				want, err := rates(t, l.price...).Cost(l.used)
				if err != nil {
					t.Fatal(err)
				}
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
				if _, err := l.start(t.Context(), t, h, key); !fault.Is(err, fault.IdempotencyConflict) || fault.From(err).Retry != fault.RetryNo {
					t.Errorf("a duplicate: %v, want a conflict that is not to be repeated", err)
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
		for _, l := range leavings() {
			t.Run(name+", "+l.name, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				h := l.over(t, abandoned(leave, f))
				x, err := l.start(ctx, t, h, "k")
				if r, ok := x.Receipt(); !fault.Is(err, fault.ClientGone) || !ok || r.Charge != 0 || r.Status != billing.Released {
					t.Errorf("%v, receipt %+v", err, r)
				}
				if b := h.balance(t); b.Held != 0 || h.spent(t, "10") != 0 {
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
	for _, l := range leavings() {
		t.Run(l.name, func(t *testing.T) {
			asked := make(chan struct{})
			h := l.over(t, abandoned(func() { close(asked) }, upstream.Failure{Sent: true, Err: context.Canceled}))
			done := make(chan struct{})
			var x *gateway.Exchange
			go func() {
				defer close(done)
				x, _ = l.start(t.Context(), t, h, "")
			}()
			<-asked
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			<-done
			want, err := rates(t, l.price...).Cost(l.used)
			if tries := h.tries(t, x); err != nil || h.spent(t, "10") != 0 || len(tries) != 1 || tries[0].Waste != want {
				t.Errorf("spent %s, tries %+v, want a waste of %s", h.spent(t, "10"), tries, want)
			}
		})
	}
}

func TestTheMessageOfAKeyThatWasChargedAndNotKeptNamesBothReasons(t *testing.T) {
	if text := idempotency.ErrNotStored().Error(); !strings.Contains(text, "charged") || !strings.Contains(text, "left") {
		t.Errorf("it says %q", text)
	}
}
