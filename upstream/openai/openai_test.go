package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

const hello = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

func chat(t testing.TB, stream bool) *upstream.Call {
	t.Helper()
	return &upstream.Call{
		Op: upstream.ChatCompletion, Model: "m", Stream: stream, RequestID: "req_1", ContentType: "application/json; charset=utf-8",
		Body: vendortest.Body(t, hello), Header: http.Header{"X-Secret": {"of the client"}},
	}
}

func TestTheWiresOfAVendor(t *testing.T) {
	chats, responses, counts := upstream.ChatCompletion, upstream.Responses, upstream.CountInput
	both := []upstream.Op{chats, responses, counts}
	for _, row := range []struct {
		name, base string
		wire, want []upstream.Op
	}{
		{"the default address", "", nil, both},
		{"OpenAI's address", "https://api.openai.com/v1", nil, both},
		{"in capital letters, with a port", "https://API.OpenAI.com:443/v1", nil, both},
		{"of a region", "https://eu.api.openai.com/v1", nil, both},
		{"an address that only looks like it", "https://myapi.openai.com/v1", nil, []upstream.Op{chats}},
		{"another vendor", "https://api.example/v1", nil, []upstream.Op{chats}},
		{"another vendor with both", "https://api.example/v1", []upstream.Op{responses, chats}, both},
		{"another vendor without chat", "https://api.example/v1", []upstream.Op{responses}, []upstream.Op{responses, counts}},
		{"OpenAI for chat alone", "", []upstream.Op{chats}, []upstream.Op{chats}},
	} {
		t.Run(row.name, func(t *testing.T) {
			up := vendortest.New(t, New, upstream.DriverOptions{BaseURL: row.base, Wire: row.wire})
			var got []upstream.Op
			for _, op := range both {
				if up.Supports(op, "m") {
					got = append(got, op)
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			for _, op := range []upstream.Op{upstream.Embeddings, upstream.Speech, upstream.GenerateImage, upstream.EditImage} {
				if !up.Supports(op, "m") {
					t.Errorf("%s is not supported", op)
				}
			}
		})
	}
	if _, err := New(upstream.DriverOptions{Wire: []upstream.Op{upstream.Messages}}); err == nil || !strings.Contains(err.Error(), `the wire "messages" is unknown`) {
		t.Errorf("a wire that is not OpenAI's: %v", err)
	}
}

func TestOfTheClientOnlyTheBetaAndTheQueryTravel(t *testing.T) {
	client := http.Header{"Openai-Beta": {"a=v1", "b=v2"}, "Openai-Organization": {"org-1"}, "Session-Id": {"s"}, "Originator": {"codex_exec"}}
	for name, row := range map[string]struct {
		keys   []secret.String
		op     upstream.Op
		stream bool
		header http.Header
		query  string
		uri    string
		want   http.Header
	}{
		"chat":          {vendortest.Keys("sk-1"), upstream.ChatCompletion, false, http.Header{"X-Secret": {"of the client"}}, "", "/v1/chat/completions", http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer sk-1"}}},
		"without a key": {[]secret.String{}, upstream.ChatCompletion, true, nil, "", "/v1/chat/completions", http.Header{"Accept": {"text/event-stream"}}},
		"responses":     {vendortest.Keys("sk-1"), upstream.Responses, false, client, "beta=true", "/v1/responses?beta=true", http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer sk-1"}, "Openai-Beta": {"a=v1", "b=v2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got vendortest.Seen
			up := newDriver(t, vendortest.Recording(&got, "{}"), upstream.DriverOptions{Keys: row.keys, Wire: []upstream.Op{upstream.ChatCompletion, upstream.Responses}})
			c := chat(t, row.stream)
			c.Op, c.Header, c.Query = row.op, row.header, row.query
			_, _ = up.Do(t.Context(), c)
			row.want.Set("Content-Type", "application/json")
			row.want.Set("User-Agent", "tollhouse")
			row.want.Set("Content-Length", fmt.Sprint(len(hello)))
			if diff := cmp.Diff(row.want, got.Header); diff != "" {
				t.Error(diff)
			}
			if got.Method != "POST" || got.URI != row.uri || got.Body != hello {
				t.Errorf("%s %s: %s", got.Method, got.URI, got.Body)
			}
		})
	}
}

// TestWhoseFaultARefusalIs has the error that a caller gets for each refusal.
func TestWhoseFaultARefusalIs(t *testing.T) {
	quote := func(s string) string { return fmt.Sprintf(`{"error":{"message":"Text.",%s}}`, s) }
	for name, row := range map[string]struct {
		status  int
		body    string
		code    fault.Code
		want    int
		message string // of the vendor's; empty if the caller must not see it
		param   string
		through bool // the vendor's body goes to the caller
		fatal   bool
	}{
		"400":                {400, quote(`"type":"invalid_request_error","param":"n","code":"bad_n"`), "bad_n", 400, "Text.", "n", true, false},
		"no code":            {400, quote(`"type":"content_filter","code":null`), "content_filter", 400, "Text.", "", true, false},
		"a number for code":  {422, quote(`"code":422`), "422", 422, "Text.", "", true, false},
		"number and type":    {400, quote(`"type":"t","code":400`), "t", 400, "Text.", "", true, false},
		"no words":           {413, ``, fault.InvalidRequest, 413, "The upstream refused the request.", "", false, false},
		"a string for error": {400, `{"error":"Text."}`, fault.InvalidRequest, 400, "Text.", "", false, false},
		"error is no object": {400, `{"error":[1]}`, fault.InvalidRequest, 400, "The upstream refused the request.", "", false, false},
		"html":               {404, `<html>`, fault.InvalidRequest, 404, "The upstream refused the request.", "", false, false},
		"model not found":    {404, quote(`"code":"model_not_found"`), "model_not_found", 404, "Text.", "", true, false},
		"bad UTF-8":          {400, quote("\"type\":\"\xff\""), fault.InvalidRequest, 400, "The upstream refused the request.", "", false, false},
		"huge":               {400, quote(`"x":"` + strings.Repeat("y", httpdo.MaxRefusal) + `"`), fault.InvalidRequest, 400, "The upstream refused the request.", "", false, false},
		"its own key":        {400, quote(`"code":"c","x":"sk-vendor-1"`), "c", 400, "Text.", "", false, false},
		"403":                {403, quote(`"type":"permission_denied_error"`), fault.NoChannel, 502, "", "", false, true},
		"Moonshot's quota":   {429, quote(`"type":"exceeded_current_quota_error"`), fault.NoChannel, 502, "", "", false, true},
		"arrears":            {400, quote(`"code":"Arrearage"`), fault.NoChannel, 502, "", "", false, true},
		"500":                {500, quote(`"code":"insufficient_quota"`), fault.InternalServerError, 500, "", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, f := vendortest.Refused(t, newDriver(t, vendortest.Responds(row.status, nil, row.body), upstream.DriverOptions{}), chat(t, false))
			if e.Code != row.code || e.HTTPStatus() != row.want || e.Param != row.param || f.Fatal != row.fatal || f.Status != row.status || !f.Sent {
				t.Errorf("%d %s, param %q, failure %+v", e.HTTPStatus(), e.Code, e.Param, f)
			}
			if row.message != "" && e.Message != row.message || row.message == "" && strings.Contains(e.Message, "Text") {
				t.Errorf("the caller reads %q", e.Message)
			}
			if through := string(e.Body) == row.body && row.body != ""; through != row.through || !through && e.Body != nil {
				t.Errorf("the caller gets %q", e.Body)
			}
			if strings.Contains(e.Error(), "sk-vendor-1") {
				t.Errorf("a key is in %v", e)
			}
		})
	}
}

// TestAnAnswerToAStreamedRequestPassesWhateverItsLabel leaves to the gateway what the answer is.
func TestAnAnswerToAStreamedRequestPassesWhateverItsLabel(t *testing.T) {
	const event, document = "data: [DONE]\n\n", `{"choices":[]}`
	for name, row := range map[string]struct{ kind, body string }{
		"events":                 {"text/event-stream", event},
		"events, with charset":   {"Text/Event-Stream;charset=utf-8", event},
		"no type":                {"", event},
		"text":                   {"text/plain; charset=utf-8", event},
		"bytes":                  {"application/octet-stream", event},
		"events called JSON":     {"application/json", event},
		"no type at all":         {";;", event},
		"a document":             {"application/json", document},
		"a document as a stream": {"text/event-stream", document},
	} {
		t.Run(name, func(t *testing.T) {
			up := newDriver(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{row.kind}
				if row.kind == "" {
					w.Header()["Content-Type"] = nil
				}
				_, _ = io.WriteString(w, row.body)
			}), upstream.DriverOptions{})
			reply, err := up.Do(t.Context(), chat(t, true))
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(reply.Body)
			if string(data) != row.body || errors.Join(err, reply.Body.Close()) != nil {
				t.Errorf("%q, %v", data, err)
			}
		})
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func BenchmarkDriver(b *testing.B) {
	up, err := New(upstream.DriverOptions{Keys: []secret.String{secret.New("sk-1")}, Transport: tripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody}, nil
	})})
	if err != nil {
		b.Fatal(err)
	}
	c := chat(b, false)
	b.ReportAllocs()
	for b.Loop() {
		reply, err := up.Do(context.Background(), c)
		if err != nil {
			b.Fatal(err)
		}
		_ = reply.Body.Close()
	}
}

// imageSample is a call for images, whole and as a stream.
var imageSample = upstreamtest.Sample{
	Model:   "gpt-image-2",
	Request: []byte(`{"model":"gpt-image-2", "prompt":"hé","n":2,"x":1.0}`),
	Stream:  []byte(`{"model":"gpt-image-2","prompt":"a","stream":true,"partial_images":1}`),
	Answer:  []byte(`{"created":1, "data":[{"b64_json":"aGk="},{"b64_json":"aGk="}],"usage":{"output_tokens":1.0}}`),
	Events: []string{
		"event: image_generation.partial_image\ndata: {\"type\":\"image_generation.partial_image\",\"b64_json\":\"aGk=\"}\n\n",
		"event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\",\"b64_json\":\"aGk=\"}\n\n",
	},
	Refusal: upstreamtest.Refusal{
		Status: 400, Body: []byte(`{"error":{"message":"Your request was rejected.","type":"image_generation_user_error","code":"moderation_blocked","param":null}}`),
		Code: "moderation_blocked", Message: "Your request was rejected.",
	},
}

// responseSample is a call for a response, whole and as a stream.
var responseSample = upstreamtest.Sample{
	Model:   "gpt-6",
	Request: []byte(`{"model":"gpt-6", "input":[{"role":"user","content":"hé"}],"store":false,"x_seed":1.0,"big":9007199254740993}`),
	Stream:  []byte(`{"model":"gpt-6","input":"hi","stream":true}`),
	Answer:  []byte(`{"id":"resp_1", "object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"é"}]}],"usage":{"input_tokens":1.0}}`),
	Events: []string{
		"event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\"}}\n\n", ": keep-alive\n\n",
		"event: response.some_day\ndata: {\"type\":\"response.some_day\",\"sequence_number\":1}\n\n",
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"id\":\"resp_1\"}}\n\n",
	},
	Refusal: upstreamtest.Refusal{
		Status: 400, Body: []byte(`{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","code":"context_length_exceeded","param":"input"}}`),
		Code: "context_length_exceeded", Message: "Your input exceeds the context window of this model.",
	},
}

// editSample is a call for changed images, whole and as a stream.
var editSample = upstreamtest.Sample{
	Model: "gpt-image-2", Form: editForm(), StreamForm: editForm(upstream.Field("stream", "true")),
	Answer: imageSample.Answer,
	Events: []string{
		"event: image_edit.partial_image\ndata: {\"type\":\"image_edit.partial_image\",\"b64_json\":\"aGk=\"}\n\n",
		"event: image_edit.completed\ndata: {\"type\":\"image_edit.completed\",\"b64_json\":\"aGk=\"}\n\n",
	},
	Refusal: upstreamtest.Refusal{
		Status: 400, Body: []byte(`{"error":{"message":"Invalid image file.","type":"image_generation_user_error","code":"invalid_image","param":"image"}}`),
		Code: "invalid_image", Message: "Invalid image file.",
	},
}

// editForm is a form with a file of 200 KB, which does not fit any buffer.
func editForm(more ...upstream.Part) *upstream.Form {
	file := upstream.Field("image", strings.Repeat("\x00\r\n--", 40_000))
	file.Filename, file.ContentType = "a.png", "image/png"
	return &upstream.Form{Boundary: "b", Parts: append([]upstream.Part{
		upstream.Field("model", "gpt-image-2"), file, upstream.Field("prompt", "hé"),
	}, more...)}
}

// What is free must not keep the calls of others, who pay, from a key or from the channel.
func TestALimitOfStoredResponsesIsNoneOfTheKeyNorOfTheChannel(t *testing.T) {
	for _, keys := range [][]secret.String{vendortest.Keys("sk-1"), vendortest.Keys("sk-1", "sk-2")} {
		for _, header := range []map[string]string{nil, {"Retry-After": "30"}} {
			var mu sync.Mutex
			used, refused := map[string]int{}, 0
			up := newDriver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.Method != "POST" {
					refused++
					vendortest.Responds(429, header, `{"error":{"message":"Slow down."}}`)(w, r)
					return
				}
				used[r.Header.Get("Authorization")]++
				vendortest.Responds(200, nil, `{}`)(w, r)
			}), upstream.DriverOptions{Keys: keys, Wire: []upstream.Op{upstream.ChatCompletion, upstream.Responses}})
			r := router.Single(up)
			ask := func(c *upstream.Call) *upstream.Reply {
				reply, err := r.Do(t.Context(), c)
				if err != nil {
					if !fault.Is(err, fault.UpstreamRateLimit) || c.Op == upstream.ChatCompletion {
						t.Errorf("%d keys, %v, %s: %v", len(keys), header, c.Op, err)
					}
					return nil
				}
				_ = reply.Body.Close()
				return reply
			}
			made := ask(chat(t, false))
			for _, op := range []upstream.Op{upstream.ShowResponse, upstream.DeleteResponse, upstream.ListInput, upstream.ShowResponse} {
				ask(&upstream.Call{Op: op, Model: "m", TaskID: "resp_1", Channel: made.Channel, Key: made.Key})
			}
			for range 2*len(keys) - 1 {
				ask(chat(t, false))
			}
			for key, n := range used {
				if n != 2 || len(used) != len(keys) {
					t.Errorf("of %d keys %s was used %d times", len(keys), key, n)
				}
			}
			if c := r.Channels()[0]; refused != 4 || c.State != router.StateClosed || c.Failures != 0 {
				t.Errorf("%d keys, %v: %d refusals, %+v", len(keys), header, refused, c)
			}
		}
	}
}

// TestARefusedOrLimitedKeyCausesNoErrorWhileAnotherWorks is the
// rotation of a key: the old one and the new one are listed for a while.
func TestARefusedOrLimitedKeyCausesNoErrorWhileAnotherWorks(t *testing.T) {
	for name, refusal := range map[string]struct {
		status int
		header map[string]string
	}{
		"refused": {401, nil}, "at its limit": {429, map[string]string{"Retry-After": "30"}}, "at its limit, it does not say for how long": {429, nil},
	} {
		var refused atomic.Int64
		up := newDriver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Authorization"), "sk-old") {
				refused.Add(1)
				vendortest.Responds(refusal.status, refusal.header, `{"error":{"message":"No."}}`)(w, r)
				return
			}
			vendortest.Responds(200, nil, `{}`)(w, r)
		}), upstream.DriverOptions{Keys: []secret.String{secret.New("sk-old"), secret.New("sk-new")}})
		r := router.Single(up)
		for i := range 20 {
			reply, err := r.Do(t.Context(), chat(t, false))
			if err != nil {
				t.Errorf("%s, call %d: %v", name, i, err)
				continue
			}
			_ = reply.Body.Close()
		}
		if n := refused.Load(); n == 0 || n > 3 {
			t.Errorf("%s: the old key was used %d times", name, n)
		}
		if c := r.Channels()[0]; c.State != router.StateClosed || c.Failures != 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
