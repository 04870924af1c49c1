package ark

import (
	"testing"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

func submission(t *testing.T, body string) *upstream.Call {
	t.Helper()
	return &upstream.Call{Op: upstream.SubmitVideo, Model: "doubao-seedance-2-0-260128", RequestID: "req_1", Body: vendortest.Body(t, body)}
}

func question(id string) *upstream.Call {
	return &upstream.Call{Op: upstream.PollVideo, Model: "doubao-seedance-2-0-260128", RequestID: "req_2", TaskID: id}
}

func TestAVideoIsSubmittedAtTheVendorsPathWithItsKey(t *testing.T) {
	var got vendortest.Seen
	up := newDriver(t, vendortest.Recording(&got, accepted), upstream.DriverOptions{})
	reply, answer := vendortest.Answer(t, up, submission(t, `{"model":"m","content":[{"type":"text","text":"a"},{"type":"audio_url","audio_url":{"url":"u"}}],"priority":"4"}`))
	if reply.Status != 200 || answer != accepted {
		t.Errorf("%d %s %v", reply.Status, answer, reply.Header)
	}
	if want := `{"model":"m","content":[{"type":"text","text":"a"},{"type":"audio_url","audio_url":{"url":"u"},"role":"reference_audio"}],"priority":4}`; got.Body != want {
		t.Errorf("the vendor got %s", got.Body)
	}
	h := got.Header
	if got.Method != "POST" || got.URI != "/api/v3/contents/generations/tasks" || h.Get("Authorization") != "Bearer ark-vendor-1" || h.Get("Content-Type") != "application/json" || h.Get("X-Client-Request-Id") != "req_1" {
		t.Errorf("%s %s %v", got.Method, got.URI, h)
	}
}

func TestAPollAsksForItsTask(t *testing.T) {
	var got vendortest.Seen
	_, answer := vendortest.Answer(t, newDriver(t, vendortest.Recording(&got, finished), upstream.DriverOptions{}), question("cgt-1/a"))
	if answer != finished || got.Method != "GET" || got.URI != "/api/v3/contents/generations/tasks/cgt-1%2Fa" || got.Body != "" || got.Header.Get("Authorization") != "Bearer ark-vendor-1" || got.Header.Get("Content-Type") != "" {
		t.Errorf("%+v", got)
	}
}

func TestAVideoThatFailedIsAnAnswer(t *testing.T) {
	for _, body := range []string{
		`{"id":"cgt-1","model":"m","status":"failed","error":{"code":"OutputVideoSensitiveContentDetected","message":"No."},"created_at":1}`,
		`{"id":"cgt-1","status":"expired"}`, `{"id":"cgt-1","status":"cancelled"}`, `{"id":"cgt-1","status":"queued"}`,
	} {
		var got vendortest.Seen
		if reply, answer := vendortest.Answer(t, newDriver(t, vendortest.Recording(&got, body), upstream.DriverOptions{}), question("cgt-1")); answer != body || reply.Status != 200 {
			t.Errorf("%d %s", reply.Status, answer)
		}
	}
}

func TestOnlyWhatTheVendorSpellsOtherwiseIsChanged(t *testing.T) {
	for name, row := range map[string]struct{ body, want string }{
		"a sound without a role": {
			`{"content": [ {"type":"text","text":"a"} , {"type":"audio_url", "audio_url":{"url":"u"}} ],"x":1.0}`,
			`{"content": [ {"type":"text","text":"a"} , {"type":"audio_url", "audio_url":{"url":"u"},"role":"reference_audio"} ],"x":1.0}`,
		},
		"a sound whose role is null":  {`{"content":[{"role":null,"type":"audio_url"}]}`, `{"content":[{"role":"reference_audio","type":"audio_url"}]}`},
		"a sound with a role":         {`{"content":[{"type":"audio_url","role":"other"}]}`, ""},
		"a picture without a role":    {`{"content":[{"type":"image_url","image_url":{"url":"u"}}]}`, ""},
		"a video without a role":      {`{"content":[{"type":"video_url","video_url":{"url":"u"}}]}`, ""},
		"a draft by its public name":  {`{"content":[{"type":"draft_task","draft_task":{ "task_id":"cgt-1","y":2e0}}]}`, `{"content":[{"type":"draft_task","draft_task":{ "id":"cgt-1","y":2e0}}]}`},
		"a draft by the vendor's":     {`{"content":[{"type":"draft_task","draft_task":{"id":"cgt-1"}}]}`, ""},
		"a draft that is no object":   {`{"content":[{"type":"draft_task","draft_task":"cgt-1"}]}`, ""},
		"several blocks":              {`{"content":[{"type":"audio_url"},{"type":"text"},{"type":"draft_task","draft_task":{"task_id":"a"}},7]}`, `{"content":[{"type":"audio_url","role":"reference_audio"},{"type":"text"},{"type":"draft_task","draft_task":{"id":"a"}},7]}`},
		"a priority in digits":        {`{"priority":"5", "seed":1.0}`, `{"priority":5, "seed":1.0}`},
		"a priority that is a number": {`{"priority":5.0}`, ""},
		"a priority that is a word":   {`{"priority":"high"}`, ""},
		"a priority of no size":       {`{"priority":"99999999999"}`, ""},
		"no content":                  {`{"model":"m"}`, ""},
		"content that is a text":      {`{"content":"a"}`, ""},
		"content that is null":        {`{"content":null}`, ""},
		"no blocks":                   {`{"content":[]}`, ""},
	} {
		want := row.want
		if want == "" {
			want = row.body
		}
		got, err := translateBody(vendortest.Body(t, row.body)).Bytes()
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}

func TestABodyThatIsNoObjectGoesAsItIs(t *testing.T) {
	const text = `{"content":[{"type":"audio_url"}]}`
	if got, err := translateBody(upstream.BytesBody([]byte(text))).Bytes(); err != nil || string(got) != text {
		t.Errorf("%s, %v", got, err)
	}
}

// FuzzBlocks checks that what comes out is still an array, of as many elements,
// and in the vendor's form.
func FuzzBlocks(f *testing.F) {
	for _, seed := range []string{
		`[]`, `[{"type":"audio_url"}]`, `[ {"type":"draft_task","draft_task":{"task_id":"a"}} , 1 ]`, `[{"type":"audio_url","role":null},{"type":"audio_url","role":null}]`, `"a"`, `[[{"type":"audio_url"}]]`,
	} {
		f.Add([]byte(seed))
	}
	count := func(raw []byte) (n int, ok bool) {
		rd := rawjson.NewReader(raw)
		defer rd.Close()
		err := rd.Array(func(i int) error {
			n = i + 1
			_, err := rd.Skip()
			return err
		})
		return n, err == nil && rd.End() == nil
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		n, ok := count(content)
		if !ok {
			t.Skip()
		}
		changed := translateContent(content)
		if changed == nil {
			return
		}
		if m, ok := count(changed); !ok || m != n {
			t.Fatalf("%s became %s", content, changed)
		}
		if again := translateContent(changed); again != nil {
			t.Fatalf("%s became %s and then %s", content, changed, again)
		}
	})
}
