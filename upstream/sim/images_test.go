package sim_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// imageSample is a call for pictures, whole and as a stream.
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

func imageCall(t *testing.T, body string) *upstream.Call {
	t.Helper()
	o, err := rawjson.Index([]byte(body), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Call{Op: upstream.GenerateImage, Model: "m", Body: upstream.ObjectBody(o)}
}

func drawnBy(t *testing.T, u *sim.Upstream, body string) []byte {
	t.Helper()
	reply, err := u.Do(t.Context(), imageCall(t, body))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return data
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
		if err := json.Unmarshal(drawnBy(t, u, body), to); err != nil {
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
	if err := json.Unmarshal(drawnBy(t, sim.New(sim.Options{}), body), &r); err != nil {
		t.Fatal(err)
	}
	link, ok := strings.CutPrefix(r.Output.Choices[0].Message.Content[0].Image, "data:image/png;base64,")
	if _, err := base64.StdEncoding.DecodeString(link); err != nil || !ok || r.Usage["image_count"] != 1 {
		t.Errorf("%v, usage %v", err, r.Usage)
	}
}

func TestWhatTheSimulatorCannotDrawIsRefusedAsAVendorWould(t *testing.T) {
	for body, param := range map[string]string{
		`{"model":"imagegen-2","prompt":"a","size":"9999x9999"}`:     "size",
		`{"model":"imagegen-2","prompt":"a","output_format":"webp"}`: "output_format",
		`{"model":"imagegen-2","prompt":"a","n":11}`:                 "n",
		`{"model":"m"}`: "prompt",
	} {
		_, err := sim.New(sim.Options{}).Do(t.Context(), imageCall(t, body))
		var f *fault.Error
		if !errors.As(err, &f) || f.HTTPStatus() != 400 || f.Param != param {
			t.Errorf("%s: %v", body, err)
		}
	}
	_, err := sim.New(sim.Options{Models: []string{"other"}}).Do(t.Context(), imageCall(t, `{"model":"m","prompt":"a"}`))
	if f := fault.From(err); f == nil || f.HTTPStatus() != 404 || f.Code != fault.ModelNotFound {
		t.Error(err)
	}
}

func TestReportsOfPicturesCanFail(t *testing.T) {
	for report, want := range map[sim.Report]string{sim.Reported: `"output_tokens":1056`, sim.Withheld: ``, sim.ZeroUsage: `"output_tokens":0`} {
		u := sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Usage: report} }})
		data := string(drawnBy(t, u, `{"model":"imagegen-2","prompt":"a","size":"8x8"}`))
		if strings.Contains(data, `"usage"`) != (want != "") || !strings.Contains(data, want) {
			t.Errorf("%d: %s", report, data)
		}
	}
}
