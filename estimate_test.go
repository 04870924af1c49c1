package gateway_test

import (
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// estimating is a gateway over an upstream that must not be asked.
func estimating(t *testing.T, account *billing.Ledger) (*gateway.Gateway, *scripted) {
	t.Helper()
	row := func(rates ...billing.Rate) *billing.Price {
		p, err := billing.NewPrice(rates...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	up := &scripted{}
	g, err := gateway.New(gateway.Options{
		Upstream: up, Meter: account, Models: []gateway.Model{{ID: "old", Withdrawn: time.Unix(1, 0)}, {ID: "capped", MaxOutput: 20_000}},
		Prices: billing.NewPriceList(map[string]*billing.Price{
			"m":                 row(billing.Rate{Unit: billing.Input, Amount: "1"}, billing.Rate{Unit: billing.Output, Amount: "2"}),
			"capped":            row(billing.Rate{Unit: billing.Output, Amount: "2"}),
			"alpha-image-2.0":   row(billing.Rate{Unit: billing.Image, Amount: "0.035"}),
			"imagegen-2":        row(billing.Rate{Unit: billing.ImageOutput, Amount: "32"}),
			"alpha3-tts-flash":  row(billing.Rate{Unit: billing.Character, Amount: "10"}),
			"beta2.6-t2v":       row(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"}),
			"gamma-2-0-260128":  row(billing.Rate{Unit: billing.Second, Amount: "0.10"}),
			"text-embedding-v4": row(billing.Rate{Unit: billing.Input, Amount: "0.07"}),
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g, up
}

func TestAnEstimateSaysWhetherTheCallCanCostMore(t *testing.T) {
	g, _ := estimating(t, billing.NewLedger(billing.LedgerOptions{}))
	for body, open := range map[string]bool{
		`{"model":"m","messages":[{"role":"user","content":"hi"}]}`:                    true,
		`{"model":"capped","messages":[{"role":"user","content":"hi"}]}`:               false,
		`{"model":"capped","messages":[{"role":"user","content":"hi"}],"stream":true}`: true,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":100}`:   false,
		`{"model":"free","messages":[{"role":"user","content":"hi"}]}`:                 false,
	} {
		if e, err := g.Estimate(t.Context(), upstream.ChatCompletion, []byte(body)); err != nil || e.Open != open {
			t.Errorf("%s: %+v, %v", body, e, err)
		}
	}
}

func TestAnEstimateIsTheHoldAndSaysWhetherItIsThePrice(t *testing.T) {
	ledger := billing.NewLedger(billing.LedgerOptions{})
	if err := ledger.CreateAccount(t.Context(), "local", billing.One); err != nil {
		t.Fatal(err)
	}
	g, up := estimating(t, ledger)
	for name, c := range map[string]struct {
		op          upstream.Op
		body        string
		most, least string
		exact       bool
	}{
		"a chat with a bound":   {upstream.ChatCompletion, `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":1000}`, "", "", false},
		"a chat up to the cap":  {upstream.ChatCompletion, `{"model":"capped","messages":[{"role":"user","content":"hi"}]}`, "0.04", "0.000002", false},
		"a stream":              {upstream.ChatCompletion, `{"model":"capped","messages":[{"role":"user","content":"hi"}],"stream":true}`, "0.008192", "0.000002", false},
		"a free model":          {upstream.ChatCompletion, `{"model":"free","messages":[{"role":"user","content":"hi"}]}`, "0.00", "0.00", true},
		"a count of tokens":     {upstream.CountTokens, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "0.00", "0.00", true},
		"a picture":             {upstream.GenerateImage, `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"x"}]}]}}`, "0.035", "0.035", true},
		"a picture of tokens":   {upstream.GenerateImage, `{"model":"imagegen-2","prompt":"x","size":"1024x1024"}`, "", "", false},
		"speech":                {upstream.Speech, `{"model":"alpha3-tts-flash","input":"five!","response_format":"wav"}`, "0.00005", "0.00005", true},
		"a video":               {upstream.SubmitVideo, `{"model":"beta2.6-t2v","input":{"prompt":"x"},"duration":4}`, "0.40", "0.40", true},
		"a video of any length": {upstream.SubmitVideo, `{"model":"gamma-2-0-260128","content":[{"type":"text","text":"x"}]}`, "1.50", "1.50", false},
		"embeddings":            {upstream.Embeddings, `{"model":"text-embedding-v4","input":"x"}`, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := g.Estimate(t.Context(), c.op, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if e.Exact != c.exact || e.Least > e.Most || c.most != "" && (e.Most.String() != c.most || e.Least.String() != c.least) || c.most == "" && e.Most == 0 {
				t.Errorf("it is %+v", e)
			}
			if (e.PriceVersion == "") != (g.Price(e.Model) == nil || c.op == upstream.CountTokens) {
				t.Errorf("the price's version is %q", e.PriceVersion)
			}
		})
	}
	if b, err := ledger.Balance(t.Context(), "local"); up.count() != 0 || err != nil || b.Held != 0 || b.Posted != billing.One {
		t.Errorf("%d calls were made, balance %+v, %v", up.count(), b, err)
	}
}

func TestAnEstimateFailsAsTheCallWould(t *testing.T) {
	g, _ := estimating(t, billing.NewLedger(billing.LedgerOptions{}))
	for name, c := range map[string]struct {
		op   upstream.Op
		body string
		code fault.Code
	}{
		"no JSON":            {upstream.ChatCompletion, `{`, fault.InvalidRequest},
		"a broken rule":      {upstream.ChatCompletion, `{"model":"m","messages":[]}`, fault.InvalidRequest},
		"a withdrawn model":  {upstream.Embeddings, `{"model":"old","input":"x"}`, fault.ModelNotFound},
		"another endpoint's": {upstream.ChatCompletion, `{"model":"alpha-image-2.0","messages":[{"role":"user","content":"hi"}]}`, fault.InvalidRequest},
		"no operation":       {"nothing", `{}`, fault.NotFound},
		"a form as a body":   {upstream.EditImage, `{}`, fault.NotFound},
		"more than is money": {upstream.ChatCompletion, `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9007199254740991,"n":128}`, fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := g.Estimate(t.Context(), c.op, []byte(c.body)); !fault.Is(err, c.code) {
				t.Errorf("it is %+v, %v, want %s", e, err, c.code)
			}
		})
	}
}

func TestTheEstimateOfAFormClosesIt(t *testing.T) {
	g, _ := estimating(t, billing.NewLedger(billing.LedgerOptions{}))
	x := g.Begin()
	defer x.End(t.Context(), 0, nil)
	if err := x.Authenticate(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	closed := 0
	form := func(model string) *upstream.Form {
		parsed, err := images.EncodeForm(&images.Edit{Model: model, Prompt: "x", Images: []images.File{images.BytesFile("a.png", blank(t, 64, 64))}})
		if err != nil {
			t.Fatal(err)
		}
		return upstream.NewForm(parsed.Form().Parts, func() error {
			closed++
			return nil
		})
	}
	e, err := x.EstimateForm(upstream.EditImage, form("imagegen-2"))
	if err != nil || e.Most == 0 || e.Exact || closed != 1 {
		t.Errorf("it is %+v, %v; closed %d times", e, err, closed)
	}
	if _, err := x.EstimateForm(upstream.Speech, form("imagegen-2")); !fault.Is(err, fault.NotFound) || closed != 2 {
		t.Errorf("another operation gave %v; closed %d times", err, closed)
	}
}

func TestAGatewayKnowsWhetherItListsAllModels(t *testing.T) {
	one, err := router.New([]router.Channel{{Name: "a", Upstream: sim.New(sim.Options{}), Models: map[string]string{"m": "m"}}}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		up     upstream.Upstream
		closed bool
	}{{one, true}, {sim.New(sim.Options{}), false}} {
		g, err := gateway.New(gateway.Options{Upstream: c.up})
		if err != nil {
			t.Fatal(err)
		}
		if g.ListsAllModels() != c.closed {
			t.Errorf("Closed is %t", g.ListsAllModels())
		}
		_ = g.Close()
	}
}
