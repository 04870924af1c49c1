package videoapi

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/video"
)

// task is an accepted one.
func task(family string) video.Task {
	return video.Task{
		ID: "vid_1", Account: "acme", Key: "key_1", Model: "m", Family: family, UpstreamID: "up-1", State: video.Queued, Version: 2,
		CreatedAt: noon, UpdatedAt: noon, ExpiresAt: noon.Add(48 * time.Hour), Bound: billing.Usage{Seconds: 5, Variant: "720p"},
	}
}

const content = `"content":{"video_url":"https://x.example/v.mp4"}`

func poll(status string, members string) []byte {
	return []byte(`{"id":"up-1","status":"` + status + `"` + members + `}`)
}

func TestATaskAdvancesByTheTable(t *testing.T) {
	for _, from := range everyState {
		for word, to := range words {
			before := task(video.FamilyGamma)
			before.State = from
			m, err := advance(&before, poll(word, ","+content), noon.Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			want := from
			if legal(from, to) {
				want = to
			}
			if m.Task.State != want || m.Changed != (want != from) || m.UnknownStatus != "" {
				t.Errorf("%s told %s: %s, changed %t", from, word, m.Task.State, m.Changed)
			}
			if m.Changed && (m.Task.Version != 3 || !m.Task.UpdatedAt.Equal(noon.Add(time.Minute)) || m.Task.Answer == nil) {
				t.Errorf("%s told %s: %+v", from, word, m.Task)
			}
			if !from.Terminal() && !m.Task.PolledAt.Equal(noon.Add(time.Minute)) || from.Terminal() && !m.Task.PolledAt.IsZero() {
				t.Errorf("%s told %s: polled at %s", from, word, m.Task.PolledAt)
			}
			if before.State != from || before.Version != 2 {
				t.Error("the task before was changed")
			}
		}
	}
}

func TestWhatAnUpstreamSaysOddlyDecidesNothing(t *testing.T) {
	for _, c := range []struct {
		name, family, body string
		state              video.State
		unknownStatus      string
	}{
		{"an unknown word", video.FamilyGamma, `{"id":"up-1","status":"dreaming"}`, video.Running, "dreaming"},
		{"success without a video", video.FamilyBeta, `{"output":{"task_id":"up-1","task_status":"SUCCEEDED"}}`, video.Running, "SUCCEEDED without a video"},
		{"success without a video, flat", video.FamilyGamma, `{"id":"up-1","status":"succeeded"}`, video.Running, "succeeded without a video"},
		{"success of a form that nobody knows", "", `{"id":"up-1","status":"succeeded","clip":"u"}`, video.Succeeded, ""},
		{"not known yet", video.FamilyBeta, `{"output":{"task_id":"up-1","task_status":"UNKNOWN"}}`, video.Queued, "UNKNOWN"},
	} {
		before := task(c.family)
		m, err := advance(&before, []byte(c.body), noon.Add(time.Minute))
		if err != nil || m.Task.State != c.state || m.UnknownStatus != c.unknownStatus {
			t.Errorf("%s: %s, %q, %v", c.name, m.Task.State, m.UnknownStatus, err)
		}
	}
	before := task(video.FamilyBeta)
	m, err := advance(&before, []byte(`{"output":{"task_id":"up-1","task_status":"UNKNOWN"}}`), noon.Add(24*time.Hour+1))
	if err != nil || m.Task.State != video.Expired || m.Task.Failure == nil {
		t.Errorf("forgotten after a day: %+v, %v", m, err)
	}
	for _, body := range []string{`{`, `{"id":"up-2","status":"succeeded",` + content + `}`, `{"output":{"task_id":"up-2","task_status":"FAILED"}}`, `{"error":{"code":"x"}}`, `{"id":"up-1"}`} {
		before := task(video.FamilyGamma)
		if m, err := advance(&before, []byte(body), noon); !fault.Is(err, fault.BadGateway) || m.Changed || m.Task.State != video.Queued {
			t.Errorf("%s: %+v, %v", body, m, err)
		}
	}
}

func TestATaskExpiresWhateverTheUpstreamSays(t *testing.T) {
	for _, state := range everyState {
		end := noon.Add(48*time.Hour + Grace)
		before := task(video.FamilyGamma)
		before.State = state
		if m := tick(&before, end.Add(-1)); m.Changed && m.Task.State != video.Unknown {
			t.Errorf("%s expired early", state)
		}
		m := tick(&before, end)
		if m.Changed == state.Terminal() {
			t.Errorf("%s: changed %t", state, m.Changed)
		}
		if m.Changed && (m.Task.State != video.Expired || m.Task.Failure == nil || m.Task.Version != 3 || !BilledUsage(&m.Task, nil).IsZero()) {
			t.Errorf("%s: %+v", state, m.Task)
		}
	}
}

// A caller's short time is the upstream's to obey. What it makes nonetheless is
// charged.
func TestATimeThatACallerGivesATaskMakesNoVideoFree(t *testing.T) {
	for after, end := range map[time.Duration]time.Duration{
		time.Second: 48*time.Hour + Grace, time.Hour: 48*time.Hour + Grace, 48 * time.Hour: 48*time.Hour + Grace, 72 * time.Hour: 72*time.Hour + Grace,
	} {
		for _, family := range []string{video.FamilyBeta, video.FamilyGamma, ""} {
			before := task(family)
			before.State, before.ExpiresAt = video.Running, noon.Add(after)
			if got := End(&before); !got.Equal(noon.Add(end)) {
				t.Errorf("%s of %q: it ends at %s", after, family, got)
			}
			m, err := advance(&before, poll("succeeded", ","+content), noon.Add(end-1))
			if err != nil || m.Task.State != video.Succeeded || m.Late || BilledUsage(&m.Task, nil).IsZero() {
				t.Errorf("%s of %q: made in time: %+v, %v", after, family, m, err)
			}
			if m, err := advance(&before, poll("expired", ""), noon.Add(after)); err != nil || m.Task.State != video.Expired || !BilledUsage(&m.Task, nil).IsZero() {
				t.Errorf("%s of %q: ended by the upstream: %+v, %v", after, family, m, err)
			}
		}
	}
}

func TestALateSuccessIsReportedAndNotCharged(t *testing.T) {
	for _, c := range []struct {
		state video.State
		at    time.Time
		want  video.State
		late  bool
	}{
		{video.Running, noon.Add(47 * time.Hour), video.Succeeded, false},
		{video.Running, noon.Add(48*time.Hour + Grace), video.Expired, true},
		{video.Expired, noon.Add(49 * time.Hour), video.Expired, true},
		{video.Failed, noon.Add(49 * time.Hour), video.Failed, false},
	} {
		before := task(video.FamilyGamma)
		before.State = c.state
		m, err := advance(&before, poll("succeeded", ","+content), c.at)
		if err != nil || m.Task.State != c.want || m.Late != c.late || BilledUsage(&m.Task, nil).IsZero() != (c.want != video.Succeeded) {
			t.Errorf("%s at %s: %+v, %v", c.state, c.at, m, err)
		}
	}
	running := task(video.FamilyGamma)
	if m, err := advance(&running, poll("running", ""), noon.Add(48*time.Hour+Grace)); err != nil || m.Late || m.Task.State != video.Expired {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestAnAcceptedTaskHasTheFirstStateOfItsFamily(t *testing.T) {
	for _, c := range []struct {
		family, body string
		want         video.State
	}{
		{video.FamilyBeta, `{"output":{"task_id":"up-9","task_status":"PENDING"}}`, video.Processing},
		{video.FamilyGamma, `{"id":"up-9"}`, video.Queued},
		{video.FamilyGamma, `{"id":"up-9","status":"running"}`, video.Running},
		{video.FamilyGamma, `{"id":"up-9","status":"succeeded"}`, video.Queued},
		{"", `{"id":"up-9","status":"in_progress"}`, video.Running},
	} {
		before := task(c.family)
		before.State, before.UpstreamID, before.Version = video.Submitting, "", 0
		r, err := ReadSubmission([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		n := Apply(&before, Event{Accepted, "ch", r}, noon.Add(time.Second)).Task
		if n.State != c.want || n.UpstreamID != "up-9" || n.Channel != "ch" || n.Version != 1 || !n.AcceptedAt.Equal(noon.Add(time.Second)) {
			t.Errorf("%s: %+v", c.body, n)
		}
	}
	before := task(video.FamilyBeta)
	before.State = video.Submitting
	if n := Apply(&before, Event{Kind: Lost, Channel: "ch"}, noon).Task; n.State != video.Unknown || n.Channel != "ch" || n.Version != 3 || n.State.Public() != video.Queued {
		t.Errorf("%+v", n)
	}
}

// TestReplayedAnswersNeverLeaveATerminalState draws poll answers in any order and
// number, and clocks that leap.
func TestReplayedAnswersNeverLeaveATerminalState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := task(rapid.SampledFrom([]string{video.FamilyBeta, video.FamilyGamma, ""}).Draw(t, "family"))
		now.State = rapid.SampledFrom([]video.State{video.Submitting, video.Unknown, video.Queued, video.Processing, video.Running}).Draw(t, "state")
		ends, paid := 0, 0
		for range rapid.IntRange(1, 40).Draw(t, "polls") {
			at := noon.Add(time.Duration(rapid.Int64Range(0, int64(60*time.Hour)).Draw(t, "at")))
			word := rapid.SampledFrom([]string{"queued", "running", "succeeded", "failed", "cancelled", "expired", "UNKNOWN", "x"}).Draw(t, "word")
			members := rapid.SampledFrom([]string{"", "," + content, `,"error":{"code":"InternalError","message":"m"}`}).Draw(t, "members")
			before := now
			m, err := advance(&now, poll(word, members), at)
			if word == "x" && rapid.Bool().Draw(t, "expire") {
				m, err = tick(&now, at), nil
			}
			if err != nil {
				t.Fatal(err)
			}
			if before.State.Terminal() && (m.Changed || m.Task.State != before.State || m.Task.Version != before.Version || !bytes.Equal(Record(&m.Task), Record(&before))) {
				t.Fatalf("%s became %s", before.State, m.Task.State)
			}
			if m.Changed != (m.Task.Version == before.Version+1) || m.Changed && !legal(before.State, m.Task.State) {
				t.Fatalf("%s became %s, version %d after %d", before.State, m.Task.State, m.Task.Version, before.Version)
			}
			if m.Changed && m.Task.State.Terminal() {
				ends++
				if !BilledUsage(&m.Task, nil).IsZero() {
					paid++
				}
			}
			now = m.Task
		}
		if ends > 1 || paid > 1 || (paid == 1) != (now.State == video.Succeeded) {
			t.Fatalf("it ended %d times and was paid %d times", ends, paid)
		}
	})
}

func TestTheRecordIsThis(t *testing.T) {
	var b bytes.Buffer
	show := func(name string, t video.Task) { fmt.Fprintf(&b, "# %s\n%s\n\n", name, Record(&t)) }
	for _, family := range []string{video.FamilyBeta, video.FamilyGamma} {
		fresh := task(family)
		fresh.State, fresh.UpstreamID = video.Submitting, ""
		show(family+" submitting", fresh)
		show(family+" lost", Apply(&fresh, Event{Kind: Lost, Channel: "ch"}, noon).Task)
		accepted := Apply(&fresh, Event{Accepted, "ch", Report{UpstreamID: "up-1"}}, noon.Add(time.Second)).Task
		show(family+" accepted", accepted)
		accepted.Seed = []byte("7")
		bodies := map[string][]string{
			video.FamilyBeta: {
				`{"output":{"task_id":"up-1","task_status":"RUNNING"}}`,
				`{"request_id":"r","output":{"task_id":"up-1","task_status":"SUCCEEDED","video_url":"https://x.example/v.mp4","actual_prompt":"p"},"usage":{"duration":10.0}}`,
				`{"output":{"task_id":"up-1","task_status":"FAILED","code":"DataInspectionFailed","message":"a \"b\""}}`,
				`{"output":{"task_id":"up-1","task_status":"CANCELED"}}`,
			},
			video.FamilyGamma: {
				`{"id":"up-1","model":"doubao","status":"running","created_at":1,"updated_at":2,"service_tier":"default"}`,
				`{"id":"up-1","model":"doubao","status":"succeeded","error":null,"content":{"video_url":"https://x.example/v.mp4","last_frame_url":"https://x.example/l.png"},"usage":{"completion_tokens":108900,"total_tokens":108900},"seed":42,"resolution":"720p","x":1.0,"created_at":1}`,
				`{"id":"up-1","status":"failed","error":{"code":"OutputVideoSensitiveContentDetected","message":"no"},"service_tier":"default","content":{"video_url":"https://x.example/v.mp4"}}`,
				`{"id":"up-1","status":"cancelled"}`,
			},
		}
		for _, body := range bodies[family] {
			m, err := advance(&accepted, []byte(body), noon.Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			show(family+" after "+body, m.Task)
		}
		show(family+" expired", tick(&accepted, End(&accepted)).Task)
	}
	unknown := task("")
	m, err := advance(&unknown, []byte(`{"id":"up-1","status":"completed","output_url":"u"}`), noon.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	show("a model that no table describes", m.Task)
	m.Task.WebhookURL = "https://hooks.example/x"
	notice := Delivery(&m.Task, "evt_1", noon.Add(2*time.Minute))
	fmt.Fprintf(&b, "# its notice to %s\n%s\n", notice.URL, notice.Body)
	capabilitytest.Golden(t, *update, "records.golden", b.Bytes())
}

func TestANoticeIsMadeOfAnEndThatSomebodyAskedFor(t *testing.T) {
	for _, state := range everyState {
		n := task(video.FamilyBeta)
		n.State = state
		if Delivery(&n, "evt_1", noon) != nil {
			t.Errorf("%s: nobody asked", state)
		}
		n.WebhookURL = "https://hooks.example/x"
		notice := Delivery(&n, "evt_1", noon)
		if (notice != nil) != state.Terminal() {
			t.Errorf("%s: %+v", state, notice)
		}
		if notice != nil && (notice.ID != "evt_1" || notice.Account != "acme" || notice.TaskID != "vid_1" || !notice.CreatedAt.Equal(noon) ||
			!bytes.Contains(notice.Body, []byte(`"type":"video.generation.`+string(state)+`"`))) {
			t.Errorf("%s: %+v", state, notice)
		}
	}
}

func TestARecordIsReadInGo(t *testing.T) {
	before := task(video.FamilyGamma)
	m, err := advance(&before, poll("succeeded", `,"content":{"x":1},"content":[],"video_url":"u","seed":42,"usage":{"total_tokens":1},"y":1.0`), noon)
	if err != nil {
		t.Fatal(err)
	}
	m, err = advance(&before, poll("succeeded", `,`+content+`,"seed":42,"usage":{"total_tokens":1},"y":1.0`), noon)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Response(&m.Task)
	if err != nil || r.ID != "up-1" || r.Status != video.Succeeded || r.URL() != "https://x.example/v.mp4" || string(r.Seed) != "42" ||
		string(r.Usage) != `{"total_tokens":1}` || string(r.Extra) != `{"y":1.0}` || r.CreatedAt != noon.Unix() || !bytes.Equal(r.Raw, Record(&m.Task)) {
		t.Errorf("%+v, %v", r, err)
	}
	failed, err := advance(&before, poll("failed", ""), noon)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Response(&failed.Task); err != nil || r.Error == nil || r.URL() != "" {
		t.Errorf("%+v, %v", r, err)
	}
}
