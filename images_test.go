package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// draw sends raw bytes through the one path.
func (h *testGateway) draw(ctx context.Context, key, body string) (*rawRequest, *gateway.Response, error) {
	x := begin(h.Gateway)
	x.IdempotencyKey = key
	if err := x.Authenticate(ctx, ""); err != nil {
		return x, nil, err
	}
	r, err := x.Call(ctx, upstream.GenerateImage, []byte(body), nil)
	return x, r, err
}

const (
	oneLink    = `{"output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://x.example/1.png"}]}}]},"request_id":"theirs","usage":{"image_count":1,"width":1024,"height":1024}}`
	twoFiles   = `{"created":1,"data":[{"b64_json":"aGk="},{"b64_json":"aGk="}]`
	threeLinks = `{"created":1,"data":[{"url":"a"},{"url":"b"},{"url":"c"}]}`
	fileTokens = `,"usage":{"input_tokens":30,"input_tokens_details":{"text_tokens":20,"image_tokens":10},"output_tokens":5000,"total_tokens":5030}}`
)

func alphaBody(model, content string) string {
	return fmt.Sprintf(`{"model":%q,"input":{"messages":[{"role":"user","content":[{"text":"a red cube"}%s]}]}}`, model, content)
}

func rates(t testing.TB, pairs ...string) *billing.Price {
	t.Helper()
	var rates []billing.Rate
	for i := 0; i < len(pairs); i += 2 {
		rates = append(rates, billing.Rate{Unit: billing.Unit(pairs[i]), Amount: pairs[i+1]})
	}
	p, err := billing.NewPrice(rates...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newPricedGateway is a gateway with one model and its price.
func newPricedGateway(t testing.TB, up upstream.Upstream, credit, model string, price *billing.Price) *testGateway {
	t.Helper()
	return newTestGateway(t, up, credit, func(o *gateway.Options) {
		o.Models, o.Prices = nil, billing.NewPriceList(map[string]*billing.Price{model: price})
	})
}

func TestEveryImageModelMovesTheBalanceByTheExactAmount(t *testing.T) {
	const reference = `,{"image":"https://files.example/a.png"}`
	byToken := []string{"input", "5.00", "image_input", "8.00", "image_output", "32.00"}
	for _, row := range []struct {
		model, body, answer string
		price               []string
		held, want          billing.Money // nano-units
	}{
		{"alpha-image-2.0", alphaBody("alpha-image-2.0", ""), oneLink, []string{"image", "0.035"}, 35_000_000, 35_000_000},
		{"alpha-image-2.0-pro", alphaBody("alpha-image-2.0-pro", ""), oneLink, []string{"image", "0.075"}, 75_000_000, 75_000_000},
		{"alpha-image-max", alphaBody("alpha-image-max", ""), oneLink, []string{"image", "0.0750000005"}, 75_000_001, 75_000_001},
		{"alpha-image-edit", alphaBody("alpha-image-edit", reference), oneLink, []string{"image", "0.045"}, 45_000_000, 45_000_000},
		{"alpha-image-edit-plus", alphaBody("alpha-image-edit-plus", reference), oneLink, []string{"image", "0.03"}, 30_000_000, 30_000_000},
		{"alpha-image-edit-max", alphaBody("alpha-image-edit-max", reference), oneLink, []string{"image", "0.075"}, 75_000_000, 75_000_000},
		// 65 bytes of prompt and what may stand around it at 5 micro-units, and 6,240 output tokens at 32, twice.
		{"imagegen-1", `{"model":"imagegen-1","prompt":"a","n":2}`, twoFiles + fileTokens, byToken, 65*5_000 + 2*6240*32_000, 20*5_000 + 10*8_000 + 5000*32_000},
		{"imagegen-2", `{"model":"imagegen-2","prompt":"a","n":2,"size":"1024x1024"}`, twoFiles + fileTokens, byToken, 65*5_000 + 2*7024*32_000, 20*5_000 + 10*8_000 + 5000*32_000},
		{"imagegen-2", `{"model":"imagegen-2","prompt":"a","n":2}`, twoFiles + fileTokens, []string{"image", "0.04"}, 80_000_000, 80_000_000},
		{"imagegen-legacy-2", `{"model":"imagegen-legacy-2","prompt":"a","n":3}`, threeLinks, []string{"image", "0.02"}, 60_000_000, 60_000_000},
		{"pixels-9", `{"model":"pixels-9","wish":"a","n":3}`, threeLinks, []string{"image", "0.01"}, 30_000_000, 30_000_000},
		{"pixels-9", `{"model":"pixels-9","wish":"a"}`, twoFiles + fileTokens, []string{"input", "1", "output", "2"}, 95_000 + 16_384*2_000, 30_000 + 5000*2_000},
	} {
		t.Run(row.model, func(t *testing.T) {
			answer := &scriptedUpstream{text: row.answer}
			var h *testGateway
			var held billing.Money
			h = newPricedGateway(t, upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
				held = h.balance(t).Held
				return answer.Do(ctx, c)
			}), "10", row.model, rates(t, row.price...))
			x, r, err := h.draw(t.Context(), "", row.body)
			if err != nil {
				t.Fatal(err)
			}
			if held != row.held || h.spent(t, "10") != row.want {
				t.Errorf("held %s, want %s; spent %s, want %s", held, row.held, h.spent(t, "10"), row.want)
			}
			receipt, err := h.ledger.Receipt(t.Context(), "local", x.ID)
			if err != nil || receipt.Charge != row.want || receipt.Usage.Estimated || receipt.Usage.Anomaly || r.Header.Get("X-Gateway-Charge") != row.want.String() {
				t.Errorf("receipt %+v, %v, header %v", receipt, err, r.Header)
			}
			if strings.Contains(row.answer, "theirs") && !strings.Contains(string(r.Body), `"request_id":"`+x.ID+`"`) {
				t.Errorf("the body does not tell our id: %s", r.Body)
			}
		})
	}
}

func TestPicturesThatTheBalanceDoesNotCoverAreRefusedBeforeTheUpstream(t *testing.T) {
	up := &scriptedUpstream{text: threeLinks}
	h := newPricedGateway(t, up, "0.059", "imagegen-legacy-2", rates(t, "image", "0.02"))
	_, _, err := h.draw(t.Context(), "", `{"model":"imagegen-legacy-2","prompt":"a","n":3}`)
	if f := fault.From(err); f == nil || f.HTTPStatus() != 402 || f.Code != fault.InsufficientBalance || up.count() != 0 {
		t.Errorf("%v, %d calls", err, up.count())
	}
	if _, _, err = h.draw(t.Context(), "", `{"model":"imagegen-legacy-2","prompt":"a","n":2}`); err != nil {
		t.Error(err)
	}
}

func TestAMissingReportIsEstimatedWhereTokensArePaidForAndMarked(t *testing.T) {
	for _, row := range []struct {
		price     []string
		answer    string
		want      billing.Money
		estimated bool
		anomaly   bool
	}{
		{[]string{"image_output", "10"}, twoFiles + "}", 2 * 6240 * 10_000, true, false},
		{[]string{"image", "0.01"}, twoFiles + "}", 20_000_000, false, false},
		{[]string{"image_output", "10"}, twoFiles + `,"usage":{"input_tokens":0,"output_tokens":0}}`, 0, false, false},
		// Four pictures for two, or tokens far above what two can be, are charged up to the hold.
		{[]string{"image", "0.01"}, `{"data":[{"url":"a"},{"url":"a"},{"url":"a"},{"url":"a"}]}`, 20_000_000, false, true},
		{[]string{"image_output", "10"}, twoFiles + `,"usage":{"input_tokens":1,"output_tokens":900000000}}`, 2 * 6240 * 10_000, false, true},
	} {
		h := newPricedGateway(t, &scriptedUpstream{text: row.answer}, "10", "imagegen-1", rates(t, row.price...))
		x, _, err := h.draw(t.Context(), "", `{"model":"imagegen-1","prompt":"a","n":2}`)
		if err != nil {
			t.Fatal(err)
		}
		receipt, err := h.ledger.Receipt(t.Context(), "local", x.ID)
		u := receipt.Usage
		if err != nil || receipt.Charge != row.want || u.Estimated != row.estimated || u.Anomaly != row.anomaly || h.spent(t, "10") != row.want {
			t.Errorf("%+v: receipt %+v, %v", row, receipt, err)
		}
	}
}

func TestA200WithoutAPictureCostsNothing(t *testing.T) {
	for _, answer := range []string{`{"request_id":"r","code":"InternalError","message":"x"}`, `{"output":{"choices":[]}}`, `{"output":`, `{"error":{"code":"server_error"}}`} {
		h := newPricedGateway(t, &scriptedUpstream{text: answer}, "1", "alpha-image-max", rates(t, "image", "0.5"))
		_, _, err := h.draw(t.Context(), "", alphaBody("alpha-image-max", ""))
		if !fault.Is(err, fault.BadGateway) || h.spent(t, "1") != 0 {
			t.Errorf("%s: %v, spent %s", answer, err, h.spent(t, "1"))
		}
	}
	// Also of a model whose good answers nobody here can read.
	for _, answer := range []string{`{"code":"InternalError","message":"x"}`, `{"code":"InternalError","output":null}`, `{"error":"x"}`} {
		h := newPricedGateway(t, &scriptedUpstream{text: answer}, "1", "pixels-9", rates(t, "image", "0.5"))
		_, _, err := h.draw(t.Context(), "", `{"model":"pixels-9"}`)
		if !fault.Is(err, fault.BadGateway) || h.spent(t, "1") != 0 {
			t.Errorf("%s: %v, spent %s", answer, err, h.spent(t, "1"))
		}
	}
}

func TestNothingIsSentInASilenceOfPicturesSoThatAFailureKeepsItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
			time.Sleep(5 * time.Minute)
			return nil, (&upstream.Failure{Status: 500, Sent: true}).Fault()
		})
		h := newPricedGateway(t, up, "1", "imagegen-2", rates(t, "image", "0.5"))
		x := begin(h.Gateway)
		if err := x.Authenticate(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		silent := func(event []byte) { t.Errorf("%q was sent", event) }
		_, err := x.Call(t.Context(), upstream.GenerateImage, []byte(`{"model":"imagegen-2","prompt":"a","stream":true}`), silent)
		if !fault.Is(err, fault.InternalServerError) {
			t.Error(err)
		}
	})
}

func TestAPictureIsAskedOfAnotherChannelOnlyIfCertainlyNoneWasMade(t *testing.T) {
	for _, row := range []struct {
		failure upstream.Failure
		again   bool
	}{
		{upstream.Failure{}, true}, // it was not sent
		{upstream.Failure{Status: 429, Sent: true, Refused: true}, true},
		{upstream.Failure{Status: 503, Sent: true, Refused: true}, true},
		{upstream.Failure{Status: 500, Sent: true}, false},
		{upstream.Failure{Sent: true}, false},
	} {
		second := &scriptedUpstream{text: oneLink}
		first := &scriptedUpstream{err: row.failure.Fault()}
		models := map[string]string{"alpha-image-max": "qwen-image-max"}
		routing, err := router.New([]router.Channel{
			{Name: "first", Upstream: first, Models: models}, {Name: "second", Upstream: second, Models: models, Priority: 1},
		}, router.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := newPricedGateway(t, routing, "1", "alpha-image-max", rates(t, "image", "0.5"))
		_, _, err = h.draw(t.Context(), "", alphaBody("alpha-image-max", ""))
		if (err == nil) != row.again || second.count() != map[bool]int{true: 1}[row.again] {
			t.Errorf("%+v: %v, %d calls of the second", row.failure, err, second.count())
		}
	}
}

func TestADuplicateOfAPictureIsNotMadeAgain(t *testing.T) {
	up := &scriptedUpstream{text: oneLink}
	h := newPricedGateway(t, up, "1", "alpha-image-max", rates(t, "image", "0.5"))
	_, first, err := h.draw(t.Context(), "k", alphaBody("alpha-image-max", ""))
	if err != nil {
		t.Fatal(err)
	}
	_, again, err := h.draw(t.Context(), "k", alphaBody("alpha-image-max", ""))
	if err != nil || !again.Replayed || string(again.Body) != string(first.Body) || up.count() != 1 || h.spent(t, "1") != billing.One/2 {
		t.Errorf("%v, %+v, %d calls, spent %s", err, again, up.count(), h.spent(t, "1"))
	}
	if _, _, err = h.draw(t.Context(), "k", alphaBody("alpha-image-max", `,{"text":"b"}`)); !fault.Is(err, fault.IdempotencyConflict) {
		t.Error(err)
	}
}

func TestAModelOfAnotherKindOrNoModelIsA400OfPictures(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: oneLink}, "1", func(o *gateway.Options) {
		o.Models, o.Prices = nil, nil
		routing, err := router.New([]router.Channel{{
			Name: "a", Upstream: &scriptedUpstream{text: oneLink}, Models: map[string]string{"delta-k3": "k3", "alpha-image-max": "max"},
		}}, router.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o.Upstream = routing
	})
	_, _, err := h.draw(t.Context(), "", `{"model":"delta-k3","prompt":"a"}`)
	if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Code != fault.InvalidRequest || f.Param != "model" {
		t.Error(err)
	}
	_, _, err = h.draw(t.Context(), "", `{"model":"alpha-image-9","input":{}}`)
	if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Code != fault.ModelNotFound {
		t.Error(err)
	}
	_, err = h.ask(t.Context(), `{"model":"alpha-image-max","messages":[{"role":"user","content":"a"}]}`)
	if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Code != fault.InvalidRequest {
		t.Error(err)
	}
}

func TestTypedPicturesGoTheSameWay(t *testing.T) {
	h := newTestGateway(t, sim.New(sim.Options{}), "10", func(o *gateway.Options) {
		o.Models = nil
		o.Prices = billing.NewPriceList(map[string]*billing.Price{
			"alpha-image-2.0": rates(t, "image", "0.035"), "imagegen-2": rates(t, "image_output", "1"),
		})
	})
	cube := &images.Input{Messages: []images.Message{{Role: "user", Content: []images.Block{{Text: "a red cube"}}}}}
	for _, row := range []struct {
		request images.Request
		want    billing.Money
	}{
		{images.Request{Model: "alpha-image-2.0", Input: cube, Parameters: &images.Parameters{Size: "1280*720"}}, 35_000_000},
		{images.Request{Model: "imagegen-2", Prompt: "a red cube", N: 2, Stream: true}, 2 * 1056 * 1000},
	} {
		r, err := h.Images(t.Context(), &row.request)
		if err != nil {
			t.Fatal(err)
		}
		if r.Charge != row.want || r.RequestID == "" || len(r.Images()) != int(max(row.request.N, 1)) {
			t.Errorf("%s: charge %s, %d pictures", row.request.Model, r.Charge, len(r.Images()))
		}
		file, err := r.Images()[0].Bytes()
		if err != nil || !strings.HasPrefix(string(file), "\x89PNG") || !strings.Contains(string(file), "Simulated") {
			t.Errorf("%s: %.40q, %v", row.request.Model, file, err)
		}
	}
	_, err := h.Images(t.Context(), &images.Request{Model: "alpha-image-2.0", Prompt: "a"})
	var f *fault.Error
	if !errors.As(err, &f) || f.Param != "input" {
		t.Error(err)
	}
}

func TestAStreamOfPicturesIsChargedAsReportedOrByWhatWasDelivered(t *testing.T) {
	const body = `{"model":"imagegen-2","prompt":"a red cube","stream":true,"partial_images":2,"size":"1024x1024"}`
	for name, row := range map[string]struct {
		fault  sim.Fault
		want   billing.Money
		reason string
		events int
	}{
		"complete":           {sim.Fault{}, (1056 + 200) * 1000, billing.ReasonComplete, 3},
		"without a report":   {sim.Fault{Usage: sim.Withheld}, (7024 + 200) * 1000, billing.ReasonComplete, 3},
		"a report of zero":   {sim.Fault{Usage: sim.ZeroUsage}, 0, billing.ReasonComplete, 3},
		"cut after one":      {sim.Fault{Break: sim.Cut, After: 1}, (7024 + 200) / 3 * 1000, billing.ReasonUpstreamFailed, 1},
		"cut after two":      {sim.Fault{Break: sim.ErrorFrame, After: 2}, (7024 + 200) * 2 / 3 * 1000, billing.ReasonUpstreamFailed, 2},
		"broken before that": {sim.Fault{Break: sim.ErrorFrame}, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			up := sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return row.fault }})
			h := newPricedGateway(t, up, "10", "imagegen-2", rates(t, "image_output", "1"))
			x, r, err := h.draw(t.Context(), "", body)
			if row.reason == "" {
				if !fault.Is(err, fault.BadGateway) || h.spent(t, "10") != 0 {
					t.Errorf("%v, spent %s", err, h.spent(t, "10"))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text := drain(t, r.Stream)
			if n := strings.Count(text, "event: image_generation."); n != row.events || strings.Contains(text, "[DONE]") {
				t.Errorf("%d events", n)
			}
			if (r.Stream.Err() == nil) != (row.reason == billing.ReasonComplete) || strings.Contains(text, `data: {"error":`) != (r.Stream.Err() != nil) {
				t.Errorf("it ended with %v", r.Stream.Err())
			}
			receipt, err := h.ledger.Receipt(t.Context(), "local", x.ID)
			if err != nil || receipt.Charge != row.want || receipt.Reason != row.reason || receipt.Usage.Images != 1 {
				t.Errorf("receipt %+v, %v, want %s", receipt, err, row.want)
			}
		})
	}
}

func TestWhoHangsUpBeforeAPictureCamePaysForThePromptOrThePicture(t *testing.T) {
	for _, row := range []struct {
		price []string
		want  billing.Money
	}{
		{[]string{"image", "0.5"}, billing.One / 2},
		{[]string{"input", "1000", "image_output", "10"}, 6 * 1_000_000}, // 20 bytes of prompt
	} {
		ctx, cancel := context.WithCancel(t.Context())
		up := upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
			cancel()
			<-ctx.Done()
			return nil, fault.From(ctx.Err()).With(func(e *fault.Error) { e.Err = &upstream.Failure{Sent: true} })
		})
		h := newPricedGateway(t, up, "1", "imagegen-1", rates(t, row.price...))
		x, _, err := h.draw(ctx, "", `{"model":"imagegen-1","prompt":"a cube that is red, "}`)
		receipt, receiptErr := h.ledger.Receipt(t.Context(), "local", x.ID)
		if !fault.Is(err, fault.ClientGone) || receiptErr != nil || receipt.Charge != row.want || receipt.Reason != billing.ReasonClientGone || receipt.Usage.Images != 1 {
			t.Errorf("%v, receipt %+v, %v, want %s", err, receipt, receiptErr, row.want)
		}
	}
}

func TestWhoHangsUpOnAStreamOfPicturesPaysForTheShareThatCame(t *testing.T) {
	h := newPricedGateway(t, sim.New(sim.Options{}), "10", "imagegen-2", rates(t, "image_output", "1"))
	x, r, err := h.draw(t.Context(), "", `{"model":"imagegen-2","prompt":"a red cube","stream":true,"partial_images":3,"size":"1024x1024"}`)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Stream.Next()
	if n := strings.Count(string(out), "event: "); err != nil || n != 1 {
		t.Fatalf("%d events, %v", n, err)
	}
	if err := r.Stream.Close(); err != nil {
		t.Fatal(err)
	}
	const want = (7024 + 300) / 4 * 1000 // one of three partial pictures and the last
	receipt, err := h.ledger.Receipt(t.Context(), "local", x.ID)
	if err != nil || receipt.Charge != want || receipt.Reason != billing.ReasonClientGone || !receipt.Usage.Estimated {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
}
