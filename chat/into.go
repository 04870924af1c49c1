package chat

import (
	"bytes"
	"context"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"crypto/sha256"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/callctx"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Caller answers chat completions. A *gateway.Gateway is one, and a test may have its own.
type Caller interface {
	Chat(ctx context.Context, req *Request) (*Response, error)
	ChatStream(ctx context.Context, req *Request) (*Stream, error)
}

// IntoOption changes what [Into] does.
type IntoOption uint8

// NoRepair has [Into] fail at an answer that does not fit, without a second call.
const NoRepair IntoOption = 1

// Into asks for an answer in the form of T and decodes it. The model gets a JSON Schema of T
// as a strict `response_format`. The schema is made of the `json` and `jsonschema` tags; the text
// of the latter describes a field to the model. A type with maps or values of any kind has a schema that is not
// strict. A T that is no object, such as a list, is asked for as the member "value" of one.
//
// An answer that does not fit T, because it is cut, malformed, or lacks a required field, is
// sent back once with what is wrong. That is a second call, counted and billed like any. Fences
// around the answer are taken off. There is no second call with [NoRepair], after an error of a
// call, or where the model refused or called a tool.
//
// Into returns the last call's Response, also beside an error if there was one. T is zero
// beside an error. An answer that does not fit is an error with the code fault.BadGateway. A T
// that JSON Schema cannot describe, such as a function, is fault.InvalidRequest. req is not
// changed; its Stream and ResponseFormat are ignored.
func Into[T any](ctx context.Context, g Caller, req *Request, o ...IntoOption) (T, *Response, error) {
	var zero T
	form, err := formOf(reflect.TypeFor[T]())
	if err != nil {
		return zero, nil, fault.Wrap(fault.InvalidRequest, "The answer's type has no JSON Schema: "+err.Error()+".", err)
	}
	asked := *req
	if asked.ResponseFormat, err = JSONSchema(form.name, form.wire, form.strict); err != nil {
		return zero, nil, fault.From(err)
	}
	for round := 1; ; round++ {
		response, err := g.Chat(ctx, &asked)
		if err != nil {
			return zero, response, err
		}
		said, err := firstMessage(response)
		if err == nil {
			err = isAnswer(said)
		}
		if err != nil {
			return zero, response, err
		}
		var answer T
		wrong := form.decode(unfenced(said.Content.String()), &answer)
		if wrong == nil {
			return answer, response, nil
		}
		if round > 1 || slices.Contains(o, NoRepair) {
			return zero, response, fault.Wrap(fault.BadGateway, "The model's answer does not fit "+reflect.TypeFor[T]().String()+".", wrong)
		}
		asked.Messages = append(slices.Clip(asked.Messages), *said, Message{Role: "user", Content: Text(
			"This answer does not fit the schema: " + safetext.Truncate(wrong.Error(), 500) + ". Answer again, with the whole JSON value and nothing else.",
		)})
		ctx = furtherCall(ctx, asked.Messages[len(req.Messages):])
	}
}

// firstMessage is the message of an answer's first candidate.
func firstMessage(r *Response) (*Message, error) {
	if r == nil || len(r.Choices) == 0 {
		return nil, fault.New(fault.BadGateway, "The model's answer has no message.")
	}
	return &r.Choices[0].Message, nil
}

// isAnswer fails for a message that is no answer, which a repair does not help.
func isAnswer(m *Message) error {
	if refusal := rawjson.LookupString(m.Extra, "refusal"); refusal != "" && m.Content.String() == "" {
		return fault.New(fault.BadGateway, "The model refused: "+safetext.Truncate(refusal, 500))
	}
	if len(m.ToolCalls) > 0 {
		return fault.New(fault.BadGateway, fmt.Sprintf("The model called the tool %q in the place of an answer. Use chat.Loop first.", m.ToolCalls[0].Function.Name))
	}
	return nil
}

// furtherCall is ctx for a call that follows another one of it. Under an idempotency key each
// call has its own key, made of that key and of the messages that were added. So a repetition
// of the whole gets the same answers, as long as it says the same.
func furtherCall(ctx context.Context, added []Message) context.Context {
	key := callctx.IdempotencyKey(ctx)
	if key == "" {
		return ctx
	}
	data, err := json.Marshal(added)
	if err != nil { // the call fails too
		return ctx
	}
	hash := sha256.Sum256(append(append([]byte(key), 0), data...))
	return callctx.WithIdempotencyKey(ctx, hex.EncodeToString(hash[:]))
}

// unfenced is an answer without the Markdown fences around it, and what stands around these.
func unfenced(text string) string {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "{") || jsontext.Value(text).IsValid() {
		return text
	}
	_, inside, ok := strings.Cut(text, "```")
	if !ok {
		return text
	}
	first, rest, lines := strings.Cut(inside, "\n")
	if lines && !strings.ContainsAny(first, `{["`) { // the language
		inside = rest
	}
	if end := strings.LastIndex(inside, "```"); end >= 0 {
		inside = inside[:end]
	}
	return strings.TrimSpace(inside)
}

// decode reads a JSON text into *into, a pointer to the form's type. It fails if the text does
// not fit the schema: a member is unknown, missing, given twice, or of another type.
func (f *form) decode(text string, into any) error {
	raw := jsontext.Value(text)
	if !raw.IsValid() {
		err := stdjson.Unmarshal(raw, new(any))
		if err == nil {
			err = errors.New("it has a name twice, or text that is not UTF-8")
		}
		return fmt.Errorf("it is not valid JSON: %w", err)
	}
	var instance any
	if err := stdjson.Unmarshal(raw, &instance); err != nil {
		return err
	}
	if err := f.check.Validate(instance); err != nil {
		return reasonOf(err)
	}
	if f.wrapped {
		raw = rawjson.Lookup(raw, "value")
	}
	d := stdjson.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// reasonOf is a validator's error without the places in the schema that it went through.
func reasonOf(err error) error {
	text := err.Error()
	if at := strings.LastIndex(text, "validating "); at > 0 {
		text = text[at:]
	}
	return errors.New(text)
}
