package sim_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

const (
	nestedAsk = `{"model":"beta2.7-t2v","input":{"prompt":"a boat"},"parameters":{"duration":7,"resolution":"1080P","ratio":"9:16"}}`
	flatAsk   = `{"model":"gamma-2-0-260128","content":[{"type":"text","text":"a boat"}],"duration":5,"resolution":"480p","seed":42.0}`
)

// video is what is read of either vendor's answer.
type video struct {
	ID, Status string
	Output     struct {
		TaskID, TaskStatus, VideoURL, Code, Message string
		EndTime                                     string `json:"end_time"`
	}
	Content   struct{ VideoURL, LastFrameURL string }
	Error     struct{ Code, Message string }
	Usage     map[string]any
	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
}

func decoded(t *testing.T, text string) (v video) {
	t.Helper()
	if err := json.Unmarshal([]byte(strings.NewReplacer("task_id", "TaskID", "task_status", "TaskStatus", "video_url", "VideoURL", "last_frame_url", "LastFrameURL").Replace(text)), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// asked submits a video and returns the question what became of it.
func asked(t *testing.T, u *sim.Upstream, body string) *upstream.Call {
	t.Helper()
	call := callOf(t, upstream.SubmitVideo, body)
	v := decoded(t, answerOf(t, u, call))
	id := v.ID + v.Output.TaskID
	if id == "" {
		t.Fatalf("no id: %+v", v)
	}
	return &upstream.Call{Op: upstream.PollVideo, Model: call.Model, RequestID: "req_2", TaskID: id}
}

// submitSample and pollSample are of one task, which knowing knows.
var (
	submitSample = upstreamtest.Sample{Model: "gamma-2-0-260128", Request: []byte(flatAsk), Check: func(t *testing.T, reply []byte) {
		if string(reply) != `{"id":"task-1"}` {
			t.Errorf("%s", reply)
		}
	}}
	pollSample = upstreamtest.Sample{Model: "beta2.7-t2v", TaskID: "task-1", Check: func(t *testing.T, reply []byte) {
		if v := decoded(t, string(reply)); v.Output.TaskStatus != "SUCCEEDED" {
			t.Errorf("%s", reply)
		}
	}}
)

// knowing is a simulator that has made a video.
func knowing(t *testing.T) *sim.Upstream {
	t.Helper()
	u := sim.New(sim.Options{VideoTime: -1, NewID: func() string { return "task-1" }})
	asked(t, u, nestedAsk)
	return u
}

func TestAVideoIsMadeInItsTime(t *testing.T) {
	now := time.Unix(1788220800, 0)
	u := sim.New(sim.Options{Now: func() time.Time { return now }, VideoTime: 8 * time.Second})
	begun := now
	nested, flat := asked(t, u, nestedAsk), asked(t, u, flatAsk)
	for _, row := range []struct {
		after        time.Duration
		nested, flat string
	}{
		{0, "PENDING", "queued"}, {1999 * time.Millisecond, "PENDING", "queued"}, {2 * time.Second, "RUNNING", "running"},
		{7999 * time.Millisecond, "RUNNING", "running"}, {8 * time.Second, "SUCCEEDED", "succeeded"}, {time.Hour, "SUCCEEDED", "succeeded"},
	} {
		now = begun.Add(row.after)
		a, b := decoded(t, answerOf(t, u, nested)), decoded(t, answerOf(t, u, flat))
		if a.Output.TaskStatus != row.nested || a.Output.TaskID != nested.TaskID || b.Status != row.flat || b.ID != flat.TaskID {
			t.Errorf("after %s: %+v, %+v", row.after, a, b)
		}
		if done := row.after >= 8*time.Second; (a.Output.VideoURL != "") != done || (b.Content.VideoURL != "") != done || (a.Usage != nil) != done || (b.Usage != nil) != done {
			t.Errorf("after %s: %+v, %+v", row.after, a, b)
		}
	}
	a, b := decoded(t, answerOf(t, u, nested)), decoded(t, answerOf(t, u, flat))
	if a.Output.EndTime != "2026-09-01 08:00:08.000" || b.CreatedAt != begun.Unix() || b.UpdatedAt != begun.Unix()+8 {
		t.Errorf("ended at %q; %d, %d", a.Output.EndTime, b.CreatedAt, b.UpdatedAt)
	}
}

func TestUsageIsWhatTheVendorsReport(t *testing.T) {
	for _, row := range []struct{ body, want string }{
		{nestedAsk, `{"SR":1080,"duration":7,"input_video_duration":0,"output_video_duration":7,"ratio":"9:16","video_count":1}`},
		{`{"model":"wan2.6-t2v","input":{"prompt":"a"},"parameters":{"size":"832*480"}}`, `{"SR":480,"duration":5,"input_video_duration":0,"output_video_duration":5,"ratio":"16:9","video_count":1}`},
		{`{"model":"beta2.6-t2v","input":{"prompt":"a"},"parameters":{"size":"960*960"}}`, `{"SR":720,"duration":5,"input_video_duration":0,"output_video_duration":5,"ratio":"16:9","video_count":1}`},
		{`{"model":"beta2.6-t2v","input":{"prompt":"a"},"parameters":{"size":"1440*1440"}}`, `{"SR":1080,"duration":5,"input_video_duration":0,"output_video_duration":5,"ratio":"16:9","video_count":1}`},
		{flatAsk, `{"completion_tokens":49005,"total_tokens":49005}`},
		{`{"model":"gamma-2.5","content":[{}],"duration":-1,"ratio":"adaptive"}`, `{"completion_tokens":108900,"total_tokens":108900}`},
		{`{"model":"m","content":[{}],"frames":29,"resolution":"1080P"}`, `{"completion_tokens":58725,"total_tokens":58725}`},
	} {
		u := sim.New(sim.Options{VideoTime: -1})
		got, err := json.Marshal(decoded(t, answerOf(t, u, asked(t, u, row.body))).Usage)
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s, %v", row.body, got, err)
		}
	}
}

func TestTheFlatRecordTellsWhatWasMade(t *testing.T) {
	u := sim.New(sim.Options{VideoTime: -1})
	text := answerOf(t, u, asked(t, u, `{"model":"gamma-2-0-260128","content":[{"type":"text"}],"duration":6,"seed":42.0,"generate_audio":false,"return_last_frame":true}`))
	for _, want := range []string{
		`"model":"gamma-2-0-260128"`, `"seed":42.0`, `"resolution":"720p"`, `"ratio":"16:9"`, `"duration":6`, `"framespersecond":24`, `"generate_audio":false`, `"draft":false`, `"service_tier":"default"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if v := decoded(t, text); !strings.HasPrefix(v.Content.LastFrameURL, "data:image/png;base64,") {
		t.Errorf("the last picture is %.40s", v.Content.LastFrameURL)
	}
	text = answerOf(t, u, asked(t, u, `{"model":"m","content":[{"type":"text"}],"frames":29}`))
	if !strings.Contains(text, `"frames":29`) || strings.Contains(text, `"duration"`) || strings.Contains(text, "last_frame") {
		t.Errorf("%.300s", text)
	}
}

func TestAVideoEndsAsItsFaultSays(t *testing.T) {
	for ending, want := range map[sim.Fault][2]string{
		{}: {"SUCCEEDED", "succeeded"}, {NoVideoURL: true}: {"SUCCEEDED", "succeeded"},
		{Video: "failed"}: {"FAILED", "failed"}, {Video: "cancelled"}: {"CANCELED", "cancelled"},
		{Video: "expired"}: {"UNKNOWN", "expired"}, {Video: "running"}: {"RUNNING", "running"},
	} {
		u := sim.New(sim.Options{VideoTime: -1, Fault: func(*upstream.Call) sim.Fault { return ending }})
		a, b := decoded(t, answerOf(t, u, asked(t, u, nestedAsk))), decoded(t, answerOf(t, u, asked(t, u, flatAsk)))
		made, failed := ending == sim.Fault{}, ending.Video == "failed"
		if a.Output.TaskStatus != want[0] || b.Status != want[1] || (a.Output.VideoURL != "") != made || (b.Content.VideoURL != "") != made {
			t.Errorf("%+v: %+v, %+v", ending, a, b)
		}
		if (a.Output.Code == "InternalError" && a.Output.Message != "") != failed || (b.Error.Code == "InternalServiceError" && b.Error.Message != "") != failed {
			t.Errorf("%+v: %+v, %+v", ending, a, b)
		}
	}
}

func TestWhateverBreaksTheAnswerTheVideoWasTaken(t *testing.T) {
	for _, kind := range []sim.Break{sim.Cut, sim.Reset, sim.ErrorFrame, sim.Garbage, sim.Stall, sim.Lost} {
		synctest.Test(t, func(t *testing.T) {
			u := sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Break: kind} }})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // virtual
			defer cancel()
			reply, err := u.Do(ctx, callOf(t, upstream.SubmitVideo, flatAsk))
			var data []byte
			if err == nil {
				data, err = io.ReadAll(reply.Body)
			}
			if u.Jobs() != 1 || err == nil && strings.HasPrefix(string(data), `{"id"`) && json.Valid(data) {
				t.Errorf("%d: %d jobs, %s, %v", kind, u.Jobs(), data, err)
			}
			if f, ok := upstream.FailureOf(err); kind == sim.Lost && (!ok || !f.Sent || f.Refused || f.Status != 0) {
				t.Errorf("%d: %+v", kind, f)
			}
			if stalled := kind == sim.Stall; stalled != fault.Is(err, fault.RequestTimeout) {
				t.Errorf("%d: %v", kind, err)
			}
		})
	}
}

func TestEveryTaskHasItsOwnId(t *testing.T) {
	u := sim.New(sim.Options{}) // by the real clock
	var mu sync.Mutex
	seen := make(map[string]bool)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			id := asked(t, u, []string{nestedAsk, flatAsk}[i%2]).TaskID
			mu.Lock()
			defer mu.Unlock()
			seen[id] = true
		})
	}
	all.Wait()
	if len(seen) != 200 || u.Jobs() != 200 {
		t.Errorf("%d ids of %d jobs", len(seen), u.Jobs())
	}
	other := sim.New(sim.Options{})
	call := callOf(t, upstream.SubmitVideo, flatAsk)
	call.RequestID = "req_9"
	if id := decoded(t, answerOf(t, other, call)).ID; seen[id] {
		t.Error("another process gave the same id to another call")
	}
}

func TestTheOldestTaskIsForgotten(t *testing.T) {
	u := sim.New(sim.Options{VideoTime: time.Hour})
	first := asked(t, u, nestedAsk)
	second := asked(t, u, nestedAsk)
	for range 10_000 - 1 {
		asked(t, u, nestedAsk)
	}
	if a, b := decoded(t, answerOf(t, u, first)), decoded(t, answerOf(t, u, second)); a.Output.TaskStatus != "UNKNOWN" || b.Output.TaskStatus != "PENDING" {
		t.Errorf("%s, %s", a.Output.TaskStatus, b.Output.TaskStatus)
	}
}

func TestTheFileOfAVideoSaysThatItIsSimulated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, body := range []string{nestedAsk, flatAsk} {
			u := sim.New(sim.Options{})
			poll := asked(t, u, body)
			time.Sleep(6*time.Second - time.Nanosecond) // which is how long a video takes
			if before := decoded(t, answerOf(t, u, poll)); before.Status+before.Output.TaskStatus == "succeeded" || before.Output.TaskStatus == "SUCCEEDED" {
				t.Errorf("too early: %+v", before)
			}
			time.Sleep(time.Nanosecond)
			v := decoded(t, answerOf(t, u, poll))
			data, ok := strings.CutPrefix(v.Content.VideoURL+v.Output.VideoURL, "data:video/mp4;base64,")
			file, err := base64.StdEncoding.DecodeString(data)
			if !ok || err != nil || !strings.Contains(string(file), "ftyp") || !strings.Contains(string(file), "Simulated by tollhouse: no model made this video.") {
				t.Errorf("%v, %.60s", err, data)
			}
		}
	})
}

func TestATaskThatTheVendorOfNestedRecordsDoesNotKnowIsUnknown(t *testing.T) {
	poll := &upstream.Call{Op: upstream.PollVideo, Model: "beta2.7-t2v", TaskID: "x"}
	if v := decoded(t, answerOf(t, sim.New(sim.Options{}), poll)); v.Output.TaskStatus != "UNKNOWN" {
		t.Errorf("%+v", v)
	}
}
