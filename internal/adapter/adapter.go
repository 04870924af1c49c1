// Package adapter is what the adapters to frameworks share: a request made of its members, and
// an answer, whole or streamed, as one message.
package adapter

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
)

// Request makes a request of members that have the API's names. One that is nil, an
// empty pointer or an empty text is left out. It fails, with a 400, for a value that is not JSON
// or not of the API's form.
func Request(members map[string]any) (*chat.Request, error) {
	written := make(map[string]json.RawMessage)
	for name, value := range members {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, malformed(err)
		}
		if string(data) != "null" && string(data) != `""` {
			written[name] = data
		}
	}
	data, err := json.Marshal(written)
	r := &chat.Request{}
	if err == nil {
		err = jsonv2.Unmarshal(data, r)
	}
	if err != nil {
		return nil, malformed(err)
	}
	return r, nil
}

func malformed(err error) error {
	return fault.Wrap(fault.InvalidRequest, "The request is not of the form of a chat completion.", err)
}

// Function is an element of `tools`. schema is that of the arguments; nil or an empty pointer
// for none.
func Function(name, description string, schema any) map[string]any {
	f := map[string]any{"name": name, "description": description, "parameters": schema}
	for member, value := range f {
		if data, _ := json.Marshal(value); string(data) == "null" || string(data) == `""` {
			delete(f, member)
		}
	}
	return map[string]any{"type": "function", "function": f}
}

// Call is an element of `tool_calls`. arguments are JSON.
func Call(id, name, arguments string) map[string]any {
	return map[string]any{"id": id, "type": "function", "function": map[string]any{"name": name, "arguments": arguments}}
}

// Media adds a part with an image, a video or audio, by its type ("image/png"; empty for an
// image). address may be a data URL. Other media are refused.
func Media(parts []map[string]any, mimeType, address string) ([]map[string]any, error) {
	kind, _, _ := strings.Cut(mimeType, "/")
	switch kind {
	case "":
		kind = "image"
	case "image", "video", "audio":
	default:
		return nil, fault.Invalid("messages", "A part of the type "+mimeType+" cannot be sent.")
	}
	return append(parts, map[string]any{"type": kind + "_url", kind + "_url": map[string]any{"url": address}}), nil
}

// Text is a part with text.
func Text(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

// Content is the content of a message with these parts: nil for none, and a string for one text,
// which every vendor takes.
func Content(parts []map[string]any) any {
	switch {
	case len(parts) == 0:
		return nil
	case len(parts) == 1 && parts[0]["type"] == "text":
		return parts[0]["text"]
	}
	return parts
}

// Encoded is a value as the text of a message: text as it is, and anything else as JSON.
func Encoded(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	data, _ := json.Marshal(v)
	return string(data)
}

// Members are those of a value's JSON, by the API's names where names has one. It fails, with a
// 400, for what is no JSON object; null has no members.
func Members(value any, names map[string]string) (map[string]any, error) {
	var members map[string]any
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &members)
	}
	if err != nil {
		return nil, malformed(err)
	}
	all := make(map[string]any)
	for name, v := range members {
		all[cmp.Or(names[name], name)] = v
	}
	return all, nil
}

// Facts are what frameworks keep of an answer in a map: by which id its receipt is found, and
// what it cost.
func Facts(requestID string, charge billing.Money) map[string]any {
	return map[string]any{"request_id": requestID, "charge": charge.String()}
}

// Answer is the first candidate of an answer.
type Answer struct {
	Message      chat.Message
	FinishReason string
	Usage        chat.Usage
	Facts        map[string]any
}

// Details are the tokens of the prompt that came from a cache, and those of the answer that are
// reasoning.
func Details(u *chat.Usage) (cached, reasoning int) {
	if d := u.PromptTokensDetails; d != nil {
		cached = int(d.CachedTokens)
	}
	if d := u.CompletionTokensDetails; d != nil {
		reasoning = int(d.ReasoningTokens)
	}
	return cached, reasoning
}

// Ask asks the gateway. With each it asks for a stream, gives each its pieces as they come, and
// ends with the first error of each.
func Ask(ctx context.Context, g *gateway.Gateway, r *chat.Request, each func(*chat.Message) error) (*Answer, error) {
	if each != nil {
		return askStream(ctx, g, r, each)
	}
	whole, err := g.Chat(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(whole.Choices) == 0 {
		return nil, fault.New(fault.BadGateway, "The answer has no choices.")
	}
	a := &Answer{Message: whole.Choices[0].Message, FinishReason: whole.Choices[0].FinishReason, Facts: Facts(whole.RequestID, whole.Charge)}
	if whole.Usage != nil {
		a.Usage = *whole.Usage
	}
	return a, nil
}

func askStream(ctx context.Context, g *gateway.Gateway, r *chat.Request, each func(*chat.Message) error) (*Answer, error) {
	r.StreamOptions = &chat.StreamOptions{IncludeUsage: true}
	stream, err := g.ChatStream(ctx, r)
	if err != nil {
		return nil, err
	}
	a := &Answer{}
	for chunk, err := range stream.Chunks() {
		if err != nil {
			return nil, err
		}
		if chunk.Usage != nil {
			a.Usage = *chunk.Usage
		}
		for i := range chunk.Choices {
			c := &chunk.Choices[i]
			if c.Index != 0 {
				continue
			}
			if c.FinishReason != "" {
				a.FinishReason = c.FinishReason
			}
			if err := each(&c.Delta); err != nil {
				return nil, err // to leave the loop ends the call
			}
		}
	}
	message, err := stream.Message()
	if err != nil {
		return nil, err
	}
	receipt, _ := stream.Receipt()
	a.Message, a.Facts = *message, Facts(stream.RequestID, receipt.Charge)
	return a, nil
}
