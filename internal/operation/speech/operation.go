package speech

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is the endpoint of speech.
var Spec = operation.Spec{
	Op: upstream.Speech, Path: "/v1/audio/speech", Kinds: []string{"speech"},
	Dialect: operation.Plain, Trace: operation.Trace{Name: "text_to_speech", Output: "speech", Streams: true},
	Units:   [][]billing.Unit{{billing.Character}},
	Parse:   operation.Parser(Parse),
	Unknown: UnknownModel, Mismatch: fault.EndpointModelMismatch,
	Models: models,
	Words:  []operation.Word{{Text: "tts", Whole: true}},
	Probe:  probe, ProbeCost: 1,
	Demo: []operation.DemoModel{
		{ID: "alpha3-tts-flash", Rates: []billing.Rate{{Unit: billing.Character, Amount: "10.00"}}},
		{ID: "alpha3-tts-instruct-flash", Rates: []billing.Rate{{Unit: billing.Character, Amount: "12.00"}}},
	},
}

// probe names no format for a model that has only one.
func probe(model string) string {
	if len(familyOf(model).Formats) == 0 {
		return `"input":"Hi"`
	}
	return `"input":"Hi","response_format":"wav"`
}

// models are those of all families.
func models() map[string]operation.Facts {
	known := make(map[string]operation.Facts)
	for _, f := range Families {
		for _, id := range f.Models {
			known[id] = operation.Facts{Batch: f.Limit, Voices: f.Voices}
		}
	}
	return known
}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info { return operation.Info{Model: r.Model, Source: r.Source()} }

// Quote is what the request costs: its characters are known.
func (r *Request) Quote(*operation.Facts, *billing.Price, bool) operation.Quote {
	return operation.Exactly(billing.Usage{Characters: r.Characters()}, operation.Unchecked())
}

// Ordered is what a vendor counts at least that got the request and failed.
func (r *Request) Ordered(*operation.Facts, *billing.Price) billing.Usage {
	return billing.Usage{Characters: r.Characters(), Estimated: true}
}

// Outgoing is what an upstream gets. [Request.Parts] make requests that name a voice.
func (r *Request) Outgoing(int64) operation.Outgoing {
	return operation.Outgoing{Body: r.body, View: &r.Request}
}

// ReadAnswer fails: what answers a request for speech is audio, and a whole document is the
// upstream's error.
func (r *Request) ReadAnswer(data []byte, _ operation.AnswerOptions) (operation.Answer, error) {
	return operation.Answer{}, ErrorInstead(bytes.NewReader(data), upstream.BadAnswer("The upstream's answer is no audio.", nil))
}
