package images

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

const (
	partial = `{"type":"image_generation.partial_image","b64_json":"aGk=","partial_image_index":0,"x":1.0}`
	last    = `{"type":"image_generation.completed","b64_json":"aGk=","usage":{"input_tokens":3,"output_tokens":1300}}`
)

func TestAStreamOfPartialPicturesPassesAndIsCounted(t *testing.T) {
	tap := parse(t, drawn("imagegen-1", `,"stream":true,"partial_images":1,"size":"1024x1024"`)).NewTap("req_1", true)
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
		"error":   `{"type":"error","message":"sk-secret","code":"server_error"}`,
		"":        `{"error":{"message":"sk-secret"}}`,
		"x":       `{"b64_json":`,
		"[DONE] ": `[DONE]`,
	} {
		err := Opening(name, []byte(data))
		if !fault.Is(err, fault.BadGateway) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%s: %v", data, err)
		}
	}
	if err := Opening("image_generation.partial_image", []byte(partial)); err != nil {
		t.Error(err)
	}
}
