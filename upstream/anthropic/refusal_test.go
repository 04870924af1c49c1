package anthropic

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// errorBody is an error body as the vendor writes it.
func errorBody(kind, message string) string {
	return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"},"request_id":"req_01"}`
}

// TestWhoseFaultARefusalIs has the error that a caller gets for each refusal.
func TestWhoseFaultARefusalIs(t *testing.T) {
	const own = "The upstream refused the request."
	for name, row := range map[string]struct {
		status  int
		body    string
		code    fault.Code
		want    int
		message string // that the caller reads; empty if it must not be the vendor's
		through bool   // the vendor's body goes to the caller
		fatal   bool
	}{
		"a bad request":      {400, errorBody("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "invalid_request_error", 400, "prompt is too long: 9 tokens > 8 maximum", true, false},
		"no such model":      {404, errorBody("not_found_error", "model: claude-z"), "not_found_error", 404, "model: claude-z", true, false},
		"too large":          {413, errorBody("request_too_large", "Request exceeds the maximum size"), "request_too_large", 413, "Request exceeds the maximum size", true, false},
		"another 4xx":        {422, errorBody("odd_error", "Text."), "odd_error", 422, "Text.", true, false},
		"a forbidden model":  {403, errorBody("permission_error", "Text."), fault.NoChannel, 502, "", false, true},
		"a bill as a 400":    {400, errorBody("billing_error", "Text."), fault.NoChannel, 502, "", false, true},
		"no credit":          {400, errorBody("invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."), fault.NoChannel, 502, "", false, true},
		"a spent budget":     {400, errorBody("invalid_request_error", "You have reached your specified API usage limits. You will regain access on 2026-10-01 at 00:00 UTC."), fault.NoChannel, 502, "", false, true},
		"a closed account":   {400, errorBody("invalid_request_error", "This organization has been disabled."), fault.NoChannel, 502, "", false, true},
		"a caller's fraud":   {400, errorBody("invalid_request_error", "Your credit balance is too low: Extra inputs are not permitted"), "invalid_request_error", 400, "Your credit balance is too low: Extra inputs are not permitted", true, false},
		"a caller's quote":   {400, errorBody("invalid_request_error", "No tool is named Your credit balance is too low"), "invalid_request_error", 400, "No tool is named Your credit balance is too low", true, false},
		"a bill as a 500":    {500, errorBody("billing_error", "Text."), fault.InternalServerError, 500, "", false, false},
		"Z.ai's balance":     {429, errorBody("1113", "Insufficient balance or no resource package. Please recharge."), fault.NoChannel, 502, "", false, true},
		"the same as a code": {429, `{"error":{"code":"1113","message":"Insufficient balance"}}`, fault.NoChannel, 502, "", false, true},
		"OpenAI's form":      {400, `{"error":{"type":"invalid_request_error","message":"Text."}}`, "invalid_request_error", 400, "Text.", false, false},
		"no type":            {400, `{"type":"error","error":{"message":"Text."}}`, fault.InvalidRequest, 400, "Text.", false, false},
		"no message":         {400, `{"type":"error","error":{"type":"invalid_request_error"}}`, "invalid_request_error", 400, own, false, false},
		"html":               {404, "<html>", fault.InvalidRequest, 404, own, false, false},
		"error is no object": {400, `{"type":"error","error":"Text."}`, fault.InvalidRequest, 400, "Text.", false, false},
		"plain text":         {400, " Text.\n", fault.InvalidRequest, 400, "Text.", false, false},
		"a detail":           {422, `{"detail":[{"loc":["body"],"msg":"Text."}]}`, fault.InvalidRequest, 422, "Text.", false, false},
		"a mark before it":   {400, "\xef\xbb\xbf" + `{"error":{"type":"t","message":"Text."}}`, "t", 400, "Text.", false, false},
		"nothing":            {400, "", fault.InvalidRequest, 400, own, false, false},
		"huge":               {400, errorBody("invalid_request_error", strings.Repeat("y", httpdo.MaxRefusal)), fault.InvalidRequest, 400, own, false, false},
		"its own key":        {400, errorBody("invalid_request_error", "sk-ant-1 may not"), "invalid_request_error", 400, "", false, false},
		"its key, escaped":   {400, errorBody("invalid_request_error", `sk\u002dant-1 may not`), "invalid_request_error", 400, "", false, false},
		"its key elsewhere":  {400, `{"type":"error","error":{"type":"t","message":"Text."},"x":"sk-ant-1"}`, "t", 400, "Text.", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, f := vendortest.Refused(t, newDriver(t, vendortest.Responds(row.status, nil, row.body), upstream.DriverOptions{}), call(t, false))
			if e.Code != row.code || e.HTTPStatus() != row.want || f.Fatal != row.fatal || f.Refused || f.Status != row.status || !f.Sent {
				t.Errorf("%d %s, failure %+v", e.HTTPStatus(), e.Code, f)
			}
			if row.message != "" && e.Message != row.message || e.Message == "" || row.want >= 429 && e.Message == "Text." {
				t.Errorf("the caller reads %q", e.Message)
			}
			if through := e.Body != nil; row.through != through || through && string(e.Body) != row.body {
				t.Errorf("the caller gets %q", e.Body)
			}
			if strings.Contains(e.Error()+string(e.Body), "sk-ant-1") {
				t.Errorf("a key is in %v", e)
			}
		})
	}
}

func TestAModelThatTheVendorDoesNotHave(t *testing.T) {
	for _, row := range []struct {
		vendor string
		status int
		body   string
		want   bool
	}{
		{"Anthropic", 404, errorBody("not_found_error", "model: claude-z"), true},
		{"Ollama", 404, errorBody("not_found_error", "model 'm' not found"), true},
		{"vLLM", 404, errorBody("NotFoundError", "The model `m` does not exist."), true},
		{"DeepSeek", 400, `{"error":{"message":"Model Not Exist","type":"invalid_request_error","code":"invalid_request_error"}}`, true},
		{"Z.ai", 400, `{"error":{"code":"1211","message":"Unknown Model, please check the model code."},"request_id":"r"}`, true},
		{"no counter of tokens", 404, errorBody("not_found_error", "Not Found"), false},
		{"a file", 404, errorBody("not_found_error", "File model 'm' was not found for the account"), false},
		{"a field", 400, errorBody("invalid_request_error", "model: String should have at most 256 characters"), false},
		{"words of the caller's", 400, errorBody("invalid_request_error", "tools.0.name: Model Not Exist"), false},
	} {
		t.Run(row.vendor, func(t *testing.T) {
			_, f := vendortest.Refused(t, newDriver(t, vendortest.Responds(row.status, nil, row.body), upstream.DriverOptions{}), call(t, false))
			if f.NoModel != row.want || f.Fatal {
				t.Errorf("failure %+v, want NoModel %v", f, row.want)
			}
		})
	}
}
