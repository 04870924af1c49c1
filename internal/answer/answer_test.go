package answer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestAnErrorInA200IsARefusalWithTheStatusThatItNames(t *testing.T) {
	const words, hidden = "Vendor's words.", ""
	for _, test := range []struct {
		name, raw string
		code      fault.Code
		status    int    // of the caller's error
		message   string // hidden for the gateway's own
	}{
		{"a number, OpenRouter's", `{"code":400,"message":"Vendor's words."}`, fault.InvalidRequest, 400, words},
		{"a number as text", `{"code":"413","message":"Vendor's words."}`, fault.InvalidRequest, 413, words},
		{"a number beside a word", `{"code":422,"type":"odd_error","message":"Vendor's words."}`, "odd_error", 422, words},
		{"a status", `{"status":404,"message":"Vendor's words."}`, fault.InvalidRequest, 404, words},
		{"a status as text", `{"status":"429","message":"Vendor's words."}`, fault.UpstreamRateLimit, 429, hidden},
		{"a time-out", `{"code":408,"message":"Vendor's words."}`, fault.RequestTimeout, 504, hidden},
		{"a rate limit", `{"code":429,"message":"Vendor's words."}`, fault.UpstreamRateLimit, 429, hidden},
		{"a failure", `{"code":502,"message":"Vendor's words."}`, fault.BadGateway, 502, hidden},
		{"an overload", `{"code":503,"message":"Vendor's words."}`, fault.ServiceUnavailable, 503, hidden},
		{"a code", `{"code":"context_length_exceeded","message":"Vendor's words."}`, "context_length_exceeded", 400, words},
		{"a type", `{"type":"invalid_request_error","code":null,"message":"Vendor's words."}`, "invalid_request_error", 400, words},
		{"a type of a rate limit", `{"type":"rate_limit_error","message":"Vendor's words."}`, fault.UpstreamRateLimit, 429, hidden},
		{"a number, not its type", `{"type":"invalid_request_error","code":429,"message":"Vendor's words."}`, fault.UpstreamRateLimit, 429, hidden},
		{"a code, not its type", `{"type":"invalid_request_error","code":"rate_limit_exceeded","message":"Vendor's words."}`, fault.UpstreamRateLimit, 429, hidden},
		{"Google's word", `{"code":400,"status":"INVALID_ARGUMENT","message":"Vendor's words."}`, "INVALID_ARGUMENT", 400, words},
		{"vLLM's", `{"object":"error","message":"Vendor's words.","type":"BadRequestError","code":400}`, "BadRequestError", 400, words},
		{"a document", `{"type":"error","error":{"type":"request_too_large","message":"Vendor's words."}}`, "request_too_large", 413, words},
		{"no words", `{"code":400}`, fault.InvalidRequest, 400, "The upstream refused the request."},
		{"HTML for words", `{"code":400,"message":"<html>a page</html>"}`, fault.InvalidRequest, 400, "The upstream refused the request."},
		{"a key refused", `{"code":401,"message":"Vendor's words."}`, fault.BadGateway, 502, hidden},
		{"an account that cannot pay", `{"code":"402","message":"Vendor's words."}`, fault.BadGateway, 502, hidden},
		{"an account that cannot pay, in Anthropic's words", `{"type":"invalid_request_error","message":"Your Credit Balance is too low."}`, fault.BadGateway, 502, hidden},
		{"a number that is no status", `{"code":1234,"message":"Vendor's words."}`, fault.BadGateway, 502, hidden},
		{"nothing", `{"message":"Vendor's words."}`, fault.BadGateway, 502, hidden},
		{"a text", `"Vendor's words."`, fault.BadGateway, 502, hidden},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := ErrorFrame([]byte(test.raw))
			f := fault.From(err)
			if f.Code != test.code || f.HTTPStatus() != test.status {
				t.Errorf("%d %v, want %d %s", f.HTTPStatus(), f, test.status, test.code)
			}
			if test.message != hidden && f.Message != test.message || test.message == hidden && strings.Contains(f.Message, "words") {
				t.Errorf("the caller reads %q", f.Message)
			}
			if cause, found := upstream.FailureOf(err); !found || !cause.Sent || strings.Contains(cause.Error(), "words") {
				t.Errorf("failure %+v", cause)
			}
		})
	}
}

func TestAnErrorInA200SaysWhoseFaultItIs(t *testing.T) {
	for _, test := range []struct {
		name, raw string
		fatal     bool
		ambiguous bool
		noModel   bool
		log       string // how it ends
	}{
		{"the vendor's", `{"type":"server_error","message":"secret"}`, false, false, false, "answer: server_error"},
		{"the operator's, by its code", `{"code":"insufficient_quota","type":"x","message":"secret"}`, true, false, false, "answer: insufficient_quota"},
		{"the operator's, in other letters", `{"code":"Arrearage","message":"secret"}`, true, false, false, "answer: Arrearage"},
		{"the operator's, by its type", `{"type":"permission_error","message":"secret"}`, true, true, false, "answer: permission_error"},
		{"the operator's, by its code, whatever its type", `{"code":"insufficient_quota","type":"permission_error"}`, true, false, false, "answer: insufficient_quota"},
		{"the operator's, by a number", `{"code":403,"message":"secret"}`, true, true, false, "answer: 403"},
		{"a bill", `{"type":"billing_error"}`, true, false, false, "answer: billing_error"},
		{"MiniMax's key", `{"code":"1004"}`, true, false, false, "answer: 1004"},
		{"MiniMax's key, a number beside the answer", `{"base_resp":{"status_code":1004,"status_msg":"secret"}}`, true, false, false, "answer: 1004"},
		{"Google's key", `{"code":"API_KEY_INVALID"}`, true, false, false, "answer: API_KEY_INVALID"},
		{"a model that the vendor does not have", `{"code":"model_not_found","message":"secret"}`, false, false, true, "answer: model_not_found"},
		{"a text for a code", `{"code":"my secret prompt"}`, false, false, false, "200 answer"},
		{"a code with a hyphen", `{"code":"too-large"}`, false, false, false, "answer: too-large"},
		{"no object", `"secret"`, false, false, false, "200 answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := ErrorFrame([]byte(test.raw))
			var f *upstream.Failure
			if !errors.As(err, &f) || f.Fatal != test.fatal || f.Ambiguous != test.ambiguous || f.NoModel != test.noModel || !f.Sent {
				t.Fatalf("%v, failure %+v", err, f)
			}
			if text := f.Error(); strings.Contains(text, "secret") || !strings.HasSuffix(text, test.log) {
				t.Errorf("the log gets %q, want an end of %q without the vendor's text", text, test.log)
			}
		})
	}
}

func TestALimitInA200SaysHowLongToWait(t *testing.T) {
	const google = `{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[7,{"reason":"x"},{"retryDelay":"3s"}]}}`
	if f := fault.From(ErrorFrame([]byte(google))); f.Code != fault.UpstreamRateLimit || f.RetryAfter != 3*time.Second {
		t.Errorf("%v, after %s", f, f.RetryAfter)
	}
}

func TestOnlyALimitInA200SaysThatNothingWasDone(t *testing.T) {
	for raw, want := range map[string]bool{`{"code":429}`: true, `{"code":503}`: false, `{"type":"overloaded_error"}`: false} {
		if f, _ := upstream.FailureOf(ErrorFrame([]byte(raw))); f.Refused != want {
			t.Errorf("%s: %+v", raw, f)
		}
	}
}

func TestTheWordsOfAnErrorBody(t *testing.T) {
	for _, test := range []struct{ name, body, want string }{
		{"OpenAI's", `{"error":{"message":"m","code":"c"}}`, "m"},
		{"a text for the error", `{"error":"m"}`, "m"},
		{"a list of errors", `{"errors":[{"message":"m"},{"message":"n"}]}`, "m; n"},
		{"a list of texts", `{"errors":["m","n"]}`, "m; n"},
		{"a code and a msg", `{"code":1001,"msg":"m"}`, "m"},
		{"an error_msg", `{"error_code":17,"error_msg":"m"}`, "m"},
		{"a detail", `{"detail":"m"}`, "m"},
		{"details of fields", `{"detail":[{"loc":["body","n"],"msg":"m"}]}`, "m"},
		{"plain text", " upstream said:\nno \n", "upstream said: no"},
		{"a JSON string", `"m"`, "m"},
		{"HTML", "<html><body>m</body></html>", ""},
		{"HTML in JSON", `{"message":"<!DOCTYPE html>m"}`, ""},
		{"broken JSON", `{"message":"m`, ""},
		{"JSON without words", `{"code":7}`, ""},
		{"nothing", "", ""},
		{"much text", strings.Repeat("m", maxWords+1), strings.Repeat("m", maxWords) + "…"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Words([]byte(test.body)); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestAnObjectWithoutAnAnswerCanBeAnErrorOfAnyForm(t *testing.T) {
	for body, want := range map[string]bool{
		`{"object":"error","message":"m"}`: true, `{"type":"error"}`: true, `{"detail":"m"}`: true, `{"code":400,"message":"m"}`: true,
		`{"code":1,"msg":"m"}`: true, `{"status":500,"error_msg":"m"}`: true, `{"base_resp":{"status_code":1004,"status_msg":"m"}}`: true,
		`{"base_resp":{"status_code":0,"status_msg":"success"},"id":"a"}`: false, `{"id":"a","message":"m"}`: false, `{"id":"a","detail":"m"}`: false, `{}`: false,
	} {
		o, err := rawjson.Index([]byte(body), nil, nil)
		if got := IsError(&o); got != want || err != nil {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}
