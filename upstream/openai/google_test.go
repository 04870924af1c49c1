package openai

import (
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

// TestGooglesErrorsAreWhoseFaultTheyAre is of the OpenAI-compatible path of
// Gemini, which answers errors in Google's own form, in a list or not.
func TestGooglesErrorsAreWhoseFaultTheyAre(t *testing.T) {
	google := func(code, status, details string) string {
		return `{"error":{"code":` + code + `,"message":"Text.","status":"` + status + `","details":[` + details + `]}}`
	}
	const badKey = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}`
	const locale = `{"@type":"type.googleapis.com/google.rpc.LocalizedMessage","locale":"en-US","message":"API key not valid."}`
	const help = `{"@type":"type.googleapis.com/google.rpc.Help","links":[{"url":"https://ai.example"}]}`
	const noWait = `{"error":{"code":429,"message":"Text.","status":"RESOURCE_EXHAUSTED"}}`
	retry := func(delay string) string {
		return google("429", "RESOURCE_EXHAUSTED", help+`,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":`+delay+`}`)
	}
	for name, row := range map[string]struct {
		status int
		header string // Retry-After
		body   string
		code   fault.Code
		http   int
		fatal  bool
		wait   time.Duration
		quoted string // the body that the caller gets
	}{
		"a bad argument":           {400, "", google("400", "INVALID_ARGUMENT", ""), "INVALID_ARGUMENT", 400, false, 0, google("400", "INVALID_ARGUMENT", "")},
		"a bad argument in a list": {400, "", " [" + google("400", "INVALID_ARGUMENT", help) + "]\n", "INVALID_ARGUMENT", 400, false, 0, google("400", "INVALID_ARGUMENT", help)},
		"details that are none":    {400, "", google("400", "INVALID_ARGUMENT", `7,{"reason":5,"retryDelay":{}}`), "INVALID_ARGUMENT", 400, false, 0, google("400", "INVALID_ARGUMENT", `7,{"reason":5,"retryDelay":{}}`)},
		"no such model":            {404, "", google("404", "NOT_FOUND", ""), "NOT_FOUND", 404, false, 0, google("404", "NOT_FOUND", "")},
		"a list of two":            {400, "", "[" + google("400", "INVALID_ARGUMENT", "") + "," + google("400", "INVALID_ARGUMENT", "") + "]", fault.InvalidRequest, 400, false, 0, ""},
		"an empty list":            {400, "", "[]", fault.InvalidRequest, 400, false, 0, ""},
		"a list that is cut":       {400, "", `[{"error":{"message":"Te`, fault.InvalidRequest, 400, false, 0, ""},
		"a bad key":                {400, "", google("400", "INVALID_ARGUMENT", badKey+","+locale), fault.NoChannel, 502, true, 0, ""},
		"a bad key in a list":      {400, "", "[" + google("400", "INVALID_ARGUMENT", badKey) + "]", fault.NoChannel, 502, true, 0, ""},
		"a country without it":     {400, "", google("400", "FAILED_PRECONDITION", ""), fault.NoChannel, 502, true, 0, ""},
		"no rights":                {403, "", google("403", "PERMISSION_DENIED", ""), fault.NoChannel, 502, true, 0, ""},
		"a quota":                  {429, "", retry(`"33s"`), fault.UpstreamRateLimit, 429, false, 33 * time.Second, ""},
		"a quota in a list":        {429, "", "[" + retry(`"11.665902715s"`) + "]", fault.UpstreamRateLimit, 429, false, 11665902715, ""},
		"a header beside it":       {429, "7", retry(`"33s"`), fault.UpstreamRateLimit, 429, false, 7 * time.Second, ""},
		"a day's quota":            {429, "", retry(`"86400s"`), fault.UpstreamRateLimit, 429, false, time.Hour, ""},
		"a wait that was":          {429, "", retry(`"-5s"`), fault.UpstreamRateLimit, 429, false, 0, ""},
		"a wait without its unit":  {429, "", retry(`"33"`), fault.UpstreamRateLimit, 429, false, 0, ""},
		"a wait that is a number":  {429, "", retry(`33`), fault.UpstreamRateLimit, 429, false, 0, ""},
		"a quota without a wait":   {429, "", noWait, fault.UpstreamRateLimit, 429, false, 0, ""},
		"too much to do":           {503, "", strings.ReplaceAll(retry(`"2s"`), "429", "503"), fault.ServiceUnavailable, 503, false, 2 * time.Second, ""},
		"an own fault":             {500, "", strings.ReplaceAll(retry(`"2s"`), "429", "500"), fault.InternalServerError, 500, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			header := map[string]string{}
			if row.header != "" {
				header["Retry-After"] = row.header
			}
			e, f := vendortest.Refused(t, driver(t, vendortest.Responds(row.status, header, row.body), Options{}), chat(t, false))
			if e.Code != row.code || e.HTTPStatus() != row.http || f.Fatal != row.fatal || e.RetryAfter != row.wait || string(e.Body) != row.quoted {
				t.Errorf("%d %s, retry after %s, failure %+v, body %s", e.HTTPStatus(), e.Code, e.RetryAfter, f, e.Body)
			}
			if (row.quoted != "") != (e.Message == "Text.") {
				t.Errorf("the caller reads %q", e.Message)
			}
		})
	}
}

func TestGooglesErrorInAnAnsweredStreamIsOne(t *testing.T) {
	body := `[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"3s"}]}}]`
	if e, _ := vendortest.Refused(t, driver(t, vendortest.Responds(200, nil, body), Options{}), chat(t, true)); e.Code != fault.UpstreamRateLimit || e.RetryAfter != 3*time.Second {
		t.Errorf("%v, retry after %s", e, e.RetryAfter)
	}
}
