package images

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
)

func parse(t testing.TB, body string) *Request {
	t.Helper()
	r, err := Parse([]byte(body))
	if err == nil {
		err = r.Check(&operation.Facts{}, nil, nil)
	}
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

const (
	choice = `"output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://x.example/1.png"}]}}]}`
	two    = `"created":1,"data":[{"b64_json":"aGk="},{"url":"https://x.example/2.png","revised_prompt":"p"}]`
)

func TestUsageIsReadFromBothForms(t *testing.T) {
	cube := alpha(t2i, "", "")
	pair := drawn("imagegen-2", `,"n":2`)
	for _, c := range []struct {
		name, request, answer string
		tokens                bool
		want                  billing.Usage
	}{
		{"alpha", cube, choice + `,"usage":{"image_count":1,"width":1024,"height":1024}`, false, billing.Usage{Images: 1}},
		{"alpha of series 3", cube, choice + `,"usage":{"output_image_count":1,"input_image_count":0}`, false, billing.Usage{Images: 1}},
		{"alpha without", cube, choice, false, billing.Usage{Images: 1}},
		{"alpha says none", cube, choice + `,"usage":{"image_count":0}`, false, billing.Usage{Zero: true}},
		{"alpha says nonsense", cube, choice + `,"usage":{"image_count":-1}`, false, billing.Usage{Images: 1, Anomaly: true}},
		{"several choices", alpha("alpha-image-9", "", `,"parameters":{"n":3}`),
			`"output":{"choices":[{"message":{"content":[{"image":"a"},{"text":"x"},{"image":"b"}]}},{"message":{"content":[{"image":"c"}]}}]}`, false, billing.Usage{Images: 3}},
		{
			"tokens", pair, two + `,"usage":{"input_tokens":300,"output_tokens":4160,"total_tokens":4460,"input_tokens_details":{"text_tokens":20,"image_tokens":280}}`,
			true, billing.Usage{Input: 20, ImageInput: 280, ImageOutput: 4160, Images: 2},
		},
		{
			"tokens of text and of a cache", pair,
			two + `,"usage":{"input_tokens":300,"output_tokens":100,"input_tokens_details":{"text_tokens":300,"cached_tokens":200},"output_tokens_details":{"image_tokens":90,"text_tokens":10}}`,
			true, billing.Usage{Input: 100, CachedInput: 200, Output: 10, ImageOutput: 90, Images: 2},
		},
		{"tokens without details", pair, two + `,"usage":{"input_tokens":30,"output_tokens":40}`, true, billing.Usage{Input: 30, ImageOutput: 40, Images: 2}},
		{"zero tokens", pair, two + `,"usage":{"input_tokens":0,"output_tokens":0}`, true, billing.Usage{Images: 2, Zero: true}},
		{"no tokens that are paid for", pair, two, true, billing.Usage{Input: 2, ImageOutput: 32768, Images: 2, Estimated: true}},
		{"null tokens that are paid for", pair, two + `,"usage":null`, true, billing.Usage{Input: 2, ImageOutput: 32768, Images: 2, Estimated: true}},
		{"no tokens that are not", pair, two, false, billing.Usage{Images: 2}},
		{"negative tokens", pair, two + `,"usage":{"input_tokens":-1,"output_tokens":7}`, true, billing.Usage{ImageOutput: 7, Images: 2, Anomaly: true}},
		{"fractional tokens", pair, two + `,"usage":{"input_tokens":1,"output_tokens":7.5}`, true, billing.Usage{Input: 1, ImageOutput: 8, Images: 2}},
		{"tokens as a total", pair, two + `,"usage":{"input_tokens":30.0,"total_tokens":"70"}`, true, billing.Usage{Input: 30, ImageOutput: 40, Images: 2}},
		{"tokens without the input", pair, two + `,"usage":{"output_tokens":40,"total_tokens":70}`, true, billing.Usage{Input: 30, ImageOutput: 40, Images: 2}},
		{"more parts than whole", pair, two + `,"usage":{"input_tokens":3,"output_tokens":7,"input_tokens_details":{"image_tokens":9}}`, true, billing.Usage{ImageInput: 3, ImageOutput: 7, Images: 2, Anomaly: true}},
		{"usage is an array", pair, two + `,"usage":[]`, false, billing.Usage{Images: 2, Anomaly: true}},
		{"an answer that nobody knows", `{"model":"pixels-9","n":3}`, `"pictures":["https:\/\/x.example\/a","https:\/\/x.example\/b"]`, false, billing.Usage{Images: 3, Estimated: true}},
		{"a file in a form that nobody knows", `{"model":"pixels-9","n":3}`, `"data":{"file":"` + strings.Repeat("A", 300) + `"}`, false, billing.Usage{Images: 3, Estimated: true}},
		{"fewer than were asked for", `{"model":"pixels-9","n":3}`, `"data":[{"url":"a"},{"url":""},{"b64_json":null}]`, false, billing.Usage{Images: 1}},
		{"an answer that says its count", `{"model":"pixels-9","n":3}`, `"pictures":["a"],"usage":{"image_count":1}`, false, billing.Usage{Images: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := parse(t, c.request).ReadAnswer([]byte("{"+c.answer+"}"), options(t, c.tokens))
			if err != nil || a.Usage != c.want {
				t.Errorf("%+v, %v, want %+v", a.Usage, err, c.want)
			}
		})
	}
}

func TestA200ThatIsNoneIsABadGateway(t *testing.T) {
	for request, answers := range map[string][]string{
		alpha(t2i, "", ""): {
			``, `[]`, `{"output":`, `{}`, `{"output":{}}`, `{"output":{"choices":[]}}`, `{"output":null}`,
			`{"request_id":"r","code":"InternalError","message":"sk-secret"}`,
			`{"output":{"choices":[{"message":{"content":[{"text":"no"}]}}]}}`,
		},
		`{"model":"pixels-9","n":2}`: { // whose good answers nobody can read
			`{"code":"InternalError","message":"x"}`, `{"code":"InternalError","output":null}`, `{"error":"x"}`,
			`{"created":1,"data":[]}`, `{"created":1,"data":null}`, `{"created":1}`, `{"data":[{"b64_json":null},{"url":""}]}`, `{"data":[{"revised_prompt":"see https://x.example"}]}`,
			`{"data":[],"usage":{"image_count":1}}`, `{"created":1,"usage":{"output_tokens":9,"total_tokens":9}}`,
			`{"output":{"choices":[]},"request_id":"r"}`, `{"output":{"choices":[{"message":{"content":[{"image":""}]}}]}}`, `{"output":{}}`, `{}`,
		},
		drawn("imagegen-1", ""): {`{"data":[]}`, `{"data":[{}]}`, `{"data":[null]}`, `{"error":{"message":"sk-secret","code":"odd_error"}}`, `{"created":1}`},
	} {
		for _, text := range answers {
			_, err := parse(t, request).ReadAnswer([]byte(text), options(t, true))
			if !fault.Is(err, fault.BadGateway) || strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestTheBoundIsTheMostThatThePicturesCanBe(t *testing.T) {
	for _, c := range []struct {
		body           string
		input, output  int64
		pictures, over int64
	}{
		{alpha(t2i, "", `,"parameters":{"n":1}`), 0, 0, 1, 0},
		{drawn("imagegen-1", ""), 6 + tokensAround, 6240, 1, 0},
		{drawn("imagegen-1", `,"quality":"low","n":3`), 6 + tokensAround, 3 * 408, 3, 0},
		{drawn("imagegen-1", `,"quality":"medium"`), 6 + tokensAround, 1584, 1, 0},
		{drawn("imagegen-1", `,"quality":"high","size":"1024x1024"`), 6 + tokensAround, 4160, 1, 0},
		{drawn("imagegen-2", `,"size":"1024x1024"`), 6 + tokensAround, 7024, 1, 0},
		{drawn("imagegen-2", `,"size":"3840x2160"`), 6 + tokensAround, 16_384, 1, 0},
		{drawn("imagegen-2", `,"size":"1024x1024","stream":true,"partial_images":3`), 6 + tokensAround, 7324, 1, 0},
		{drawn("imagegen-2", `,"n":2`), 6 + tokensAround, 2000, 2, 1000},
		{drawn("imagegen-legacy-2", `,"n":10`), 6 + tokensAround, 0, 10, 0},
		{`{"model":"pixels-9","parameters":{"n":4}}`, 41 + tokensAround, 4 * unknownCost, 4, 0},
	} {
		r := parse(t, c.body)
		if r.InputBound() != c.input || r.OutputBound(c.over) != c.output || r.Count() != c.pictures {
			t.Errorf("%s: input %d, output %d, %d pictures; want %+v", c.body, r.InputBound(), r.OutputBound(c.over), r.Count(), c)
		}
	}
}

const (
	partial = `{"type":"image_generation.partial_image","b64_json":"aGk=","partial_image_index":0,"x":1.0}`
	last    = `{"type":"image_generation.completed","b64_json":"aGk=","usage":{"input_tokens":3,"output_tokens":1300}}`
)

func TestAStreamOfPartialPicturesPassesAndIsCounted(t *testing.T) {
	tap := parse(t, drawn("imagegen-1", `,"stream":true,"partial_images":1,"size":"1024x1024"`)).NewTap(options(t, true))
	if tap.Output() != 0 || tap.Usage() != (billing.Usage{Input: 2, Estimated: true}) {
		t.Errorf("before the first: %+v", tap.Usage())
	}
	out, done, err := tap.Event(nil, "image_generation.partial_image", []byte(partial))
	if err != nil || done || string(out) != "event: image_generation.partial_image\ndata: "+partial+"\n\n" {
		t.Errorf("%s, %t, %v", out, done, err)
	}
	if u := tap.Usage(); u != (billing.Usage{Input: 2, ImageOutput: 4260 / 2, Images: 1, Estimated: true}) {
		t.Errorf("of one of two pictures: %+v", u)
	}
	out, done, err = tap.Event(out[:0], "", []byte(strings.Replace(last, `{`, `{"model":"gpt-image-1",`, 1)))
	if err != nil || !done || string(out) != "data: "+strings.Replace(last, `{`, `{"model":"imagegen-1",`, 1)+"\n\n" {
		t.Errorf("%s, %t, %v", out, done, err)
	}
	if u := tap.Usage(); u != (billing.Usage{Input: 3, ImageOutput: 1300, Images: 1}) {
		t.Errorf("in the end: %+v", u)
	}
}

func TestAnErrorInAStreamOfPicturesEndsIt(t *testing.T) {
	for name, data := range map[string]string{
		"error":   `{"type":"error","message":"sk-secret","code":"odd_error"}`,
		"":        `{"error":{"message":"sk-secret"}}`,
		"x":       `{"b64_json":`,
		"[DONE] ": `[DONE]`,
	} {
		_, err := new(Request).Opening(name, []byte(data))
		if !fault.Is(err, fault.BadGateway) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%s: %v", data, err)
		}
	}
	if _, err := new(Request).Opening("image_generation.partial_image", []byte(partial)); err != nil {
		t.Error(err)
	}
}

func TestAStreamThatEndsWithoutAPictureIsABadGateway(t *testing.T) {
	for _, model := range []string{"imagegen-1", "pixels-9"} {
		r := parse(t, drawn(model, `,"stream":true`))
		for _, end := range []string{
			`{"type":"image_generation.completed","b64_json":null,"usage":{"output_tokens":1300}}`,
			`{"type":"image_edit.completed","url":""}`, `{"type":"image_generation.completed"}`,
		} {
			if _, err := new(Request).Opening("", []byte(end)); !fault.Is(err, fault.BadGateway) {
				t.Errorf("%s opens a stream: %v", end, err)
			}
			tap := r.NewTap(options(t, true))
			if _, _, err := tap.Event(nil, "", []byte(partial)); err != nil {
				t.Fatal(err)
			}
			if out, done, err := tap.Event(nil, "", []byte(end)); !fault.Is(err, fault.BadGateway) || done || len(out) > 0 {
				t.Errorf("%s ends a stream: %s, %t, %v", end, out, done, err)
			}
		}
		tap := r.NewTap(options(t, true)) // each picture comes before the end
		for _, event := range []string{`{"type":"image_generation.partial_succeeded","url":"https://x.example"}`, `{"type":"image_generation.completed","usage":{"input_tokens":0,"output_tokens":9}}`} {
			if _, _, err := tap.Event(nil, "", []byte(event)); err != nil {
				t.Errorf("%s: %v", event, err)
			}
		}
		if u := tap.Usage(); u != (billing.Usage{Images: 1, ImageOutput: 9}) {
			t.Errorf("%+v", u)
		}
	}
}

func TestAWholeImageBecomesTheLastEvent(t *testing.T) {
	events, err := parse(t, drawn("pixels-9", `,"stream":true`)).Unfold([]byte(`{"created":7,"data":[{"b64_json":"QUJD"}],"usage":{"output_tokens":9}}`))
	want := `{"b64_json":"QUJD","type":"image_generation.completed","created_at":7,"usage":{"output_tokens":9}}`
	if err != nil || len(events) != 1 || events[0].Name != "image_generation.completed" || string(events[0].Data) != want {
		t.Errorf("%v, %+v", err, events)
	}
}

// options are those of the request req_1. tokens says that they are paid for.
func options(t testing.TB, tokens bool) operation.AnswerOptions {
	o := operation.AnswerOptions{RequestID: "req_1"}
	if tokens {
		var err error
		if o.Price, err = billing.NewPrice(billing.Rate{Unit: billing.ImageOutput, Amount: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	return o
}
