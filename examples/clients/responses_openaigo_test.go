package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/tollhouse-ai/gateway/internal/scripted"
)

// openAIResponses asks for responses with OpenAI's SDK for Go.
type openAIResponses struct {
	client openai.Client
	stream bool
}

// ask returns the whole answer. Of a stream it is what the SDK collects of the events,
// and what the last event has; both are the same.
func (c openAIResponses) ask(t *testing.T, params responses.ResponseNewParams) (*responses.Response, error) {
	t.Helper()
	params.Model = "model"
	if !c.stream {
		return c.client.Responses.New(t.Context(), params)
	}
	var all responses.ResponseAccumulator
	stream := c.client.Responses.NewStreaming(t.Context(), params)
	for stream.Next() {
		var event responses.ResponsesServerEventUnion
		if err := errors.Join(json.Unmarshal([]byte(stream.Current().RawJSON()), &event), all.AddEvent(event)); err != nil {
			t.Fatalf("%s: %v", stream.Current().RawJSON(), err)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	collected, err := all.ReconstructedResponse()
	if err != nil {
		t.Fatal(err)
	}
	if last := stream.Current().Response; !slices.Equal(said(collected), said(&last)) {
		t.Errorf("the events say %q, the last one %q", said(collected), said(&last))
	}
	return collected, nil
}

// said are the items of an output, without their ids.
func said(r *responses.Response) (items []string) {
	for _, i := range r.Output {
		switch i.Type {
		case "message":
			for _, p := range i.Content {
				items = append(items, p.Text+p.Refusal)
			}
		case "reasoning":
			for _, p := range i.AsReasoning().Content {
				items = append(items, "reasoning: "+p.Text)
			}
		case "function_call":
			items = append(items, i.Name+"("+i.AsFunctionCall().Arguments+")")
		case "custom_tool_call":
			items = append(items, i.Name+"["+i.AsCustomToolCall().Input+"]")
		default:
			items = append(items, i.Type)
		}
	}
	return items
}

// follow is the input of the next turn: the one before, the answer as it came, and the
// output of every call.
func follow(input responses.ResponseInputParam, r *responses.Response) responses.ResponseInputParam {
	for _, i := range r.Output {
		input = append(input, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(i.RawJSON())))
	}
	for _, i := range r.Output {
		if strings.HasSuffix(i.Type, "_call") {
			output, _ := json.Marshal(map[string]string{"type": i.Type + "_output", "call_id": i.CallID, "output": "done " + i.Name})
			input = append(input, param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(output)))
		}
	}
	return input
}

// thoughtsOf is what a channel's vendor gets back of its thoughts.
var thoughtsOf = map[string]string{
	"responses": `"encrypted_content":"opaque"`,
	"chat":      `"reasoning_content":"Hm."`,
	"messages":  `"signature":"signed"`,
}

func TestResponsesOpenAIGo(t *testing.T) {
	weather := responses.ToolParamOfFunction("weather", map[string]any{
		"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}, "additionalProperties": false,
	}, true)
	exec := responses.ToolParamOfCustom("exec")
	for _, tt := range []struct {
		name, prompt string
		tools        []responses.ToolUnionParam
		status       responses.ResponseStatus
		want         [][]string // of each turn
	}{
		{"text", "think Let me see. | say Hello there.", nil, "completed", [][]string{{"reasoning: Let me see.", "Hello there."}}},
		{"refusal", "refuse I will not.", nil, "completed", [][]string{{"I will not."}}},
		{"length", "say Too long | length", nil, "incomplete", [][]string{{"Too long"}}},
		{
			"tools", `think Hm. | call weather {"city":"Oslo"} | call weather {"city":"Rome"} || custom exec ls -l`, []responses.ToolUnionParam{weather, exec}, "completed",
			[][]string{{"reasoning: Hm.", `weather({"city":"Oslo"})`, `weather({"city":"Rome"})`}, {"exec[ls -l]"}, {"The tool said: done exec"}},
		},
	} {
		for channel := range channels {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s over %s, stream %v", tt.name, channel, stream), func(t *testing.T) {
					s := newResponsesFixture(t, channel, options{}, 0)
					c := openAIResponses{openAIClient(s.fixture), stream}
					input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(tt.prompt, responses.EasyInputMessageRoleUser)}
					for turn, want := range tt.want {
						r, err := c.ask(t, responses.ResponseNewParams{
							Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input}, Tools: tt.tools, Store: openai.Bool(false),
							Include: []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent},
						})
						if err != nil {
							t.Fatal(err)
						}
						status := tt.status
						if tt.name == "refusal" && channel == "messages" { // which says no more than that the answer was broken off
							status = "incomplete"
						}
						if got := said(r); !slices.Equal(got, want) || r.Status != status || r.Model != "model" || r.Usage.InputTokens != scripted.Input {
							t.Fatalf("turn %d: %q, %s", turn, got, r.RawJSON())
						}
						input = follow(input, r)
					}
					// Thoughts come back to the vendor that needs them, as it gave them.
					calls := s.vendor.Calls()
					last := string(calls[len(calls)-1].Body)
					if back := thoughtsOf[channel]; tt.tools != nil && !strings.Contains(last, back) {
						t.Errorf("the last turn has no %s:\n%s", back, last)
					}
				})
			}
		}
	}
}

func TestResponsesOpenAIGoSeesAStreamThatBreaks(t *testing.T) {
	for channel := range channels {
		for _, how := range []string{"cut", "fail"} {
			t.Run(channel+"/"+how, func(t *testing.T) {
				s := newResponsesFixture(t, channel, options{}, 1)
				c := openAIClient(s.fixture)
				stream := c.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
					Model: "model", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("say One two three | " + how)},
				})
				var last string
				for stream.Next() {
					last = stream.Current().Type
				}
				if stream.Err() == nil || last != "response.output_text.delta" {
					t.Errorf("after %s: %v", last, stream.Err())
				}
			})
		}
	}
}

// A vendor caches prompts for each of its keys.
func TestResponsesOfASessionUseOneKey(t *testing.T) {
	for channel := range channels {
		t.Run(channel, func(t *testing.T) {
			s := newResponsesFixture(t, channel, options{}, 0)
			c := openAIResponses{client: openAIClient(s.fixture)}
			for session := range 12 {
				before := len(s.vendor.Calls())
				for turn := range 3 {
					if _, err := c.ask(t, responses.ResponseNewParams{
						Input:          responses.ResponseNewParamsInputUnion{OfString: openai.String(fmt.Sprintf("say Turn %d.", turn))},
						PromptCacheKey: openai.String(fmt.Sprintf("session-%d", session)),
					}); err != nil {
						t.Fatal(err)
					}
				}
				if keys := keysOf(s.vendor.Calls()[before:]); len(keys) != 1 {
					t.Errorf("session %d used the keys %q", session, keys)
				}
			}
			if keys := keysOf(s.vendor.Calls()); len(keys) < 2 {
				t.Errorf("all sessions used the keys %q", keys)
			}
		})
	}
}

func TestResponsesOpenAIGoMapsErrors(t *testing.T) {
	poor := openAIClient(newFixture(t, options{credit: 1}))
	rich := openAIClient(newFixture(t, options{}))
	for _, tt := range []struct {
		name   string
		client openai.Client
		change func(*responses.ResponseNewParams)
		status int
		code   string
		param  string
	}{
		{"a bad field", rich, func(p *responses.ResponseNewParams) { p.Temperature = openai.Float(3) }, 400, "invalid_request_error", "temperature"},
		{"a wrong key", openAIClient(newFixture(t, options{}), option.WithAPIKey("sk-wrong")), nil, 401, "unauthorized", ""},
		{"no money", poor, nil, 402, "insufficient_balance", ""},
		{"an unknown model", rich, func(p *responses.ResponseNewParams) { p.Model = "unknown" }, 404, "model_not_found", "model"},
		{"a stored response", rich, func(p *responses.ResponseNewParams) { p.PreviousResponseID = openai.String("resp_1") }, 400, "previous_response_not_found", "previous_response_id"},
	} {
		params := responses.ResponseNewParams{Model: "model", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("x")}}
		if tt.change != nil {
			tt.change(&params)
		}
		for way, err := range map[string]error{
			"whole":  func() error { _, err := tt.client.Responses.New(t.Context(), params); return err }(),
			"stream": tt.client.Responses.NewStreaming(t.Context(), params).Err(),
		} {
			var e *openai.Error
			if !errors.As(err, &e) || e.StatusCode != tt.status || e.Code != tt.code || e.Param != tt.param || e.Message == "" {
				t.Errorf("%s, %s: %+v", tt.name, way, err)
			}
		}
	}
}

// TestChatOpenAIGoCallsACustomTool has upstreams that speak another format than chat.
func TestChatOpenAIGoCallsACustomTool(t *testing.T) {
	for _, channel := range []string{"responses", "messages"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %v", channel, stream), func(t *testing.T) {
				s := newResponsesFixture(t, channel, options{}, 0)
				c := openAIClient(s.fixture)
				params := openai.ChatCompletionNewParams{
					Model: "model", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(`custom exec print("a")`)},
					Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionCustomTool(openai.ChatCompletionCustomToolCustomParam{Name: "exec"})},
				}
				var name, input, id string
				if stream {
					answer := c.Chat.Completions.NewStreaming(t.Context(), params)
					for answer.Next() {
						for _, choice := range answer.Current().Choices {
							for _, call := range choice.Delta.ToolCalls {
								var piece struct{ Custom struct{ Name, Input string } } // of which the SDK has no type
								if err := json.Unmarshal([]byte(call.RawJSON()), &piece); err != nil {
									t.Fatal(err)
								}
								name, input, id = name+piece.Custom.Name, input+piece.Custom.Input, id+call.ID
							}
						}
					}
					if err := answer.Err(); err != nil {
						t.Fatal(err)
					}
				} else {
					answer, err := c.Chat.Completions.New(t.Context(), params)
					if err != nil {
						t.Fatal(err)
					}
					call := answer.Choices[0].Message.ToolCalls[0].AsCustom()
					name, input, id = call.Custom.Name, call.Custom.Input, call.ID
					params.Messages = append(params.Messages, answer.Choices[0].Message.ToParam(), openai.ToolMessage("a", id))
					if answer, err = c.Chat.Completions.New(t.Context(), params); err != nil || answer.Choices[0].Message.Content != "The tool said: a" {
						t.Errorf("then %+v, %v", answer, err)
					}
				}
				if name != "exec" || input != `print("a")` || id == "" {
					t.Errorf("%s[%s], id %q", name, input, id)
				}
			})
		}
	}
}
