package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
)

// tariff has every unit, each at a price that no sum of others makes.
var tariff = map[billing.Unit]string{
	billing.Input: "0.61", billing.CachedInput: "0.17", billing.CacheWrite: "0.83", billing.Output: "2.53",
	billing.ImageInput: "8.09", billing.ImageOutput: "32.03", billing.Image: "0.037100001", billing.Character: "10.07",
}

// cost is what counts cost by the tariff: exact fractions, rounded up once to
// the next nano-unit. It shares nothing with package billing.
func cost(t *testing.T, counts map[billing.Unit]int64) billing.Money {
	t.Helper()
	sum := new(big.Rat)
	for unit, n := range counts {
		amount, ok := new(big.Rat).SetString(tariff[unit])
		if !ok {
			t.Fatalf("the tariff has no %s", unit)
		}
		if unit != billing.Image {
			amount.Quo(amount, big.NewRat(1_000_000, 1))
		}
		sum.Add(sum, amount.Mul(amount, big.NewRat(n, 1)))
	}
	sum.Mul(sum, big.NewRat(1_000_000_000, 1))
	nano := new(big.Int).Quo(sum.Num(), sum.Denom())
	if !sum.IsInt() {
		nano.Add(nano, big.NewInt(1))
	}
	return billing.Money(nano.Int64())
}

// sale is one call and what of it is paid for.
type sale struct {
	name   string
	op     upstream.Op
	body   string // %s is the model
	answer string // of the upstream; %s is the model
	counts map[billing.Unit]int64
}

const events = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n" +
	"data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
	"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":1009,\"completion_tokens\":13,\"prompt_tokens_details\":{\"cached_tokens\":501,\"cache_write_tokens\":7}}}\n\n" +
	"data: [DONE]\n\n"

const messageUsage = `{"input_tokens":501,"cache_read_input_tokens":503,"cache_creation_input_tokens":7,"output_tokens":13}`

// chatSales are calls of a model that speaks chat, and of one that speaks
// messages, in either dialect.
var chatSales = []sale{
	{"a completion", upstream.ChatCompletion, `{"model":"%s","messages":[{"role":"user","content":"x"}]}`,
		`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1009,"completion_tokens":13,"prompt_tokens_details":{"cached_tokens":501}}}`,
		map[billing.Unit]int64{billing.Input: 508, billing.CachedInput: 501, billing.Output: 13}},
	{"a streamed completion", upstream.ChatCompletion, `{"model":"%s","stream":true,"messages":[{"role":"user","content":"x"}]}`, events,
		map[billing.Unit]int64{billing.Input: 501, billing.CachedInput: 501, billing.CacheWrite: 7, billing.Output: 13}},
	{"a message, translated", upstream.Messages, `{"model":"%s","max_tokens":99,"messages":[{"role":"user","content":"x"}]}`,
		`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1009,"completion_tokens":13,"prompt_tokens_details":{"cached_tokens":501,"cache_write_tokens":7}}}`,
		map[billing.Unit]int64{billing.Input: 501, billing.CachedInput: 501, billing.CacheWrite: 7, billing.Output: 13}},
	{"a streamed message, translated", upstream.Messages, `{"model":"%s","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"x"}]}`, events,
		map[billing.Unit]int64{billing.Input: 501, billing.CachedInput: 501, billing.CacheWrite: 7, billing.Output: 13}},
	{"a count of tokens", upstream.CountTokens, `{"model":"%s","messages":[{"role":"user","content":"x"}]}`, ``, nil},
}

// nativeSales are calls of a model whose upstream speaks messages only.
var nativeSales = []sale{
	{"a message", upstream.Messages, `{"model":"%s","max_tokens":99,"messages":[{"role":"user","content":"x"}]}`,
		`{"id":"m","type":"message","role":"assistant","model":"%s","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":` + messageUsage + `}`,
		map[billing.Unit]int64{billing.Input: 501, billing.CachedInput: 503, billing.CacheWrite: 7, billing.Output: 13}},
	{"a completion, translated", upstream.ChatCompletion, `{"model":"%s","messages":[{"role":"user","content":"x"}]}`,
		`{"id":"m","type":"message","role":"assistant","model":"%s","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":` + messageUsage + `}`,
		map[billing.Unit]int64{billing.Input: 501, billing.CachedInput: 503, billing.CacheWrite: 7, billing.Output: 13}},
}

const picture = `{"b64_json":"iVBORw0KGgo="}`

// sales are the calls of each kind of model.
func sales(m gateway.Model) []sale {
	alpha := strings.HasPrefix(m.ID, "alpha-")
	switch {
	case m.Kind == gateway.KindChat:
		return chatSales
	case m.Kind == gateway.KindImage && alpha:
		image := ""
		if strings.Contains(m.ID, "edit") {
			image = `,{"image":"https://files.example/a.png"}`
		}
		return []sale{{
			"a picture", upstream.GenerateImage, `{"model":"%s","input":{"messages":[{"role":"user","content":[{"text":"x"}` + image + `]}]}}`,
			`{"output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://v.example/1.png"}]}}]},"usage":{"image_count":1,"width":1024,"height":1024},"request_id":"r"}`,
			map[billing.Unit]int64{billing.Image: 1},
		}}
	case m.Kind == gateway.KindImage:
		return []sale{{
			"three pictures by tokens", upstream.GenerateImage, `{"model":"%s","prompt":"x","n":3}`,
			`{"created":1,"data":[` + picture + `,` + picture + `,` + picture + `],"usage":{"input_tokens":50,"input_tokens_details":{"text_tokens":40,"image_tokens":10},"output_tokens":211,"total_tokens":261}}`,
			map[billing.Unit]int64{billing.Input: 40, billing.ImageInput: 10, billing.ImageOutput: 211, billing.Image: 3},
		}}
	case m.Kind == gateway.KindEmbeddings:
		return []sale{{
			"a text", upstream.Embeddings, `{"model":"%s","input":"x x x x x x x x x x"}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,1]}],"usage":{"prompt_tokens":11,"total_tokens":11}}`,
			map[billing.Unit]int64{billing.Input: 11},
		}}
	case m.Kind == gateway.KindSpeech:
		return []sale{{
			"seven characters", upstream.Speech, `{"model":"%s","input":"héllo 語"}`, "", map[billing.Unit]int64{billing.Character: 7},
		}}
	}
	return nil
}

// TestEveryUnitOfEveryModelMovesTheBalanceByTheExactAmount makes each call that
// each kind of model takes. Edits, whose request is a form, are in edits_test.go.
func TestEveryUnitOfEveryModelMovesTheBalanceByTheExactAmount(t *testing.T) {
	all := newHouse(t, &scripted{}, "1", nil)
	models, err := all.Models(t.Context())
	if err != nil || len(models) < 15 {
		t.Fatalf("%d models, %v", len(models), err)
	}
	for _, m := range models {
		if m.ID == "m" || m.Kind == gateway.KindVideo { // videos are paid when they end, see TestEveryVideoModelIsChargedExactly
			continue
		}
		calls := sales(m)
		if len(calls) == 0 {
			t.Errorf("nothing is known of what a %s model such as %q is paid for", m.Kind, m.ID)
		}
		for _, c := range calls {
			t.Run(m.ID+"/"+c.name, func(t *testing.T) { sell(t, m.ID, c, onlyChat) })
		}
	}
	for _, c := range nativeSales {
		t.Run("native/"+c.name, func(t *testing.T) { sell(t, "m", c, onlyMessages) })
	}
}

// speaker is an upstream that speaks one of the two dialects.
type speaker struct {
	*scripted
	not upstream.Op
}

func (s speaker) Supports(op upstream.Op, _ string) bool {
	return op != s.not && op != upstream.CountTokens
}

func (s speaker) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Op == upstream.Speech {
		return (&talker{answers: []reading{{audio: wav("la")}}}).Do(ctx, call)
	}
	return s.scripted.Do(ctx, call)
}

const (
	onlyChat     = upstream.Messages       // is what it does not speak
	onlyMessages = upstream.ChatCompletion // likewise
)

// sell makes one call and looks at the balance.
func sell(t *testing.T, model string, c sale, not upstream.Op) {
	t.Helper()
	var rates []billing.Rate
	for unit, amount := range tariff {
		rates = append(rates, billing.Rate{Unit: unit, Amount: amount})
	}
	row, err := billing.NewPrice(rates...)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(c.answer, "%s", model)
	h := newHouse(t, speaker{&scripted{text: text}, not}, "100", func(o *gateway.Options) {
		o.Prices = billing.NewPriceList(map[string]*billing.Price{model: row})
		o.MP3 = &doubler{}
	})
	x := h.Begin()
	if err := x.Authenticate(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	r, err := x.Call(t.Context(), c.op, fmt.Appendf(nil, c.body, model), nil)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case r.Stream != nil:
		if all := drain(t, r.Stream); strings.Contains(all, `"error"`) {
			t.Fatal(all)
		}
	case r.Audio != nil:
		for err = nil; err == nil; {
			_, err = r.Audio.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if got, want := h.spent(t, "100"), cost(t, c.counts); got != want {
		receipt, _ := x.Receipt()
		t.Errorf("%s was paid, want %s: %+v", got, want, receipt.Usage)
	}
}
