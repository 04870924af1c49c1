package dashscope

import (
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

const (
	askedPicture = `{"model":"qwen-image-2.0", "input":{"messages":[{"role":"user","content":[{"text":"hé"}]}]},"parameters":{"size":"1024*1024","n":1,"seed":1.0},"x":9007199254740993}`
	gavePicture  = `{"request_id":"9f", "output":{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":[{"image":"https://b.example/x.png?Signature=a"}]}}]},"usage":{"image_count":1,"width":1024,"height":1024}}`
)

func TestTheDriverConformsForPictures(t *testing.T) {
	conforms(t, map[upstream.Op]upstreamtest.Sample{upstream.GenerateImage: {
		Model: "qwen-image-2.0", Request: []byte(askedPicture), Answer: []byte(gavePicture),
		Refusal: upstreamtest.Refusal{
			Status: 400, Body: []byte(`{"request_id":"r1","code":"InvalidParameter","message":"size is not supported by this model"}`),
			Code: "InvalidParameter", Message: "size is not supported by this model",
		},
	}})
}

// drawCall is a call of a body.
func drawCall(t *testing.T, body string) *upstream.Call {
	t.Helper()
	return &upstream.Call{Op: upstream.GenerateImage, Model: "qwen-image-2.0", RequestID: "req_1", Body: vendortest.Body(t, body)}
}

func TestImagesAreGeneratedAtTheVendorsPathWithItsKey(t *testing.T) {
	var got vendortest.Seen
	_, answer := vendortest.Answer(t, newDriver(t, vendortest.Recording(&got, gavePicture)), drawCall(t, `{"model":"q","input":{"messages":[{"content":[{"text":"a"},{"text":"b"}]}]}}`))
	if answer != gavePicture {
		t.Error(answer)
	}
	if got.Body != `{"model":"q","input":{"messages":[{"content":[{"text":"a\nb"}]}]}}` {
		t.Errorf("the vendor got %s", got.Body)
	}
	if got.URI != "/api/v1/services/aigc/multimodal-generation/generation" || got.Header.Get("Authorization") != "Bearer sk-vendor-1" || got.Header.Get("X-DashScope-Async") != "" {
		t.Errorf("%s %v", got.URI, got.Header)
	}
}

func TestSeveralTextsAreJoinedSinceTheVendorTakesOne(t *testing.T) {
	for body, want := range map[string]string{
		`{"input":{"a":1.0,"messages":[{"role":"user","content":[{"text":"a","x":1},{"image":"i"},{"text":"b"},{"text":"é"}]}]}}`: `{"input":{"a":1.0,"messages":[{"role":"user","content":[{"text":"a\nb\né","x":1},{"image":"i"}]}]}}`,
		`{"input":{"messages":[{"content":[{"image":"i"},{"text":"a"} ]}]}}`:                                                      `{"input":{"messages":[{"content":[{"image":"i"},{"text":"a"} ]}]}}`,
		`{"input":{"messages":[{"content":"a"}]}}`:                                                                                `{"input":{"messages":[{"content":"a"}]}}`,
		`{"input":{"messages":[]}}`: `{"input":{"messages":[]}}`,
		`{"input":[1]}`:             `{"input":[1]}`,
		`{"prompt":"a"}`:            `{"prompt":"a"}`,
	} {
		sent, err := joinMessageTexts(drawCall(t, body).Body).Bytes()
		if err != nil || string(sent) != want {
			t.Errorf("%s became %s, %v, want %s", body, sent, err, want)
		}
	}
}
