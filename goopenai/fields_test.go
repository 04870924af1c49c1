package goopenai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/goopenai"
	"github.com/tollhouse-ai/gateway/upstream"
	driver "github.com/tollhouse-ai/gateway/upstream/openai"
)

// chosen are values of fields that can have some values only.
var chosen = map[string]any{
	"Role": "assistant", "Type": openai.ToolTypeFunction, "MultiContent.Type": openai.ChatMessagePartTypeImageURL,
	"ResponseFormat.Type": openai.ChatCompletionResponseFormatTypeJSONSchema, "Schema": json.RawMessage(`{"type":"object","title":"T"}`),
	"ImageURL.URL": "https://example.com/a.png", "Detail": openai.ImageURLDetailLow, "Index": 0, "Arguments": `{"a":1}`,
	"MaxTokens": 77, "MaxCompletionTokens": 77, "N": 1, "Temperature": float32(0.7), "TopP": float32(0.9), "PresencePenalty": float32(0.3),
	"FrequencyPenalty": float32(-0.4), "TopLogProbs": 3, "LogitBias": map[string]int{"17": 5}, "FunctionCall": "auto",
	"ToolChoice":        openai.ToolChoice{Type: openai.ToolTypeFunction, Function: openai.ToolFunction{Name: "Tools.Function.Name"}},
	"ParallelToolCalls": false, "Functions.Parameters": json.RawMessage(`{"type":"object"}`), "Function.Parameters": json.RawMessage(`{"type":"object","maximum":9007199254740993}`),
	"Tools.Parameters": map[string]any{"cache_control": map[string]any{"type": "ephemeral"}}, "ChatTemplateKwargs": map[string]any{"enable_thinking": false},
	"ServiceTier": openai.ServiceTierFlex, "ReasoningEffort": openai.ReasoningEffortHigh, "Verbosity": "low", "Prediction.Type": "content",
	"Input": []string{"a", "b"}, "EncodingFormat": openai.EmbeddingEncodingFormatFloat, "Dimensions": 8, "ExtraBody": map[string]any{"truncate": "END"},
	"Size": "1024x1024", "Quality": "high", "Style": "vivid", "Background": "opaque", "Moderation": "low", "OutputFormat": "webp", "OutputCompression": 60,
	"ResponseFormat": openai.SpeechResponseFormatWav, "Speed": 1.5, "Voice": openai.VoiceNova,
}

// fill sets every exported field of a struct. A field that it leaves zero fails the test: the
// type is newer than the table.
func fill(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		name := strings.TrimPrefix(path+"."+f.Name, ".")
		switch {
		case !f.IsExported(), name == "Messages.MultiContent" && !v.FieldByName("Content").IsZero():
			continue
		case f.Anonymous:
			fill(t, field, path)
			continue
		}
		if value, ok := choose(name); ok && reflect.TypeOf(value).AssignableTo(f.Type) {
			field.Set(reflect.ValueOf(value))
			continue
		} else if ok && f.Type.Kind() == reflect.Pointer && reflect.TypeOf(value) == f.Type.Elem() {
			field.Set(reflect.New(f.Type.Elem()))
			field.Elem().Set(reflect.ValueOf(value))
			continue
		}
		fillValue(t, field, name)
		if field.IsZero() {
			t.Fatalf("%s, a %s, was not set", name, f.Type)
		}
	}
}

// choose finds the value of the longest path that ends as name does.
func choose(name string) (any, bool) {
	for {
		if v, ok := chosen[name]; ok {
			return v, true
		}
		_, rest, more := strings.Cut(name, ".")
		if !more {
			return nil, false
		}
		name = rest
	}
}

func fillValue(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		fill(t, v, name)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(t, v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(t, v.Index(0), name)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), reflect.ValueOf("of "+name).Convert(v.Type().Elem()))
	case reflect.String:
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	default:
		t.Fatalf("%s is a %s: give it a value in the table", name, v.Type())
	}
}

// chatRequest has every field set, in as many messages as it takes.
func chatRequest(t *testing.T) openai.ChatCompletionRequest {
	t.Helper()
	var r openai.ChatCompletionRequest
	fill(t, reflect.ValueOf(&r).Elem(), "")
	var parts openai.ChatCompletionMessage
	parts.Role, parts.MultiContent = "user", []openai.ChatMessagePart{{Type: openai.ChatMessagePartTypeText, Text: "look"}, {}}
	image := &parts.MultiContent[1]
	fill(t, reflect.ValueOf(image).Elem(), "Messages.MultiContent")
	image.Text = "" // a part has one of both
	result := openai.ChatCompletionMessage{Role: "tool", Content: "of the tool", ToolCallID: r.Messages[0].ToolCalls[0].ID}
	r.Messages[0].ToolCallID = "" // a message of a tool has one
	r.Messages = append(r.Messages, result, parts)
	return r
}

// missing are the members of want, with the values, that got lacks.
func missing(t *testing.T, want, got any, path string) (all []string) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for name, value := range want {
			all = append(all, missing(t, value, got[name], path+"."+name)...)
		}
		return all
	case []any:
		got, _ := got.([]any)
		for i, value := range want {
			var at any
			if i < len(got) {
				at = got[i]
			}
			all = append(all, missing(t, value, at, path)...)
		}
		return all
	}
	alias := path == ".user" || path == ".safety_identifier" // the vendor gets a name that hides the account's own
	if !reflect.DeepEqual(want, got) && !(alias && got != nil) {
		return []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
	}
	return nil
}

// decoded is JSON with numbers as they are spelled.
func decoded(t *testing.T, data []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

// recorder is a vendor that keeps the last body and answers by the path.
type recorder struct{ body []byte }

func (v *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.body, _ = io.ReadAll(r.Body)
	kind, answer := "application/json", ""
	switch r.URL.Path {
	case "/v1/chat/completions":
		kind, answer = "text/event-stream", "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	case "/v1/embeddings":
		answer = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0,0,0,0,0,0,0,1]},{"object":"embedding","index":1,"embedding":[0,0,0,0,0,0,0,1]}],"model":"m"}`
	case "/v1/images/generations":
		answer = `{"created":1,"data":[{"b64_json":"iVBORw0KGgo="}]}`
	case "/v1/audio/speech":
		kind, answer = "audio/wav", "RIFF"
	}
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, answer)
}

// TestEachFieldOfARequestReachesTheVendor sets every exported field of go-openai's requests,
// and looks for each in what the vendor gets.
func TestEachFieldOfARequestReachesTheVendor(t *testing.T) {
	vendor := &recorder{}
	overHTTP := clientOf(t, vendor)
	wrapped := goopenai.Upstream(overHTTP)
	direct, err := driver.New(upstream.DriverOptions{BaseURL: "http://vendor.invalid/v1", Transport: toVendor{vendor}})
	if err != nil {
		t.Fatal(err)
	}
	for name, up := range map[string]upstream.Upstream{"a driver": direct, "a client as a channel": wrapped} {
		g, err := gateway.New(gateway.Options{Upstream: up})
		if err != nil {
			t.Fatal(err)
		}
		client := goopenai.NewClient(g)
		ask := chatRequest(t)
		var vectors openai.EmbeddingRequest
		fill(t, reflect.ValueOf(&vectors).Elem(), "")
		var image openai.ImageRequest
		fill(t, reflect.ValueOf(&image).Elem(), "")
		var audio openai.CreateSpeechRequest
		fill(t, reflect.ValueOf(&audio).Elem(), "")
		for _, c := range []struct {
			name string
			sent any
			do   func(ctx context.Context) error
		}{
			{"ChatRequest", ask, func(ctx context.Context) error {
				r, err := goopenai.ChatRequest(ask)
				if err != nil {
					return err
				}
				s, err := g.ChatStream(ctx, r)
				if err != nil {
					return err
				}
				return s.Close()
			}},
			{"a chat", ask, func(ctx context.Context) error {
				s, err := client.CreateChatCompletionStream(ctx, ask)
				if err != nil {
					return err
				}
				_, err = s.Recv()
				return errors.Join(err, s.Close())
			}},
			{"embeddings", vectors, func(ctx context.Context) error {
				_, err := client.CreateEmbeddings(ctx, vectors)
				return err
			}},
			{"images", image, func(ctx context.Context) error {
				_, err := client.CreateImage(ctx, image)
				return err
			}},
			{"speech", audio, func(ctx context.Context) error {
				r, err := client.CreateSpeech(ctx, audio)
				if err != nil {
					return err
				}
				return r.Close()
			}},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				if err := c.do(t.Context()); err != nil {
					t.Fatal(err)
				}
				want, err := json.Marshal(c.sent)
				if err != nil {
					t.Fatal(err)
				}
				members := decoded(t, want).(map[string]any)
				if extra, ok := members["extra_body"].(map[string]any); ok { // go-openai's name for members of its own
					delete(members, "extra_body")
					for name, value := range extra {
						members[name] = value
					}
				}
				for _, m := range missing(t, members, decoded(t, vendor.body), "") {
					t.Error(m)
				}
			})
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}
