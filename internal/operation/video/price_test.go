package video

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/video"
)

func TestARequestIsBoundByItsSecondsAndItsVariant(t *testing.T) {
	const gamma, fast, silent = `"model":"gamma-2-0-260128","prompt":"a"`, `"model":"gamma-2-0-fast-260128","prompt":"a"`, `"model":"gamma-1-0-pro-250528","prompt":"a"`
	const pro, beta, t27 = `"model":"gamma-1-5-pro-251215","prompt":"a"`, `"model":"beta2.6-t2v","input":{"prompt":"a"}`, `"model":"beta2.7-t2v","input":{"prompt":"a"}`
	const flash, unknown = `"model":"beta2.6-i2v-flash","input":{"img_url":"https://x.example/a.png"}`, `"model":"clip-9"`
	for _, c := range []struct {
		body, prices, want string // want: seconds and variant, or a code and its field
		open               bool
	}{
		{beta, "720p", "5 720p", false},
		{beta + `,"duration":10,"resolution":"1080p"`, "720p 1080p", "10 1080p", false},
		{beta + `,"resolution":"1080p"`, "720p", "RS resolution", false},
		{beta + `,"aspect_ratio":"9:16"`, "720p 720p@9:16", "5 720p@9:16", false},
		{beta + `,"aspect_ratio":"1:1"`, "720p 720p@9:16", "5 720p", false},
		{beta + `,"aspect_ratio":"1:1"`, "720p@9:16", "RS resolution", false},
		{beta + `,"parameters":{"size":"720*1280"}`, "720p@9:16", "5 720p@9:16", false},
		{beta, "", "5 720p", false},
		{beta, "*", "5 ", false},
		{t27 + `,"resolution":"1080p"`, "720p", "RS resolution", false},
		{t27 + `,"resolution":"1080p"`, "", "RS resolution", false},
		{t27 + `,"resolution":"1080p"`, "720p 1080p", "5 1080p", false},
		{t27 + `,"resolution":"1080p"`, "*", "5 ", false},
		{flash, "720p", "5 720p", false},
		{flash, "720p 720p+audio", "5 720p+audio", false},
		{flash + `,"parameters":{"audio":true}`, "720p", "5 720p", false},
		{flash + `,"parameters":{"audio":false}`, "720p 720p+audio", "5 720p", false},
		{flash + `,"parameters":{"audio":false}`, "720p+audio", "RS resolution", false},
		{gamma + `,"duration":8,"resolution":"720p"`, "720p", "8 720p", false},
		{gamma + `,"duration":8,"resolution":"720p"`, "720p 720p+audio", "8 720p+audio", false},
		{gamma + `,"duration":8,"resolution":"720p","generate_audio":false`, "720p 720p+audio", "8 720p", false},
		{gamma + `,"duration":8,"resolution":"720p","generate_audio":true`, "720p 720p+audio", "8 720p+audio", false},
		{gamma + `,"duration":8,"resolution":"720p","generate_audio":true`, "720p", "IP generate_audio", false},
		{gamma + `,"duration":8,"resolution":"480p","generate_audio":true`, "720p", "RS resolution", false},
		{gamma + `,"duration":8,"resolution":"720p","ratio":"9:16","generate_audio":true`, "720p+audio@9:16", "8 720p+audio@9:16", false},
		{gamma + `,"duration":8,"resolution":"720p","ratio":"adaptive"`, "720p 720p@9:16", "8 720p", false},
		{gamma, "720p 1080p", "15 1080p", true},
		{gamma, "480p 720p", "15 720p", true},
		{gamma, "4k", "RS resolution", false},
		{gamma + `,"resolution":"480p"`, "480p", "15 480p", true},
		{fast, "720p 1080p", "15 720p", true},
		{silent + `,"frames":121,"resolution":"720p"`, "720p 720p+audio", "5 720p", false},
		{silent + `,"frames":122,"resolution":"720p"`, "720p", "6 720p", false},
		{silent + `,"frames":29,"resolution":"720p"`, "720p", "2 720p", false},
		{silent + `,"frames":1,"resolution":"720p"`, "720p", "1 720p", false},
		{pro + `,"duration":5,"resolution":"720p","draft":true`, "720p 720p+audio 720p+draft", "5 720p+draft", false},
		{pro + `,"duration":5,"resolution":"720p","draft":true`, "720p 720p+audio", "IP draft", false},
		{unknown + `,"duration":60,"resolution":"4K"`, "4k", "60 4k", false},
		{unknown + `,"parameters":{"duration":7,"size":"1920*1080"}`, "1080p", "7 1080p", false},
		{unknown, "720p 1080p", "30 1080p", true},
		{unknown, "*", "30 ", true},
		{unknown + `,"resolution":"720p"`, "1080p", "RS resolution", false},
	} {
		prices := map[string]string{}
		for _, v := range strings.Fields(c.prices) {
			prices[strings.Trim(v, "*")] = "0.1"
		}
		var p *billing.Price
		if len(prices) > 0 {
			p = price(t, prices)
		}
		r := parse(t, "{"+c.body+"}")
		b, err := r.Bound(p)
		got := ""
		if f := fault.From(err); f != nil {
			got = abbreviations[f.Code] + " " + f.Param
		} else {
			got = fmt.Sprint(b.Usage.Seconds, " ", b.Usage.Variant)
		}
		if got != c.want || b.Open != c.open || b.Tokens {
			t.Errorf("%s at %q: %s, open %t; want %s, %t", c.body, c.prices, got, b.Open, c.want, c.open)
		}
		if valid := r.Check(&operation.Facts{}, p, nil); (valid == nil) != (err == nil) {
			t.Errorf("%s at %q: Bound says %v, Validate %v", c.body, c.prices, err, valid)
		}
		if err == nil && p != nil {
			if cost, err := p.Cost(b.Usage); err != nil || cost != billing.Money(b.Usage.Seconds)*billing.One/10 {
				t.Errorf("%s at %q costs %s, %v", c.body, c.prices, cost, err)
			}
		}
	}
}

func TestTokensAreBoundByTwiceTheFormula(t *testing.T) {
	p := newPrice(t, billing.Rate{Unit: billing.Output, Amount: "7.00"})
	for body, want := range map[string]int64{
		`{"model":"gamma-2-0-260128","prompt":"a","duration":5,"resolution":"720p"}`:                       2 * 108_000,
		`{"model":"gamma-2-0-260128","prompt":"a","duration":5,"resolution":"1080p"}`:                      2 * 243_000,
		`{"model":"gamma-2-0-260128","prompt":"a","duration":4,"resolution":"480p"}`:                       2 * 38_880,
		`{"model":"gamma-2-0-260128","prompt":"a"}`:                                                        2 * 729_000,
		`{"model":"gamma-2-0-fast-260128","prompt":"a","ratio":"adaptive"}`:                                2 * 324_000,
		`{"model":"gamma-2-0-260128","prompt":"a","duration":5,"resolution":"720p","generate_audio":true}`: 2 * 108_000,
		`{"model":"beta2.7-t2v","input":{"prompt":"a"},"resolution":"1080p"}`:                              2 * 243_000,
		`{"model":"clip-9"}`: 2 * 1_458_000,
		`{"model":"clip-9","resolution":"huge","duration":1}`: 2 * 194_400,
	} {
		b, err := parse(t, body).Bound(p)
		if err != nil || !b.Tokens || b.Open || b.Usage.Output != want || b.Usage.Seconds != 0 {
			t.Errorf("%s: %+v, %v; want %d tokens", body, b, err, want)
		}
	}
	if n := tokens(1, 1); n != 1 {
		t.Errorf("a pixel takes %d tokens: it is rounded up", n)
	}
}

func TestAPriceForAnotherUnitPricesNoVideo(t *testing.T) {
	p := newPrice(t, billing.Rate{Unit: billing.Image, Amount: "1"})
	if _, err := parse(t, `{"model":"beta2.6-t2v","input":{"prompt":"a"}}`).Bound(p); !fault.Is(err, resolutionNotSupported) {
		t.Error(err)
	}
	both := newPrice(t, billing.Rate{Unit: billing.Output, Amount: "1"}, billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "1"})
	if b, err := parse(t, `{"model":"beta2.6-t2v","input":{"prompt":"a"}}`).Bound(both); err != nil || b.Tokens || b.Usage.Seconds != 5 {
		t.Error(b, err)
	}
}

func TestATaskThatSucceededCostsWhatWasAskedFor(t *testing.T) {
	seconds := billing.Usage{Seconds: 10, Variant: "1080p+audio"}
	all := map[string]string{"1080p+audio": "1", "720p+audio": "1", "720p": "1"}
	output := func(n int64) billing.Usage { return billing.Usage{Output: n} }
	for _, c := range []struct {
		name   string
		task   video.Task
		prices map[string]string
		want   billing.Usage
	}{
		{"seconds as asked", video.Task{Bound: seconds, Answer: []byte(`{"duration":4,"resolution":"720p","usage":{"duration":99}}`)}, all, seconds},
		{"an open length", video.Task{Bound: seconds, Open: true, Answer: []byte(`{"duration":4}`)}, all, billing.Usage{Seconds: 4, Variant: "1080p+audio"}},
		{"at most the bound", video.Task{Bound: seconds, Open: true, Answer: []byte(`{"duration":40}`)}, all, seconds},
		{"an open resolution", video.Task{Bound: seconds, Open: true, Answer: []byte(`{"resolution":"720p","duration":5}`)}, all, billing.Usage{Seconds: 5, Variant: "720p+audio"}},
		{"without a price", video.Task{Bound: seconds, Open: true, Answer: []byte(`{"resolution":"480p"}`)}, all, seconds},
		{"above the bound", video.Task{Bound: billing.Usage{Seconds: 10, Variant: "720p+audio"}, Open: true, Answer: []byte(`{"resolution":"1080p"}`)}, all, billing.Usage{Seconds: 10, Variant: "720p+audio"}},
		{"frames", video.Task{Bound: seconds, Open: true, Answer: []byte(`{"frames":121}`)}, all, billing.Usage{Seconds: 5, Variant: "1080p+audio"}},
		{"a float", video.Task{Bound: seconds, Open: true, Answer: []byte(`{"duration":5.5}`)}, all, billing.Usage{Seconds: 6, Variant: "1080p+audio"}},
		{"frames as text", video.Task{Bound: seconds, Open: true, Answer: []byte(`{"frames":"121.0"}`)}, all, billing.Usage{Seconds: 5, Variant: "1080p+audio"}},
		{"tokens as a float", video.Task{Bound: output(200), Tokens: true, Answer: []byte(`{"usage":{"completion_tokens":1.08e2}}`)}, nil, output(108)},
		{"no answer", video.Task{Bound: seconds, Open: true}, all, seconds},
		{"one price for all", video.Task{Bound: billing.Usage{Seconds: 30}, Open: true, Answer: []byte(`{"duration":5,"resolution":"720p"}`)}, map[string]string{"": "1"}, billing.Usage{Seconds: 5}},
		{"reported tokens", video.Task{Bound: output(200), Tokens: true, Answer: []byte(`{"usage":{"completion_tokens":108,"total_tokens":109}}`)}, nil, output(108)},
		{"reported above the bound", video.Task{Bound: output(200), Tokens: true, Answer: []byte(`{"usage":{"total_tokens":1600}}`)}, nil, output(1600)},
		{"absurd tokens", video.Task{Bound: output(200), Tokens: true, Answer: []byte(`{"usage":{"total_tokens":1800}}`)}, nil, billing.Usage{Output: 200, Anomaly: true}},
		{"an explicit zero", video.Task{Bound: output(200), Tokens: true, Answer: []byte(`{"usage":{"completion_tokens":0}}`)}, nil, billing.Usage{Zero: true}},
		{"negative tokens", video.Task{Bound: output(201), Tokens: true, Answer: []byte(`{"usage":{"completion_tokens":-1}}`)}, nil, billing.Usage{Output: 101, Estimated: true, Anomaly: true}},
		{"no report", video.Task{Bound: output(201), Tokens: true, Answer: []byte(`{"content":[]}`)}, nil, billing.Usage{Output: 101, Estimated: true}},
		{"no answer, tokens", video.Task{Bound: output(201), Tokens: true}, nil, billing.Usage{Output: 101, Estimated: true}},
	} {
		for _, state := range everyState {
			c.task.State = state
			want := c.want
			if state != video.Succeeded {
				want = billing.Usage{}
			}
			var p *billing.Price
			if c.prices != nil {
				p = price(t, c.prices)
			}
			if got := BilledUsage(&c.task, p); got != want {
				t.Errorf("%s, %s: %+v, want %+v", c.name, state, got, want)
			}
		}
	}
}

// TestEveryModelIsChargedExactly has a video of each model: of the beta family by the second
// that was asked for, of gamma also by tokens.
func TestEveryModelIsChargedExactly(t *testing.T) {
	const betaDone = `{"output":{"task_id":"up-1","task_status":"SUCCEEDED","video_url":"https://v.example/1.mp4"},"usage":{"duration":99.0,"SR":1080}}`
	const gammaDone = `{"id":"cgt-1","status":"succeeded","content":{"video_url":"https://v.example/1.mp4"},"usage":{"completion_tokens":49005,"total_tokens":49005},"resolution":"480p","duration":5}`
	for _, row := range Models() {
		taken, done := `{"id":"cgt-1"}`, gammaDone
		charges := map[billing.Rate]billing.Money{{Unit: billing.Second, Variant: "720p", Amount: "0.100000001"}: 500_000_005}
		if row.Family == video.FamilyBeta {
			taken, done = `{"output":{"task_id":"up-1","task_status":"PENDING"}}`, betaDone
		} else {
			charges[billing.Rate{Unit: billing.Output, Amount: "7.03"}] = 344_505_150
		}
		for _, id := range row.IDs {
			for rate, want := range charges {
				p, r := newPrice(t, rate), parse(t, string(least(id).with(fields{"duration": 5, "resolution": "720p"}).json(t)))
				if err := r.Check(&operation.Facts{}, p, nil); err != nil {
					t.Fatal(id, err)
				}
				bound, err := r.Bound(p)
				held, costs := p.Cost(bound.Usage)
				report, read := ReadSubmission([]byte(taken))
				if err := errors.Join(err, costs, read); err != nil || held < want {
					t.Fatalf("%s by %s: held %s for %s, %v", id, rate.Unit, held, want, err)
				}
				task := r.Task(bound, noon)
				task = Apply(&task, Event{Kind: Accepted, Report: report}, noon).Task
				end, err := advance(&task, []byte(done), noon)
				charge, costs := p.Cost(BilledUsage(&end.Task, p))
				if err := errors.Join(err, costs); err != nil || charge != want || end.Task.State != video.Succeeded {
					t.Errorf("%s by %s: charged %s, want %s: %+v, %v", id, rate.Unit, charge, want, end.Task, err)
				}
			}
		}
	}
}
