package openapitest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/openapitest"
)

// listener is a test that notes what it is told.
type listener struct {
	testing.TB
	told []string
}

func (l *listener) Helper()                  {}
func (l *listener) Context() context.Context { return context.Background() }
func (l *listener) Errorf(format string, args ...any) {
	l.told = append(l.told, fmt.Sprintf(format, args...))
}

// canned answers every request.
type canned struct {
	status      int
	contentType string
	body        string
	header      []string
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	h := http.Header{"X-Request-Id": {"req_1"}, "Content-Type": {c.contentType}}
	for i := 0; i < len(c.header); i += 2 {
		if h.Set(c.header[i], c.header[i+1]); c.header[i+1] == "" {
			h.Del(c.header[i])
		}
	}
	return &http.Response{StatusCode: c.status, Header: h, Body: io.NopCloser(strings.NewReader(c.body)), Request: r}, nil
}

const (
	question   = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	completion = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"yo"},"finish_reason":"stop"}],"x":1}`
	chunk      = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"yo"},"finish_reason":null}]}` + "\n\n"
	refusal    = `{"error":{"message":"No.","type":"invalid_request_error","code":"invalid_request_error","param":null}}`
	form       = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nimagegen-2\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nblue\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\r\nPNG\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n%d\r\n--b--\r\n"
)

func TestTrafficIsHeldAgainstTheDocument(t *testing.T) {
	const chat, edits, jsonType, sse = "POST /v1/chat/completions", "POST /v1/images/edits", "application/json", "text/event-stream"
	for name, row := range map[string]struct {
		to, body string
		answer   canned
		want     string // a part of what is told; empty if nothing is
	}{
		"a good call":                        {chat, question, canned{200, jsonType, completion, nil}, ""},
		"a good stream":                      {chat, question, canned{200, sse, chunk + "data: [DONE]\n\n", nil}, ""},
		"a stream that ends with an error":   {chat, question, canned{200, sse, chunk + "data: " + refusal + "\n\n", nil}, ""},
		"a refused wrong request":            {chat, `{"model":7}`, canned{400, jsonType, refusal, nil}, ""},
		"a good form":                        {edits, fmt.Sprintf(form, 2), canned{200, jsonType, `{"data":[{"b64_json":"aGk="}]}`, nil}, ""},
		"the admin API":                      {"GET /admin/v1/accounts", "", canned{200, jsonType, `[]`, nil}, ""},
		"an unknown path":                    {"GET /v1/x", "", canned{404, jsonType, refusal, nil}, ""},
		"an unknown path below another":      {"GET /v1/images/generations/x", "", canned{404, jsonType, `{"code":"c","message":"m","request_id":"r",` + refusal[1:], nil}, ""},
		"a wrong shape below another":        {"GET /v1/images/generations/x", "", canned{404, jsonType, refusal, nil}, "request_id"},
		"an accepted wrong request":          {chat, `{"model":"m","messages":[]}`, canned{200, jsonType, completion, nil}, "was accepted"},
		"an accepted wrong header":           {chat, question, canned{200, jsonType, completion, []string{"X-Gateway-Max-Tokens", "many"}}, "X-Gateway-Max-Tokens"},
		"an accepted wrong form":             {edits, fmt.Sprintf(form, 11), canned{200, jsonType, `{"data":[{"b64_json":"aGk="}]}`, nil}, "was accepted"},
		"an accepted wrong query":            {"GET /v1/usage?by=week", "", canned{200, jsonType, `{"object":"list","by":"day","data":[]}`, nil}, "by"},
		"an answer without a choice":         {chat, question, canned{200, jsonType, strings.Replace(completion, "choices", "chances", 1), nil}, "choices"},
		"an answer of another type":          {chat, question, canned{200, "text/html", completion, nil}, "text/html"},
		"an answer without a request id":     {chat, question, canned{200, jsonType, completion, []string{"X-Request-Id", ""}}, "X-Request-Id"},
		"a wrong chunk":                      {chat, question, canned{200, sse, chunk + `data: {"id":"c"}` + "\n\n", nil}, "event"},
		"a status that is not described":     {chat, question, canned{201, jsonType, completion, nil}, "no response 201"},
		"an error without a message":         {chat, question, canned{400, jsonType, strings.Replace(refusal, "No.", "", 1), nil}, "message"},
		"an error of another endpoint's":     {"POST /v1/images/generations", `{}`, canned{400, jsonType, refusal, nil}, "request_id"},
		"a 401 that names no scheme":         {chat, question, canned{401, jsonType, refusal, nil}, "Www-Authenticate"},
		"a 402 of speech that says too much": {"POST /v1/audio/speech", `{}`, canned{402, jsonType, refusal, nil}, "Insufficient balance"},
		"a path that is not described":       {"GET /v1/x", "", canned{200, jsonType, `{}`, nil}, "/v1/x"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &listener{TB: t}
			method, path, _ := strings.Cut(row.to, " ")
			req, err := http.NewRequestWithContext(t.Context(), method, "http://gateway.invalid"+path, strings.NewReader(row.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", jsonType)
			if strings.HasPrefix(row.body, "--b") {
				req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			}
			resp, err := openapitest.Transport(l, row.answer).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if data, err := io.ReadAll(resp.Body); err != nil || string(data) != row.answer.body {
				t.Errorf("the body %q, %v", data, err)
			}
			if told := strings.Join(l.told, "\n"); (row.want == "") != (told == "") || !strings.Contains(strings.ToLower(told), strings.ToLower(row.want)) {
				t.Errorf("told %q, want %q", told, row.want)
			}
		})
	}
}
