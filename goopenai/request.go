package goopenai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sashabaranov/go-openai"

	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// object is a body whose members can be read. It fails if the body is no JSON object.
func object(body upstream.Body) (upstream.Body, error) {
	if body.IsObject() {
		return body, nil
	}
	data, err := body.Bytes()
	if err != nil {
		return body, err
	}
	o, err := rawjson.Index(data, nil, nil)
	return upstream.ObjectBody(o), err
}

// embeddingRequest carries every member of the body as it is: go-openai writes ExtraBody into
// the request. Model and EncodingFormat are what the client itself reads.
func embeddingRequest(body upstream.Body) openai.EmbeddingRequest {
	model, _ := rawjson.String(body.Raw("model"))
	format, _ := rawjson.String(body.Raw("encoding_format"))
	r := openai.EmbeddingRequest{
		Model: openai.EmbeddingModel(model), EncodingFormat: openai.EmbeddingEncodingFormat(format), ExtraBody: make(map[string]any),
	}
	for name, raw := range body.Members() {
		r.ExtraBody[name] = json.RawMessage(raw)
	}
	return r
}

// chatRequest reads a chat completion.
func chatRequest(body upstream.Body) (r openai.ChatCompletionRequest, _ []string, err error) {
	body = body.Delete("stream").Delete("stream_options") // the caller of chatRequest sets them
	if stop := body.Raw("stop"); len(stop) > 0 && stop[0] == '"' {
		body = body.Set("stop", slices.Concat([]byte("["), stop, []byte("]")))
	}
	// go-openai takes 0 for unset. Its documentation advises the least number above 0.
	for _, name := range []string{"temperature", "top_p"} {
		if n, ok := rawjson.Float(body.Raw(name)); ok && n == 0 {
			body = body.Set(name, strconv.AppendFloat(nil, math.SmallestNonzeroFloat32, 'g', -1, 32))
		}
	}
	var left dropped.Fields
	if err := decode(body, &r, &left, "messages"); err != nil {
		return r, nil, err
	}
	for i := range r.Messages {
		for _, part := range r.Messages[i].MultiContent {
			if part.Type != openai.ChatMessagePartTypeText && part.Type != openai.ChatMessagePartTypeImageURL {
				return r, nil, fmt.Errorf("it has no field for a part of the type %q", part.Type)
			}
		}
	}
	if tools := rawjson.Elements(body.Raw("tools")); len(tools) == len(r.Tools) {
		for i, raw := range tools {
			completeTool(&r.Tools[i], raw)
		}
	}
	err = compare(body, &r, &left)
	return r, left.List(), err
}

// completeTool adds what go-openai writes of a tool and does not read.
func completeTool(t *openai.Tool, raw []byte) {
	o, _ := rawjson.Index(raw, nil, nil)
	for name, value := range o.All() {
		if name != "type" && name != "function" {
			if t.Parameters == nil {
				t.Parameters = make(map[string]any)
			}
			t.Parameters[name] = json.RawMessage(value)
		}
	}
	if t.Function != nil && t.Function.Parameters == nil { // which it would write as null
		t.Function.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
	}
}

// read reads a request into r, of a type of go-openai, and returns the members that are lost. It
// fails as decode does.
func read[R any](body upstream.Body, r *R, needed ...string) ([]string, error) {
	var left dropped.Fields
	if err := decode(body, r, &left, needed...); err != nil {
		return nil, err
	}
	err := compare(body, r, &left)
	return left.List(), err
}

// decode decodes the members one by one, so that one whose value does not fit is left out
// alone. It fails if one of those that are needed does not fit or is missing.
func decode[R any](body upstream.Body, r *R, left *dropped.Fields, needed ...string) error {
	for name, raw := range body.Members() {
		d := json.NewDecoder(io.MultiReader(bytes.NewReader(rawjson.Quote([]byte("{"), name)), strings.NewReader(":"), bytes.NewReader(raw), strings.NewReader("}")))
		d.UseNumber() // within a schema
		with := *r
		switch err := d.Decode(&with); {
		case err == nil:
			*r = with
		case slices.Contains(needed, name):
			return err
		default:
			left.Note(name)
		}
	}
	for _, name := range needed {
		if !body.Has(name) {
			return fmt.Errorf("it needs %q", name)
		}
	}
	return nil
}

// compare notes the members of the body that the client will not send.
func compare(body upstream.Body, r any, left *dropped.Fields) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	sent, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return err
	}
	for name, raw := range body.Members() {
		compareValue(name, raw, sent.Raw(name), left)
	}
	return nil
}

// compareValue notes what of a value is not sent. path names members without indexes.
func compareValue(path string, asked, sent []byte, left *dropped.Fields) {
	if sent == nil {
		if !asksForNothing(path, asked) {
			left.Note(path)
		}
		return
	}
	switch asked[0] {
	case '{':
		from, err := rawjson.Index(asked, nil, nil)
		to, other := rawjson.Index(sent, nil, nil)
		if err != nil || other != nil {
			left.Note(path)
			return
		}
		for name, raw := range from.All() {
			compareValue(path+"."+name, raw, to.Raw(name), left)
		}
	case '[':
		from, to := rawjson.Elements(asked), rawjson.Elements(sent)
		if len(from) != len(to) {
			left.Note(path)
			return
		}
		for i := range from {
			compareValue(path, from[i], to[i], left)
		}
	case '"':
		from, _ := rawjson.String(asked)
		if to, ok := rawjson.String(sent); !ok || from != to {
			left.Note(path)
		}
	case 't', 'f':
		if string(asked) != string(sent) {
			left.Note(path)
		}
	case 'n':
	default:
		from, ok := rawjson.Float(asked)
		to, also := rawjson.Float(sent)
		if !ok || !also || float32(from) != float32(to) { // go-openai's numbers have 32 bits
			left.Note(path)
		}
	}
}

// asksForNothing reports whether a member says no more than its absence.
func asksForNothing(path string, raw []byte) bool {
	switch string(raw) {
	case "null", "false", `""`, "[]", "{}":
		return true
	case "0", "0.0":
		return path == "presence_penalty" || path == "frequency_penalty" || path == "top_logprobs"
	}
	return false
}
