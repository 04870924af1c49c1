package video

import (
	"net/http"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Spec is the endpoint that submits videos, which begins the life of a task.
var Spec = operation.Spec{
	Op: upstream.SubmitVideo, Path: "/v1/videos/generations", Kinds: []string{"video"},
	Trace:   operation.Trace{Name: "generate_video", Output: "video"},
	Units:   [][]billing.Unit{{billing.Second}, {billing.Output}},
	Parse:   operation.Parser(Parse),
	Models:  publicModels,
	Example: example,
	Demo: []operation.DemoModel{
		{ID: "beta2.6-t2v", Rates: []billing.Rate{
			{Unit: billing.Second, Variant: "720p", Amount: "0.10"}, {Unit: billing.Second, Variant: "1080p", Amount: "0.15"},
		}},
		{ID: "gamma-2-0-260128", Rates: []billing.Rate{{Unit: billing.Output, Amount: "7.00"}}},
	},
}

// example has its prompt where the model's family has it.
func example(model string) string {
	const prompt = `"prompt":"A lighthouse at dusk."`
	for _, row := range Models() {
		if row.Family == video.FamilyBeta && slices.Contains(row.IDs, model) {
			return `"input":{` + prompt + `}`
		}
	}
	return prompt
}

// publicModels are those of all rows.
func publicModels() map[string]operation.Facts {
	known := make(map[string]operation.Facts)
	for _, row := range Models() {
		for _, id := range row.IDs {
			known[id] = operation.Facts{}
		}
	}
	return known
}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info {
	info := operation.Info{Model: r.Model, Source: r.Source(), Wait: r.Wait, Status: http.StatusOK}
	if r.Family() == video.FamilyBeta {
		info.Status = http.StatusAccepted
	}
	return info
}

// Quote is what the video may cost. Its task judges what it consumed.
func (r *Request) Quote(_ *operation.Facts, price *billing.Price, _ bool) operation.Quote {
	b, err := r.Bound(price)
	if err != nil { // which Check has refused
		return operation.Quote{Plausible: operation.Unchecked(), Inexact: true}
	}
	q := operation.Exactly(b.Usage, operation.Unchecked())
	q.Inexact = b.Open
	return q
}

// Ordered is nothing: a submission that failed made no video.
func (r *Request) Ordered(*operation.Facts, *billing.Price) billing.Usage { return billing.Usage{} }

// ReadAnswer checks that an upstream has taken the video. The pipeline reads what the answer
// says of the task by [ReadSubmission] instead. The Answer lies in data.
func (r *Request) ReadAnswer(data []byte, _ operation.AnswerOptions) (operation.Answer, error) {
	if _, err := ReadSubmission(data); err != nil {
		return operation.Answer{}, err
	}
	return operation.Answer{Body: data}, nil
}
