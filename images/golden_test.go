package images

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); -update writes it anew:\n%s", path, diff)
	}
}

func TestTheFamiliesAreThese(t *testing.T) {
	var b bytes.Buffer
	for _, f := range Families() {
		form, sizes := "prompt", strings.Join(f.Sizes, " ")
		if f.Messages {
			form = "input.messages"
		}
		if sizes == "" {
			sizes = "every W x H"
		}
		fmt.Fprintf(&b, "form %s, at most %d pictures, sizes %s\n", form, f.Most, sizes)
		for _, m := range f.Models {
			fmt.Fprintf(&b, "  %-24s %d to %d reference images\n", m.ID, m.Fewest, m.Largest)
		}
		for _, c := range f.Quality {
			fmt.Fprintf(&b, "  quality %-10q up to %d pixels: at most %d output tokens\n", c.Quality, c.Pixels, c.Tokens)
		}
	}
	golden(t, "families.golden", b.Bytes())
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
	{"a model that no table describes", `{"model":"pixels-9","input":{"a":1,"a":2},"size":[1.0]}`, `{"x":1.0,"data":7}`},
}

func TestTheOwnedEditsAreTheseAndNoOther(t *testing.T) {
	var b bytes.Buffer
	for _, e := range ownedEdits {
		r, err := Parse([]byte(e.request))
		if err != nil {
			t.Fatal(err)
		}
		sent, err := r.Prepared().Bytes()
		if err != nil {
			t.Fatal(err)
		}
		a, err := r.ReadAnswer([]byte(e.answer), "req_1", false)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s\ncaller   %s\nupstream %s\nanswered %s\nanswer   %s\n\n", e.name, e.request, sent, e.answer, a.Body)
	}
	golden(t, "owned_edits.golden", b.Bytes())
}
