package gateway_test

import (
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

func TestAModelWithoutAPriceDoesNotExistInPrepaid(t *testing.T) {
	for name, required := range map[string]bool{"prepaid": true, "otherwise": false} {
		up := &scripted{text: whole(`,"usage":{"prompt_tokens":1,"completion_tokens":1}`)}
		h := newHouse(t, up, "1.00", func(o *gateway.Options) {
			o.RequirePrice, o.Models = required, append(o.Models, gateway.Model{ID: "unpriced"})
		})
		models, err := h.Models(t.Context())
		if listed := slices.ContainsFunc(models, func(m gateway.Model) bool { return m.ID == "unpriced" }); err != nil || listed == required {
			t.Errorf("%s: listed %t, %v", name, listed, err)
		}
		_, _, err = h.ask(t.Context(), strings.Replace(askWhole, `"model":"m"`, `"model":"unpriced"`, 1))
		if fault.Is(err, fault.ModelNotFound) != required || (up.count() == 0) != required {
			t.Errorf("%s: %v after %d calls", name, err, up.count())
		}
		if _, _, err := h.ask(t.Context(), askWhole); err != nil {
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
		var rates []billing.Rate
		for i := 0; i < len(row.price); i += 2 {
			rates = append(rates, billing.Rate{Unit: billing.Unit(row.price[i]), Amount: row.price[i+1]})
		}
		p, err := billing.NewPrice(rates...)
		if err != nil {
			t.Fatal(err)
		}
		for _, prepaid := range []bool{true, false} {
			up := &scripted{err: fault.New(fault.InvalidRequest, "asked")}
			h := newHouse(t, up, "100", func(o *gateway.Options) {
				o.RequirePrice, o.Prices, o.Models = prepaid, billing.NewPriceList(map[string]*billing.Price{"m": p}), nil
			})
			for op, body := range asked {
				x := h.Begin()
				if err := x.Authenticate(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				_, err := x.Call(t.Context(), op, []byte(body), nil)
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
		p, err := billing.NewPrice(
			billing.Rate{Unit: billing.Input, Amount: "1"}, billing.Rate{Unit: billing.Output, Amount: "1"}, billing.Rate{Unit: billing.Character, Amount: "1"},
		)
		if err != nil {
			t.Fatal(err)
		}
		o.RequirePrice, o.Prices, o.Models = true, billing.NewPriceList(map[string]*billing.Price{"m": p}), nil
	}
	up := &scripted{err: fault.New(fault.InvalidRequest, "asked")}
	h := newHouse(t, up, "100", prices)
	refused := func(err error, param string) bool {
		f := fault.From(err)
		return f != nil && f.Code == fault.InvalidRequest && f.Param == param
	}
	for op, body := range asked {
		for _, member := range []string{"api_base", "models"} {
			x := h.Begin()
			if err := x.Authenticate(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			_, err := x.Call(t.Context(), op, []byte(strings.Replace(body, "{", `{"`+member+`":"a",`, 1)), nil)
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
	renaming := newHouse(t, up, "100", func(o *gateway.Options) {
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
	for _, h := range []*house{h, renaming} {
		for name, fields := range map[string][]string{"without it": nil, "with empty ones": {"provider[order][]", "", "route", "", "foo", ""}} {
			before := up.count()
			if _, _, err := h.change(t.Context(), "", editForm(t, "m", fields...)); up.count() != before+1 {
				t.Errorf("a form %s: %v", name, err)
			}
		}
	}
}
