package images

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestTheFamiliesAreThese(t *testing.T) {
	var b bytes.Buffer
	for _, f := range Families {
		form, sizes := "prompt", strings.Join(f.Sizes, " ")
		if f.Messages {
			form = "input.messages"
		}
		if sizes == "" {
			sizes = "every W x H"
		}
		fmt.Fprintf(&b, "form %s, sizes %s\n", form, sizes)
		for _, m := range f.Models {
			fmt.Fprintf(&b, "  %-24s %d to %d reference images\n", m.ID, m.Fewest, m.Largest)
		}
		if e := f.Edit; e != nil {
			fmt.Fprintf(&b, "  edits: at most %d images of %d bytes, prompt of %d characters, sizes %s, legacy %t\n",
				e.Images, e.MostBytes, e.Prompt, strings.Join(e.Sizes, " "), e.Legacy)
		}
		for _, c := range f.Quality {
			fmt.Fprintf(&b, "  quality %-10q up to %d pixels: at most %d output tokens\n", c.Quality, c.Pixels, c.Tokens)
		}
	}
	capabilitytest.Golden(t, *update, "families.golden", b.Bytes())
}

// ownedEdits are requests and answers of which something changes, and their like
// of which nothing does.
var ownedEdits = []struct{ name, request, answer string }{
	{"alpha without parameters", alpha(t2i, "", ""), `{"request_id":"r1", ` + choice + `}`},
	{"alpha with parameters of null", alpha(t2i, "", `,"parameters":null`), `{` + choice + `,"error":null}`},
	{"alpha with some", alpha(t2i, "", `, "parameters" : { "seed":1.0e0 , "x" : 9007199254740993 }`), `{` + choice + `}`},
	{"alpha with nulls", alpha(t2i, "", `,"parameters":{"n":null,"size":null,"seed":null}`), `{` + choice + `}`},
	{"alpha with all", alpha(t2i, "", `,"parameters":{"size":"1280*720","n":1},"x":1.0`), `{"model":"qwen-image-2.0",` + choice + `,"usage":{"x":1.0}}`},
	{"alpha that no table describes", alpha("alpha-image-9", "", ""), `{` + choice + `}`},
	{"OpenAI's form", `{ "model":"imagegen-2","prompt":"a","x":1.0, "n":2 }`, `{ "created":1, "data":[{"b64_json":"aGk=","y":1.0}] }`},
	{"OpenAI's form with a model", `{"model":"imagegen-2","prompt":"a"}`, `{"data":[{"url":"u"}],"model":"gpt-image-2","request_id":"r1"}`},
	{"a model that no table describes", `{"model":"pixels-9","input":{"a":1,"a":2},"size":[1.0]}`, `{"x":1.0,"data":"ftp://x"}`},
}

func TestTheOwnedEditsAreTheseAndNoOther(t *testing.T) {
	var b bytes.Buffer
	for _, e := range ownedEdits {
		r, err := Parse([]byte(e.request))
		if err != nil {
			t.Fatal(err)
		}
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		a, err := r.ReadAnswer([]byte(e.answer), operation.AnswerOptions{RequestID: "req_1"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s\ncaller   %s\nupstream %s\nanswered %s\nanswer   %s\n\n", e.name, e.request, sent, e.answer, a.Body)
	}
	capabilitytest.Golden(t, *update, "owned_edits.golden", b.Bytes())
}

// ownedFormEdits are forms of edits of which something changes, and their like
// of which nothing does.
var ownedFormEdits = []struct {
	name, model string
	parts       []upstream.Part
}{
	{"nothing but a size", newest, nil},
	{"a size, and fields that nobody knows", newest, fields("size", "1024x1024", "input_fidelity", "high", "x", "1.0")},
	{"empty fields", newest, fields("size", "", "response_format", "", "quality", "", "user", "", "x", "")},
	{"the only response format", newest, fields("response_format", "b64_json", "size", "auto")},
	{"quality standard", first, fields("quality", "standard", "size", "auto")},
	{"quality hd", newest, fields("quality", "hd", "size", "auto")},
	{"quality low", newest, fields("quality", "low", "size", "auto")},
	{"the legacy model", legacy, nil},
	{"the legacy model with all", legacy, fields("size", "256x256", "response_format", "url", "quality", "standard")},
	{"the legacy model's size", legacy, fields("size", "auto", "response_format", "")},
	{"a model that no table describes", "pixels-9", fields("size", "auto", "quality", "hd", "response_format", "url")},
}

func TestTheOwnedEditsOfFormsAreTheseAndNoOther(t *testing.T) {
	var b bytes.Buffer
	files := []upstream.Part{file("image", pngOf(t, 2, 2))}
	for _, row := range ownedFormEdits {
		form := &upstream.Form{Boundary: "B", Parts: append(append(fields("model", row.model), files...), append(fields("prompt", "a"), row.parts...)...)}
		fmt.Fprintf(&b, "# %s\ncaller   %s\nupstream %s\n\n", row.name, spelled(t, form), sentAs(t, form))
	}
	for name, images := range map[string][]upstream.Part{
		"image twice, and a mask": {file("image", pngOf(t, 2, 2)), file("mask", pngOf(t, 2, 2)), file("image", jpegOf(t, 2, 2))},
	} {
		form := &upstream.Form{Boundary: "B", Parts: append(fields("model", newest, "prompt", "a", "size", "auto"), images...)}
		fmt.Fprintf(&b, "# %s\ncaller   %s\nupstream %s\n\n", name, spelled(t, form), sentAs(t, form))
	}
	capabilitytest.Golden(t, *update, "owned_form_edits.golden", b.Bytes())
}

func sentAs(t *testing.T, form *upstream.Form) string {
	t.Helper()
	e, err := ParseForm(form)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Check(&operation.Facts{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	return spelled(t, e.Outgoing(0).Body.Form())
}

// spelled is a form as a line of text.
func spelled(t *testing.T, form *upstream.Form) string {
	t.Helper()
	var words []string
	for i := range form.Parts {
		p := &form.Parts[i]
		text, err := p.Text(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if p.Filename != "" {
			text = fmt.Sprintf("<%s %s, %d bytes>", p.Filename, p.ContentType, p.Size)
		}
		words = append(words, p.Name+"="+text)
	}
	return strings.Join(words, " & ")
}
