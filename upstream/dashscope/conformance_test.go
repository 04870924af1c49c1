package dashscope

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"testing"

	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// only is the driver as far as some operations go.
type only struct {
	upstream.Driver
	ops []upstream.Op
}

func (o only) Supports(op upstream.Op, _ string) bool { return slices.Contains(o.ops, op) }

// conforms checks the driver by a sample of each of some operations.
func conforms(t *testing.T, samples map[upstream.Op]upstreamtest.Sample) {
	upstreamtest.Run(t, upstreamtest.Harness{
		New: func(t *testing.T, vendor http.Handler) upstream.Upstream {
			return only{newDriver(t, vendor), slices.Collect(maps.Keys(samples))}
		},
		Samples: samples,
	})
}

func TestTheDriverConformsForSpeech(t *testing.T) {
	conforms(t, map[upstream.Op]upstreamtest.Sample{upstream.Speech: speechSample()})
}

// speechSample is of a vendor that answers by one document.
func speechSample() upstreamtest.Sample {
	return upstreamtest.Sample{
		Model:   "qwen3-tts-instruct-flash",
		Request: []byte(`{"model":"alpha3-tts-instruct-flash","input":"hé","voice":"Serena","instructions":"warm","speed":2}`),
		View:    func([]byte) any { return &speech.Request{TakesWAV: true} },
		Wire:    []byte(`{"model":"qwen3-tts-instruct-flash","input":{"text":"hé","voice":"Serena","language_type":"Auto","instructions":"warm"}}`),
		Answer:  []byte(`{"request_id":"r1","code":"","message":"","output":{"finish_reason":"stop","audio":{"id":"a","data":"` + base64.StdEncoding.EncodeToString(file("abcd")) + `","url":""}},"usage":{"characters":2}}`),
		Public:  file("abcd"),
		Refusal: upstreamtest.Refusal{
			Status: 400, Body: []byte(`{"code":"InvalidParameter","message":"There is no such voice.","request_id":"r1"}`),
			Code: "endpoint_model_mismatch", Message: "There is no such voice.",
		},
	}
}

// file is a WAV file of the vendor's form.
func file(samples string) []byte { return append(speechop.WAVHeader(pcmFormat()), samples...) }

// newDriver is the driver under test against a vendor on the loopback.
func newDriver(t *testing.T, vendor http.Handler) upstream.Driver {
	t.Helper()
	return vendortest.New(t, New, upstream.DriverOptions{BaseURL: vendortest.Serve(t, vendor) + "/api/v1", Keys: vendortest.Keys("sk-vendor-1")})
}
