package video

import (
	"errors"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

func TestASubmissionIsReadInEitherForm(t *testing.T) {
	for body, want := range map[string]Report{
		`{"request_id":"r1","output":{"task_id":"a-1","task_status":"PENDING"}}`: {UpstreamID: "a-1", Word: "PENDING", State: video.Queued},
		`{"id":"cgt-1"}`: {UpstreamID: "cgt-1"},
		`{"id":"cgt-1","status":"queued","safety_identifier":"u1","created_at":1}`: {UpstreamID: "cgt-1", Word: "queued", State: video.Queued, Answer: []byte(`{"safety_identifier":"u1"}`)},
		`{"id":"cgt-1","error":null}`: {UpstreamID: "cgt-1"},
	} {
		r, err := ReadSubmission([]byte(body))
		if err != nil || r.UpstreamID != want.UpstreamID || r.Word != want.Word || r.State != want.State || string(r.Answer) != string(want.Answer) || r.Failure != nil {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
}

func TestA200ThatNamesNoTaskIsABadGateway(t *testing.T) {
	for body, refused := range map[string]bool{
		``: false, `null`: false, `[]`: false, `{"id":"a"`: false, `{}`: false, `{"id":1}`: false, `{"id":""}`: false,
		`{"output":{"task_status":"PENDING"}}`:                         false,
		`{"id":"a","x":"` + strings.Repeat("x", 1<<20) + `"}`:          false,
		`{"error":{"code":"InvalidParameter","message":"secret"}}`:     true,
		`{"request_id":"r","code":"Arrearage","message":"secret"}`:     true,
		`{"code":"InvalidParameter","message":"secret","output":null}`: true,
	} {
		_, err := ReadSubmission([]byte(body))
		var f *upstream.Failure
		code := fault.BadGateway
		if strings.Contains(body, "InvalidParameter") {
			code = "InvalidParameter" // the caller's fault, who reads why
		}
		if !fault.Is(err, code) || !errors.As(err, &f) || !f.Sent || f.Refused != refused || strings.Contains(f.Error(), "secret") {
			t.Errorf("%s: %v, refused %+v", safetext.Truncate(body, 80), err, f)
		}
		if _, err := ReadPoll(&video.Task{}, []byte(body)); !fault.Is(err, fault.BadGateway) && !strings.Contains(body, "PENDING") {
			t.Errorf("%s: %v", safetext.Truncate(body, 80), err)
		}
	}
	if _, err := ReadPoll(&video.Task{}, []byte(`{"id":"cgt-1"}`)); !fault.Is(err, fault.BadGateway) {
		t.Error("a poll that tells no state:", err)
	}
}

func TestAPollIsReadInEitherForm(t *testing.T) {
	for _, c := range []struct{ name, body, state, answer, failure string }{
		{"running, nested", `{"request_id":"r2","output":{"task_id":"a","task_status":"RUNNING","submit_time":"x"}}`, "running", "", ""},
		{"succeeded, nested", `{"output":{"task_id":"a","task_status":"SUCCEEDED","orig_prompt":"p","video_url":"https://x.example/\u0061"},"usage":{"duration":10.0,"SR":720}}`,
			"succeeded video", `{"content":[{"video_url":"https://x.example/\u0061"}],"usage":{"duration":10.0,"SR":720}}`, ""},
		{"usage as text", `{"output":{"task_id":"a","task_status":"SUCCEEDED","video_url":"u"},"usage":"{\"duration\": 5}"}`,
			"succeeded video", `{"content":[{"video_url":"u"}],"usage":{"duration": 5}}`, ""},
		{"usage as nonsense", `{"output":{"task_id":"a","task_status":"SUCCEEDED","video_url":"u"},"usage":"x"}`, "succeeded video", `{"content":[{"video_url":"u"}]}`, ""},
		{"no video, nested", `{"output":{"task_id":"a","task_status":"SUCCEEDED","video_url":""}}`, "succeeded", "", ""},
		{"failed, nested", `{"output":{"task_id":"a","task_status":"FAILED","code":"InvalidParameter","message":"the size"}}`, "failed", "", "InvalidParameter: the size"},
		{"failed without reason", `{"output":{"task_id":"a","task_status":"FAILED"}}`, "failed", "", "InternalServerError: " + noReason},
		{"one spelling", `{"output":{"task_id":"a","task_status":"CANCELED"}}`, "cancelled", "", ""},
		{"the other", `{"output":{"task_id":"a","task_status":"CANCELLED"}}`, "cancelled", "", ""},
		{"forgotten", `{"output":{"task_id":"a","task_status":"UNKNOWN"}}`, "running", "", ""},
		{"running, flat", `{"id":"a","model":"doubao","status":"running","created_at":1,"updated_at":2,"service_tier":"default"}`, "running", `{"service_tier":"default"}`, ""},
		{"succeeded, flat", `{"id":"a","model":"doubao","status":"succeeded","error":null,"content":{"video_url":"u","last_frame_url":"l","x":1.0},"usage":{"completion_tokens":1},"seed":42,"duration":5}`,
			"succeeded video", `{"content":[{"video_url":"u","last_frame_url":"l","x":1.0}],"usage":{"completion_tokens":1},"seed":42,"duration":5}`, ""},
		{"content as an array", `{"id":"a","status":"succeeded","content":[1,{"video_url":"u"},null,{"text":"x"}]}`, "succeeded video", `{"content":[{"video_url":"u"},{"text":"x"}]}`, ""},
		{"content as a text", `{"id":"a","status":"succeeded","content":"x"}`, "succeeded", "", ""},
		{"video_url at the top", `{"id":"a","status":"completed","video_url":"u"}`, "succeeded video", `{"video_url":"u","content":[{"video_url":"u"}]}`, ""},
		{"no video, flat", `{"id":"a","status":"succeeded","content":{"video_url":null}}`, "succeeded", `{"content":[{"video_url":null}]}`, ""},
		{"failed, flat", `{"id":"a","status":"failed","error":{"code":"OutputVideoSensitiveContentDetected","message":"no"},"x":1}`, "failed", `{"x":1}`, "OutputVideoSensitiveContentDetected: no"},
		{"failure_reason", `{"id":"a","status":"failed","failure_reason":{"code":"InternalServiceError","message":"no"}}`, "failed", `{"failure_reason":{"code":"InternalServiceError","message":"no"}}`, "InternalServerError: no"},
		{"expired", `{"id":"a","status":"expired"}`, "expired", "", "RequestTimeout: " + expiryFailure(video.Running).Message},
		{"tolerated words", `{"id":"a","status":"pending"}`, "queued", "", ""},
		{"an unknown word", `{"id":"a","status":"dreaming"}`, "running", "", ""},
	} {
		r, err := ReadPoll(&video.Task{}, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		state, failure := string(r.State), ""
		if r.Video {
			state += " video"
		}
		if r.Failure != nil {
			failure = r.Failure.Code + ": " + r.Failure.Message
		}
		if state != c.state || string(r.Answer) != c.answer || failure != c.failure || r.UpstreamID != "a" {
			t.Errorf("%s: %s %s %s", c.name, state, r.Answer, failure)
		}
	}
}

func TestAFailureHasAPublicCode(t *testing.T) {
	for code, want := range map[string]string{
		"DataInspectionFailed": "DataInspectionFailed", "InvalidParameter": "InvalidParameter", "InvalidParameter.duration": "InvalidParameter.duration",
		"InvalidParameter.DataInspection": "InvalidParameter.DataInspectionFailed", "InvalidURL": "InvalidParameter.UrlNotAccessible",
		"InvalidFile.Size": "InvalidParameter", "InvalidFile.Duration": "InvalidParameter.VideoDurationTooLong",
		"Throttling.RateQuota": "Throttling", "InternalError.Timeout": "InternalError", "MissingParameter.content": "InvalidParameter.MissingRequired",
		"InputImageSensitiveContentDetected.PrivacyInformation": "InputImageSensitiveContentDetected",
		"ServerOverloaded": "ServiceUnavailable", "InternalServiceError": "InternalServerError",
		"": "InternalServerError", "a b": "InternalServerError", "<script>": "InternalServerError", strings.Repeat("a", 81): "InternalServerError",
	} {
		f := failureOf([]byte(`"`+code+`"`), []byte(`"why"`))
		if f.Code != want || f.Message != "why" {
			t.Errorf("%s: %+v, want %s", code, f, want)
		}
	}
	for _, code := range []string{"Arrearage", "InvalidApiKey", "AccessDenied.Unpurchased", "AuthenticationError", "AccountOverdueError", "OperationDenied.ServiceOverdue", "QuotaExceeded"} {
		if f := failureOf([]byte(`"`+code+`"`), []byte(`"the operator's account"`)); f.Code != "service_unavailable" || f.Message != hiddenReason {
			t.Errorf("%s: %+v", code, f)
		}
	}
	if f := failureOf([]byte(`1`), []byte(`"`+strings.Repeat("ä", 1000)+`"`)); len(f.Message) > 1010 || !strings.HasSuffix(f.Message, "…") {
		t.Errorf("%d bytes of text", len(f.Message))
	}
}
