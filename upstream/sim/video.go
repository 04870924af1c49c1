package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/imagesapi"
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

// videoRequest is a request for a video, in either vendor's form.
type videoRequest struct {
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

// submitVideo takes a request for a video and answers with the id of its task. A
// fault that breaks the answer off comes after the task was taken.
func (u *Upstream) submitVideo(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	data, err := bodyOf(call)
	if err != nil {
		return nil, err
	}
	if err := u.refusal(nil, call.Model); err != nil {
		return nil, err
	}
	t := &task{model: call.Model, nested: nested(call.Model), fault: f, begun: u.clock()}
	if err := t.read(data); err != nil {
		return nil, err
	}
	u.tasks.add(t, func(count int) string { return u.taskID(call, t, count) })
	if t.nested {
		return u.sendJSON(ctx, nestedTask{RequestID: "sim-" + t.id, Output: nestedOutput{ID: t.id, Status: "PENDING"}}, f)
	}
	return u.sendJSON(ctx, flatTask{ID: t.id}, f)
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

// pollVideo answers with the state of a task.
func (u *Upstream) pollVideo(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	t := u.tasks.get(call.TaskID)
	switch {
	case t == nil && nested(call.Model):
		return u.sendJSON(ctx, nestedTask{RequestID: "sim-" + call.TaskID, Output: nestedOutput{ID: call.TaskID, Status: "UNKNOWN"}}, f)
	case t == nil:
		return nil, vendorError(404, fault.ResourceNotFound, "", "The simulated vendor has no such task.")
	case t.nested:
		return u.sendJSON(ctx, t.nestedAnswer(u.clock(), u.videoTime(), f), f)
	}
	return u.sendJSON(ctx, t.flatAnswer(u.clock(), u.videoTime(), f), f)
}

// clock is the time that decides how far a video is.
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

// read takes from the request what the answers repeat. It is no stricter than
// the vendors: it replaces what it cannot make.
func (t *task) read(data []byte) error {
	var r videoRequest
	if err := json.Unmarshal(data, &r, jsontext.AllowDuplicateNames(true)); err != nil {
		return vendorError(400, "InvalidParameter", "", "The simulated vendor cannot read the request.")
	}
	t.hash = sha256.Sum256(append(r.Input, fmt.Append(nil, r.Content)...))
	t.seconds, t.resolution, t.ratio = r.Duration, r.Resolution, r.Ratio
	switch {
	case t.nested && rawjson.IsNull(r.Input):
		return vendorError(400, "InvalidParameter", "input", "The simulated vendor needs an input.")
	case t.nested:
		t.seconds, t.resolution, t.ratio = r.Parameters.Duration, r.Parameters.Resolution, r.Parameters.Ratio
		if w, h, ok := imagesapi.Pixels(r.Parameters.Size); ok {
			t.resolution = resolutionOf(w * h)
		}
		t.prompt = promptOf(r.Input)
	case len(r.Content) == 0:
		return vendorError(400, "InvalidParameter.MissingRequired", "content", "The simulated vendor needs content.")
	}
	t.seed, t.draft, t.lastFrame = r.Seed, r.Draft, r.LastFrame
	t.sound = r.GenerateAudio == nil || *r.GenerateAudio
	if t.frames = min(max(r.Frames, 0), mostSeconds*fps); t.frames > 0 {
		t.seconds = (t.frames + fps - 2) / fps
	}
	t.setDefaults()
	return nil
}

// setDefaults chooses what the request leaves open.
func (t *task) setDefaults() {
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

// task is a video that was asked for.
type task struct {
	id, model         string
	nested            bool  // the vendor puts it into `output`
	fault             Fault // of the submission
	begun             time.Time
	hash              [32]byte // of what was asked for
	prompt            string
	seconds, frames   int64 // frames is 0 where the request does not say
	resolution, ratio string
	seed              jsontext.Value
	sound             bool
	draft, lastFrame  bool
}

// statuses are the vendors' words for the states of a task.
var statuses = map[string]struct{ flat, nested string }{
	"queued":    {"queued", "PENDING"},
	"running":   {"running", "RUNNING"},
	"succeeded": {"succeeded", "SUCCEEDED"},
	"failed":    {"failed", "FAILED"},
	"cancelled": {"cancelled", "CANCELED"},
	"expired":   {"expired", "UNKNOWN"},
}

// status is how far the task is at a time, if it takes total: it is queued for
// the first quarter.
func (t *task) status(now time.Time, total time.Duration) string {
	switch since := now.Sub(t.begun); {
	case since < total/4:
		return "queued"
	case since < total:
		return "running"
	}
	return cmp.Or(t.fault.Video, "succeeded")
}

// failureText is the message of a task that was told to fail.
const failureText = "The simulated video failed, as it was told to."

// videoFile holds the MP4 file of every task: H.264, 5 s, a pattern of 128 by 72
// pixels, with a comment that says that it is simulated.
//
//go:embed video.mp4
var videoFile embed.FS

// videoWidth and videoHeight are the size of the picture in videoFile.
const (
	videoWidth  = 128
	videoHeight = 72
)

// link is the video as a "data:" URL: there is no server behind it. Two prompts
// have different bytes, because the file ends with the prompt's hash in a box
// that players skip (`free`, ISO/IEC 14496-12, 8.1.2).
func (t *task) link() string {
	if t.fault.NoVideoURL {
		return ""
	}
	video, _ := videoFile.ReadFile("video.mp4") // the program holds it
	file := slices.Concat(video, []byte{0, 0, 0, 8 + byte(len(t.hash))}, []byte("free"), t.hash[:])
	return "data:video/mp4;base64," + base64.StdEncoding.EncodeToString(file)
}

// mostTasks is how many tasks are known at once; the oldest is then forgotten.
const mostTasks = 10_000

// tasks are those that were taken. They are safe for concurrent use.
type tasks struct {
	mu    sync.Mutex
	known map[string]*task
	order []string // the ids of known, oldest first
	count int
}

// add keeps a task under the id that is made for it.
func (s *tasks) add(t *task, id func(count int) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	t.id = id(s.count)
	if s.known == nil {
		s.known = make(map[string]*task)
	}
	if s.known[t.id] == nil {
		s.order = append(s.order, t.id)
	}
	s.known[t.id] = t
	if len(s.order) > mostTasks {
		delete(s.known, s.order[0])
		s.order = s.order[1:]
	}
}

// get is a task, which does not change any more; nil if there is none.
func (s *tasks) get(id string) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id]
}

func (s *tasks) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// flatTask is the answer of the vendor whose task is the whole document.
type flatTask struct {
	ID        string       `json:"id"`
	Model     string       `json:"model,omitzero"`
	Status    string       `json:"status,omitzero"`
	Error     *flatError   `json:"error,omitzero"`
	Content   *flatContent `json:"content,omitzero"`
	Usage     *flatUsage   `json:"usage,omitzero"`
	CreatedAt int64        `json:"created_at,omitzero"`
	UpdatedAt int64        `json:"updated_at,omitzero"`
	Tier      string       `json:"service_tier,omitzero"`

	// Of a video that is there:
	Seed       jsontext.Value `json:"seed,omitzero"`
	Resolution string         `json:"resolution,omitzero"`
	Ratio      string         `json:"ratio,omitzero"`
	Duration   int64          `json:"duration,omitzero"`
	Frames     int64          `json:"frames,omitzero"`
	FPS        int64          `json:"framespersecond,omitzero"`
	Sound      *bool          `json:"generate_audio,omitzero"`
	Draft      *bool          `json:"draft,omitzero"`
}

type flatError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type flatContent struct {
	VideoURL     string `json:"video_url,omitzero"`
	LastFrameURL string `json:"last_frame_url,omitzero"`
}

type flatUsage struct {
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

func (t *task) flatAnswer(now time.Time, total time.Duration, f Fault) flatTask {
	status := t.status(now, total)
	r := flatTask{
		ID: t.id, Model: t.model, Status: statuses[status].flat, CreatedAt: t.begun.Unix(), UpdatedAt: now.Unix(), Tier: "default",
	}
	if status != "queued" && status != "running" {
		r.UpdatedAt = t.begun.Add(total).Unix()
	}
	switch status {
	case "failed":
		r.Error = &flatError{"InternalServiceError", failureText}
	case "succeeded":
		r.Content, r.Usage, r.Seed = &flatContent{VideoURL: t.link()}, t.flatUsage(f), t.seed
		if t.lastFrame {
			r.Content.LastFrameURL = pngURL + base64.StdEncoding.EncodeToString(picture(hex.EncodeToString(t.hash[:]), videoWidth, videoHeight))
		}
		r.Resolution, r.Ratio, r.Frames, r.FPS, r.Sound, r.Draft = t.resolution, t.ratio, t.frames, fps, &t.sound, &t.draft
		if t.frames == 0 {
			r.Duration = t.seconds
		}
	}
	return r
}

// flatUsage counts tokens as the vendor does: pixels times pictures through 1024.
func (t *task) flatUsage(f Fault) *flatUsage {
	switch {
	case f.NoUsage:
		return nil
	case f.ZeroUsage:
		return &flatUsage{}
	}
	frames := t.frames
	if frames == 0 {
		frames = fps*t.seconds + 1
	}
	n := pixels[t.resolution] * frames / 1024
	return &flatUsage{n, n}
}

// nestedTask is the answer of the vendor that puts a task into `output`.
type nestedTask struct {
	RequestID string       `json:"request_id"`
	Output    nestedOutput `json:"output"`
	Usage     *nestedUsage `json:"usage,omitzero"`
}

type nestedOutput struct {
	ID        string `json:"task_id"`
	Status    string `json:"task_status"`
	Submitted string `json:"submit_time,omitzero"`
	Scheduled string `json:"scheduled_time,omitzero"`
	Ended     string `json:"end_time,omitzero"`
	Prompt    string `json:"orig_prompt,omitzero"`
	VideoURL  string `json:"video_url,omitzero"`
	Code      string `json:"code,omitzero"`
	Message   string `json:"message,omitzero"`
}

type nestedUsage struct {
	Duration int64  `json:"duration"` // seconds, as are those below
	Input    int64  `json:"input_video_duration"`
	Output   int64  `json:"output_video_duration"`
	Count    int64  `json:"video_count"`
	SR       int64  `json:"SR"`
	Ratio    string `json:"ratio"`
}

func (t *task) nestedAnswer(now time.Time, total time.Duration, f Fault) nestedTask {
	at := func(after time.Duration) string { // the vendor's own time of day
		return t.begun.Add(after).In(time.FixedZone("", 8*60*60)).Format("2006-01-02 15:04:05.000")
	}
	status := t.status(now, total)
	r := nestedTask{RequestID: "sim-" + t.id, Output: nestedOutput{ID: t.id, Status: statuses[status].nested}}
	o := &r.Output
	if status == "expired" {
		return r // the vendor does not know it any more
	}
	o.Submitted = at(0)
	if status != "queued" {
		o.Scheduled = at(total / 4)
	}
	if status != "queued" && status != "running" {
		o.Ended = at(total)
	}
	switch status {
	case "failed":
		o.Code, o.Message = "InternalError", failureText
	case "succeeded":
		o.Prompt, o.VideoURL, r.Usage = t.prompt, t.link(), t.nestedUsage(f)
	}
	return r
}

func (t *task) nestedUsage(f Fault) *nestedUsage {
	switch {
	case f.NoUsage:
		return nil
	case f.ZeroUsage:
		return &nestedUsage{}
	}
	lines, _ := strconv.ParseInt(strings.TrimSuffix(t.resolution, "p"), 10, 64) // 4k is none of this vendor's
	return &nestedUsage{Duration: t.seconds, Output: t.seconds, Count: 1, SR: lines, Ratio: t.ratio}
}
