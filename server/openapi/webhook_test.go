package openapi_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/openapitest"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	deliverer "github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
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
	n := videoop.Delivery(task, "evt_1", task.UpdatedAt)
	r := httptest.NewRequest(http.MethodPost, "/video", bytes.NewReader(n.Body))
	r.Header = deliverer.Sign(n.ID, task.UpdatedAt, n.Body, secret, secret)
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
