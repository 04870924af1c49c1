package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// tariff has every unit, each at a price that no sum of others makes.
var tariff = map[billing.Unit]string{
	billing.Input: "0.61", billing.CachedInput: "0.17", billing.CacheWrite: "0.83", billing.Output: "2.53",
	billing.ImageInput: "8.09", billing.ImageOutput: "32.03", billing.Image: "0.037100001", billing.Character: "10.07",
	billing.SearchUnit: "0.002300001", billing.Request: "0.000190001",
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
		if unit != billing.Image && unit != billing.SearchUnit && unit != billing.Request {
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

// tariffRows are the requests that a kind of models takes, at the tariff; the model's id
// stands for %s.
func tariffRows(t *testing.T, m gateway.Model) []costRow {
	const usage = `"usage":{"prompt_tokens":1009,"completion_tokens":13,"prompt_tokens_details":{"cached_tokens":501,"cache_write_tokens":7}}}`
	const answer = `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],` + usage
	const stream = `data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}` + "\n\n" +
		`data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" + `data: {"id":"c","choices":[],` + usage + "\n\ndata: [DONE]\n\n"
	const native = `{"id":"m","type":"message","role":"assistant","model":"%s","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,` +
		`"usage":{"input_tokens":501,"cache_read_input_tokens":501,"cache_creation_input_tokens":7,"output_tokens":13}}`
	const say, tell = `{"model":"%s","messages":[{"role":"user","content":"x"}]}`, `{"model":"%s","max_tokens":99,"messages":[{"role":"user","content":"x"}]}`
	streamed := func(body string) string { return strings.Replace(body, ",", `,"stream":true,`, 1) }
	tokens := cost(t, map[billing.Unit]int64{billing.Input: 501, billing.CachedInput: 501, billing.CacheWrite: 7, billing.Output: 13, billing.Request: 1})
	const file = `{"b64_json":"iVBORw0KGgo="}`
	switch {
	case m.Kind == gateway.KindChat:
		return []costRow{
			{name: "a completion", op: upstream.ChatCompletion, body: say, answer: answer, cost: tokens},
			{name: "a streamed completion", op: upstream.ChatCompletion, body: streamed(say), answer: stream, cost: tokens},
			{name: "a message, translated", op: upstream.Messages, body: tell, answer: answer, cost: tokens},
			{name: "a streamed message, translated", op: upstream.Messages, body: streamed(tell), answer: stream, cost: tokens},
			{name: "a native message", op: upstream.Messages, body: tell, answer: native, cost: tokens, onlyMessages: true},
			{name: "a completion, translated", op: upstream.ChatCompletion, body: say, answer: native, cost: tokens, onlyMessages: true},
		}
	case m.Kind == gateway.KindImage && strings.HasPrefix(m.ID, "alpha-"):
		image := ""
		if strings.Contains(m.ID, "edit") {
			image = `,{"image":"https://files.example/a.png"}`
		}
		return []costRow{{name: "a picture", op: upstream.GenerateImage, body: alphaBody("%s", image), answer: oneLink, cost: cost(t, map[billing.Unit]int64{billing.Image: 1}), estimated: true}}
	case m.Kind == gateway.KindImage:
		return []costRow{{
			name: "three pictures by tokens", op: upstream.GenerateImage, body: `{"model":"%s","prompt":"x","n":3}`,
			answer: `{"created":1,"data":[` + file + `,` + file + `,` + file + `],"usage":{"input_tokens":50,"input_tokens_details":{"text_tokens":40,"image_tokens":10},"output_tokens":211,"total_tokens":261}}`,
			cost:   cost(t, map[billing.Unit]int64{billing.Input: 40, billing.ImageInput: 10, billing.ImageOutput: 211, billing.Image: 3}),
		}}
	case m.Kind == gateway.KindEmbeddings:
		return []costRow{{
			name: "a text", op: upstream.Embeddings, body: `{"model":"%s","input":"x x x x x x x x x x"}`,
			answer: `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,1]}],"usage":{"prompt_tokens":11,"total_tokens":11}}`,
			cost:   cost(t, map[billing.Unit]int64{billing.Input: 11}),
		}}
	case m.Kind == gateway.KindRerank:
		return []costRow{{
			name: "a ranking", op: upstream.Rerank, body: `{"model":"%s","query":"q","documents":["a"]}`,
			answer: `{"results":[{"index":0,"relevance_score":0.5}],"meta":{"billed_units":{"search_units":1}},"usage":{"total_tokens":11}}`,
			cost:   cost(t, map[billing.Unit]int64{billing.Input: 11, billing.SearchUnit: 1, billing.Request: 1}),
		}}
	case m.Kind == gateway.KindSpeech:
		return []costRow{{name: "seven characters", op: upstream.Speech, body: `{"model":"%s","input":"héllo 語"}`, cost: cost(t, map[billing.Unit]int64{billing.Character: 7})}}
	}
	return requestRows(t, m)
}

// requestRows are the smallest requests to the endpoints of a model that is sold by the request
// alone. The simulator answers them.
func requestRows(t *testing.T, m gateway.Model) (rows []costRow) {
	for _, s := range all.Specs() {
		if !slices.Contains(s.Kinds, string(m.Kind)) || !reflect.DeepEqual(s.Units, [][]billing.Unit{{billing.Request}}) {
			continue
		}
		body := `{"model":"` + m.ID + `",` + s.Probe(m.ID) + `}`
		reply, err := sim.New(sim.Options{}).Do(t.Context(), &upstream.Call{Op: s.Op, Model: m.ID, Body: upstream.BytesBody([]byte(body))})
		must(t, err)
		answer, err := io.ReadAll(reply.Body)
		must(t, err)
		rows = append(rows, costRow{name: string(s.Op), op: s.Op, body: body, answer: string(answer), cost: cost(t, map[billing.Unit]int64{billing.Request: 1})})
	}
	return rows
}

// TestEveryUnitOfEveryModelMovesTheBalanceByTheExactAmount makes each call that each
// kind of model takes. Edits, whose request is a form, are rows of pictureRows.
func TestEveryUnitOfEveryModelMovesTheBalanceByTheExactAmount(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{}, "1", nil)
	var pairs []string
	for unit, amount := range tariff {
		pairs = append(pairs, string(unit), amount)
	}
	for _, id := range gateway.BuiltinIDs() {
		m, err := h.Model(t.Context(), id)
		must(t, err)
		if m.Kind == gateway.KindVideo { // videos are paid when they end, see internal/operation/video
			continue
		}
		rows := tariffRows(t, m)
		if len(rows) == 0 {
			t.Errorf("nothing is known of what a %s model such as %q is paid for", m.Kind, m.ID)
		}
		for _, row := range rows {
			row.model, row.price = m.ID, pairs
			row.body, row.answer = strings.Replace(row.body, "%s", m.ID, 1), strings.Replace(row.answer, "%s", m.ID, 1)
			t.Run(m.ID+"/"+row.name, row.run)
		}
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

// perRequest is a price with a part for the request itself, as models that search by
// themselves have it: ten thousand tokens' worth.
func perRequest(t *testing.T) func(*gateway.Options) {
	return func(o *gateway.Options) {
		o.Prices, o.RequirePrice = pricedAt("m", rates(t, "input", "1", "output", "1", "request", "0.01")), true
	}
}

func TestARequestThatCostsAnythingCostsItsOwnPriceOnce(t *testing.T) {
	const fee = 10_000
	zeros := `,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`
	for _, row := range []struct {
		name, body string
		up         *scriptedUpstream
		cost       billing.Money
		fails      bool
		waste      billing.Money // of its first attempt, if that failed
	}{
		{"a whole answer", askChat, &scriptedUpstream{text: chatAnswer(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}, micro(fee + 50), false, 0},
		{"a stream", askChatStream, &scriptedUpstream{text: chatStream(usageChunk(20, 30))}, micro(fee + 50), false, 0},
		{"an answer of nothing", askChat, &scriptedUpstream{text: chatAnswer(zeros)}, micro(fee), false, 0},
		{"a stream that is cut before its output", askChatStream, &scriptedUpstream{text: chunk(`{"role":"assistant","content":""}`)}, 0, false, 0},
		{"a vendor that refuses", askChat, &scriptedUpstream{err: (&upstream.Failure{Status: 503, Sent: true, Refused: true}).Fault()}, 0, true, 0},
		{"a connection that breaks", askChat, &scriptedUpstream{err: (&upstream.Failure{Sent: true, Err: io.ErrUnexpectedEOF}).Fault()}, 0, true, micro(fee + estimatedInput)},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newTestGateway(t, row.up, "1.00", perRequest(t))
			r, err := h.ask(t.Context(), row.body)
			if (err != nil) != row.fails {
				t.Fatal(err)
			}
			if err == nil && r.Stream != nil {
				drain(t, r.Stream)
			}
			if got := h.spent(t); got != row.cost {
				t.Errorf("spent %s, want %s", got, row.cost)
			}
			if tries := h.tries(t, r.ID); len(tries) > 0 && tries[0].Waste != row.waste {
				t.Errorf("tries %+v, want a waste of %s", tries, row.waste)
			}
		})
	}
	t.Run("a client that leaves", func(t *testing.T) {
		in, out := io.Pipe()
		h := newTestGateway(t, &scriptedUpstream{body: in}, "1.00", perRequest(t))
		sent := strings.SplitAfter(chatStream(""), "\n\n")[0]
		go func() { _, _ = io.WriteString(out, sent) }()
		r := h.must(t, upstream.ChatCompletion, askChatStream)
		if _, err := r.Stream.Next(); err != nil {
			t.Fatal(err)
		}
		must(t, r.Stream.Close())
		if got, want := h.spent(t), micro(fee+estimatedInput); got != want {
			t.Errorf("spent %s, want %s", got, want)
		}
	})
}

func TestOfAWildcardRouteTheModelsThatTheOperatorNamesAreListed(t *testing.T) {
	routing := newRouter(t,
		router.Channel{Name: "all", Upstream: &scriptedUpstream{}, DefersToDiscovered: true, Models: map[string]string{"*": "*", "voyage-4": "voyage-4"}},
		router.Channel{Name: "local", Upstream: &scriptedUpstream{}, Models: map[string]string{"local/*": "*"}, Discovered: map[string]string{"local/llama3.2": "llama3.2"}},
	)
	h := newTestGateway(t, routing, "1", func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "stated"}, {ID: "alpha-image-2.0"}}
		o.Prices = billing.NewPriceList(map[string]*billing.Price{"priced": price(t, "1", "1"), "delta-k3": price(t, "1", "1")})
	})
	models, err := h.Models(t.Context())
	var ids []string
	for _, m := range models {
		ids = append(ids, m.ID)
	}
	if want := []string{"alpha-image-2.0", "delta-k3", "local/llama3.2", "priced", "stated", "voyage-4"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("%v, %v; want %v", ids, err, want)
	}
	if m, err := h.Model(t.Context(), "rerank-v4.0-pro"); err != nil || m.Kind != gateway.KindRerank {
		t.Errorf("a model of the tables that is not listed can be called: %+v, %v", m, err)
	}
}

func TestAModelWithoutAPriceDoesNotExistInPrepaid(t *testing.T) {
	for name, required := range map[string]bool{"prepaid": true, "otherwise": false} {
		up := &scriptedUpstream{text: chatAnswer(`,"usage":{"prompt_tokens":1,"completion_tokens":1}`)}
		var log strings.Builder
		h := newTestGateway(t, up, "1.00", func(o *gateway.Options) {
			o.RequirePrice, o.Models = required, append(o.Models, gateway.Model{ID: "unpriced"})
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		models, err := h.Models(t.Context())
		if listed := slices.ContainsFunc(models, func(m gateway.Model) bool { return m.ID == "unpriced" }); err != nil || listed == required {
			t.Errorf("%s: listed %t, %v", name, listed, err)
		}
		_, err = h.ask(t.Context(), strings.Replace(askChat, `"model":"m"`, `"model":"unpriced"`, 1))
		if fault.Is(err, fault.ModelNotFound) != required || (up.count() == 0) != required {
			t.Errorf("%s: %v after %d calls", name, err, up.count())
		}
		_, _ = h.ask(t.Context(), strings.Replace(askChat, `"model":"m"`, `"model":"unpriced"`, 1))
		const line = "not sold: its price lacks units; add them under prices"
		if told := strings.Count(log.String(), line); told != map[bool]int{true: 1}[required] || required && !strings.Contains(log.String(), `model=unpriced operation=chat lacks="input and output"`) {
			t.Errorf("%s: the operator is told %d times: %s", name, told, log.String())
		}
		if _, err := h.ask(t.Context(), askChat); err != nil {
			t.Errorf("%s: a model with a price: %v", name, err)
		}
	}
}

// asked are a body for each operation, of a model that no table knows.
var asked = map[upstream.Op]string{
	upstream.ChatCompletion: `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	upstream.Messages:       `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`,
	upstream.Responses:      `{"model":"m","input":"hi"}`,
	upstream.Embeddings:     `{"model":"m","input":"hi"}`,
	upstream.Rerank:         `{"model":"m","query":"hi","documents":["a"]}`,
	upstream.GenerateImage:  `{"model":"m","prompt":"hi"}`,
	upstream.Speech:         `{"model":"m","input":"hi","voice":"v","response_format":"wav"}`,
	upstream.SubmitVideo:    `{"model":"m","duration":5,"resolution":"720p","content":[{"type":"text","text":"hi"}]}`,
}

func TestAnOperationThatAPriceIsNotEnoughForIsNotSold(t *testing.T) {
	for name, row := range map[string]struct {
		price []string // units and amounts
		sold  []upstream.Op
	}{
		"only input":      {[]string{"input", "1"}, []upstream.Op{upstream.Embeddings, upstream.Rerank}},
		"only output":     {[]string{"output", "1"}, []upstream.Op{upstream.SubmitVideo}},
		"text tokens":     {[]string{"input", "1", "output", "1"}, []upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.Responses, upstream.Embeddings, upstream.Rerank, upstream.GenerateImage, upstream.SubmitVideo}},
		"output for free": {[]string{"input", "1", "output", "0"}, []upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.Responses, upstream.Embeddings, upstream.Rerank, upstream.GenerateImage, upstream.SubmitVideo}},
		"images":          {[]string{"image", "1"}, []upstream.Op{upstream.GenerateImage}},
		"image tokens":    {[]string{"input", "1", "image_output", "1"}, []upstream.Op{upstream.Embeddings, upstream.Rerank, upstream.GenerateImage}},
		"seconds":         {[]string{"second", "1"}, []upstream.Op{upstream.SubmitVideo}},
		"characters":      {[]string{"character", "1"}, []upstream.Op{upstream.Speech}},
		"search units":    {[]string{"search_unit", "1"}, []upstream.Op{upstream.Rerank}},
		"requests":        {[]string{"request", "1"}, []upstream.Op{upstream.Rerank}},
		"all for free": {[]string{"input", "0"}, []upstream.Op{
			upstream.ChatCompletion, upstream.Messages, upstream.Responses, upstream.Embeddings, upstream.Rerank, upstream.GenerateImage, upstream.SubmitVideo, upstream.Speech,
		}},
	} {
		p := rates(t, row.price...)
		for _, prepaid := range []bool{true, false} {
			up := &scriptedUpstream{err: fault.New(fault.InvalidRequest, "asked")}
			h := newTestGateway(t, up, "100", func(o *gateway.Options) {
				o.RequirePrice, o.Prices, o.Models = prepaid, pricedAt("m", p), nil
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
		o.RequirePrice, o.Prices, o.Models = true, pricedAt("m", p), nil
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
		if _, err := h.change(t.Context(), "", editForm(t, "m", name, "a")); !refused(err, name) {
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
		routing := newRouter(t, router.Channel{
			Name: "renaming", Upstream: up, Models: map[string]string{"m": "m"}, Rename: map[string]string{"foo": "models[]"},
		})
		o.Upstream = routing
	})
	if _, err := renaming.change(t.Context(), "", editForm(t, "m", "foo", "a")); !refused(err, "foo") {
		t.Errorf("a form with a field that is renamed: %v", err)
	}
	if up.count() != 0 {
		t.Errorf("the upstream was asked %d times", up.count())
	}
	for _, h := range []*testGateway{h, renaming} {
		for name, fields := range map[string][]string{"without it": nil, "with empty ones": {"provider[order][]", "", "route", "", "foo", ""}} {
			before := up.count()
			if _, err := h.change(t.Context(), "", editForm(t, "m", fields...)); up.count() != before+1 {
				t.Errorf("a form %s: %v", name, err)
			}
		}
	}
}
