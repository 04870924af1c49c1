package server_test

import (
	"context"
	"io"
	"net/http"
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

// answeringVendor is an upstream that answers every submission with the same bytes.
type answeringVendor string

func (a answeringVendor) Do(context.Context, *upstream.Call) (*upstream.Reply, error) {
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

// brokenStore is a store whose code fails.
type brokenStore struct{ video.Store }

func (brokenStore) Add(context.Context, video.CreateTask) error { panic("a defect") }

// refusal is a row of the table of errors of videos, as far as the gateway
// gives the code.
type refusal struct {
	body   string
	header []string
	o      fixtureOptions
	tasks  video.Store // nil for one that works
	status int
	code   string
	param  string
}

// refusals are by what is wrong. Each is the only rule that its request breaks.
func refusals() map[string]refusal {
	vendor := func(f upstream.Failure) fixtureOptions { return fixtureOptions{upstream: failing{f.Fault()}} }
	audit := &fault.Error{
		Code: "InputTextSensitiveContentDetected", Message: "no", Status: 400, Err: &upstream.Failure{Status: 400, Sent: true},
		Body: []byte(`{"error":{"code":"InputTextSensitiveContentDetected","message":"no","param":"","type":"BadRequest"}}`),
	}
	return map[string]refusal{
		"no JSON":               {body: `{"model":`, status: 400, code: "invalid_request_error"},
		"a contradiction":       {body: `{"model":"beta2.7-t2v","input":{"prompt":"a"},"parameters":{"duration":6}}`, status: 400, code: "invalid_request_error", param: "parameters.duration"},
		"a chat model":          {body: `{"model":"delta-k3","prompt":"a"}`, status: 400, code: "invalid_request_error", param: "model"},
		"no model":              {body: `{"prompt":"a"}`, status: 400, code: "InvalidParameter.MissingRequired", param: "model"},
		"a long prompt":         {body: `{"model":"beta2.7-t2v","input":{"prompt":"` + strings.Repeat("ä", 5001) + `"}}`, status: 400, code: "InvalidParameter.PromptTooLong", param: "input.prompt"},
		"a private webhook":     {body: `{"model":"beta2.7-t2v","input":{"prompt":"a"},"webhook_url":"https://127.0.0.1/x"}`, status: 400, code: "InvalidParameter.UrlInvalid", param: "webhook_url"},
		"no price":              {body: `{"model":"beta2.7-t2v","resolution":"1080p","input":{"prompt":"a"}}`, status: 400, code: "InvalidParameter.ResolutionNotSupported", param: "resolution"},
		"the vendor's audit":    {body: gammaBoat, o: fixtureOptions{upstream: failing{audit}}, status: 400, code: "InputTextSensitiveContentDetected"},
		"no key":                {body: boat, header: []string{"Authorization: "}, status: 401, code: "unauthorized"},
		"no money":              {body: boat, o: fixtureOptions{credit: 499_999_999}, status: 402, code: "insufficient_balance"},
		"a model of others":     {body: boat, o: fixtureOptions{key: auth.KeyOptions{Models: []string{"beta2.6-t2v"}}}, status: 403, code: "permission_denied", param: "model"},
		"no such model":         {body: `{"model":"beta9","prompt":"a"}`, status: 404, code: "model_not_found", param: "model"},
		"no such draft":         {body: `{"model":"gamma-1-5-pro-251215","prompt":"a","content":[{"type":"draft_task","draft_task":{"task_id":"x"}}]}`, status: 404, code: "ResourceNotFound", param: "id"},
		"another type":          {body: boat, header: []string{"Content-Type: text/plain"}, status: 415, code: "unsupported_media_type"},
		"too large":             {body: boat, o: fixtureOptions{server: server.Options{MaxBody: 20}}, status: 413, code: "request_too_large"},
		"tokens a minute":       {body: gammaBoat, o: fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{TPM: 10}}}, status: 429, code: "rate_limit_exceeded"},
		"the vendor's limit":    {body: boat, o: vendor(upstream.Failure{Status: 429, Sent: true, Refused: true}), status: 429, code: "RateLimitExceeded"},
		"a defect":              {body: boat, tasks: brokenStore{}, status: 500, code: "internal_error"},
		"the operator's key":    {body: boat, o: vendor(upstream.Failure{Status: 401, Sent: true, Fatal: true}), status: 502, code: "service_unavailable"},
		"an error under 200":    {body: boat, o: fixtureOptions{upstream: answeringVendor(`{"error":{"code":"x","message":"sk-vendor"}}`)}, status: 502, code: "BadGateway"},
		"a vendor that is busy": {body: boat, o: vendor(upstream.Failure{Status: 503, Sent: true, Refused: true}), status: 503, code: "ServiceUnavailable"},
	}
}

func TestEveryErrorOfVideosHasItsCodeAndForm(t *testing.T) {
	for name, want := range refusals() {
		t.Run(name, func(t *testing.T) {
			credit := want.o.credit
			if credit == 0 {
				credit = 10 * billing.One
			}
			c := newVideoFixture(t, want.o, nil, func(o *gateway.Options) { o.Tasks = want.tasks })
			a := c.do(t, "POST", videos, want.body, want.header...)
			e := a.errorOf(t)
			if a.status != want.status || e.Code != want.code {
				t.Fatalf("%d %s, want %d %s", a.status, a.body, want.status, want.code)
			}
			if param := e.Param; want.param != "" && (param == nil || *param != want.param) {
				t.Errorf("param of %s, want %s", a.body, want.param)
			}
			if kind := fault.Type(want.status); e.Type != kind && name != "the vendor's audit" {
				t.Errorf("type %q, want %q", e.Type, kind)
			}
			if strings.Contains(a.body, "sk-vendor") || c.posted(t) != credit || c.held(t) != 0 || c.studio.Jobs() != 0 {
				t.Errorf("%s; posted %s, held %s, %d jobs", a.body, c.posted(t), c.held(t), c.studio.Jobs())
			}
			if again := c.do(t, "POST", videos, want.body, want.header...); again.status != want.status {
				t.Errorf("a refused submission blocks its repetition: %d %s", again.status, again.body)
			}
		})
	}
}

// TestTheOrderOfChecksOfVideos breaks two rules at once: the first of
// the order of the checks wins.
func TestTheOrderOfChecksOfVideos(t *testing.T) {
	none := fixtureOptions{credit: 1}
	for name, want := range map[string]struct {
		refusal
		then string
	}{
		"the model before the fields":       {refusal: refusal{body: `{"model":"beta9","duration":"x","resolution":1}`, status: 404, code: "model_not_found"}},
		"a model of others before 400":      {refusal: refusal{body: `{"model":"beta2.7-t2v"}`, o: fixtureOptions{key: auth.KeyOptions{Models: []string{"m"}}}, status: 403, code: "permission_denied"}},
		"the fields before the balance":     {refusal: refusal{body: `{"model":"beta2.7-t2v"}`, o: none, status: 400, code: "InvalidParameter.MissingRequired"}},
		"tokens a minute before balance":    {refusal: refusal{body: gammaBoat, o: fixtureOptions{credit: 1, key: auth.KeyOptions{Limits: auth.Limits{TPM: 10}}}, status: 429, code: "rate_limit_exceeded"}},
		"the balance before the vendor":     {refusal: refusal{body: boat, o: fixtureOptions{credit: 1, upstream: failing{fault.New(fault.BadGateway, "asked")}}, status: 402, code: "insufficient_balance"}},
		"the key's replay before balance":   {refusal: refusal{body: boat, o: fixtureOptions{credit: billing.One / 2}, header: []string{"Idempotency-Key: k"}, status: 202}, then: boat},
		"another's body before the balance": {refusal: refusal{body: boat, o: fixtureOptions{credit: billing.One / 2}, header: []string{"Idempotency-Key: k"}, status: 409, code: "idempotency_conflict"}, then: gammaBoat},
	} {
		t.Run(name, func(t *testing.T) {
			c := newVideoFixture(t, want.o, nil, func(o *gateway.Options) { o.Video.DuplicateWindow = -1 })
			a := c.do(t, "POST", videos, want.body, want.header...)
			if want.then != "" {
				first := a.record(t)
				defer c.finish(t, first.ID)
				a = c.do(t, "POST", videos, want.then, want.header...)
			}
			if a.status != want.status {
				t.Fatalf("%d %s, want %d", a.status, a.body, want.status)
			}
			if want.code != "" && a.errorOf(t).Code != want.code {
				t.Errorf("%s, want %s", a.body, want.code)
			}
		})
	}
}
