package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // of the video
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	imagesop "github.com/tollhouse-ai/gateway/internal/operation/images"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

const (
	usualSeconds   = 5 // of a video for which no length is asked
	mostSeconds    = 60 * 60
	fps            = 24 // frames of a second, as the vendors count them
	usualVideoTime = 6 * time.Second
	mostTasks      = 10_000 // known at once; the oldest is then forgotten
)

// object is a JSON object of an answer.
type object = map[string]any

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

// task is a video that was asked for. It does not change any more.
type task struct {
	id, model       string
	nested          bool // the vendor puts it into `output`
	request         videoRequest
	seconds, frames int64 // frames is 0 where the request does not say
	resolution      string
	ratio           string
	fault           Fault // of the submission
	begun, ends     time.Time
}

// nested reports whether a model belongs to the family whose vendor puts a task into `output`.
// The simulator answers its models in that vendor's form, all others in the other form.
func nested(model string) bool {
	return strings.HasPrefix(model, "beta") || strings.HasPrefix(model, "wan")
}

// submitVideo takes a request for a video and answers with the id of its task. A
// fault that breaks the answer off comes after the task was taken.
func (u *Upstream) submitVideo(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, unreadable(err)
	}
	t := &task{model: call.Model, nested: nested(call.Model), fault: f, begun: u.clock()}
	t.ends = t.begun.Add(max(cmp.Or(u.o.VideoTime, usualVideoTime), 0))
	if err := cmp.Or(u.refusal(nil, call.Model), t.read(data)); err != nil {
		return nil, err
	}
	u.tasks.add(t, func(count int) string {
		if u.o.NewID != nil {
			return u.o.NewID()
		}
		// The gateway's id of the call is new in every process.
		hash := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", call.RequestID, count, data))
		if t.nested {
			return hex.EncodeToString(hash[:16])
		}
		return "cgt-sim-" + hex.EncodeToString(hash[:12])
	})
	if t.nested {
		return u.sendJSON(ctx, nestedAnswer(t.id, "PENDING"), f)
	}
	return u.sendJSON(ctx, object{"id": t.id}, f)
}

// pollVideo answers with the state of a task.
func (u *Upstream) pollVideo(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	t := u.tasks.get(call.TaskID)
	switch {
	case t == nil && nested(call.Model):
		return u.sendJSON(ctx, nestedAnswer(call.TaskID, "UNKNOWN"), f)
	case t == nil:
		return nil, vendorError(404, fault.ResourceNotFound, "", "The simulated vendor has no such task.")
	case t.nested:
		return u.sendJSON(ctx, t.nestedAnswer(t.status(u.clock()), f), f)
	}
	return u.sendJSON(ctx, t.flatAnswer(t.status(u.clock()), u.clock(), f), f)
}

// clock is the time that decides how far a video is.
func (u *Upstream) clock() time.Time {
	if u.o.Now != nil {
		return u.o.Now()
	}
	return time.Now()
}

// pixels are those of a frame.
var pixels = map[string]int64{"480p": 864 * 480, "720p": 1280 * 720, "1080p": 1920 * 1080, "4k": 3840 * 2160}

// read takes from the request what the answers repeat. It is no stricter than
// the vendors: it replaces what it cannot make.
func (t *task) read(data []byte) error {
	r := &t.request
	if err := json.Unmarshal(data, r, jsontext.AllowDuplicateNames(true)); err != nil {
		return vendorError(400, "InvalidParameter", "", "The simulated vendor cannot read the request.")
	}
	t.seconds, t.resolution, t.ratio = r.Duration, r.Resolution, r.Ratio
	switch {
	case t.nested && rawjson.IsNull(r.Input):
		return vendorError(400, "InvalidParameter", "input", "The simulated vendor needs an input.")
	case t.nested:
		t.seconds, t.resolution, t.ratio = r.Parameters.Duration, r.Parameters.Resolution, r.Parameters.Ratio
		switch w, h, ok := imagesop.Pixels(r.Parameters.Size); {
		case !ok:
		case w*h < 600_000:
			t.resolution = "480p"
		case w*h < 1_500_000:
			t.resolution = "720p"
		default:
			t.resolution = "1080p"
		}
	case len(r.Content) == 0:
		return vendorError(400, "InvalidParameter.MissingRequired", "content", "The simulated vendor needs content.")
	}
	if t.frames = min(max(r.Frames, 0), mostSeconds*fps); t.frames > 0 {
		t.seconds = (t.frames + fps - 2) / fps
	}
	if t.seconds = min(t.seconds, mostSeconds); t.seconds < 1 {
		t.seconds = usualSeconds
	}
	if t.resolution = strings.ToLower(t.resolution); pixels[t.resolution] == 0 {
		t.resolution = "720p"
	}
	if t.ratio == "" || t.ratio == "adaptive" {
		t.ratio = "16:9"
	}
	return nil
}

// nestedStatuses are the words for the states of a task of the vendor that puts it
// into `output`; the other vendor's are the keys.
var nestedStatuses = map[string]string{
	"queued": "PENDING", "running": "RUNNING", "succeeded": "SUCCEEDED", "failed": "FAILED", "cancelled": "CANCELED", "expired": "UNKNOWN",
}

// status is how far the task is at a time: it is queued for the first quarter.
func (t *task) status(now time.Time) string {
	switch total := t.ends.Sub(t.begun); {
	case now.Before(t.begun.Add(total / 4)):
		return "queued"
	case now.Before(t.ends):
		return "running"
	}
	return cmp.Or(t.fault.Video, "succeeded")
}

// failureText is the message of a task whose fault is to fail.
const failureText = "The simulated video failed, as it was told to."

// videoFile holds the MP4 file of every task. It is H.264, 5 s, a pattern of 128 by 72 pixels,
// with a comment that says that it is simulated.
//
//go:embed video.mp4
var videoFile []byte

// link is the video as a "data:" URL, since there is no server behind it; empty where a
// fault leaves it out.
func (t *task) link() string {
	if t.fault.NoVideoURL {
		return ""
	}
	return "data:video/mp4;base64," + base64.StdEncoding.EncodeToString(videoFile)
}

// flatAnswer is that of the vendor whose task is the whole document.
func (t *task) flatAnswer(status string, now time.Time, f Fault) object {
	answer := object{
		"id": t.id, "model": t.model, "status": status, "service_tier": "default", "created_at": t.begun.Unix(), "updated_at": now.Unix(),
	}
	if status != "queued" && status != "running" {
		answer["updated_at"] = t.ends.Unix()
	}
	switch status {
	case "failed":
		answer["error"] = object{"code": "InternalServiceError", "message": failureText}
	case "succeeded":
		content := object{}
		if link := t.link(); link != "" {
			content["video_url"] = link
		}
		frames := t.frames
		if frames > 0 {
			answer["frames"] = frames
		} else {
			answer["duration"] = t.seconds
			frames = fps*t.seconds + 1
		}
		if r := &t.request; r.LastFrame {
			content["last_frame_url"] = pngURL + base64.StdEncoding.EncodeToString(picture(t.id, 128, 72))
		}
		if t.request.Seed != nil {
			answer["seed"] = t.request.Seed
		}
		tokens := pixels[t.resolution] * frames / 1024 // as the vendor counts them
		answer["content"], answer["resolution"], answer["ratio"], answer["framespersecond"] = content, t.resolution, t.ratio, fps
		answer["generate_audio"], answer["draft"] = t.request.GenerateAudio == nil || *t.request.GenerateAudio, t.request.Draft
		f.report(answer, object{"completion_tokens": tokens, "total_tokens": tokens}, object{"completion_tokens": 0, "total_tokens": 0})
	}
	return answer
}

// nestedAnswer is that of the vendor that puts a task into `output`.
func nestedAnswer(id, status string) object {
	return object{"request_id": "sim-" + id, "output": object{"task_id": id, "task_status": status}}
}

func (t *task) nestedAnswer(status string, f Fault) object {
	at := func(when time.Time) string { // the vendor's own time of day
		return when.In(time.FixedZone("", 8*60*60)).Format("2006-01-02 15:04:05.000")
	}
	answer := nestedAnswer(t.id, nestedStatuses[status])
	if status == "expired" {
		return answer // the vendor does not know it any more
	}
	output := answer["output"].(object)
	output["submit_time"] = at(t.begun)
	if status != "queued" {
		output["scheduled_time"] = at(t.begun.Add(t.ends.Sub(t.begun) / 4))
	}
	if status != "queued" && status != "running" {
		output["end_time"] = at(t.ends)
	}
	switch status {
	case "failed":
		output["code"], output["message"] = "InternalError", failureText
	case "succeeded":
		input, _ := rawjson.Index(t.request.Input, nil, nil)
		prompt, _ := rawjson.String(input.Raw("prompt"))
		output["orig_prompt"] = safetext.Truncate(prompt, maxRepeated)
		if link := t.link(); link != "" {
			output["video_url"] = link
		}
		lines, _ := strconv.ParseInt(strings.TrimSuffix(t.resolution, "p"), 10, 64) // 4k is none of this vendor's
		usage := func(seconds, count, lines int64, ratio string) object {
			return object{"duration": seconds, "input_video_duration": 0, "output_video_duration": seconds, "video_count": count, "SR": lines, "ratio": ratio}
		}
		f.report(answer, usage(t.seconds, 1, lines, t.ratio), usage(0, 0, 0, ""))
	}
	return answer
}

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

// get is a task; nil if there is none.
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
