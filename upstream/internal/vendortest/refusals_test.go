package vendortest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/reranker"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// drivers are all drivers that reach a vendor over HTTP, with a call of each and a
// good answer to it.
var drivers = map[string]struct {
	make   func(upstream.DriverOptions) (upstream.Driver, error)
	op     upstream.Op
	body   string
	answer string
}{
	"openai":    {openai.New, upstream.ChatCompletion, `{"model":"m","messages":[]}`, `{}`},
	"anthropic": {anthropic.New, upstream.Messages, `{"model":"m","messages":[]}`, `{}`},
	"ark":       {ark.New, upstream.SubmitVideo, `{"model":"m","content":[]}`, `{"id":"cgt-1"}`},
	"dashscope": {dashscope.New, upstream.SubmitVideo, `{"model":"wan2.6-t2v","input":{}}`, `{"output":{"task_id":"1"}}`},
	"cohere":    {reranker.NewCohere, upstream.Rerank, `{"model":"rerank-v3.5","query":"q","documents":["one"]}`, `{"results":[]}`},
	"tei":       {reranker.NewTEI, upstream.Rerank, `{"model":"bge","query":"q","documents":["one"]}`, `[]`},
	"voyage":    {voyage.New, upstream.Embeddings, `{"model":"voyage-4","input":["one"]}`, `{"object":"list","data":[],"usage":{"total_tokens":1}}`},
}

func refusedBy(t *testing.T, driver string, status int, body string, header ...string) (*fault.Error, *upstream.Failure) {
	d := drivers[driver]
	sent := map[string]string{"Retry-After": "30"}
	for i := 0; i < len(header); i += 2 {
		sent[header[i]] = header[i+1]
	}
	url := vendortest.Serve(t, vendortest.Responds(status, sent, body))
	up := vendortest.New(t, d.make, upstream.DriverOptions{BaseURL: url, Keys: vendortest.Keys("sk-1")})
	return vendortest.Refused(t, up, &upstream.Call{Op: d.op, Model: "m", Body: vendortest.Body(t, d.body)})
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for name, d := range drivers {
		for _, o := range []upstream.DriverOptions{{BaseURL: "api.example"}, {BaseURL: "https://sk-secret@h/"}, {ConnectTimeout: -1}, {Keys: vendortest.Keys("sk-secret", "sk\n")}} {
			if _, err := d.make(o); err == nil || strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("%s: %+v: %v", name, o, err)
			}
		}
	}
}

func TestAKeyThatTheVendorRefusesIsLeftAlone(t *testing.T) {
	for name, d := range drivers {
		t.Run(name, func(t *testing.T) {
			var asked []string
			url := vendortest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key := strings.TrimPrefix(r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), "Bearer ")
				asked = append(asked, key)
				if key == "bad-key" {
					vendortest.Responds(http.StatusUnauthorized, nil, "The key bad-key is none.")(w, r)
					return
				}
				vendortest.Responds(http.StatusOK, nil, d.answer)(w, r)
			}))
			up := vendortest.New(t, d.make, upstream.DriverOptions{
				BaseURL: url, Keys: vendortest.Keys("bad-key", "good-key"), Now: func() time.Time { return time.Unix(0, 0) },
			})
			call := &upstream.Call{Op: d.op, Model: "m"}
			for range 10 {
				call.Body = vendortest.Body(t, d.body)
				reply, err := up.Do(t.Context(), call)
				if err == nil { // as a router does
					reply.Used.Report(call, nil)
					_ = reply.Body.Close()
				}
				if call.RefusedKeys = nil; err != nil {
					f, _ := upstream.FailureOf(err)
					call.RefusedKeys = []string{f.Key}
				}
				if err != nil && strings.Contains(err.Error(), "bad-key") {
					t.Errorf("the key is in the log: %v", err)
				}
			}
			got := strings.ReplaceAll(strings.Join(asked, " "), "-key", "")
			if want := "bad good bad good bad good good good good good"; got != want {
				t.Errorf("the vendor got %s, want %s", got, want)
			}
		})
	}
}

func TestEachDriverUsesTheKeyOfTheCallAndNamesIt(t *testing.T) {
	for name, d := range drivers {
		t.Run(name, func(t *testing.T) {
			var asked []string
			url := vendortest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, strings.TrimPrefix(r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), "Bearer "))
				vendortest.Responds(http.StatusOK, nil, d.answer)(w, r)
			}))
			up := vendortest.New(t, d.make, upstream.DriverOptions{BaseURL: url, Keys: vendortest.Keys("sk-1", "sk-2", "sk-3")})
			call := func(edit func(*upstream.Call)) (id, key string) {
				t.Helper()
				c := &upstream.Call{Op: d.op, Model: "m", Body: vendortest.Body(t, d.body)}
				edit(c)
				reply, err := up.Do(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				_ = reply.Body.Close()
				return reply.Key, asked[len(asked)-1]
			}
			ids := make(map[string]string)
			for range 3 {
				id, key := call(func(*upstream.Call) {})
				ids[id] = key
			}
			if len(ids) != 3 || ids[""] != "" {
				t.Fatalf("three keys have the ids %q", ids)
			}
			for id, want := range ids {
				for range 2 {
					if _, key := call(func(c *upstream.Call) { c.Key = id }); key != want {
						t.Errorf("a call for %s was made with %s", want, key)
					}
				}
			}
			_, want := call(func(c *upstream.Call) { c.Session = upstream.Session{1} })
			for range 4 {
				if _, key := call(func(c *upstream.Call) { c.Session = upstream.Session{1} }); key != want {
					t.Errorf("a session has the keys %s and %s", want, key)
				}
			}
			before := len(asked)
			_, err := up.Do(t.Context(), &upstream.Call{Op: d.op, Model: "m", Key: "000000000000", Body: vendortest.Body(t, d.body)})
			if f, _ := upstream.FailureOf(err); fault.From(err).Code != fault.NoChannel || !f.Unasked || len(asked) != before {
				t.Errorf("a key that is not there: %v, %d calls", err, len(asked)-before)
			}
		})
	}
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
		{"openai", 403, object("code", "account_deactivated"), true},
		{"openai", 403, object("code", "billing_not_active"), true},
		{"openai", 403, "<html>a firewall's page</html>", false},
		{"openai", 429, object("code", "insufficient_quota"), true},
		{"openai", 400, object("code", "billing_hard_limit_reached"), true},
		{"openai", 403, object("code", "AccessDenied.Unpurchased"), true}, // DashScope by this wire
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
		{"cohere", 401, `{"message":"invalid api token"}`, false},
		{"cohere", 498, `{"message":"blocked token"}`, true},
		{"cohere", 429, `{"message":"You are using a Trial key, which is limited to 1000 API calls / month."}`, true},
		{"tei", 401, `{"error":"Unauthorized","error_type":"Unauthorized"}`, false},
		{"voyage", 403, `{"detail":"m"}`, false},
		{"voyage", 429, `{"detail":"You have not yet added your payment method."}`, true},
	} {
		e, f := refusedBy(t, row.driver, row.status, row.body)
		if e.Code != fault.NoChannel || e.HTTPStatus() != http.StatusBadGateway || e.RetryAfter != 0 || !f.Fatal || f.Ambiguous == row.sure {
			t.Errorf("%s: %d %s: %v, come back after %s, %+v", row.driver, row.status, row.body, e, e.RetryAfter, f)
		}
	}
}

func TestARateLimitThatARequestExceedsByItsSizeHasNoTimeToComeBack(t *testing.T) {
	const anthropicLimit = `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed the rate limit for your organization of 30,000 input tokens per minute."}}`
	const limit, left, requests = "anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-requests-remaining"
	for _, row := range []struct {
		driver, body string
		header       []string
		oversized    bool
	}{
		{"openai", `{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 90000."}}`, nil, true},
		{"openai", `{"error":{"code":"context_length_exceeded","message":"m"}}`, nil, true},
		{"openai", `{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000."}}`, nil, false},
		{"openai", `{"error":{"type":"requests","code":"rate_limit_exceeded","message":"m"}}`, nil, false},
		{"anthropic", anthropicLimit, []string{limit, "30000", left, "30000"}, true},
		{"anthropic", anthropicLimit, []string{limit, "30000", left, "4000"}, false},
		{"anthropic", anthropicLimit, []string{limit, "30000", left, "30000", requests, "0"}, false},
		{"anthropic", anthropicLimit, nil, false}, // it says the same of one that came after others
	} {
		e, f := refusedBy(t, row.driver, http.StatusTooManyRequests, row.body, row.header...)
		if e.Code != fault.UpstreamRateLimit || f.Oversized != row.oversized || (e.RetryAfter == 0) != row.oversized {
			t.Errorf("%s %q: %v, come back after %s, %+v", row.body, row.header, e, e.RetryAfter, f)
		}
	}
}
