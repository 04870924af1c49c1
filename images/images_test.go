package images_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestGoFunctionsServeImages(t *testing.T) {
	answer := func(model, prompt string) (*images.Response, error) {
		if prompt == "fail" {
			return nil, errors.New("the secret reason")
		}
		return &images.Response{Data: []images.Image{{B64JSON: model + ": " + prompt}}}, nil
	}
	generate := images.Serve(func(_ context.Context, r *images.Request) (*images.Response, error) { return answer(r.Model, r.Prompt) })
	edit := images.ServeEdits(func(_ context.Context, e *images.Edit) (*images.Response, error) { return answer(e.Model, e.Prompt) })
	json := upstream.BytesBody([]byte(`{"model":"m","prompt":"a"}`))
	for _, row := range []struct {
		name  string
		model upstream.Upstream
		call  upstream.Call
		want  string     // in the answer
		code  fault.Code // of the refusal
	}{
		{"a view", generate, upstream.Call{Request: &images.Request{Model: "m", Prompt: "a"}}, "m: a", ""},
		{"a body", generate, upstream.Call{Body: json}, "m: a", ""},
		{"a stream", generate, upstream.Call{Body: json, Stream: true}, "", fault.InvalidRequest},
		{"a handler that fails", generate, upstream.Call{Request: &images.Request{Prompt: "fail"}}, "", fault.InternalError},
		{"an edit", edit, upstream.Call{Request: &images.Edit{Model: "m", Prompt: "a"}}, "m: a", ""},
		{"a stream of an edit", edit, upstream.Call{Request: &images.Edit{}, Stream: true}, "", fault.InvalidRequest},
		{"an edit that fails", edit, upstream.Call{Request: &images.Edit{Prompt: "fail"}}, "", fault.InternalError},
		{"an edit without a view", edit, upstream.Call{}, "", fault.InvalidRequest},
	} {
		t.Run(row.name, func(t *testing.T) {
			reply, err := row.model.Do(t.Context(), &row.call)
			if row.code != "" {
				if !fault.Is(err, row.code) || strings.Contains(fault.From(err).Message, "secret") {
					t.Fatalf("got %v, want %s", err, row.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if data, err := io.ReadAll(reply.Body); err != nil || !strings.Contains(string(data), row.want) {
				t.Errorf("got %s, %v, want %s in it", data, err, row.want)
			}
		})
	}
	if upstream.Supports(generate, upstream.EditImage, "m") || upstream.Supports(edit, upstream.GenerateImage, "m") || !upstream.Supports(edit, upstream.EditImage, "m") {
		t.Error("each function serves one operation")
	}
}
