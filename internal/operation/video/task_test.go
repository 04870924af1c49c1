package video

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/upstream"
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

// stepCase is one event of a task, and what becomes of it.
type stepCase struct {
	name, family string
	from         video.State
	event        func(t *video.Task) (Transition, error)
	want         video.State
	word         string // that fits nothing
	late         bool
}

// said is a poll's answer, some time after the submission.
func said(body string, after time.Duration) func(t *video.Task) (Transition, error) {
	return func(t *video.Task) (Transition, error) { return advance(t, []byte(body), noon.Add(after)) }
}

// passed is time alone.
func passed(after time.Duration) func(t *video.Task) (Transition, error) {
	return func(t *video.Task) (Transition, error) { return tick(t, noon.Add(after)), nil }
}

// taken is a vendor's answer to a submission.
func taken(body string) func(t *video.Task) (Transition, error) {
	return func(t *video.Task) (Transition, error) {
		r, err := ReadSubmission([]byte(body))
		return Apply(t, Event{Kind: Accepted, Channel: "ch", Report: r}, noon.Add(time.Second)), err
	}
}

func TestEachEventLeadsToItsState(t *testing.T) {
	const beta, gamma, end = video.FamilyBeta, video.FamilyGamma, 48*time.Hour + Grace
	for _, c := range []stepCase{
		{"beta is taken", beta, video.Submitting, taken(`{"output":{"task_id":"up-9","task_status":"PENDING"}}`), video.Processing, "", false},
		{"gamma is taken", gamma, video.Submitting, taken(`{"id":"up-9"}`), video.Queued, "", false},
		{"gamma is taken and runs", gamma, video.Submitting, taken(`{"id":"up-9","status":"running"}`), video.Running, "", false},
		{"gamma has ended at once", gamma, video.Submitting, taken(`{"id":"up-9","status":"succeeded"}`), video.Queued, "", false},
		{"an unknown model is taken", "", video.Submitting, taken(`{"id":"up-9","status":"in_progress"}`), video.Running, "", false},
		{"taken after it was given up", gamma, video.Unknown, taken(`{"id":"up-9"}`), video.Queued, "", false},
		{"taken after its end", gamma, video.Expired, taken(`{"id":"up-9"}`), video.Expired, "", false},

		{"an unknown word", gamma, video.Queued, said(`{"id":"up-1","status":"dreaming"}`, time.Minute), video.Running, "dreaming", false},
		{"success without a video", beta, video.Queued, said(`{"output":{"task_id":"up-1","task_status":"SUCCEEDED"}}`, time.Minute), video.Running, "SUCCEEDED without a video", false},
		{"success without a video, flat", gamma, video.Queued, said(`{"id":"up-1","status":"succeeded"}`, time.Minute), video.Running, "succeeded without a video", false},
		{"success of a form that nobody knows", "", video.Queued, said(`{"id":"up-1","status":"succeeded","clip":"u"}`, time.Minute), video.Succeeded, "", false},
		{"not known yet", beta, video.Queued, said(`{"output":{"task_id":"up-1","task_status":"UNKNOWN"}}`, time.Minute), video.Queued, "UNKNOWN", false},
		{"forgotten after a day", beta, video.Queued, said(`{"output":{"task_id":"up-1","task_status":"UNKNOWN"}}`, 24*time.Hour+1), video.Expired, "UNKNOWN", false},

		{"a submission that is young", gamma, video.Submitting, passed(time.Hour), video.Submitting, "", false},
		{"a submission that is old", gamma, video.Submitting, passed(time.Hour + 1), video.Unknown, "", false},
		{"before the end", gamma, video.Running, passed(end - 1), video.Running, "", false},
		{"the end", gamma, video.Running, passed(end), video.Expired, "", false},
		{"the end of what was given up", gamma, video.Unknown, passed(end), video.Expired, "", false},
		{"the end of a submission", gamma, video.Submitting, passed(end), video.Expired, "", false},
		{"after the end", gamma, video.Failed, passed(end), video.Failed, "", false},
	} {
		before := task(c.family)
		if before.State = c.from; c.from == video.Submitting || c.from == video.Unknown {
			before.UpstreamID = ""
		}
		m, err := c.event(&before)
		n := m.Task
		if err != nil || n.State != c.want || m.UnknownStatus != c.word || m.Late != c.late || m.Changed != (c.want != c.from) {
			t.Errorf("%s: %+v, %v", c.name, m, err)
		}
		if m.Changed && (n.Version != 3 || n.UpdatedAt.Equal(noon) || (n.Failure != nil) != (c.want == video.Expired)) {
			t.Errorf("%s: %+v", c.name, n)
		}
		if strings.Contains(c.name, "is taken") && (n.UpstreamID != "up-9" || n.Channel != "ch" || !n.AcceptedAt.Equal(noon.Add(time.Second))) {
			t.Errorf("%s: %+v", c.name, n)
		}
	}
	for _, body := range []string{`{`, `{"id":"up-2","status":"succeeded",` + content + `}`, `{"output":{"task_id":"up-2","task_status":"FAILED"}}`, `{"error":{"code":"x"}}`, `{"id":"up-1"}`} {
		before := task(gamma)
		if _, err := ReadPoll(&before, []byte(body)); !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s: %v", body, err)
		}
	}
	before := task(gamma)
	if n := Apply(&before, Event{Kind: Lost, Channel: "ch"}, noon).Task; n.State != video.Queued {
		t.Errorf("a task that was taken was lost: %+v", n)
	}
}

// A caller's short time is the upstream's to obey. What it makes nonetheless is
// charged.
func TestATimeThatACallerGivesATaskMakesNoVideoFree(t *testing.T) {
	for after, end := range map[time.Duration]time.Duration{
		time.Second: 48*time.Hour + Grace, 48 * time.Hour: 48*time.Hour + Grace, 72 * time.Hour: 72*time.Hour + Grace,
	} {
		before := task(video.FamilyGamma)
		before.State, before.ExpiresAt = video.Running, noon.Add(after)
		if got := End(&before); !got.Equal(noon.Add(end)) {
			t.Errorf("%s: it ends at %s", after, got)
		}
		m, err := advance(&before, poll("succeeded", ","+content), noon.Add(end-1))
		if err != nil || m.Task.State != video.Succeeded || m.Late || BilledUsage(&m.Task, nil).IsZero() {
			t.Errorf("%s: made in time: %+v, %v", after, m, err)
		}
		if m, err := advance(&before, poll("expired", ""), noon.Add(after)); err != nil || m.Task.State != video.Expired || !BilledUsage(&m.Task, nil).IsZero() {
			t.Errorf("%s: ended by the upstream: %+v, %v", after, m, err)
		}
	}
}

func TestALateSuccessIsReportedAndNotCharged(t *testing.T) {
	for _, c := range []struct {
		state video.State
		word  string
		after time.Duration
		want  video.State
		late  bool
	}{
		{video.Running, "succeeded", 47 * time.Hour, video.Succeeded, false},
		{video.Running, "succeeded", 48*time.Hour + Grace, video.Expired, true},
		{video.Running, "running", 48*time.Hour + Grace, video.Expired, false},
		{video.Expired, "succeeded", 49 * time.Hour, video.Expired, true},
		{video.Failed, "succeeded", 49 * time.Hour, video.Failed, false},
	} {
		before := task(video.FamilyGamma)
		before.State = c.state
		m, err := advance(&before, poll(c.word, ","+content), noon.Add(c.after))
		if err != nil || m.Task.State != c.want || m.Late != c.late || BilledUsage(&m.Task, nil).IsZero() != (c.want != video.Succeeded) || c.want == video.Expired && m.Task.Answer != nil {
			t.Errorf("%s told %s after %s: %+v, %v", c.state, c.word, c.after, m, err)
		}
	}
}

// A time-out, an error that nobody knows to be the vendor's own, a step behind it and a proxy that was hung
// up on do not say that nothing was begun.
func TestWhatAFailedSubmissionMeans(t *testing.T) {
	sent := func(status int) upstream.Failure { return upstream.Failure{Sent: true, Status: status} }
	for name, c := range map[string]struct {
		failure  upstream.Failure
		notTaken bool
	}{
		"400": {sent(400), true}, "404": {sent(404), true}, "429": {sent(429), true},
		"408": {sent(408), false}, "424": {sent(424), false}, "499": {sent(499), false}, "500": {sent(500), false}, "502": {sent(502), false}, "504": {sent(504), false},
		"the vendor's own 500":   {upstream.Failure{Sent: true, Status: 500, Stated: true}, true},
		"an answer that was cut": {upstream.Failure{Sent: true, Err: errors.New("cut")}, false},
		"no connection":          {upstream.Failure{}, true},
		"busy":                   {upstream.Failure{Sent: true, Status: 503, Refused: true}, true},
		"a time-out for certain": {upstream.Failure{Sent: true, Status: 408, Refused: true}, true},
		"the operator's key":     {upstream.Failure{Sent: true, Status: 401, Fatal: true}, true},
	} {
		if got := NotTaken(c.failure.Fault()); got != c.notTaken {
			t.Errorf("%s: %t", name, got)
		}
	}
	for code, notTaken := range map[fault.Code]bool{fault.NoChannel: true, fault.InvalidRequest: true, fault.ClientGone: false, fault.InternalError: false} {
		if got := NotTaken(fault.New(code, "x")); got != notTaken {
			t.Errorf("%s: %t", code, got)
		}
	}
}

func TestATaskIsPolledLessOftenWithAgeAndOnceBeforeItsEnd(t *testing.T) {
	end := 48*time.Hour + Grace
	for _, c := range []struct {
		state     video.State
		age, next time.Duration
	}{
		{video.Queued, 0, 5 * time.Second}, {video.Queued, time.Minute, time.Minute + 5*time.Second}, {video.Queued, 10 * time.Minute, 10*time.Minute + 30*time.Second}, {video.Queued, 9 * time.Hour, 9*time.Hour + time.Minute},
		{video.Running, end - 30*time.Second, end - 5*time.Second}, {video.Running, end - 3*time.Second, end}, {video.Running, end + time.Hour, end},
		{video.Submitting, 0, time.Hour + time.Second}, {video.Unknown, 0, end},
	} {
		n := task(video.FamilyGamma)
		n.State = c.state
		if got := NextPoll(&n, noon.Add(c.age), 5*time.Second).Sub(noon); got != c.next {
			t.Errorf("%s, %s old: after %s, want %s", c.state, c.age, got, c.next)
		}
	}
}

func TestTheClockOfTheStoreCounts(t *testing.T) {
	own, store, reads := noon, noon.Add(-time.Hour), 0
	err := errors.New("away")
	c := NewClock(func(context.Context) (time.Time, error) { reads++; return store, err }, func() time.Time { return own })
	if _, e := c.Now(t.Context()); e != err || !c.Last().Equal(noon) {
		t.Errorf("never read: %v, %s", e, c.Last())
	}
	err = nil
	for _, step := range []time.Duration{0, 5 * time.Second, 4 * time.Second} { // read once, then extrapolated
		own = own.Add(step)
		if now, e := c.Now(t.Context()); e != nil || !now.Equal(own.Add(-time.Hour)) || reads != 2 {
			t.Errorf("%s, %v after %d reads", now, e, reads)
		}
	}
	own, err = own.Add(time.Minute), errors.New("away")
	if now, e := c.Now(t.Context()); e != nil || !now.Equal(own.Add(-time.Hour)) || reads != 3 {
		t.Errorf("while the store is away: %s, %v", now, e)
	}
	if now, e := NewClock(nil, func() time.Time { return own }).Now(t.Context()); e != nil || !now.Equal(own) {
		t.Errorf("without a store's: %s, %v", now, e)
	}
}

// TestReplayedAnswersNeverLeaveATerminalState draws poll answers in any order and
// number, and clocks that jump.
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
		accepted := Apply(&fresh, Event{Kind: Accepted, Channel: "ch", Report: Report{UpstreamID: "up-1"}}, noon.Add(time.Second)).Task
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
	m, err := advance(&before, poll("succeeded", `,`+content+`,"seed":42,"usage":{"total_tokens":1},"y":1.0`), noon)
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
