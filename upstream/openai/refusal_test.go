package openai

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// meant is what a vendor's status means to the caller and to the channel.
type meant struct {
	code           fault.Code
	public         int // what the caller gets
	again          bool
	counts         bool // against the channel
	fatal, refused bool
}

// meaning is the whole table from 300 to 599.
func meaning(status int) meant {
	in := func(list ...int) bool { return slices.Contains(list, status) }
	switch {
	case in(401, 402, 403, 407, 421, 426):
		return meant{fault.NoChannel, 502, true, true, true, false}
	case status == 408, status == 504:
		return meant{fault.RequestTimeout, 504, true, true, false, false}
	case status == 429:
		return meant{fault.UpstreamRateLimit, 429, true, true, false, true}
	case in(425, 503, 529):
		return meant{fault.ServiceUnavailable, 503, true, true, false, true}
	case status == 500:
		return meant{fault.InternalServerError, 500, true, true, false, false}
	case status == 501: // an operation that the vendor lacks
		return meant{fault.BadGateway, 502, true, false, false, false}
	case status < 400, status > 500, in(405, 406, 411, 412, 414, 416, 417, 424, 428, 431, 499):
		return meant{fault.BadGateway, 502, true, true, false, false}
	}
	return meant{"theirs", status, false, false, false, false}
}

func TestOfAllStatusesOnlyTheCallersOwnFaultIsTheirs(t *testing.T) {
	var status int
	up := newDriver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		vendortest.Responds(status, map[string]string{"Retry-After": "7"}, `{"error":{"message":"Text of the vendor.","code":"theirs"}}`)(w, r)
	}), upstream.DriverOptions{})
	other := newDriver(t, vendortest.Responds(200, nil, `{"id":"x","object":"chat.completion","choices":[]}`), upstream.DriverOptions{})
	all := map[string]string{"*": "*"}
	for status = 300; status < 600; status++ {
		want := meaning(status)
		e, f := vendortest.Refused(t, up, chat(t, false))
		if e.Code != want.code || e.HTTPStatus() != want.public || f.Status != status || f.Fatal != want.fatal || f.Refused != want.refused || (e.RetryAfter == 7*time.Second) != want.refused {
			t.Errorf("%d: %d %s, retry after %s, %+v, want %+v", status, e.HTTPStatus(), e.Code, e.RetryAfter, f, want)
		}
		if told := strings.Contains(e.Message, "Text of the vendor") || e.Body != nil; told != (want.code == "theirs") {
			t.Errorf("%d: the caller reads %q, %s", status, e.Message, e.Body)
		}
		r, err := router.New([]router.Channel{
			{Name: "bad", Upstream: up, Models: all}, {Name: "good", Upstream: other, Models: all, Priority: 1},
		}, router.Options{})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := r.Do(t.Context(), chat(t, false))
		if err == nil {
			_ = reply.Body.Close()
		}
		bad := r.Channels()[0]
		if again := err == nil; again != want.again || (bad.Failures == 1) != want.counts || (bad.LastError != "") != want.counts {
			t.Errorf("%d: asked elsewhere %v, %d failures, last error %q, want %+v", status, again, bad.Failures, bad.LastError, want)
		}
	}
}

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
			e, f := vendortest.Refused(t, newDriver(t, vendortest.Responds(row.status, header, row.body), upstream.DriverOptions{}), chat(t, false))
			if e.Code != row.code || e.HTTPStatus() != row.http || f.Fatal != row.fatal || e.RetryAfter != row.wait || string(e.Body) != row.quoted {
				t.Errorf("%d %s, retry after %s, failure %+v, body %s", e.HTTPStatus(), e.Code, e.RetryAfter, f, e.Body)
			}
			if (row.quoted != "") != (e.Message == "Text.") {
				t.Errorf("the caller reads %q", e.Message)
			}
		})
	}
}
