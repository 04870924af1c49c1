package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
)

// costRow is one request and what it costs.
type costRow struct {
	name         string
	op           upstream.Op
	model        string        // "m", at a micro-unit a token, if empty
	price        []string      // of the model
	body         string        // or, of an edit, fields of its form
	answer       string        // of the vendor
	held         billing.Money // while the vendor is asked; 0 is not checked
	cost         billing.Money
	estimated    bool
	anomaly      bool // which is checked where it is true
	status       int  // of a request that fails; 0 for none
	onlyMessages bool // the vendor speaks messages, and not chat
}

// costRows are requests of every operation.
func costRows() []costRow {
	const usageBeside = `{"prompt_tokens":10,"completion_tokens":9,"total_tokens":1013,"completion_tokens_details":{"reasoning_tokens":994}}`
	const reasoningChunk = `data: {"id":"up-1","object":"chat.completion.chunk","created":7,"model":"vendor-m","choices":[],"usage":` + usageBeside + "}\n\n"
	const estimated = estimatedInput + estimatedOutput
	chat := func(name, usage string, cost int64) costRow {
		return costRow{name: "chat, " + name, op: upstream.ChatCompletion, body: askChat, answer: chatAnswer(usage), cost: micro(cost), estimated: cost == estimated}
	}
	stream := func(name, usage string, cost int64) costRow {
		return costRow{name: "stream, " + name, op: upstream.ChatCompletion, body: askChatStream, answer: chatStream(usage), cost: micro(cost), estimated: cost == estimated}
	}
	broken := func(name, answer string) costRow {
		return costRow{name: "chat, " + name, op: upstream.ChatCompletion, body: askChat, answer: answer, status: 502}
	}
	rows := []costRow{
		chat("as reported", reported, 50),
		chat("cached tokens at the price of input where none is given", `,"usage":{"prompt_tokens":20,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":10}}`, 50),
		chat("an explicit zero is honoured", `,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, 0),
		chat("no usage is estimated", ``, estimated),
		chat("null usage is estimated", `,"usage":null`, estimated),
		chat("negative usage is estimated", `,"usage":{"prompt_tokens":-5,"completion_tokens":-1}`, estimated),
		chat("above the hold, from what is available", `,"usage":{"prompt_tokens":20,"completion_tokens":300}`, 320),
		chat("reasoning beside the completion", `,"usage":`+usageBeside, 1_013),
		{name: "chat, an absurd count is clamped to the hold", op: upstream.ChatCompletion, body: askChat, answer: chatAnswer(`,"usage":{"prompt_tokens":20,"completion_tokens":900000}`), cost: micro(120), anomaly: true},
		broken("200 with an error", `{"error":{"message":"boom"}}`), broken("empty", ``), broken("cut", chatAnswer("")[:60]), broken("not an object", `[]`), broken("no choices", `{"id":"x"}`),

		stream("as reported", usageChunk(20, 30), 50),
		stream("reported twice", usageChunk(20, 30)+usageChunk(20, 30), 50),
		stream("rising reports", usageChunk(20, 3)+usageChunk(20, 30), 50),
		stream("without a report", "", estimated),
		stream("an explicit zero", usageChunk(0, 0), 0),
		stream("reasoning beside the completion", reasoningChunk, 1_013),

		{name: "message, native", op: upstream.Messages, body: askMessage, answer: messageAnswer, cost: micro(50), onlyMessages: true},
		{name: "message, translated, reasoning beside", op: upstream.Messages, body: askMessage, answer: chatAnswer(`,"usage":` + usageBeside), cost: micro(1_013)},
		{name: "stream of a message, native", op: upstream.Messages, body: askMessageStream, answer: strings.Join(messageEvents, ""), cost: micro(50), onlyMessages: true},
		{name: "response", op: upstream.Responses, body: askResponse, answer: responseAnswer, cost: micro(50)},
		{name: "response, without a report", op: upstream.Responses, body: askResponse, answer: strings.Replace(responseAnswer, `"usage":{`, `"usages":{`, 1), cost: micro(estimated), estimated: true},
		{name: "response, an absurd count", op: upstream.Responses, body: askResponse, answer: strings.Replace(responseAnswer, `"output_tokens":30`, `"output_tokens":900000`, 1), cost: micro(120), anomaly: true},
		{name: "response, failed", op: upstream.Responses, body: askResponse, answer: `{"object":"response","status":"failed","error":{"code":"server_error","message":"x"},"output":[],"usage":{"input_tokens":20,"output_tokens":30}}`, status: 500},
		{name: "response, cut", op: upstream.Responses, body: askResponse, answer: responseAnswer[:200], status: 502},
		{name: "stream of a response", op: upstream.Responses, body: askResponseStream, answer: strings.Replace(strings.Join(responseEvents, ""), `"error":null,`, "", 3), cost: micro(50)},
		{name: "stream of a message, translated, reasoning beside", op: upstream.Messages, body: askMessageStream, answer: chatStream(reasoningChunk), cost: micro(1_013)},
	}
	return append(append(rows, pictureRows()...), textRows()...)
}

// pictureRows are pictures and edits. Amounts are nano-units.
func pictureRows() []costRow {
	const reference = `,{"image":"https://files.example/a.png"}`
	const heldForTwo = (12+64)*5_000 + 8_192*8_000 + 2*7_024*32_000 // the prompt's bytes, one image, two pictures
	byToken, two := []string{"input", "5.00", "image_input", "8.00", "image_output", "32.00"}, `{"model":"imagegen-1","prompt":"a","n":2}`
	output := []string{"image_output", "10"}
	rows := []costRow{
		{name: "a link", model: "alpha-image-2.0", body: alphaBody("alpha-image-2.0", ""), answer: oneLink, price: []string{"image", "0.035"}, held: 35_000_000, cost: 35_000_000},
		{name: "half a nano-unit rounds up", model: "alpha-image-max", body: alphaBody("alpha-image-max", ""), answer: oneLink, price: []string{"image", "0.0750000005"}, held: 75_000_001, cost: 75_000_001},
		{name: "with a reference", model: "alpha-image-edit", body: alphaBody("alpha-image-edit", reference), answer: oneLink, price: []string{"image", "0.045"}, held: 45_000_000, cost: 45_000_000},
		// 65 bytes of prompt and what may stand around it at 5 micro-units, and 6,240 output tokens at 32, twice.
		{name: "by token", model: "imagegen-1", body: two, answer: twoFiles + fileTokens, price: byToken, held: 65*5_000 + 2*6240*32_000, cost: 20*5_000 + 10*8_000 + 5000*32_000},
		{name: "three links", model: "imagegen-legacy-2", body: `{"model":"imagegen-legacy-2","prompt":"a","n":3}`, answer: threeLinks, price: []string{"image", "0.02"}, held: 60_000_000, cost: 60_000_000},
		{name: "an unknown model by token", model: "pixels-9", body: `{"model":"pixels-9","wish":"a"}`, answer: twoFiles + fileTokens, price: []string{"input", "1", "output", "2"}, held: 95_000 + 16_384*2_000, cost: 30_000 + 5000*2_000},
		{name: "without a report, by token", model: "imagegen-1", body: two, answer: twoFiles + "}", price: output, cost: 2 * 6240 * 10_000, estimated: true},
		{name: "without a report, by the piece", model: "imagegen-1", body: two, answer: twoFiles + "}", price: []string{"image", "0.01"}, cost: 20_000_000},
		{name: "an explicit zero", model: "imagegen-1", body: two, answer: twoFiles + `,"usage":{"input_tokens":0,"output_tokens":0}}`, price: output},
		{name: "four pictures for two", model: "imagegen-1", body: two, answer: `{"data":[{"url":"a"},{"url":"a"},{"url":"a"},{"url":"a"}]}`, price: []string{"image", "0.01"}, cost: 20_000_000, anomaly: true},
		{name: "tokens far above what two can be", model: "imagegen-1", body: two, answer: twoFiles + `,"usage":{"input_tokens":1,"output_tokens":900000000}}`, price: output, cost: 2 * 6240 * 10_000, anomaly: true},
		{name: "a 200 without a picture", model: "pixels-9", body: `{"model":"pixels-9"}`, answer: `{"code":"InternalError","message":"x"}`, price: []string{"image", "0.5"}, status: 502},
	}
	for i := range rows {
		rows[i].name, rows[i].op = "pictures, "+rows[i].name, upstream.GenerateImage
	}
	return append(rows,
		costRow{name: "edit, by the piece", op: upstream.EditImage, model: "imagegen-2", answer: edited, price: []string{"image", "0.123456789"}, held: 123_456_789, cost: 123_456_789},
		costRow{name: "edit, fewer than asked for", op: upstream.EditImage, model: "imagegen-2", body: "n 2", answer: edited, price: []string{"image", "0.5"}, held: 1_000_000_000, cost: 500_000_000},
		costRow{name: "edit, by token", op: upstream.EditImage, model: "imagegen-2", body: "size 1024x1024 n 2", answer: edited, price: byToken, held: heldForTwo, cost: 20*5_000 + 280*8_000 + 4160*32_000},
		costRow{name: "edit, without a report", op: upstream.EditImage, model: "imagegen-2", body: "size 1024x1024", answer: `{"data":[{"b64_json":"aGk="}]}`, price: byToken, held: heldForTwo - 7024*32_000, cost: 4*5_000 + (65+129)*8_000 + 7024*32_000, estimated: true},
	)
}

// textRows are embeddings, rankings and speech.
func textRows() []costRow {
	vector := func(usage string) string { return `{"data":[{"index":0,"embedding":[1]}]` + usage + `}` }
	const hello = `{"model":"m","input":"hello"}` // 7 bytes with its quotes, and 4 around them
	rows := []costRow{
		{name: "embeddings, of a known model", op: upstream.Embeddings, model: "text-embedding-v4", price: []string{"input", "0.07"}, body: `{"model":"text-embedding-v4","input":"` + strings.Repeat("a", 1000) + `"}`, answer: vector(`,"usage":{"prompt_tokens":1000,"total_tokens":1000}`), cost: 70_000},
		{name: "embeddings, two pico-units are rounded up", op: upstream.Embeddings, model: "vox-4-lite", price: []string{"input", "0.000002"}, body: `{"model":"vox-4-lite","input":"a"}`, answer: vector(`,"usage":{"prompt_tokens":1,"total_tokens":1}`), cost: 1},
		{name: "embeddings, as reported", op: upstream.Embeddings, body: hello, answer: vector(`,"usage":{"prompt_tokens":2,"total_tokens":2}`), held: micro(11), cost: micro(2)},
		{name: "embeddings, without a report", op: upstream.Embeddings, body: hello, answer: vector(``), cost: micro(2), estimated: true},
		{name: "embeddings, an explicit zero", op: upstream.Embeddings, body: hello, answer: vector(`,"usage":{"prompt_tokens":0,"total_tokens":0}`)},
		{name: "embeddings, an absurd count", op: upstream.Embeddings, body: hello, answer: vector(`,"usage":{"prompt_tokens":9223372036854775807,"total_tokens":1}`), cost: micro(11), anomaly: true},
	}
	const ask, ranked = `{"model":"m","query":"q","documents":["a"]}`, `{"results":[{"index":0,"relevance_score":1}]` // 134 tokens at the most
	byUnit := []string{"search_unit", "0.002"}
	rows = append(rows,
		costRow{name: "ranking, as reported", op: upstream.Rerank, model: "m", price: byUnit, body: ask, answer: ranked + `,"meta":{"billed_units":{"search_units":1.0}}}`, held: 2_000_000, cost: 2_000_000},
		costRow{name: "ranking, of more units than its bound", op: upstream.Rerank, model: "m", price: byUnit, body: ask, answer: ranked + `,"meta":{"billed_units":{"search_units":2}}}`, held: 2_000_000, cost: 2_000_000, anomaly: true},
		costRow{name: "ranking, of absurdly many units", op: upstream.Rerank, model: "m", price: byUnit, body: ask, answer: ranked + `,"meta":{"billed_units":{"search_units":900}}}`, cost: 2_000_000, anomaly: true},
		costRow{name: "ranking, without a report", op: upstream.Rerank, model: "m", price: byUnit, body: ask, answer: ranked + `}`, cost: 2_000_000, estimated: true},
		costRow{name: "ranking, an explicit zero", op: upstream.Rerank, model: "m", price: byUnit, body: ask, answer: ranked + `,"meta":{"billed_units":{"search_units":0}}}`},
		costRow{name: "ranking, by the token", op: upstream.Rerank, body: ask, answer: ranked + `,"usage":{"total_tokens":7}}`, held: micro(134), cost: micro(7)},
		costRow{name: "ranking, by the token, an absurd count", op: upstream.Rerank, body: ask, answer: ranked + `,"usage":{"total_tokens":900000000}}`, cost: micro(134), anomaly: true},
		costRow{name: "ranking, by the request", op: upstream.Rerank, model: "m", price: []string{"request", "0.001"}, body: ask, answer: ranked + `}`, held: 1_000_000, cost: 1_000_000},
		costRow{name: "ranking, broken", op: upstream.Rerank, model: "m", price: byUnit, body: ask, answer: `{"results":[]}`, status: 502},
	)
	for input, characters := range map[string]int64{"Hello": 5, "héllo 世界": 8, "👩‍👩‍👧": 5, " a ": 3} {
		rows = append(rows, costRow{
			name: "speech, " + input, op: upstream.Speech, model: flash, price: []string{"character", "1"},
			body: `{"model":"` + flash + `","input":"` + input + `","response_format":"wav"}`, held: micro(characters), cost: micro(characters),
		})
	}
	return rows
}

func TestARequestIsHeldAtItsBoundAndChargedForWhatItUsed(t *testing.T) {
	for _, row := range costRows() {
		t.Run(row.name, row.run)
	}
}

// run sends the request and looks at the hold, the balance and the receipt.
func (row costRow) run(t *testing.T) {
	var h *testGateway
	var held billing.Money
	not := onlyChat
	if row.onlyMessages {
		not = onlyMessages
	}
	vendor := speaker{&scriptedUpstream{text: row.answer}, not}
	up := supporting{vendor, upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		if held = h.balance(t).Held; c.Account != "local" || c.RequestID == "" {
			t.Errorf("the vendor is asked for account %q, request %q", c.Account, c.RequestID)
		}
		return vendor.Do(ctx, c)
	})}
	h = newTestGateway(t, up, "100", func(o *gateway.Options) {
		if row.model != "" {
			o.Models, o.MP3, o.Prices = nil, &doubler{}, pricedAt(row.model, rates(t, row.price...))
		}
	})
	q := &gateway.Request{Op: row.op, Body: []byte(row.body)}
	if row.op == upstream.EditImage {
		q.Body, q.Form = nil, editForm(t, row.model, strings.Fields(row.body)...).Form
	}
	r, err := h.Do(t.Context(), gateway.Caller{}, q)
	if row.status != 0 {
		if f := fault.From(err); f == nil || f.HTTPStatus() != row.status || h.spent(t) != 0 {
			t.Errorf("%v, spent %s, want a %d for nothing", err, h.spent(t), row.status)
		}
		return
	}
	must(t, err)
	text, err := finish(r, nil)
	must(t, err)
	if r.Stream != nil && (strings.Contains(text, "vendor-m") || strings.Contains(text, "error")) {
		t.Errorf("stream %q", text)
	}
	if row.held != 0 && held != row.held {
		t.Errorf("held %s, want %s", held, row.held)
	}
	if got := h.spent(t); got != row.cost {
		t.Errorf("spent %s, want %s", got, row.cost)
	}
	if got := r.Header.Get("X-Gateway-Charge"); r.Body != nil && got != row.cost.String() {
		t.Errorf("X-Gateway-Charge is %s, want %s", got, row.cost)
	}
	receipt, err := h.ledger.Receipt(t.Context(), "local", r.ID)
	if err != nil || receipt.Charge != row.cost || receipt.Reason != billing.ReasonComplete || receipt.Usage.Estimated != row.estimated || row.anomaly && !receipt.Usage.Anomaly {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
}

func TestABodyAndItsAnswerPassUntouchedButForTheModel(t *testing.T) {
	for _, row := range []struct {
		op           upstream.Op
		not          upstream.Op
		body, answer string
	}{
		{upstream.ChatCompletion, onlyChat,
			"{ \"x_big\" : 12345678901234567890.10,\"model\":\"m\" , \"messages\":[{\"content\":\"hi\",\"role\":\"user\",\"cache_control\":{\"a\":[1.0,1e5]}}],\n\t\"seed\":9007199254740993, \"max_tokens\": 5, \"zz\":null}",
			"{ \"id\":\"a\", \"x\" : 1.0e+2, \"model\" : \"vendor-m\", \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"ok\",\"odd\":9007199254740993},\"finish_reason\":\"stop\"}] ,\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"more\":{}} }"},
		{upstream.Messages, onlyMessages, strings.Replace(askMessage, `"model"`, `"x_new":1.0, "model"`, 1), messageAnswer},
	} {
		up := &scriptedUpstream{text: row.answer}
		h := newTestGateway(t, speaker{up, row.not}, "1.00", nil)
		r := h.must(t, row.op, row.body)
		if got := up.sent(t); got != row.body {
			t.Errorf("%s: sent %s, want %s", row.op, got, row.body)
		}
		if want := strings.Replace(row.answer, "vendor-m", "m", 1); string(r.Body) != want {
			t.Errorf("%s: answer %s, want %s", row.op, r.Body, want)
		}
	}
}

// supporting asks another upstream for what one supports.
type supporting struct {
	speaker
	upstream.Func
}

func (s supporting) Do(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
	return s.Func(ctx, c)
}

// seenBody is what a vendor's reader makes of a body: the last of repeated names
// counts for it, and it minds no case.
type seenBody struct {
	Model      string
	N          json.RawMessage
	MaxTokens  json.RawMessage `json:"max_tokens"`
	Duration   json.RawMessage
	Parameters struct {
		Duration json.RawMessage
	}
}

// names are those of the object that data begins with, or of the one under a
// name in it.
func names(data []byte, under string) (all []string) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		if under != "" && name == under {
			return names(value, "")
		}
		all = append(all, name.(string))
	}
	if under != "" {
		return nil
	}
	return all
}

// readStrictly is what a strict vendor reads; it fails for what two readers could
// read differently.
func readStrictly(t *testing.T, data []byte) (s seenBody) {
	t.Helper()
	for _, under := range []string{"", "parameters"} {
		seen := map[string]bool{}
		for _, name := range names(data, under) {
			if seen[name] {
				t.Fatalf("%q stands twice in %q", name, data)
			}
			seen[name] = true
		}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&s); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) || !utf8.Valid(data) {
		t.Fatalf("the vendor gets %q: %v", data, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("something follows in %q", data)
	}
	return s
}

// wares are the operations that are tried, with what their vendor answers.
var wares = []struct {
	op     upstream.Op
	model  string // of those whose price is that of the operation, the beginning
	answer string
	// least is what must be held for what the vendor reads.
	least func(t *testing.T, s seenBody) billing.Money
}{
	{upstream.ChatCompletion, "m", chatAnswer(""), func(t *testing.T, s seenBody) billing.Money {
		return micro(count(t, s.MaxTokens) * max(count(t, s.N), 1))
	}},
	{upstream.GenerateImage, "imagegen", `{"created":1,"data":[{"b64_json":"AA=="}]}`, func(t *testing.T, s seenBody) billing.Money {
		return billing.Money(max(count(t, s.N), 1)) * billing.One / 10
	}},
	{upstream.SubmitVideo, "beta", `{"output":{"task_id":"t","task_status":"PENDING"},"request_id":"r"}`, func(t *testing.T, s seenBody) billing.Money {
		if s.Duration != nil {
			t.Fatalf("the vendor is told a duration in two places")
		}
		return billing.Money(count(t, s.Parameters.Duration)) * billing.One / 10
	}},
}

// count is a number that is billed; 0 if there is none.
func count(t *testing.T, raw json.RawMessage) (n int64) {
	t.Helper()
	if raw == nil || string(raw) == "null" {
		return 0
	}
	if err := json.Unmarshal(raw, &n); err != nil || n < 0 {
		t.Fatalf("the vendor gets the number %q: %v", raw, err)
	}
	return n
}

// FuzzWhatIsBilledIsWhatTheVendorReads is docs/reference/faults.md, row 25: whatever bytes come,
// either nobody is asked, or what is held covers what a strict reader finds in
// the bytes that went out.
func FuzzWhatIsBilledIsWhatTheVendorReads(f *testing.F) {
	for i, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7,"n":3}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7,"MAX_TOKENS":9000}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7,"max_to\u212aens":9000}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1,"\u006e":9}`,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1e0}`,
		`{"model":"imagegen-2","prompt":"a","n":2}`, `{"model":"imagegen-2","prompt":"a","n":1,"N":10}`,
		`{"model":"beta2.7-t2v","duration":5,"resolution":"720p","input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","duration":2,"Duration":15,"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","duration":2,"parameters":{"duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":{"duration":2,"duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":{"duration":2,"Duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":{"duration":2},"Parameters":{"duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":{"duration":2},"parameters":{"duration":15},"input":{"prompt":"a"}}`,
		`{"model":"beta2.7-t2v","parameters":null,"duration":15,"input":{"prompt":"a"}}`,
	} {
		f.Add([]byte(body), uint8(i))
		f.Add([]byte(body), uint8(2))
		f.Add([]byte(body), uint8(0))
	}
	second, picture := rates(f, "second", "0.1"), rates(f, "image", "0.1")
	prices := billing.NewPriceList(map[string]*billing.Price{"m": price(f, "1", "1"), "imagegen-2": picture, "beta2.7-t2v": second, "beta2.6-t2v": second})
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		ware := wares[int(which)%len(wares)]
		up := &scriptedUpstream{text: ware.answer}
		ledger := memory.NewLedger(memory.LedgerOptions{})
		must(t, ledger.CreateAccount(t.Context(), "local", 1000*billing.One))
		watch := &holds{Ledger: ledger}
		g, err := gateway.New(gateway.Options{Upstream: up, Meter: watch, Prices: prices, RequirePrice: true})
		must(t, err)
		defer g.Close()
		if r, err := g.Do(t.Context(), gateway.Caller{}, &gateway.Request{Op: ware.op, Body: body}); err == nil {
			r.Close()
		}
		if up.count() == 0 {
			return
		}
		seen := readStrictly(t, []byte(up.sent(t)))
		if seen.Model != watch.model {
			t.Fatalf("%q was sent as %s, and %q was billed", body, up.sent(t), watch.model)
		}
		if !strings.HasPrefix(seen.Model, ware.model) {
			return
		}
		if least := ware.least(t, seen); watch.held < least {
			t.Errorf("%q was sent as %s, for which %s was held, less than %s", body, up.sent(t), watch.held, least)
		}
	})
}

// holds is a ledger that notes what was held, and for which model.
type holds struct {
	memory.Ledger
	held  billing.Money
	model string
}

func (h *holds) Reserve(ctx context.Context, c billing.HoldRequest) (billing.Hold, error) {
	hold, err := h.Ledger.Reserve(ctx, c)
	h.held, h.model = max(h.held, hold.Amount), c.Model
	return hold, err
}
