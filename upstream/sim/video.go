package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Videos are of this length, in seconds, where none is asked for, and never
// longer than the other.
const (
	usualSeconds = 5
	mostSeconds  = 60 * 60
)

// fps are the pictures of a second, as the vendors count them.
const fps = 24

// filming is a request for a video, in either vendor's form.
type filming struct {
	Input      jsontext.Value `json:"input"`
	Parameters struct {
		Duration   int64  `json:"duration"`
		Resolution string `json:"resolution"`
		Size       string `json:"size"`
		Ratio      string `json:"ratio"`
	} `json:"parameters"`

	Content       []jsontext.Value `json:"content"`
	Duration      int64            `json:"duration"`
	Frames        int64            `json:"frames"`
	Resolution    string           `json:"resolution"`
	Ratio         string           `json:"ratio"`
	Seed          jsontext.Value   `json:"seed"`
	GenerateAudio *bool            `json:"generate_audio"`
	Draft         bool             `json:"draft"`
	LastFrame     bool             `json:"return_last_frame"`
}

// nested reports whether a model is of the family whose vendor puts a task into
// `output`: the simulator answers as that vendor does, and else as the other.
func nested(model string) bool {
	return strings.HasPrefix(model, "beta") || strings.HasPrefix(model, "wan")
}

// submit takes a request for a video and answers with the id of its task. A
// fault that breaks the answer off comes after the task was taken.
func (u *Upstream) submit(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	if err := u.unfit(nil, call.Model); err != nil {
		return nil, err
	}
	t := &task{model: call.Model, nested: nested(call.Model), ending: f.Video, begun: u.clock()}
	if err := t.read(data); err != nil {
		return nil, err
	}
	u.tasks.add(t, func(count int) string { return u.taskID(call, t, count) })
	return u.tell(ctx, t.accepted(), f)
}

// taskID is an id that no other task has: the gateway's id of the call is new in
// every process.
func (u *Upstream) taskID(call *upstream.Call, t *task, count int) string {
	if u.o.NewID != nil {
		return u.o.NewID()
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %d %x", call.RequestID, count, t.hash))
	if t.nested {
		return hex.EncodeToString(hash[:16])
	}
	return "cgt-sim-" + hex.EncodeToString(hash[:12])
}

// poll tells what became of a task.
func (u *Upstream) poll(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	t := u.tasks.get(call.TaskID)
	switch {
	case t != nil:
		return u.tell(ctx, t.told(u.clock(), u.videoTime(), f.Usage), f)
	case nested(call.Model):
		return u.tell(ctx, nestedTask{RequestID: "sim-" + call.TaskID, Output: nestedOutput{ID: call.TaskID, Status: "UNKNOWN"}}, f)
	}
	return nil, wrong(404, fault.ResourceNotFound, "", "The simulated vendor has no such task.")
}

func (u *Upstream) tell(ctx context.Context, answer any, f Fault) (*upstream.Reply, error) {
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The simulated answer cannot be written as JSON.", err)
	}
	return u.send(ctx, data, f)
}

// clock is the time by which videos are made.
func (u *Upstream) clock() time.Time {
	if u.o.Now != nil {
		return u.o.Now()
	}
	return time.Now()
}

func (u *Upstream) videoTime() time.Duration {
	const usual = 6 * time.Second
	if u.o.VideoTime == 0 {
		return usual
	}
	return max(u.o.VideoTime, 0)
}

// read takes from the request what the answers tell. It is no stricter than the
// vendors: what cannot be made is made otherwise.
func (t *task) read(data []byte) error {
	var r filming
	if err := json.Unmarshal(data, &r, jsontext.AllowDuplicateNames(true)); err != nil {
		return wrong(400, "InvalidParameter", "", "The simulated vendor cannot read the request.")
	}
	t.hash = sha256.Sum256(append(r.Input, fmt.Append(nil, r.Content)...))
	t.seconds, t.resolution, t.ratio = r.Duration, r.Resolution, r.Ratio
	switch {
	case t.nested && rawjson.IsNull(r.Input):
		return wrong(400, "InvalidParameter", "input", "The simulated vendor needs an input.")
	case t.nested:
		t.seconds, t.resolution, t.ratio = r.Parameters.Duration, r.Parameters.Resolution, r.Parameters.Ratio
		if w, h, ok := images.Pixels(r.Parameters.Size); ok {
			t.resolution = resolutionOf(w * h)
		}
		t.prompt = promptOf(r.Input)
	case len(r.Content) == 0:
		return wrong(400, "InvalidParameter.MissingRequired", "content", "The simulated vendor needs content.")
	}
	t.seed, t.draft, t.lastFrame = r.Seed, r.Draft, r.LastFrame
	t.sound = r.GenerateAudio == nil || *r.GenerateAudio
	if t.frames = min(max(r.Frames, 0), mostSeconds*fps); t.frames > 0 {
		t.seconds = (t.frames + fps - 2) / fps
	}
	t.settle()
	return nil
}

// settle chooses what the request leaves open.
func (t *task) settle() {
	if t.seconds = min(t.seconds, mostSeconds); t.seconds < 1 {
		t.seconds = usualSeconds
	}
	if t.resolution = strings.ToLower(t.resolution); pixels[t.resolution] == 0 {
		t.resolution = "720p"
	}
	if t.ratio == "" || t.ratio == "adaptive" {
		t.ratio = "16:9"
	}
}

// pixels are those of a picture.
var pixels = map[string]int64{"480p": 864 * 480, "720p": 1280 * 720, "1080p": 1920 * 1080, "4k": 3840 * 2160}

// resolutionOf is the class of a picture of so many pixels.
func resolutionOf(area int64) string {
	switch {
	case area < 600_000:
		return "480p"
	case area < 1_500_000:
		return "720p"
	}
	return "1080p"
}

func promptOf(input []byte) string {
	o, err := rawjson.Index(input, nil, nil)
	if err != nil {
		return ""
	}
	prompt, _ := rawjson.String(o.Raw("prompt"))
	return clip(prompt)
}
