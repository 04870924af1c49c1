package server_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
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
	gamma := func(members string) string { return `{"model":"gamma-2-0-260128",` + members + `}` }
	content := func(block string) string { return gamma(`"content":[` + block + `]`) }
	vendor := func(f upstream.Failure) fixtureOptions { return fixtureOptions{upstream: failing{f.Fault()}} }
	audit := &fault.Error{
		Code: "InputTextSensitiveContentDetected", Message: "no", Status: 400, Err: &upstream.Failure{Status: 400, Sent: true},
		Body: []byte(`{"error":{"code":"InputTextSensitiveContentDetected","message":"no","param":"","type":"BadRequest"}}`),
	}
	return map[string]refusal{
		"no JSON":                  {body: `{"model":`, status: 400, code: "invalid_request_error"},
		"a billed field twice":     {body: `{"model":"beta2.7-t2v","duration":5,"duration":6,"input":{"prompt":"a"}}`, status: 400, code: "invalid_request_error"},
		"a billed field's variant": {body: `{"model":"beta2.7-t2v","Duration":5,"input":{"prompt":"a"}}`, status: 400, code: "invalid_request_error"},
		"a contradiction":          {body: `{"model":"beta2.7-t2v","input":{"prompt":"a"},"parameters":{"duration":6}}`, status: 400, code: "invalid_request_error", param: "parameters.duration"},
		"a chat model":             {body: `{"model":"delta-k3","prompt":"a"}`, status: 400, code: "invalid_request_error", param: "model"},
		"a number for a word":      {body: gamma(`"prompt":"a","ratio":1`), status: 400, code: "InvalidParameter", param: "ratio"},
		"a draft of a model without": {
			body: gamma(`"prompt":"a","draft":true`), status: 400, code: "InvalidParameter", param: "draft",
		},
		"no model":                   {body: `{"prompt":"a"}`, status: 400, code: "InvalidParameter.MissingRequired", param: "model"},
		"no input":                   {body: `{"model":"beta2.7-t2v"}`, status: 400, code: "InvalidParameter.MissingRequired", param: "input"},
		"no address":                 {body: content(`{"type":"image_url","image_url":{}}`), status: 400, code: "InvalidParameter.MissingRequired", param: "content[0].image_url.url"},
		"a word that is not listed":  {body: gamma(`"prompt":"a","resolution":"4k"`), status: 400, code: "InvalidParameter.NotInEnum", param: "resolution"},
		"a ratio that is not listed": {body: `{"model":"beta2.7-t2v","aspect_ratio":"21:9","input":{"prompt":"a"}}`, status: 400, code: "InvalidParameter.NotInEnum", param: "aspect_ratio"},
		"a long prompt":              {body: `{"model":"beta2.7-t2v","input":{"prompt":"` + strings.Repeat("ä", 5001) + `"}}`, status: 400, code: "InvalidParameter.PromptTooLong", param: "input.prompt"},
		"an address that is none":    {body: content(`{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"ftp://x.example/a"}}`), status: 400, code: "InvalidParameter.UrlInvalid", param: "content[1].image_url.url"},
		"a private webhook":          {body: `{"model":"beta2.7-t2v","input":{"prompt":"a"},"webhook_url":"https://127.0.0.1/x"}`, status: 400, code: "InvalidParameter.UrlInvalid", param: "webhook_url"},
		"no such resolution":         {body: `{"model":"beta2.7-t2v","resolution":"480p","input":{"prompt":"a"}}`, status: 400, code: "InvalidParameter.ResolutionNotSupported", param: "resolution"},
		"no price":                   {body: `{"model":"beta2.7-t2v","resolution":"1080p","input":{"prompt":"a"}}`, status: 400, code: "InvalidParameter.ResolutionNotSupported", param: "resolution"},
		"too short":                  {body: gamma(`"prompt":"a","duration":3`), status: 400, code: "InvalidParameter.DurationOutOfRange", param: "duration"},
		"nothing to show":            {body: gamma(`"content":[]`), status: 400, code: "InvalidParameter.ContentEmpty", param: "content"},
		"a role that is none":        {body: content(`{"type":"image_url","image_url":{"url":"https://x.example/a"},"role":"hero"}`), status: 400, code: "InvalidParameter.UnsupportedRole", param: "content[0].role"},
		"the vendor's audit":         {body: gammaBoat, o: fixtureOptions{upstream: failing{audit}}, status: 400, code: "InputTextSensitiveContentDetected"},
		"no key":                     {body: boat, header: []string{"Authorization: "}, status: 401, code: "unauthorized"},
		"no money":                   {body: boat, o: fixtureOptions{credit: 499_999_999}, status: 402, code: "insufficient_balance"},
		"a model of others":          {body: boat, o: fixtureOptions{key: auth.KeyOptions{Models: []string{"beta2.6-t2v"}}}, status: 403, code: "permission_denied", param: "model"},
		"no such model":              {body: `{"model":"beta9","prompt":"a"}`, status: 404, code: "model_not_found", param: "model"},
		"no such draft":              {body: `{"model":"gamma-1-5-pro-251215","prompt":"a","content":[{"type":"draft_task","draft_task":{"task_id":"x"}}]}`, status: 404, code: "ResourceNotFound", param: "id"},
		"another type":               {body: boat, header: []string{"Content-Type: text/plain"}, status: 415, code: "unsupported_media_type"},
		"too large":                  {body: boat, o: fixtureOptions{server: server.Options{MaxBody: 20}}, status: 413, code: "request_too_large"},
		"tokens a minute":            {body: gammaBoat, o: fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{TPM: 10}}}, status: 429, code: "rate_limit_exceeded"},
		"the vendor's limit":         {body: boat, o: vendor(upstream.Failure{Status: 429, Sent: true, Refused: true}), status: 429, code: "RateLimitExceeded"},
		"a defect":                   {body: boat, tasks: brokenStore{}, status: 500, code: "internal_error"},
		"the operator's key":         {body: boat, o: vendor(upstream.Failure{Status: 401, Sent: true, Fatal: true}), status: 502, code: "service_unavailable"},
		"an error under 200":         {body: boat, o: fixtureOptions{upstream: answeringVendor(`{"error":{"code":"x","message":"sk-vendor"}}`)}, status: 502, code: "BadGateway"},
		"a vendor that is busy":      {body: boat, o: vendor(upstream.Failure{Status: 503, Sent: true, Refused: true}), status: 503, code: "ServiceUnavailable"},
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

// TestTheCodesOfTheTableAreAllThere holds the tests of this file against the
// codes that are the gateway's own.
func TestTheCodesOfTheTableAreAllThere(t *testing.T) {
	seen := map[string]bool{ // by tests of their own
		"idempotency_conflict": true, "ConcurrencyExceeded": true, "RequestTimeout": true,
	}
	for _, r := range refusals() {
		seen[r.code] = true
	}
	for _, code := range strings.Fields(`InvalidParameter InvalidParameter.MissingRequired InvalidParameter.NotInEnum InvalidParameter.PromptTooLong
		InvalidParameter.UrlInvalid InvalidParameter.ResolutionNotSupported InvalidParameter.DurationOutOfRange InvalidParameter.ContentEmpty
		InvalidParameter.UnsupportedRole invalid_request_error unauthorized insufficient_balance permission_denied model_not_found ResourceNotFound
		idempotency_conflict rate_limit_exceeded RateLimitExceeded ConcurrencyExceeded internal_error service_unavailable BadGateway
		ServiceUnavailable RequestTimeout`) {
		if !seen[code] {
			t.Errorf("no test is refused with %s; there are %v", code, slices.Sorted(maps.Keys(seen)))
		}
	}
}

func TestAKeyHasNoMoreVideosAtOnceThanItMay(t *testing.T) {
	c := newVideoFixture(t, fixtureOptions{key: auth.KeyOptions{Limits: auth.Limits{MaxConcurrentVideos: 1}}}, nil, nil)
	_, first := c.submit(t, boat)
	other := strings.Replace(boat, "a boat", "a car", 1)
	a := c.do(t, "POST", videos, other)
	if e := a.errorOf(t); a.status != 429 || e.Code != "ConcurrencyExceeded" || e.Type != "rate_limit_error" || c.held(t) != billing.One/2 {
		t.Errorf("%d %s, held %s", a.status, a.body, c.held(t))
	}
	c.finish(t, first.ID)
	_, second := c.submit(t, other)
	c.finish(t, second.ID)
}

func TestASubmissionWhoseAnswerIsLostIsA504ThatNamesItsTask(t *testing.T) {
	for name, row := range map[string]struct {
		lost sim.Break
		o    fixtureOptions
		jobs int
	}{
		"the connection broke":    {lost: sim.Lost, jobs: 1},
		"half of an answer":       {lost: sim.Cut, jobs: 1},
		"an answer without a job": {o: fixtureOptions{upstream: answeringVendor(`{"hello":"world"}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newVideoFixture(t, row.o, func(o *sim.Options) {
				o.Fault = func(*upstream.Call) sim.Fault { return sim.Fault{Break: row.lost} }
			}, nil)
			a := c.do(t, "POST", videos, boat)
			e := a.errorOf(t)
			_, id, named := strings.Cut(e.Message, videos+"/")
			id, _, _ = strings.Cut(id, " ")
			if a.status != 504 || e.Code != "RequestTimeout" || e.Type != "api_error" || !named || !strings.HasPrefix(id, "vid_") {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if r := c.show(t, id); r.Status != "queued" || c.held(t) != billing.One/2 || c.studio.Jobs() != row.jobs {
				t.Errorf("meanwhile %+v, held %s, %d jobs", r, c.held(t), c.studio.Jobs())
			}
			c.pass(48*time.Hour + 11*time.Minute)
			if r := c.show(t, id); r.Status != "expired" || r.Error == nil || r.Error.Code != "RequestTimeout" || c.held(t) != 0 || c.posted(t) != 10*billing.One {
				t.Errorf("at last %+v, held %s, posted %s", r, c.held(t), c.posted(t))
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
		"401 before 415": {refusal: refusal{body: boat, header: []string{"Authorization: ", "Content-Type: text/plain"}, status: 401, code: "unauthorized"}},
		"415 before 413": {refusal: refusal{body: boat, header: []string{"Content-Type: text/plain"}, o: fixtureOptions{server: server.Options{MaxBody: 20}}, status: 415, code: "unsupported_media_type"}},
		"the body before the model": {
			refusal: refusal{body: `{"model":"beta9"} x`, status: 400, code: "invalid_request_error"},
		},
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
