package dashscope

import (
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

const (
	askedVideo    = `{"model":"wan2.7-t2v", "input":{"prompt":"hé"},"parameters":{"resolution":"720P","duration":5,"seed":1.0},"x":9007199254740993}`
	acceptedVideo = `{"request_id":"r1", "output":{"task_id":"0385dc79-example","task_status":"PENDING"}}`
	finishedVideo = `{"request_id":"r3", "output":{"task_id":"0385dc79-example","task_status":"SUCCEEDED","video_url":"https://bucket.example/x.mp4?Signature=a"},"usage":{"duration":5.0,"video_count":1,"SR":720}}`
)

func TestTheDriverConformsForVideos(t *testing.T) {
	conforms(t, map[upstream.Op]upstreamtest.Sample{
		upstream.SubmitVideo: {
			Model: "wan2.7-t2v", Request: []byte(askedVideo), Answer: []byte(acceptedVideo),
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"request_id":"r1","code":"InvalidParameter","message":"The size is wrong."}`),
				Code: "InvalidParameter", Message: "The size is wrong.",
			},
		},
		upstream.PollVideo: {
			Model: "wan2.7-t2v", TaskID: "0385dc79-example", Answer: []byte(finishedVideo),
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"request_id":"r1","code":"InvalidParameter","message":"No such task."}`),
				Code: "InvalidParameter", Message: "No such task.",
			},
		},
	})
}

func videoCall(t *testing.T) *upstream.Call {
	t.Helper()
	return &upstream.Call{Op: upstream.SubmitVideo, Model: "wan2.7-t2v", RequestID: "req_1", Body: vendortest.Body(t, askedVideo)}
}

func videoPoll(id string) *upstream.Call {
	return &upstream.Call{Op: upstream.PollVideo, Model: "wan2.7-t2v", RequestID: "req_2", TaskID: id}
}

// watched makes a call of a vendor that answers, and returns what both got.
func watched(t *testing.T, call *upstream.Call, answer string) (got vendortest.Seen, reply string) {
	t.Helper()
	r, reply := vendortest.Answer(t, newDriver(t, vendortest.Recording(&got, answer)), call)
	if r.Status != 200 {
		t.Fatal(r.Status)
	}
	return got, reply
}

func TestAVideoIsSubmittedAsAnAsynchronousTask(t *testing.T) {
	got, reply := watched(t, videoCall(t), acceptedVideo)
	if reply != acceptedVideo || got.Body != askedVideo {
		t.Errorf("sent %s, got %s", got.Body, reply)
	}
	if got.Method != "POST" || got.URI != "/api/v1/services/aigc/video-generation/video-synthesis" || got.Header.Get("X-DashScope-Async") != "enable" || got.Header.Get("Authorization") != "Bearer sk-vendor-1" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s %v", got.Method, got.URI, got.Header)
	}
}

func TestAPollAsksForItsTask(t *testing.T) {
	got, reply := watched(t, videoPoll("0385/a"), finishedVideo)
	if reply != finishedVideo || got.Body != "" || got.Method != "GET" || got.URI != "/api/v1/tasks/0385%2Fa" || got.Header.Get("Authorization") != "Bearer sk-vendor-1" || got.Header.Get("X-DashScope-Async") != "" || got.Header.Get("Content-Type") != "" {
		t.Errorf("%s %s %v, %s, %s", got.Method, got.URI, got.Header, got.Body, reply)
	}
}

func TestAVideoThatFailedIsAnAnswer(t *testing.T) {
	for _, body := range []string{
		`{"request_id":"r4","output":{"task_id":"t","task_status":"FAILED","code":"InvalidParameter","message":"the size is not match"}}`,
		`{"request_id":"r4","code":"","message":"","output":{"task_id":"t","task_status":"RUNNING"}}`,
		`{"request_id":"r5","output":{"task_id":"t","task_status":"UNKNOWN"}}`,
		`{"request_id":"r5","output":{"task_id":"t","task_status":"CANCELED"}}`,
	} {
		if _, reply := watched(t, videoPoll("t"), body); reply != body {
			t.Errorf("%s became %s", body, reply)
		}
	}
}
