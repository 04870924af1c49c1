package sim_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/operation"
	embeddingsop "github.com/tollhouse-ai/gateway/internal/operation/embeddings"
	rerankop "github.com/tollhouse-ai/gateway/internal/operation/rerank"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/moderations"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

func TestTheSimulatorIsAnUpstream(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"Hello."}]`
	upstreamtest.Run(t, upstreamtest.Harness{
		Local: func(t *testing.T) upstream.Upstream { return knowing(t) },
		Samples: map[upstream.Op]upstreamtest.Sample{upstream.GenerateImage: imageSample, upstream.EditImage: editSample, upstream.SubmitVideo: submitSample, upstream.PollVideo: pollSample, upstream.ChatCompletion: {
			Model:   "m",
			Request: []byte(`{"model":"m",` + messages + `}`),
			Stream:  []byte(`{"model":"m","stream":true,` + messages + `}`),
			Check: func(t *testing.T, reply []byte) {
				if reply[0] == '{' {
					if _, err := rawjson.Index(reply, nil, nil); err != nil {
						t.Error(err)
					}
				}
			},
		}, upstream.Speech: {
			Model:   "m",
			Request: []byte(`{"model":"m","input":"Hello.","response_format":"wav"}`),
			Check: func(t *testing.T, reply []byte) {
				form, samples, err := speechop.Samples(bytes.NewReader(reply))
				if err != nil || form != (speech.PCM{Channels: 1, Rate: 24_000, Bits: 16}) || !bytes.Contains(reply, []byte("Simulated by tollhouse")) {
					t.Fatalf("%+v, %v", form, err)
				}
				if n, err := io.Copy(io.Discard, samples); n != 6*960 || err != nil { // 20 ms a character
					t.Errorf("%d bytes of samples, %v", n, err)
				}
			},
		}, upstream.Rerank: {
			Model:   "m",
			Request: []byte(`{"model":"m","query":"Hello","documents":["Goodbye.","Hello."]}`),
			Check: func(t *testing.T, reply []byte) {
				r, err := rerankop.Parse([]byte(`{"model":"m","query":"Hello","documents":["Goodbye.","Hello."]}`))
				if err != nil {
					t.Fatal(err)
				}
				a, err := r.ReadAnswer(reply, operation.AnswerOptions{NewID: func(string) string { return "rr_1" }})
				if err != nil || !bytes.Contains(a.Body, []byte(`"results":[{"index":1,"relevance_score":1},{"index":0,"relevance_score":0}]`)) || a.Usage.Estimated {
					t.Errorf("%s, %+v, %v", a.Body, a.Usage, err)
				}
			},
		}, upstream.Moderations: {
			Model:   "m",
			Request: []byte(`{"model":"m","input":["I hate you.","Hello."]}`),
			Check: func(t *testing.T, reply []byte) {
				var a moderations.Response
				if err := json.Unmarshal(reply, &a); err != nil {
					t.Fatal(err)
				}
				if len(a.Results) != 2 || !a.Results[0].Flagged || !a.Results[0].Categories["hate"] || a.Results[1].Flagged || string(a.Extra) != `{"simulated":true}` {
					t.Errorf("got %s", reply)
				}
			},
		}, upstream.Embeddings: {
			Model:   "m",
			Request: []byte(`{"model":"m","input":["Hello.","Goodbye."],"dimensions":8}`),
			Check: func(t *testing.T, reply []byte) {
				r, err := embeddingsop.Parse([]byte(`{"model":"m","input":["Hello.","Goodbye."]}`))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.ReadAnswer(reply, operation.AnswerOptions{}); err != nil {
					t.Error(err)
				}
			},
		}},
	})
}
