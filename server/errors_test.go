package server_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// failing is an upstream that always fails the same way.
type failing struct{ err error }

func (f failing) Do(context.Context, *upstream.Call) (*upstream.Reply, error) { return nil, f.err }

// refusedBy is a gateway whose vendor always refuses in its own words, which are a body.
func refusedBy(code fault.Code, body string) fixtureOptions {
	return fixtureOptions{upstream: failing{&fault.Error{
		Code: code, Message: "no", Status: 400, Body: []byte(body), Err: &upstream.Failure{Status: 400, Sent: true},
	}}}
}

// failedBy is one whose vendor always fails.
func failedBy(f upstream.Failure) fixtureOptions { return fixtureOptions{upstream: failing{f.Fault()}} }

// answeringVendor is an upstream that answers every submission with the same bytes.
type answeringVendor string

func (a answeringVendor) Do(context.Context, *upstream.Call) (*upstream.Reply, error) {
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

// brokenStore is a store whose code fails.
type brokenStore struct{ video.Store }

func (brokenStore) Add(context.Context, video.CreateTask) error { panic("a defect") }

// endpointError is one kind of error at one endpoint.
type endpointError struct {
	name, path, body string
	header           string
	o                fixtureOptions
	status           int
	code, kind       string // of the error; the kind is invalid_request_error if it is empty
	param            string // "" for any
}

// endpointErrors has one row for each kind of error at each endpoint with a form of its own.
func endpointErrors(t testing.TB) []endpointError {
	form := func(more ...string) (body, contentType string) { return editBody(t, cube(t, more...)...) }
	edit, multipart := form()
	manyPictures, manyType := form("n=11")
	largeForm, largeType := form("x=" + strings.Repeat("x", 10_000))
	const prompt, embed, rank, speak = `{"model":"imagegen-2","prompt":"a"}`, "/v1/embeddings", "/v1/rerank", "/v1/audio/speech"
	busy := upstream.Failure{Status: 429, Sent: true, Refused: true}
	poor, bad := fixtureOptions{credit: 1}, "invalid_request_error"
	video := func(members string) string { return `{"model":"beta2.7-t2v",` + members + `}` }
	const flash, instruct = `{"model":"alpha3-tts-flash","response_format":"wav",`, `{"model":"alpha3-tts-instruct-flash",`
	return []endpointError{
		{"a rule", generations, strings.Replace(redCube, "1280*720", "1*1", 1), "", fixtureOptions{}, 400, bad, "", ""},
		{"no JSON", generations, `{`, "", fixtureOptions{}, 400, bad, "", ""},
		{"a wrong key", generations, redCube, "Authorization: Bearer sk-no", fixtureOptions{}, 401, "unauthorized", "authentication_error", ""},
		{"no money", generations, redCube, "", poor, 402, "insufficient_balance", "insufficient_balance", ""},
		{"the vendor's rate", generations, redCube, "", failedBy(busy), 429, "Throttling.RateQuota", "rate_limit_error", ""},
		{"the vendor's words", generations, redCube, "", refusedBy("InvalidParameter", `{"request_id":"theirs","code":"InvalidParameter","message":"no","more":1.0}`), 400, "InvalidParameter", "", ""},
		{"OpenAI's words", generations, prompt, "", refusedBy("invalid_value", `{"error":{"message":"no","type":"image_generation_user_error","code":"invalid_value"}}`), 400, "invalid_value", "image_generation_user_error", ""},
		{"a vendor that is away", generations, redCube, "", failedBy(upstream.Failure{}), 502, "service_unavailable", "api_error", ""},

		{"a rule", edits, manyPictures, "Content-Type: " + manyType, fixtureOptions{}, 400, bad, "", "n"},
		{"a wrong key", edits, edit, "Authorization: Bearer sk-no", fixtureOptions{}, 401, "unauthorized", "authentication_error", ""},
		{"no money", edits, edit, "Content-Type: " + multipart, poor, 402, "", "", ""},
		{"JSON", edits, edit, "Content-Type: application/json", fixtureOptions{}, 415, "unsupported_media_type", "", ""},
		{"no boundary", edits, edit, "Content-Type: multipart/form-data", fixtureOptions{}, 400, bad, "", ""},
		{"another boundary", edits, edit, "Content-Type: multipart/form-data; boundary=x", fixtureOptions{}, 400, bad, "", ""},
		{"the vendor's words", edits, edit, "Content-Type: " + multipart, refusedBy("moderation_blocked", `{"error":{"message":"no","type":"image_generation_user_error","code":"moderation_blocked","param":null}}`), 400, "moderation_blocked", "image_generation_user_error", ""},
		{"the vendor's rate", edits, edit, "Content-Type: " + multipart, failedBy(busy), 429, "RateLimitExceeded", "rate_limit_error", ""},
		{"a limit", edits, largeForm, "Content-Type: " + largeType, fixtureOptions{server: server.Options{MaxForm: 10_000}}, 413, "request_too_large", "", ""},

		{"no input", embed, `{"model":"text-embedding-v4"}`, "", fixtureOptions{}, 400, bad, "", "input"},
		{"an encoding", embed, `{"model":"text-embedding-v4","input":"a","encoding_format":"int8"}`, "", fixtureOptions{}, 400, bad, "", "encoding_format"},
		{"a chat model", embed, `{"model":"delta-k3","input":"a"}`, "", fixtureOptions{}, 400, bad, "", "model"},
		{"a vendor that gives no reason", embed, `{"model":"text-embedding-v4","input":"a"}`, "", refusedBy("too_long", `{"error":{"message":"","code":"too_long"}}`), 400, "too_long", "", ""},
		{"no such model", embed, `{"model":"none","input":"a"}`, "", fixtureOptions{}, 404, "model_not_found", "", "model"},
		{"no money", embed, `{"model":"text-embedding-v4","input":"more than it has"}`, "", poor, 402, "insufficient_balance", "insufficient_balance", ""},

		{"an empty list", rank, `{"model":"rerank-v3.5","query":"q","documents":[]}`, "", fixtureOptions{}, 400, bad, "", "documents"},
		{"no query", "/v2/rerank", `{"model":"rerank-v3.5","documents":["a"]}`, "", fixtureOptions{}, 400, bad, "", "query"},
		{"two lists", "/rerank", `{"model":"rerank-v3.5","query":"q","documents":["a"],"texts":["a"]}`, "", fixtureOptions{}, 400, bad, "", "texts"},
		{"an embedding model", rank, `{"model":"text-embedding-v4","query":"q","documents":["a"]}`, "", fixtureOptions{}, 400, bad, "", "model"},
		{"no such model", rank, `{"model":"none","query":"q","documents":["a"]}`, "", fixtureOptions{}, 404, "model_not_found", "", "model"},
		{"no money", rank, rankTwo, "", poor, 402, "insufficient_balance", "insufficient_balance", ""},
		{"a wrong key", rank, rankTwo, "Authorization: Bearer sk-no", fixtureOptions{}, 401, "unauthorized", "authentication_error", ""},
		{"Cohere's words", rank, rankTwo, "", refusedBy("invalid_request_error", `{"message":"no"}`), 400, bad, "", ""},
		{"another vendor's words", rank, rankTwo, "", refusedBy("too_long", `{"error":{"message":"no","code":"too_long"}}`), 400, "too_long", "", ""},
		{"no ranking", rank, rankTwo, "", fixtureOptions{upstream: answeringVendor(`{"results":[{"index":5,"relevance_score":1}]}`)}, 502, "BadGateway", "api_error", ""},

		{"no money", speak, flash + `"input":"hi"}`, "", poor, 402, "", "", ""},
		{"no such model", speak, `{"model":"nobody","input":"hi"}`, "", fixtureOptions{}, 400, "endpoint_model_mismatch", "", "model"},
		{"no model", speak, `{"input":"hi"}`, "", fixtureOptions{}, 400, bad, "", "model"},
		{"no input", speak, flash + `"input":""}`, "", fixtureOptions{}, 400, "endpoint_model_mismatch", "", "input"},
		{"a voice", speak, flash + `"input":"hi","voice":"cherry"}`, "", fixtureOptions{}, 400, "endpoint_model_mismatch", "", "voice"},
		{"a format", speak, instruct + `"input":"hi","response_format":"wav"}`, "", fixtureOptions{}, 400, bad, "", "response_format"},
		{"instructions", speak, flash + `"input":"hi","instructions":"slow"}`, "", fixtureOptions{}, 400, bad, "", "instructions"},
		{"a field twice", speak, flash + `"input":"hi","input":"ho"}`, "", fixtureOptions{}, 400, bad, "", ""},

		{"no JSON", videos, `{"model":`, "", fixtureOptions{}, 400, bad, "", ""},
		{"a contradiction", videos, video(`"input":{"prompt":"a"},"parameters":{"duration":6}`), "", fixtureOptions{}, 400, bad, "", "parameters.duration"},
		{"no model", videos, `{"prompt":"a"}`, "", fixtureOptions{}, 400, "InvalidParameter.MissingRequired", "", "model"},
		{"a long prompt", videos, video(`"input":{"prompt":"` + strings.Repeat("ä", 5001) + `"}`), "", fixtureOptions{}, 400, "InvalidParameter.PromptTooLong", "", "input.prompt"},
		{"a private webhook", videos, video(`"input":{"prompt":"a"},"webhook_url":"https://127.0.0.1/x"`), "", fixtureOptions{}, 400, "InvalidParameter.UrlInvalid", "", "webhook_url"},
		{"the vendor's audit", videos, boat, "", refusedBy("InputTextSensitiveContentDetected", `{"error":{"code":"InputTextSensitiveContentDetected","message":"no","param":"","type":"BadRequest"}}`), 400, "InputTextSensitiveContentDetected", "BadRequest", ""},
		{"no money", videos, boat, "", poor, 402, "insufficient_balance", "insufficient_balance", ""},
		{"a model of others", videos, boat, "", fixtureOptions{key: auth.KeyOptions{Models: []string{"m"}}}, 403, "permission_denied", "permission_error", "model"},
		{"no such model", videos, `{"model":"beta9","prompt":"a"}`, "", fixtureOptions{}, 404, "model_not_found", "", "model"},
		{"too large", videos, boat, "", fixtureOptions{server: server.Options{MaxBody: 20}}, 413, "request_too_large", "", ""},
		{"the vendor's limit", videos, boat, "", failedBy(busy), 429, "RateLimitExceeded", "rate_limit_error", ""},
		{"a defect", videos, boat, "", fixtureOptions{gateway: func(o *gateway.Options) { o.Tasks = brokenStore{} }}, 500, "internal_error", "api_error", ""},
		{"the operator's key", videos, boat, "", failedBy(upstream.Failure{Status: 401, Sent: true, Fatal: true}), 502, "service_unavailable", "api_error", ""},
		{"an error under 200", videos, boat, "", fixtureOptions{upstream: answeringVendor(`{"error":{"code":"x","message":"sk-vendor"}}`)}, 502, "BadGateway", "api_error", ""},
		{"a vendor that is busy", videos, boat, "", failedBy(upstream.Failure{Status: 503, Sent: true, Refused: true}), 503, "ServiceUnavailable", "api_error", ""},
	}
}

// Nothing of an error costs anything.
func TestEveryErrorHasTheBodyOfItsEndpoint(t *testing.T) {
	for _, c := range endpointErrors(t) {
		t.Run(c.path+" "+c.name, c.check)
	}
}

func (c endpointError) check(t *testing.T) {
	if c.o.credit == 0 {
		c.o.credit = 1000 * billing.One
	}
	s := newRoutesFixture(t, c.o)
	a := s.do(t, "POST", c.path, c.body, c.header)
	if a.status != c.status || s.posted(t) != c.o.credit || s.held(t) != 0 || strings.Contains(a.body, "sk-vendor") {
		t.Fatalf("%d %s; posted %s, held %s", a.status, a.body, s.posted(t), s.held(t))
	}
	if c.code == "" {
		if strings.TrimSpace(a.body) != `{"error":{"message":"Insufficient balance"}}` {
			t.Errorf("%s", a.body)
		}
		return
	}
	if c.kind == "" {
		c.kind = "invalid_request_error"
	}
	e := a.errorOf(t)
	if e.Code != c.code || e.Type != c.kind || c.param != "" && (e.Param == nil || *e.Param != c.param) {
		t.Errorf("%s", a.body)
	}
	if c.path == generations {
		checkBothForms(t, a, e.Code, e.Message, c.name == "the vendor's words")
	}
	if strings.HasSuffix(c.path, "/rerank") {
		var flat struct{ Message, Detail string }
		if err := json.Unmarshal([]byte(a.body), &flat); err != nil || flat.Message != e.Message || flat.Detail != e.Message {
			t.Errorf("%s: Cohere's clients read the message %q, Voyage's %q", a.body, flat.Message, flat.Detail)
		}
	}
	if again := s.do(t, "POST", c.path, c.body, c.header); again.status != c.status {
		t.Errorf("a refused request blocks its repetition: %d %s", again.status, again.body)
	}
}

// checkBothForms looks for the error beside the member error too, where image
// generations have it.
func checkBothForms(t *testing.T, a answer, code, message string, more bool) {
	t.Helper()
	var flat map[string]any
	if err := json.Unmarshal([]byte(a.body), &flat); err != nil {
		t.Fatal(err)
	}
	want := []string{"code", "error", "message", "request_id"}
	if more {
		want = []string{"code", "error", "message", "more", "request_id"}
	}
	if got := slices.Sorted(maps.Keys(flat)); !slices.Equal(got, want) || flat["code"] != code || flat["message"] != message || flat["request_id"] != a.header.Get("X-Request-Id") {
		t.Errorf("%s has the members %v, want %v", a.body, got, want)
	}
}
