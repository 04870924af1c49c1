package images

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/operation"
)

// row is one rule of the API: a body that breaks it names param, one that keeps
// it names nothing.
type row struct {
	name, body, param string
}

// alpha is a body of the alpha family; members replace those of a good one.
func alpha(model, content, members string) string {
	if content == "" {
		content = `{"text":"a red cube"}`
	}
	return fmt.Sprintf(`{"model":%q,"input":{"messages":[{"role":"user","content":[%s]}]}%s}`, model, content, members)
}

const (
	t2i   = "alpha-image-2.0"
	edit  = "alpha-image-edit"
	words = `{"text":"make it blue"}`
	photo = `{"image":"https://files.example/a.png"}`
)

var alphaRows = []row{
	{"the least", alpha(t2i, "", ""), ""},
	{"model 2.0-pro", alpha("alpha-image-2.0-pro", "", ""), ""},
	{"model max", alpha("alpha-image-max", "", ""), ""},
	{"model edit", alpha(edit, photo+","+words, ""), ""},
	{"model edit-plus", alpha("alpha-image-edit-plus", photo+","+words, ""), ""},
	{"model edit-max", alpha("alpha-image-edit-max", photo+","+words, ""), ""},
	{"no model", `{"input":{"messages":[]}}`, "model"},
	{"model is null", `{"model":null}`, "model"},
	{"model is a number", `{"model":1}`, "model"},
	{"model is empty", `{"model":""}`, "model"},
	{"model is too long", `{"model":"` + strings.Repeat("m", 257) + `"}`, "model"},

	{"no input", `{"model":"alpha-image-2.0"}`, "input"},
	{"input is null", `{"model":"alpha-image-2.0","input":null}`, "input"},
	{"input is a string", `{"model":"alpha-image-2.0","input":"a cube"}`, "input"},
	{"OpenAI's form", `{"model":"alpha-image-2.0","prompt":"a cube"}`, "input"},
	{"no messages", `{"model":"alpha-image-2.0","input":{}}`, "input.messages"},
	{"messages is an object", `{"model":"alpha-image-2.0","input":{"messages":{}}}`, "input.messages"},
	{"messages is empty", `{"model":"alpha-image-2.0","input":{"messages":[]}}`, "input.messages"},
	{"two messages", `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"user","content":[{"text":"b"}]}]}}`, "input.messages"},
	{"message is a string", `{"model":"alpha-image-2.0","input":{"messages":["a"]}}`, "input.messages[0]"},
	{"role system", `{"model":"alpha-image-2.0","input":{"messages":[{"role":"system","content":[{"text":"a"}]}]}}`, "input.messages[0].role"},
	{"no role", `{"model":"alpha-image-2.0","input":{"messages":[{"content":[{"text":"a"}]}]}}`, "input.messages[0].role"},
	{"content is a string", `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":"a"}]}}`, "input.messages[0].content"},
	{"no content", `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user"}]}}`, "input.messages[0].content"},
	{"content is empty", alpha(t2i, " ", ""), "input.messages[0].content"},
	{"two texts", alpha(t2i, `{"text":"a"},{"text":"b"}`, ""), ""},
	{"a text twice", alpha(t2i, `{"text":"a","text":"b"}`, ""), "input.messages[0].content[0]"},
	{"a text in other letters", alpha(t2i, `{"text":"a","Text":"b"}`, ""), "input.messages[0].content[0]"},
	{"a text is no string", alpha(t2i, `{"text":1}`, ""), "input.messages[0].content[0].text"},
	{"a block is a string", alpha(t2i, `"a"`, ""), "input.messages[0].content[0]"},
	{"a block holds neither", alpha(t2i, `{"text":"a"},{"type":"x"}`, ""), "input.messages[0].content[1]"},
	{"a block holds both", alpha(edit, `{"text":"a","image":"https://files.example/a.png"}`, ""), "input.messages[0].content[0]"},
	{"the other is null", alpha(t2i, `{"text":"a","image":null}`, ""), ""},

	{"an edit without text", alpha(edit, photo, ""), "input.messages[0].content"},
	{"an edit without image", alpha(edit, words, ""), "input.messages[0].content"},
	{"an edit of three", alpha(edit, words+","+photo+","+photo+","+photo, ""), ""},
	{"an edit of four", alpha(edit, words+","+photo+","+photo+","+photo+","+photo, ""), "input.messages[0].content"},
	{"text-to-image with an image", alpha(t2i, words+","+photo, ""), "input.messages[0].content"},
	{"an http image", alpha(edit, words+`,{"image":"http://files.example/a.png"}`, ""), "input.messages[0].content[1].image"},
	{"a data image", alpha(edit, words+`,{"image":"data:image/png;base64,aGk="}`, ""), "input.messages[0].content[1].image"},
	{"an image without host", alpha(edit, words+`,{"image":"https:///a.png"}`, ""), "input.messages[0].content[1].image"},
	{"an image with a password", alpha(edit, words+`,{"image":"https://a:b@files.example/a.png"}`, ""), "input.messages[0].content[1].image"},
	{"an image that is no string", alpha(edit, words+`,{"image":{}}`, ""), "input.messages[0].content[1].image"},

	{"parameters is null", alpha(t2i, "", `,"parameters":null`), ""},
	{"parameters is an array", alpha(t2i, "", `,"parameters":[]`), "parameters"},
	{"size is null", alpha(t2i, "", `,"parameters":{"size":null}`), ""},
	{"size with an x", alpha(t2i, "", `,"parameters":{"size":"1024x1024"}`), "parameters.size"},
	{"size of the vendor", alpha(t2i, "", `,"parameters":{"size":"1472*1104"}`), "parameters.size"},
	{"size is empty", alpha(t2i, "", `,"parameters":{"size":""}`), "parameters.size"},
	{"size is a number", alpha(t2i, "", `,"parameters":{"size":1024}`), "parameters.size"},
	{"n is 1", alpha(t2i, "", `,"parameters":{"n":1}`), ""},
	{"n is null", alpha(t2i, "", `,"parameters":{"n":null}`), ""},
	{"n is 0", alpha(t2i, "", `,"parameters":{"n":0}`), "parameters.n"},
	{"n is 2", alpha(t2i, "", `,"parameters":{"n":2}`), "parameters.n"},
	{"n is 1.0", alpha(t2i, "", `,"parameters":{"n":1.0}`), "parameters.n"},
	{"n is a string", alpha(t2i, "", `,"parameters":{"n":"1"}`), "parameters.n"},
	{"seed", alpha(t2i, "", `,"parameters":{"seed":2147483647}`), ""},
	{"seed is a fraction", alpha(t2i, "", `,"parameters":{"seed":0.5}`), "parameters.seed"},
	{"watermark", alpha(t2i, "", `,"parameters":{"watermark":true}`), ""},
	{"watermark is a string", alpha(t2i, "", `,"parameters":{"watermark":"yes"}`), "parameters.watermark"},
	{"negative_prompt", alpha(t2i, "", `,"parameters":{"negative_prompt":"blur"}`), ""},
	{"negative_prompt is an array", alpha(t2i, "", `,"parameters":{"negative_prompt":[]}`), "parameters.negative_prompt"},
	{"prompt_extend", alpha(t2i, "", `,"parameters":{"prompt_extend":false}`), ""},
	{"prompt_extend is a number", alpha(t2i, "", `,"parameters":{"prompt_extend":0}`), "parameters.prompt_extend"},
	{"unknown fields", alpha(t2i, `{"text":"a","x":1}`, `,"x":{},"parameters":{"x":[1]}`), ""},
	{"stream", alpha(t2i, "", `,"stream":true`), "stream"},
	{"stream is false", alpha(t2i, "", `,"stream":false`), ""},
}

// drawn is a body of OpenAI's form.
func drawn(model, members string) string {
	return fmt.Sprintf(`{"model":%q,"prompt":"a cube"%s}`, model, members)
}

var openAIRows = []row{
	{"the least", drawn("imagegen-2", ""), ""},
	{"imagegen-1", drawn("imagegen-1", ""), ""},
	{"imagegen-legacy-2", drawn("imagegen-legacy-2", ""), ""},
	{"no prompt", `{"model":"imagegen-2"}`, "prompt"},
	{"prompt is empty", `{"model":"imagegen-2","prompt":""}`, "prompt"},
	{"prompt is an array", `{"model":"imagegen-2","prompt":["a"]}`, "prompt"},
	{"n is 10", drawn("imagegen-2", `,"n":10`), ""},
	{"n is 11", drawn("imagegen-2", `,"n":11`), "n"},
	{"n is 0", drawn("imagegen-2", `,"n":0`), "n"},
	{"n is 2.0", drawn("imagegen-2", `,"n":2.0`), "n"},
	{"size auto", drawn("imagegen-1", `,"size":"auto"`), ""},
	{"size of another model", drawn("imagegen-1", `,"size":"256x256"`), "size"},
	{"size of the legacy model", drawn("imagegen-legacy-2", `,"size":"256x256"`), ""},
	{"legacy has no auto", drawn("imagegen-legacy-2", `,"size":"auto"`), "size"},
	{"a free size", drawn("imagegen-2", `,"size":"3840x2160"`), ""},
	{"size is no size", drawn("imagegen-2", `,"size":"large"`), "size"},
	{"quality", drawn("imagegen-2", `,"quality":"hd"`), ""},
	{"quality unknown", drawn("imagegen-2", `,"quality":"best"`), "quality"},
	{"response_format", drawn("imagegen-legacy-2", `,"response_format":"url"`), ""},
	{"response_format unknown", drawn("imagegen-legacy-2", `,"response_format":"file"`), "response_format"},
	{"output_format", drawn("imagegen-2", `,"output_format":"webp"`), ""},
	{"output_format unknown", drawn("imagegen-2", `,"output_format":"gif"`), "output_format"},
	{"output_compression", drawn("imagegen-2", `,"output_compression":80`), ""},
	{"output_compression too large", drawn("imagegen-2", `,"output_compression":101`), "output_compression"},
	{"background", drawn("imagegen-2", `,"background":"transparent","output_format":"png"`), ""},
	{"background unknown", drawn("imagegen-2", `,"background":"red"`), "background"},
	{"a transparent jpeg", drawn("imagegen-2", `,"background":"transparent","output_format":"jpeg"`), "background"},
	{"partial_images", drawn("imagegen-2", `,"stream":true,"partial_images":3`), ""},
	{"partial_images too many", drawn("imagegen-2", `,"stream":true,"partial_images":4`), "partial_images"},
	{"user", drawn("imagegen-2", `,"user":"u"`), ""},
	{"user is a number", drawn("imagegen-2", `,"user":1`), "user"},
	{"stream is a string", drawn("imagegen-2", `,"stream":"yes"`), "stream"},
	{"a stream of two", drawn("imagegen-2", `,"stream":true,"n":2`), "n"},
	{"a stream of two of a model that no table describes", drawn("pix", `,"stream":true,"n":2`), "n"},
	{"unknown fields", drawn("imagegen-2", `,"moderation":"auto","x":1.0`), ""},
	{"nulls", drawn("imagegen-2", `,"n":null,"size":null,"quality":null,"user":null`), ""},

	{"a model that no table describes", `{"model":"pixels-9","size":"huge","quality":7,"input":"x","prompt":[1]}`, ""},
	{"its n is billed", `{"model":"pixels-9","n":"four"}`, "n"},
	{"its parameters.n is billed", `{"model":"pixels-9","parameters":{"n":0}}`, "parameters.n"},
	{"an alpha model that no table describes", alpha("alpha-image-9", words+","+photo, `,"parameters":{"size":"8*8","n":4}`), ""},
	{"its form is the family's", `{"model":"alpha-image-9","prompt":"a"}`, "input"},
	{"its n is billed too", alpha("alpha-image-9", "", `,"parameters":{"n":1000}`), "parameters.n"},
}

func TestEveryRowOfTheTablesHasAValidAndAnInvalidCase(t *testing.T) {
	rows := append(append([]row{}, alphaRows...), openAIRows...)
	for _, f := range Families {
		if f.Messages {
			for _, size := range f.Sizes {
				rows = append(rows, row{"size " + size, alpha(t2i, "", `,"parameters":{"size":"`+size+`"}`), ""})
			}
		}
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			r, err := Parse([]byte(c.body))
			if err != nil {
				t.Fatalf("%s: %v", c.body, err)
			}
			err = r.Check(&operation.Facts{}, nil, nil)
			var f *fault.Error
			switch errors.As(err, &f); {
			case c.param == "" && err != nil:
				t.Errorf("%s: %v", c.body, err)
			case c.param != "" && (f == nil || f.Param != c.param || f.HTTPStatus() != 400 || f.Code != fault.InvalidRequest || f.Message == ""):
				t.Errorf("%s: %+v, want a 400 about %s", c.body, f, c.param)
			}
		})
	}
}

func TestBodiesThatAreNoStrictObjectAreRefusedWithAnOffset(t *testing.T) {
	for body, at := range map[string]string{
		`[]`:                           "byte 0",
		`{"model":"m"} x`:              "byte 14",
		`{"model":"m","model":"n"}`:    "byte 13",
		`{"model":"m","Size":"a"}`:     "byte 13",
		`{"parameters":{"n":1,"N":2}}`: "byte 21",
		`{"model":"alpha-image-2.0","input":{"messages":[],"messages":[]}}`: "byte 50",
		`{"model":"alpha-image-2.0","input": {"SIZE":1}}`:                   "byte 37",
	} {
		_, err := Parse([]byte(body))
		var f *fault.Error
		if !errors.As(err, &f) || f.HTTPStatus() != 400 || !strings.Contains(f.Message, at+").") {
			t.Errorf("%s: %v, want %s", body, err, at)
		}
	}
	// Other families' `input` is their own.
	if _, err := Parse([]byte(`{"model":"m","input":{"a":1,"a":2}}`)); err != nil {
		t.Error(err)
	}
}

func TestAModelThatTakesNoImageNamesOneThatDoes(t *testing.T) {
	r, err := Parse([]byte(alpha(t2i, words+","+photo, "")))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(&operation.Facts{}, nil, nil); !strings.Contains(err.Error(), `"alpha-image-edit"`) || !strings.Contains(err.Error(), "takes no image") {
		t.Error(err)
	}
}

func TestAnUnknownModelIsA400(t *testing.T) {
	f := fault.From(UnknownModel(strings.Repeat("m", 1000)))
	if f.HTTPStatus() != 400 || f.Code != fault.ModelNotFound || f.Param != "model" || len(f.Message) > 300 {
		t.Errorf("%+v", f)
	}
}

func TestATypedRequestIsReadAsItsBytes(t *testing.T) {
	two := int64(2)
	cube := &images.Input{Messages: []images.Message{{Role: "user", Content: []images.Block{{Text: "a cube"}}}}}
	for name, c := range map[string]struct {
		typed *images.Request
		param string // of the refusal; empty where there is none
	}{
		"every field": {&images.Request{Model: "imagegen-1", Prompt: "a", N: 2, Size: "auto", Quality: "low", Background: "opaque", OutputFormat: "jpeg", OutputCompression: &two, User: "u"}, ""},
		"a stream":    {&images.Request{Model: "imagegen-2", Prompt: "a", Stream: true, PartialImages: 2}, ""},
		"too many":    {&images.Request{Model: "imagegen-2", Prompt: "a", N: 11}, "n"},
		"alpha":       {&images.Request{Model: t2i, Input: cube, Parameters: &images.Parameters{Size: "1024*1024"}}, ""},
		"nothing":     {&images.Request{}, "model"},
	} {
		r, err := Encode(c.typed)
		if err != nil {
			t.Fatal(err)
		}
		if f := fault.From(r.Check(&operation.Facts{}, nil, nil)); c.param != "" && (f == nil || f.Param != c.param) || c.param == "" && (f != nil || !reflect.DeepEqual(&r.Request, c.typed)) {
			t.Errorf("%s: %v, read as %+v", name, f, r.Request)
		}
	}
	if r, err := Encode(&images.Request{Model: "imagegen-2", Extra: []byte(`{"prompt":"a cube","n":2,"x":1.0}`)}); err != nil || r.Check(&operation.Facts{}, nil, nil) != nil || r.Count() != 2 {
		t.Errorf("fields in Extra: %v", err)
	}
}
