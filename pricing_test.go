package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
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
	all := newTestGateway(t, &scriptedUpstream{}, "1", nil)
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
	*scriptedUpstream
	not upstream.Op
}

func (s speaker) Supports(op upstream.Op, _ string) bool {
	return op != s.not && op != upstream.CountTokens
}

func (s speaker) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Op == upstream.Speech {
		return (&fakeSpeechVendor{answers: []reading{{audio: wav("la")}}}).Do(ctx, call)
	}
	return s.scriptedUpstream.Do(ctx, call)
}

const (
	onlyChat     = upstream.Messages       // is what it does not speak
	onlyMessages = upstream.ChatCompletion // likewise
)

// sell makes one call and looks at the balance.
func sell(t *testing.T, model string, c sale, not upstream.Op) {
	t.Helper()
	var pairs []string
	for unit, amount := range tariff {
		pairs = append(pairs, string(unit), amount)
	}
	text := strings.ReplaceAll(c.answer, "%s", model)
	h := newTestGateway(t, speaker{&scriptedUpstream{text: text}, not}, "100", func(o *gateway.Options) {
		o.Prices = billing.NewPriceList(map[string]*billing.Price{model: rates(t, pairs...)})
		o.MP3 = &doubler{}
	})
	r := h.must(t, c.op, string(fmt.Appendf(nil, c.body, model)))
	switch {
	case r.Stream != nil:
		if all := drain(t, r.Stream); strings.Contains(all, `"error"`) {
			t.Fatal(all)
		}
	case r.Audio != nil:
		var err error
		for err == nil {
			_, err = r.Audio.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if got, want := h.spent(t, "100"), cost(t, c.counts); got != want {
		receipt, _ := r.Receipt()
		t.Errorf("%s was paid, want %s: %+v", got, want, receipt.Usage)
	}
}

func TestAModelWithoutAPriceDoesNotExistInPrepaid(t *testing.T) {
	for name, required := range map[string]bool{"prepaid": true, "otherwise": false} {
		up := &scriptedUpstream{text: whole(`,"usage":{"prompt_tokens":1,"completion_tokens":1}`)}
		h := newTestGateway(t, up, "1.00", func(o *gateway.Options) {
			o.RequirePrice, o.Models = required, append(o.Models, gateway.Model{ID: "unpriced"})
		})
		models, err := h.Models(t.Context())
		if listed := slices.ContainsFunc(models, func(m gateway.Model) bool { return m.ID == "unpriced" }); err != nil || listed == required {
			t.Errorf("%s: listed %t, %v", name, listed, err)
		}
		_, err = h.ask(t.Context(), strings.Replace(askWhole, `"model":"m"`, `"model":"unpriced"`, 1))
		if fault.Is(err, fault.ModelNotFound) != required || (up.count() == 0) != required {
			t.Errorf("%s: %v after %d calls", name, err, up.count())
		}
		if _, err := h.ask(t.Context(), askWhole); err != nil {
			t.Errorf("%s: a model with a price: %v", name, err)
		}
	}
}

// asked are a body for each operation, of a model that no table knows.
var asked = map[upstream.Op]string{
	upstream.ChatCompletion: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	upstream.Messages:       `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
	upstream.Embeddings:     `{"model":"m","input":"hi"}`,
	upstream.GenerateImage:  `{"model":"m","prompt":"hi"}`,
	upstream.Speech:         `{"model":"m","input":"hi","voice":"v","response_format":"wav"}`,
	upstream.SubmitVideo:    `{"model":"m","duration":5,"resolution":"720p","content":[{"type":"text","text":"hi"}]}`,
}

func TestAnOperationThatAPriceIsNotEnoughForIsNotSold(t *testing.T) {
	for name, row := range map[string]struct {
		price []string // units and amounts
		sold  []upstream.Op
	}{
		"only input":      {[]string{"input", "1"}, []upstream.Op{upstream.Embeddings}},
		"only output":     {[]string{"output", "1"}, []upstream.Op{upstream.SubmitVideo}},
		"text tokens":     {[]string{"input", "1", "output", "1"}, []upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.Embeddings, upstream.GenerateImage, upstream.SubmitVideo}},
		"output for free": {[]string{"input", "1", "output", "0"}, []upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.Embeddings, upstream.GenerateImage, upstream.SubmitVideo}},
		"images":          {[]string{"image", "1"}, []upstream.Op{upstream.GenerateImage}},
		"image tokens":    {[]string{"input", "1", "image_output", "1"}, []upstream.Op{upstream.Embeddings, upstream.GenerateImage}},
		"seconds":         {[]string{"second", "1"}, []upstream.Op{upstream.SubmitVideo}},
		"characters":      {[]string{"character", "1"}, []upstream.Op{upstream.Speech}},
		"all for free": {[]string{"input", "0"}, []upstream.Op{
			upstream.ChatCompletion, upstream.Messages, upstream.Embeddings, upstream.GenerateImage, upstream.SubmitVideo, upstream.Speech,
		}},
	} {
		p := rates(t, row.price...)
		for _, prepaid := range []bool{true, false} {
			up := &scriptedUpstream{err: fault.New(fault.InvalidRequest, "asked")}
			h := newTestGateway(t, up, "100", func(o *gateway.Options) {
				o.RequirePrice, o.Prices, o.Models = prepaid, billing.NewPriceList(map[string]*billing.Price{"m": p}), nil
			})
			for op, body := range asked {
				_, err := h.do(t.Context(), op, body)
				want := prepaid && !slices.Contains(row.sold, op)
				refused := fault.Is(err, fault.ModelNotFound) || fault.Is(err, fault.EndpointModelMismatch)
				if refused != want {
					t.Errorf("%s, prepaid %t: %s: %v", name, prepaid, op, err)
				}
			}
		}
	}
}

// What chooses another model or account is refused wherever it stands, also where
// the request was made in Go.
func TestARequestOfNoKindMayChooseAnotherModelOrAccountInPrepaid(t *testing.T) {
	prices := func(o *gateway.Options) {
		p := rates(t, "input", "1", "output", "1", "character", "1")
		o.RequirePrice, o.Prices, o.Models = true, billing.NewPriceList(map[string]*billing.Price{"m": p}), nil
	}
	up := &scriptedUpstream{err: fault.New(fault.InvalidRequest, "asked")}
	h := newTestGateway(t, up, "100", prices)
	refused := func(err error, param string) bool {
		f := fault.From(err)
		return f != nil && f.Code == fault.InvalidRequest && f.Param == param
	}
	for op, body := range asked {
		for _, member := range []string{"api_base", "models"} {
			_, err := h.do(t.Context(), op, strings.Replace(body, "{", `{"`+member+`":"a",`, 1))
			if !refused(err, member) {
				t.Errorf("%s with %s: %v", op, member, err)
			}
		}
	}
	for _, name := range []string{"api_base", "models[]", "models[0]", "Provider[order][]"} {
		if _, _, err := h.change(t.Context(), "", editForm(t, "m", name, "a")); !refused(err, name) {
			t.Errorf("a form with %s: %v", name, err)
		}
	}
	if _, err := h.Chat(t.Context(), &chat.Request{
		Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}, Extra: []byte(`{"service_tier":"priority"}`),
	}); !refused(err, "service_tier") {
		t.Errorf("in process: %v", err)
	}
	renaming := newTestGateway(t, up, "100", func(o *gateway.Options) {
		prices(o)
		routing, err := router.New([]router.Channel{{
			Name: "renaming", Upstream: up, Models: map[string]string{"m": "m"}, Rename: map[string]string{"foo": "models[]"},
		}}, router.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o.Upstream = routing
	})
	if _, _, err := renaming.change(t.Context(), "", editForm(t, "m", "foo", "a")); !refused(err, "foo") {
		t.Errorf("a form with a field that is renamed: %v", err)
	}
	if up.count() != 0 {
		t.Errorf("the upstream was asked %d times", up.count())
	}
	for _, h := range []*testGateway{h, renaming} {
		for name, fields := range map[string][]string{"without it": nil, "with empty ones": {"provider[order][]", "", "route", "", "foo", ""}} {
			before := up.count()
			if _, _, err := h.change(t.Context(), "", editForm(t, "m", fields...)); up.count() != before+1 {
				t.Errorf("a form %s: %v", name, err)
			}
		}
	}
}
