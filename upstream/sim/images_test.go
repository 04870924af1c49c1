package sim_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// imageSample is a call for images, whole and as a stream.
var imageSample = upstreamtest.Sample{
	Model:   "imagegen-2",
	Request: []byte(`{"model":"imagegen-2","prompt":"a","n":2,"size":"64x32"}`),
	Stream:  []byte(`{"model":"imagegen-2","prompt":"a","stream":true,"partial_images":2,"size":"64x32"}`),
	Check: func(t *testing.T, reply []byte) {
		if n := strings.Count(string(reply), `"b64_json"`); reply[0] == '{' && n != 2 || reply[0] != '{' && n != 3 {
			t.Errorf("%d pictures", n)
		}
	},
}

func TestAPictureIsAlwaysTheSameOfItsSizeAndSaysThatItIsSimulated(t *testing.T) {
	var first, again, other struct {
		Data []struct {
			B64 []byte `json:"b64_json"`
		}
		Size string
	}
	u := sim.New(sim.Options{})
	for body, to := range map[string]any{
		`{"model":"m","prompt":"a","n":2,"size":"640x480"}`:            &first,
		`{"model":"m","prompt":"a","n":2,"size":"640x480","user":"u"}`: &again,
		`{"model":"m","prompt":"b","size":"640x480"}`:                  &other,
	} {
		if err := json.Unmarshal([]byte(answerOf(t, u, callOf(t, upstream.GenerateImage, body))), to); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Data[0].B64, again.Data[0].B64) || bytes.Equal(first.Data[0].B64, first.Data[1].B64) || bytes.Equal(first.Data[0].B64, other.Data[0].B64) {
		t.Error("equal prompts have equal pictures, others have others")
	}
	for _, d := range first.Data {
		m, err := png.Decode(bytes.NewReader(d.B64))
		if err != nil || m.Bounds().Dx() != 640 || m.Bounds().Dy() != 480 || !bytes.Contains(d.B64, []byte("Simulated by tollhouse")) || first.Size != "640x480" {
			t.Errorf("%v, %s", err, first.Size)
		}
	}
}

func TestTheAlphaFormIsAnsweredInKindWhateverTheModelIsCalled(t *testing.T) {
	const body = `{"model":"qwen-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"a"}]}]},"parameters":{"size":"64*32","n":1}}`
	var r struct {
		Output struct {
			Choices []struct {
				Message struct{ Content []struct{ Image string } }
			}
		}
		Usage map[string]int
	}
	if err := json.Unmarshal([]byte(answerOf(t, sim.New(sim.Options{}), callOf(t, upstream.GenerateImage, body))), &r); err != nil {
		t.Fatal(err)
	}
	link, ok := strings.CutPrefix(r.Output.Choices[0].Message.Content[0].Image, "data:image/png;base64,")
	if _, err := base64.StdEncoding.DecodeString(link); err != nil || !ok || r.Usage["image_count"] != 1 {
		t.Errorf("%v, usage %v", err, r.Usage)
	}
}

// editSample is a call for changed images, whole and as a stream.
var editSample = upstreamtest.Sample{
	Model: "imagegen-2", Form: editForm("n", "2", "size", "1024x1024"), StreamForm: editForm("stream", "true", "partial_images", "2"),
	Check: imageSample.Check,
}

// editForm is a form as a vendor wants it. A value replaces that of a field.
func editForm(pairs ...string) *upstream.Form {
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 16, 16))); err != nil {
		return nil // a buffer takes everything
	}
	picture := upstream.Field("image", file.String())
	picture.Filename, picture.ContentType = "a.png", "image/png"
	parts := []upstream.Part{picture, upstream.Field("model", "imagegen-2"), upstream.Field("prompt", "blue")}
	for i := 0; i < len(pairs); i += 2 {
		field := upstream.Field(pairs[i], pairs[i+1])
		found := false
		for j := range parts {
			if parts[j].Name == field.Name {
				parts[j], found = field, true
			}
		}
		if !found {
			parts = append(parts, field)
		}
	}
	return &upstream.Form{Parts: parts, Boundary: "B"}
}

func editCall(form *upstream.Form) *upstream.Call {
	body := upstream.FormBody(form)
	return &upstream.Call{Op: upstream.EditImage, Model: "imagegen-2", Body: body, ContentType: body.ContentType()}
}

func TestAnEditShowsAnotherPictureThanItGot(t *testing.T) {
	u := sim.New(sim.Options{})
	made := func(pairs ...string) (r struct {
		Data []struct {
			B64 []byte `json:"b64_json"`
		}
		Usage struct {
			Input   int `json:"input_tokens"`
			Details struct {
				Image int `json:"image_tokens"`
			} `json:"input_tokens_details"`
		}
	}) {
		t.Helper()
		reply, err := u.Do(t.Context(), editCall(editForm(pairs...)))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reply.Body)
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, same, other := made("size", "1024x1024"), made("size", "1024x1024"), made("prompt", "red", "size", "1024x1024")
	if !bytes.Equal(one.Data[0].B64, same.Data[0].B64) || bytes.Equal(one.Data[0].B64, other.Data[0].B64) {
		t.Error("equal forms have equal pictures, others have others")
	}
	m, err := png.Decode(bytes.NewReader(one.Data[0].B64))
	if err != nil || m.Bounds().Dx() != 1024 || !bytes.Contains(one.Data[0].B64, []byte("Simulated by tollhouse")) {
		t.Error(err)
	}
	if one.Usage.Details.Image == 0 || one.Usage.Input <= one.Usage.Details.Image {
		t.Errorf("usage %+v", one.Usage)
	}
}

func TestTheSimulatorIsAsStrictAboutFormsAsAVendor(t *testing.T) {
	named := func(name, kind string) *upstream.Form {
		form := editForm()
		form.Parts[0].Filename, form.Parts[0].ContentType = name, kind
		return form
	}
	for name, row := range map[string]struct {
		form  *upstream.Form
		param string
	}{
		"an empty field":            {editForm("user", ""), "user"},
		"no prompt":                 {editForm("prompt", ""), "prompt"},
		"a rule of the API":         {editForm("n", "11"), "n"},
		"a format that it has not":  {editForm("output_format", "webp"), "output_format"},
		"a file without extension":  {named("anonymous_file", "image/png"), "image"},
		"a file of another kind":    {named("a.jpg", "image/png"), "image"},
		"a file that is any stream": {named("a.png", "application/octet-stream"), "image"},
	} {
		_, err := sim.New(sim.Options{}).Do(t.Context(), editCall(row.form))
		var f *fault.Error
		if !errors.As(err, &f) || f.HTTPStatus() != 400 || f.Param != row.param || f.Body == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	call := editCall(editForm())
	call.ContentType = "application/json"
	if _, err := sim.New(sim.Options{}).Do(t.Context(), call); fault.From(err).HTTPStatus() != 400 {
		t.Error(err)
	}
	call = editCall(editForm())
	call.Body = upstream.BytesBody([]byte(strings.Repeat("--B\r\n", 3)))
	if _, err := sim.New(sim.Options{}).Do(t.Context(), call); fault.From(err).HTTPStatus() != 400 {
		t.Error(err)
	}
}
