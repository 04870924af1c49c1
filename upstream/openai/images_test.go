package openai

import (
	"strings"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// imageSample is a call for pictures, whole and as a stream.
var imageSample = upstreamtest.Sample{
	Model:   "gpt-image-2",
	Request: []byte(`{"model":"gpt-image-2", "prompt":"hé","n":2,"x":1.0}`),
	Stream:  []byte(`{"model":"gpt-image-2","prompt":"a","stream":true,"partial_images":1}`),
	Answer:  []byte(`{"created":1, "data":[{"b64_json":"aGk="},{"b64_json":"aGk="}],"usage":{"output_tokens":1.0}}`),
	Events: []string{
		"event: image_generation.partial_image\ndata: {\"type\":\"image_generation.partial_image\",\"b64_json\":\"aGk=\"}\n\n",
		"event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\",\"b64_json\":\"aGk=\"}\n\n",
	},
	Refusal: upstreamtest.Refusal{
		Status: 400, Body: []byte(`{"error":{"message":"Your request was rejected.","type":"image_generation_user_error","code":"moderation_blocked","param":null}}`),
		Code: "moderation_blocked", Message: "Your request was rejected.",
	},
}

// editSample is a call for changed pictures, whole and as a stream.
var editSample = upstreamtest.Sample{
	Model: "gpt-image-2", Form: editForm(), StreamForm: editForm(upstream.Field("stream", "true")),
	Answer: imageSample.Answer,
	Events: []string{
		"event: image_edit.partial_image\ndata: {\"type\":\"image_edit.partial_image\",\"b64_json\":\"aGk=\"}\n\n",
		"event: image_edit.completed\ndata: {\"type\":\"image_edit.completed\",\"b64_json\":\"aGk=\"}\n\n",
	},
	Refusal: upstreamtest.Refusal{
		Status: 400, Body: []byte(`{"error":{"message":"Invalid image file.","type":"image_generation_user_error","code":"invalid_image","param":"image"}}`),
		Code: "invalid_image", Message: "Invalid image file.",
	},
}

// editForm is a form with a file of 200 KB, which does not fit any buffer.
func editForm(more ...upstream.Part) *upstream.Form {
	file := upstream.Field("image", strings.Repeat("\x00\r\n--", 40_000))
	file.Filename, file.ContentType = "a.png", "image/png"
	return &upstream.Form{Boundary: "b", Parts: append([]upstream.Part{
		upstream.Field("model", "gpt-image-2"), file, upstream.Field("prompt", "hé"),
	}, more...)}
}
