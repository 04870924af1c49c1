package httpdo_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// says is a transport that gives one answer to everything.
type says struct {
	status           int
	kind, body, wait string
}

func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: s.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: -1,
		Header: http.Header{"Content-Type": {s.kind}, "Retry-After": {s.wait}}, Body: io.NopCloser(strings.NewReader(s.body)),
	}, nil
}

const vendorKey = "sk-vendor-0123456789"

// drivers are all that speak to a vendor over HTTP, with a call of each.
func drivers(t *testing.T, answer says) map[upstream.Op]upstream.Upstream {
	t.Helper()
	keys := []secret.String{secret.New(vendorKey)}
	o, err1 := openai.New(openai.Options{Transport: answer, Keys: keys})
	a, err2 := anthropic.New(anthropic.Options{Transport: answer, Keys: keys})
	d, err3 := dashscope.New(dashscope.Options{Transport: answer, Keys: keys})
	k, err4 := ark.New(ark.Options{Transport: answer, Keys: keys})
	v, err5 := voyage.New(voyage.Options{Transport: answer, Keys: keys})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	return map[upstream.Op]upstream.Upstream{
		upstream.ChatCompletion: o, upstream.Messages: a, upstream.GenerateImage: d, upstream.SubmitVideo: k, upstream.Embeddings: v,
	}
}

// FuzzWhateverAVendorAnswersIsAReplyOrAFault: no driver panics, tells its key, or
// gives a caller a body that is no JSON; an error is a 4xx or 5xx with a message.
func FuzzWhateverAVendorAnswersIsAReplyOrAFault(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", "[]", `{"error":{"message":"m","type":"t","code":"c","param":"p"}}`, `{"error":"x"}`, `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`,
		`{"code":"InvalidParameter","message":"m","request_id":"r"}`, `{"detail":"m"}`, `[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]`, "<html>", `{"error":{"message":"` + vendorKey + `"}}`,
		`{"error":{"message":"a` + vendorKey + `","code":"` + vendorKey + `"},"x":"` + vendorKey + `"}`, "{\"error\":{\"message\":\"\xff\"}}", `{"error":{"message":1,"code":{},"param":[]}}`, "data: {}\n\n",
	} {
		for _, status := range []uint16{200, 201, 204, 302, 400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 503, 529, 999} {
			f.Add(status, "application/json", body, "7", true)
		}
		f.Add(uint16(200), "text/event-stream", body, "", true)
		f.Add(uint16(400), "text/html", body, "-1", false)
	}
	f.Fuzz(func(t *testing.T, status uint16, kind, body, wait string, stream bool) {
		for op, up := range drivers(t, says{int(status), kind, body, wait}) {
			c := call(t, stream, 0)
			c.Op = op
			reply, err := up.Do(t.Context(), c)
			if err == nil {
				_, err = io.Copy(io.Discard, reply.Body)
				if closeErr := reply.Body.Close(); reply.Status < 200 || reply.Status > 299 || closeErr != nil {
					t.Fatalf("%s: reply %+v, %v, %v", op, reply, err, closeErr)
				}
				continue
			}
			var e *fault.Error
			if !errors.As(err, &e) || e.HTTPStatus() < 400 || e.HTTPStatus() > 599 || e.Message == "" || e.RetryAfter < 0 {
				t.Fatalf("%s: %v", op, err)
			}
			if e.Body != nil && !json.Valid(e.Body) {
				t.Fatalf("%s: the caller gets %q", op, e.Body)
			}
			for _, text := range []string{err.Error(), e.Message, e.Param, string(e.Code), string(e.Body)} {
				if strings.Contains(text, vendorKey) {
					t.Fatalf("%s tells its key: %q", op, text)
				}
			}
		}
	})
}
