package vendortest_test

import (
	"net/http"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// drivers makes each driver, and a call that it can make of its vendor.
var drivers = map[string]struct {
	make func(t *testing.T, url string) upstream.Upstream
	op   upstream.Op
	body string
}{
	"openai": {func(t *testing.T, url string) upstream.Upstream {
		return vendortest.New(t, openai.New, upstream.DriverOptions{BaseURL: url, Keys: vendortest.Keys("sk-1")})
	}, upstream.ChatCompletion, `{"model":"m","messages":[]}`},
	"anthropic": {func(t *testing.T, url string) upstream.Upstream {
		return vendortest.New(t, anthropic.New, upstream.DriverOptions{BaseURL: url, Keys: vendortest.Keys("sk-1")})
	}, upstream.Messages, `{"model":"m","messages":[]}`},
	"ark": {func(t *testing.T, url string) upstream.Upstream {
		return vendortest.New(t, ark.New, upstream.DriverOptions{BaseURL: url, Keys: vendortest.Keys("sk-1")})
	}, upstream.SubmitVideo, `{"model":"m","content":[]}`},
	"dashscope": {func(t *testing.T, url string) upstream.Upstream {
		return vendortest.New(t, dashscope.New, upstream.DriverOptions{BaseURL: url, Keys: vendortest.Keys("sk-1")})
	}, upstream.SubmitVideo, `{"model":"wan2.6-t2v","input":{}}`},
	"voyage": {func(t *testing.T, url string) upstream.Upstream {
		return vendortest.New(t, voyage.New, upstream.DriverOptions{BaseURL: url, Keys: vendortest.Keys("sk-1")})
	}, upstream.Embeddings, `{"model":"voyage-4","input":["one"]}`},
}

func refusedBy(t *testing.T, driver string, status int, body string) (*fault.Error, *upstream.Failure) {
	d := drivers[driver]
	url := vendortest.Serve(t, vendortest.Responds(status, map[string]string{"Retry-After": "30"}, body))
	return vendortest.Refused(t, d.make(t, url), &upstream.Call{Op: d.op, Model: "m", Body: vendortest.Body(t, d.body)})
}

// TestOnlyAVendorsCodeSaysSurelyThatTheAccountIsOut: a status alone may be what
// the vendor answers to one request, such as a prompt that it will not moderate or
// a model that this account may not use.
func TestOnlyAVendorsCodeSaysSurelyThatTheAccountIsOut(t *testing.T) {
	object := func(name, value string) string { return `{"error":{"message":"m","` + name + `":"` + value + `"}}` }
	for _, row := range []struct {
		driver string
		status int
		body   string
		sure   bool
	}{
		{"openai", 401, object("code", "invalid_api_key"), true},
		{"openai", 401, object("type", "authentication_error"), true},
		{"openai", 401, object("type", "invalid_authentication_error"), true},
		{"openai", 401, object("type", "incorrect_api_key_error"), true},
		{"openai", 401, "", false},
		{"openai", 402, `{"error":{"code":402,"message":"This request requires more credits, or fewer max_tokens."}}`, false},
		{"openai", 402, object("code", "insufficient_balance"), true},
		{"openai", 403, `{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged."}}`, false},
		{"openai", 403, object("code", "model_not_found"), false},
		{"openai", 403, object("code", "account_deactivated"), true},
		{"openai", 403, object("code", "billing_not_active"), true},
		{"openai", 403, "<html>a firewall's page</html>", false},
		{"openai", 429, object("code", "insufficient_quota"), true},
		{"openai", 400, object("code", "billing_hard_limit_reached"), true},
		{"openai", 400, `{"error":{"code":400,"message":"m","status":"FAILED_PRECONDITION"}}`, false},
		{"anthropic", 401, object("type", "authentication_error"), true},
		{"anthropic", 402, object("type", "billing_error"), true},
		{"anthropic", 403, object("type", "permission_error"), false},
		{"anthropic", 400, `{"error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}`, true},
		{"ark", 401, object("code", "AuthenticationError"), true},
		{"ark", 403, object("code", "AccountOverdueError"), true},
		{"ark", 403, object("code", "OperationDenied.ServiceOverdue"), true},
		{"ark", 403, object("code", "OperationDenied.InvalidState"), false},
		{"ark", 403, object("code", "AccessDenied"), false},
		{"ark", 429, object("code", "QuotaExceeded"), true},
		{"dashscope", 400, `{"code":"Arrearage","message":"m"}`, true},
		{"dashscope", 401, `{"code":"InvalidApiKey","message":"m"}`, true},
		{"dashscope", 403, `{"code":"AccessDenied.Unpurchased","message":"m"}`, true},
		{"dashscope", 403, `{"code":"AccessDenied","message":"m"}`, false},
		{"dashscope", 403, `{"code":"Model.AccessDenied","message":"m"}`, false},
		{"voyage", 403, `{"detail":"m"}`, false},
		{"voyage", 429, `{"detail":"You have not yet added your payment method."}`, true},
	} {
		e, f := refusedBy(t, row.driver, row.status, row.body)
		if e.Code != fault.NoChannel || e.HTTPStatus() != http.StatusBadGateway || !f.Fatal || f.Ambiguous == row.sure {
			t.Errorf("%s: %d %s: %v, %+v", row.driver, row.status, row.body, e, f)
		}
	}
}

func TestARateLimitThatARequestExceedsByItsSizeHasNoTimeToComeBack(t *testing.T) {
	for _, row := range []struct {
		body      string
		oversized bool
	}{
		{`{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 90000."}}`, true},
		{`{"error":{"code":"context_length_exceeded","message":"m"}}`, true},
		{`{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000."}}`, false},
		{`{"error":{"type":"requests","code":"rate_limit_exceeded","message":"m"}}`, false},
	} {
		e, f := refusedBy(t, "openai", http.StatusTooManyRequests, row.body)
		if e.Code != fault.UpstreamRateLimit || f.Oversized != row.oversized || (e.RetryAfter == 0) != row.oversized {
			t.Errorf("%s: %v, come back after %s, %+v", row.body, e, e.RetryAfter, f)
		}
	}
}
