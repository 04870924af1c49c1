package dashscope

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// speaking is the driver as far as it speaks.
type speaking struct{ *Upstream }

func (speaking) Supports(op upstream.Op, _ string) bool { return op == upstream.Speech }

func TestTheDriverConformsForSpeech(t *testing.T) {
	upstreamtest.Run(t, upstreamtest.Harness{
		New:     func(t *testing.T, vendor http.Handler) upstream.Upstream { return speaking{driver(t, vendor)} },
		Samples: map[upstream.Op]upstreamtest.Sample{upstream.Speech: speechSample()},
	})
}

// speechSample is of a vendor that answers by one document.
func speechSample() upstreamtest.Sample {
	return upstreamtest.Sample{
		Model:   "qwen3-tts-instruct-flash",
		Request: []byte(`{"model":"alpha3-tts-instruct-flash","input":"hé","voice":"Serena","instructions":"warm","speed":2}`),
		View: func(body []byte) any {
			r, _ := speech.Parse(body)
			r.TakesWAV = true
			return r
		},
		Wire:   []byte(`{"model":"qwen3-tts-instruct-flash","input":{"text":"hé","voice":"Serena","language_type":"Auto","instructions":"warm"}}`),
		Answer: []byte(`{"request_id":"r1","code":"","message":"","output":{"finish_reason":"stop","audio":{"id":"a","data":"` + base64.StdEncoding.EncodeToString(file("abcd")) + `","url":""}},"usage":{"characters":2}}`),
		Public: file("abcd"),
		Refusal: upstreamtest.Refusal{
			Status: 400, Body: []byte(`{"code":"InvalidParameter","message":"There is no such voice.","request_id":"r1"}`),
			Code: "endpoint_model_mismatch", Message: "There is no such voice.",
		},
	}
}

// file is a WAV file of the vendor's form.
func file(samples string) []byte { return append(spoken().Header(), samples...) }

// driver is the driver under test against a vendor on the loopback.
func driver(t *testing.T, vendor http.Handler) *Upstream {
	t.Helper()
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	up, err := New(Options{BaseURL: server.URL + "/api/v1", Keys: []secret.String{secret.New("sk-vendor-1")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	return up
}
