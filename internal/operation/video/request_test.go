package video

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/operation"
)

// ownedEdits are requests of which something changes, and their like of which
// nothing does.
var ownedEdits = []struct{ name, request string }{
	{"beta 2.7 t2v", `{"model":"beta2.7-t2v", "duration":10,"resolution":"720p","aspect_ratio":"9:16","input":{"prompt":"a","x":1.0}}`},
	{"beta 2.7 t2v with defaults", `{"model":"beta2.7-t2v","input":{"prompt":"a"},"parameters":null}`},
	{"beta 2.7 t2v that says all twice", `{"model":"beta2.7-t2v","duration":10,"resolution":"1080p","aspect_ratio":"1:1","input":{"prompt":"a"},"parameters":{"resolution":"1080P", "ratio":"1:1","duration":10,"x":1.0e0}}`},
	{"beta 2.7 i2v", `{"model":"beta2.7-i2v","aspect_ratio":"9:16","input":{"media":[{"type":"first_frame","url":"https://x.example/a.png"}]},"parameters":{"watermark":true}}`},
	{"beta 2.7 r2v", `{"model":"beta2.7-r2v","duration":2,"input":{"prompt":"a","media":[{"type":"reference_image","url":"https://x.example/a.png"}]}}`},
	{"beta 2.6 t2v", `{"model":"beta2.6-t2v","duration":15,"resolution":"1080p","aspect_ratio":"3:4","input":{"prompt":"a"},"parameters":{"duration":null,"size":null}}`},
	{"beta 2.6 t2v with a size of its own", `{"model":"beta2.6-t2v","input":{"prompt":"a"},"parameters":{"size":"832*1088"},"webhook_url":"https://x.example/hook","wait":true}`},
	{"beta 2.6 i2v", `{"model":"beta2.6-i2v-flash","input":{"img_url":"https://x.example/a.png"},"parameters":{"audio":false}}`},
	{"beta 2.6 r2v", `{"model":"beta2.6-r2v","input":{"prompt":"a","reference_urls":["https://x.example/a.png"]}}`},
	{"beta 2.5 t2v", `{"model":"beta2.5-t2v-preview","resolution":"480p","aspect_ratio":"1:1","input":{"prompt":"a"}}`},
	{"beta 2.5 i2v", `{"model":"beta2.5-i2v-preview","resolution":"480p","input":{"img_url":"https://x.example/a.png"}}`},
	{"gamma", `{ "model":"gamma-2-0-260128", "content":[{"type":"text","text":"a","x":1,"x":2}],"duration":5,"x":1.0,"wait":true , "seed":42}`},
	{"gamma with a prompt", `{"model":"gamma-2-0-260128","prompt":"\u0061 boat","webhook_url":"https://x.example/hook"}`},
	{"gamma with a prompt and content", `{"model":"gamma-2-0-260128","content": [ {"type":"image_url","image_url":{"url":"https://x.example/a.png"}}],"prompt":"a"}`},
	{"gamma with an empty prompt", `{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a"}],"prompt":""}`},
	{"gamma with a prompt and empty content", `{"model":"gamma-2-0-260128","content":[ ],"prompt":"a"}`},
	{"a model that no table describes", `{"model":"clip-9","prompt":"a","duration":5,"resolution":"720p","aspect_ratio":"9:16","parameters":{"n":1.0},"wait":false,"webhook_url":null}`},
}

func TestTheOwnedEditsAreTheseAndNoOther(t *testing.T) {
	var b bytes.Buffer
	for _, e := range ownedEdits {
		r := parse(t, e.request)
		if err := r.Check(&operation.Facts{}, price(t, map[string]string{"": "1"}), nil); err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s\ncaller   %s\nupstream %s\n\n", e.name, e.request, sent)
	}
	capabilitytest.Golden(t, *update, "owned_edits.golden", b.Bytes())
}

func TestAGammaBodyGoesOnByteForByte(t *testing.T) {
	body := `{ "model" : "gamma-2-0-260128",` + "\n\t" + `"content":[{"type":"text","text":"é\u00e9"}],"seed":0,"x":[1.0,9007199254740993] }`
	sent, err := parse(t, body).Outgoing(0).Body.Bytes()
	if err != nil || string(sent) != body {
		t.Errorf("%s became %s, %v", body, sent, err)
	}
}

// sentBody is what a strict parser reads in the body that goes upstream.
type sentBody struct {
	Duration   *int64  `json:"duration"`
	Resolution *string `json:"resolution"`
	Aspect     *string `json:"aspect_ratio"`
	Parameters struct {
		Duration   int64  `json:"duration"`
		Resolution string `json:"resolution"`
		Size       string `json:"size"`
		Ratio      string `json:"ratio"`
	} `json:"parameters"`
}

// says is what the body says of the resolution, in its one place.
func (s *sentBody) says(t *rapid.T) (resolution string) {
	if s.Parameters.Resolution != "" {
		resolution = strings.ToLower(s.Parameters.Resolution)
	}
	if s.Parameters.Size == "" {
		return resolution
	}
	width, height, ok := strings.Cut(s.Parameters.Size, "*")
	w, err1 := strconv.Atoi(width)
	h, err2 := strconv.Atoi(height)
	if !ok || err1 != nil || err2 != nil {
		t.Fatalf("size %q", s.Parameters.Size)
	}
	class := "1080p"
	switch {
	case w*h <= 414720:
		class = "480p"
	case w*h <= 921600:
		class = "720p"
	}
	if resolution != "" && resolution != class {
		t.Fatalf("it says %s and %s", resolution, s.Parameters.Size)
	}
	return class
}

func TestWhatIsBilledIsWhatIsSent(t *testing.T) {
	every := price(t, map[string]string{"480p": "1", "720p": "1", "1080p": "1"})
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, values ...any) any { return rapid.SampledFrom(values).Draw(t, name) }
		model := pick("model", anySlice(everyModel()[:12])...).(string)
		body := least(model).with(fields{
			"duration":     pick("duration", nil, 2, 5, 10, 15, "5", 5.5),
			"resolution":   pick("resolution", nil, "480p", "720p", "1080p", "720P"),
			"aspect_ratio": pick("aspect", nil, "16:9", "9:16", "1:1", "4:3"),
			"parameters": pick("parameters", nil, fields{}.with(fields{
				"duration":   pick("p.duration", nil, 5, 10, 15, 5.0, "10"),
				"resolution": pick("p.resolution", nil, "480P", "720P", "1080P"),
				"size":       pick("p.size", nil, "832*480", "1280*720", "720*1280", "1920*1080", "960*960", "1280*721", "0*0"),
				"ratio":      pick("p.ratio", nil, "16:9", "9:16"),
			})),
		})
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse(data)
		if err != nil || r.Check(&operation.Facts{}, every, nil) != nil {
			return
		}
		accepted++
		b, err := r.Bound(every)
		sent, err2 := r.Outgoing(0).Body.Bytes()
		var read sentBody
		if err != nil || err2 != nil || json.Unmarshal(sent, &read) != nil {
			t.Fatal(err, err2, string(sent))
		}
		if read.Duration != nil || read.Resolution != nil || read.Aspect != nil {
			t.Fatalf("%s says it at the top", sent)
		}
		if read.Parameters.Duration != b.Usage.Seconds || read.says(t) != b.Usage.Variant {
			t.Fatalf("%s became %s, billed as %+v", data, sent, b.Usage)
		}
	})
	if accepted == 0 && !testing.Short() { // then a few are drawn only
		t.Error("none of the drawn bodies was good")
	}
}

func anySlice(words []string) (list []any) {
	for _, w := range words {
		list = append(list, w)
	}
	return list
}

func TestDraftTasksAreFoundAndRenamed(t *testing.T) {
	const body = `{"model":"gamma-1-5-pro-251215","content":[{"type":"text","text":"vid_1"}, {"type":"draft_task","draft_task":{"x":1,"task_id": "vid_1"}},{"draft_task":{"task_id":"cgt-2"},"type":"draft_task"}],"x":1.0}`
	r := parse(t, body)
	if err := r.Check(&operation.Facts{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if ids := r.DraftTasks(); !slices.Equal(ids, []string{"vid_1", "cgt-2"}) {
		t.Fatalf("found %q", ids)
	}
	renamed, err := r.WithDraftTasks(map[string]string{"vid_1": `c"gt`, "cgt-2": "cgt-2"})
	if err != nil {
		t.Fatal(err)
	}
	sent, err := renamed.Outgoing(0).Body.Bytes()
	want := strings.Replace(body, `"task_id": "vid_1"`, `"task_id": "c\"gt"`, 1)
	if err != nil || string(sent) != want {
		t.Errorf("sent %s, want %s (%v)", sent, want, err)
	}
	if same, err := r.WithDraftTasks(nil); same != r || err != nil {
		t.Error(same, err)
	}
}

// TestATaskCanBeNamedInOneWayOnly is what keeps a foreign task from being named
// past the check of its owner.
func TestATaskCanBeNamedInOneWayOnly(t *testing.T) {
	for _, content := range []string{
		`[{"type":"draft_task","draft_task":{"task_id":"a","id":"b"}}]`,
		`[{"type":"draft_task","draft_task":{"task_id":"a","ID":"b"}}]`,
		`[{"type":"draft_task","draft_task":{"task_id":"a","task_id":"b"}}]`,
		`[{"type":"draft_task","draft_task":{"task_id":"a","Task_Id":"b"}}]`,
		`[{"type":"draft_task","draft_task":{"task_id":"a"},"draft_task":{"task_id":"b"}}]`,
		`[{"type":"draft_task","draft_task":{"task_id":"a"},"Draft_Task":{"id":"b"}}]`,
		`[{"type":"text","text":"x","draft_task":{"id":"b"}}]`,
	} {
		for _, model := range []string{"gamma-1-5-pro-251215", "gamma-2.5", "clip-9"} {
			if f := refused([]byte(`{"model":"`+model+`","content":`+content+`}`), operation.Facts{}, nil); f == nil || f.Code != invalidParameter {
				t.Errorf("%s, %s: %v", model, content, f)
			}
		}
	}
	for _, body := range []string{`{"model":"clip-9","content":[],"Content":[]}`, `{"model":"clip-9","content":[],"content":[]}`} {
		if _, err := Parse([]byte(body)); err == nil {
			t.Errorf("%s was taken", body)
		}
	}
	hidden := parse(t, `{"model":"clip-9","content":[{"type":"text","draft_task":{"task_id":"b"}}]}`)
	if ids := hidden.DraftTasks(); !slices.Equal(ids, []string{"b"}) {
		t.Errorf("found %q", ids)
	}
}
