package openapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/internal/openapitest"
	"github.com/tollhouse-ai/gateway/video"
)

// ends are tasks that have ended, by their state.
func ends() map[video.State]*video.Task {
	at := time.Unix(1767225600, 0)
	tasks := make(map[video.State]*video.Task)
	for _, s := range []video.State{video.Succeeded, video.Failed, video.Cancelled, video.Expired} {
		tasks[s] = &video.Task{
			ID: "vid_1", Model: "beta2.7-t2v", Family: video.FamilyBeta, UpstreamID: "up-1", State: s,
			CreatedAt: at, UpdatedAt: at.Add(time.Minute), ExpiresAt: at.Add(48 * time.Hour), WebhookURL: "https://hooks.example/video",
		}
	}
	tasks[video.Succeeded].Answer = []byte(`{"content":[{"video_url":"https://files.example/1.mp4"}],"usage":{"duration":5}}`)
	tasks[video.Failed].Failure = &video.Failure{Code: "DataInspectionFailed", Message: "no"}
	tasks[video.Expired].Failure = &video.Failure{Code: "RequestTimeout", Message: "late"}
	return tasks
}

// notice is what a receiver gets when a task has ended.
func notice(t *testing.T, task *video.Task) (*http.Request, []byte) {
	t.Helper()
	secret, err := webhook.NewSecret(nil)
	if err != nil {
		t.Fatal(err)
	}
	n := task.NoticeOf("evt_1", task.UpdatedAt)
	r := httptest.NewRequest(http.MethodPost, "/video", bytes.NewReader(n.Body))
	r.Header = webhook.Sign(n.ID, task.UpdatedAt, n.Body, secret, secret)
	r.Header.Set("Content-Type", "application/json")
	return r, n.Body
}

func TestTheNoticeOfEachEndIsAsTheDocumentSays(t *testing.T) {
	spec, err := openapitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	for state, task := range ends() {
		r, body := notice(t, task)
		if err := spec.Webhook("videoEnded", r, body); err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
}

func TestANoticeThatTheDocumentDoesNotHaveIsSeen(t *testing.T) {
	spec, err := openapitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(r *http.Request, body []byte) []byte{
		"no id":        func(r *http.Request, b []byte) []byte { r.Header.Del("Webhook-Id"); return b },
		"no signature": func(r *http.Request, b []byte) []byte { r.Header.Del("Webhook-Signature"); return b },
		"another time": func(r *http.Request, b []byte) []byte { r.Header.Set("Webhook-Timestamp", "now"); return b },
		"another event": func(_ *http.Request, b []byte) []byte {
			return bytes.Replace(b, []byte("generation.succ"), []byte("made.succ"), 1)
		},
		"no record":   func(_ *http.Request, b []byte) []byte { return without(t, b, "data") },
		"another way": func(r *http.Request, b []byte) []byte { r.Method = http.MethodPut; return b },
	} {
		r, body := notice(t, ends()[video.Succeeded])
		body = spoil(r, body)
		if spec.Webhook("videoEnded", r, body) == nil {
			t.Errorf("%s: nothing is said of %s", name, body)
		}
	}
	if r, body := notice(t, ends()[video.Succeeded]); spec.Webhook("videoBegun", r, body) == nil {
		t.Error("a webhook that is not there takes a notice")
	}
}

// without is a JSON object without a member.
func without(t *testing.T, data []byte, name string) []byte {
	t.Helper()
	var o map[string]json.RawMessage
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	delete(o, name)
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
