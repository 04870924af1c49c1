package video

import (
	"encoding/json"
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/video"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fields are members of a JSON object.
type fields map[string]any

// with are the fields with others in their place; those that are nil are taken
// out.
func (f fields) with(more fields) fields {
	f = maps.Clone(f)
	for name, value := range more {
		if f[name] = value; value == nil {
			delete(f, name)
		}
	}
	return f
}

const picture = "https://files.example/a.png"

// least is the smallest good body of a model.
func least(model string) fields {
	body := fields{"model": model}
	row := ModelOf(model)
	if row == nil || row.Family != video.FamilyBeta {
		return body.with(fields{"content": []any{fields{"type": "text", "text": "a paper boat"}}})
	}
	input := fields{}
	for _, name := range row.Needs {
		input[name] = map[string]any{
			"prompt": "a paper boat", "img_url": picture, "reference_urls": []string{picture},
			"media": []any{fields{"type": "first_frame", "url": picture}},
		}[name]
	}
	return body.with(fields{"input": input})
}

func (f fields) json(t testing.TB) []byte {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, body string) *Request {
	t.Helper()
	r, err := Parse([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// everyModel are all ids of the tables, and some that no table describes.
func everyModel() []string {
	var ids []string
	for _, row := range Models() {
		ids = append(ids, row.IDs...)
	}
	return append(ids, "clip-9", "beta2.8-t2v")
}

// price is a row of prices per second by variant.
func price(t testing.TB, seconds map[string]string) *billing.Price {
	t.Helper()
	var rates []billing.Rate
	for _, v := range slices.Sorted(maps.Keys(seconds)) {
		rates = append(rates, billing.Rate{Unit: billing.Second, Variant: v, Amount: seconds[v]})
	}
	return newPrice(t, rates...)
}

func newPrice(t testing.TB, rates ...billing.Rate) *billing.Price {
	t.Helper()
	p, err := billing.NewPrice(rates...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// refused is the fault of a body; nil if it is good.
func refused(data []byte, m operation.Facts, p *billing.Price) *fault.Error {
	r, err := Parse(data)
	if err == nil {
		err = r.Check(&m, p, nil)
	}
	return fault.From(err)
}

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// advance is a task after an answer of its upstream's to a poll.
func advance(t *video.Task, data []byte, now time.Time) (Transition, error) {
	r, err := ReadPoll(t, data)
	if err != nil {
		return Transition{Task: *t}, err
	}
	return Apply(t, Event{Kind: Polled, Report: r}, now), nil
}

// tick is a task after time alone.
func tick(t *video.Task, now time.Time) Transition { return Apply(t, Event{}, now) }
