package mcp

import (
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

func chatTool() *tool {
	return &tool{
		name: "chat", title: "Ask a language model",
		about: "Sends a prompt to a language model and returns its answer. The model sees nothing of this conversation: put all that it needs into the prompt.",
		fields: []field{
			modelField("The language model to ask."),
			{name: "prompt", kind: text, required: true, about: "What the model is asked or told to do."},
			{name: "system", kind: text, about: "How the model is to behave, if that matters."},
			{name: "images", kind: texts, high: 16, about: "Pictures that the model is to look at: https URLs, or data: URIs. Not every model sees."},
			{name: "max_tokens", kind: integer, low: 1, about: "The most tokens of the answer, thinking included. It bounds the cost."},
			{name: "temperature", kind: number, low: 0, high: 2, about: "How random the answer is. Leave it out unless it matters: some models take none."},
			{name: "json", kind: truth, about: "The answer is to be one JSON object. Say in the prompt which members it has.", preset: false},
		},
		models: kinds(gateway.KindChat, gateway.KindMessages),
		output: outputOf[chatResult](),
		ask:    askChat, answer: (*call).answerChat,
	}
}

// chatResult is the structured result of chat.
type chatResult struct {
	paid
	Model        string `json:"model" jsonschema:"the model that answered"`
	Text         string `json:"text" jsonschema:"the answer"`
	Reasoning    string `json:"reasoning,omitzero" jsonschema:"what the model thought before, where it tells"`
	FinishReason string `json:"finish_reason" jsonschema:"stop: the answer is whole; length: it was cut off at max_tokens or because the money ended"`
}

func askChat(a arguments) (question, error) {
	var messages []body
	if a.has("system") {
		messages = append(messages, body{"role": "system", "content": a.values["system"]})
	}
	prompt := body{"role": "user", "content": a.values["prompt"]}
	if images := a.list("images"); images != nil {
		blocks := []body{{"type": "text", "text": a.values["prompt"]}}
		for _, url := range images {
			blocks = append(blocks, body{"type": "image_url", "image_url": body{"url": url}})
		}
		prompt["content"] = blocks
	}
	b := body{"messages": append(messages, prompt)}.take(a, "model", "max_tokens", "temperature")
	if a.truth("json") {
		b["response_format"] = body{"type": "json_object"}
	}
	if a.stream {
		b["stream"] = true
	}
	data, err := b.bytes()
	return question{op: upstream.ChatCompletion, body: data}, err
}

func (c *call) answerChat(r *gateway.Result) (*sdk.CallToolResult, error) {
	result := chatResult{Model: c.args.text("model")}
	var err error
	if r.Stream != nil {
		err = c.follow(r.Stream, &result)
	} else {
		err = result.whole(r.Body)
	}
	if err != nil {
		return nil, err
	}
	result.paid = c.receipt(r)
	note := ""
	if result.FinishReason == "length" {
		note = "The answer was cut off: it reached max_tokens, or the account's money. "
	}
	return success(result, say("%s", result.Text), say("%s%s", note, result.line())), nil
}

// whole reads an answer that was not streamed.
func (r *chatResult) whole(data []byte) error {
	var answer chat.Response
	if err := json.Unmarshal(data, &answer, jsontext.AllowDuplicateNames(true)); err != nil || len(answer.Choices) == 0 {
		return fault.Wrap(fault.BadGateway, "The model's answer is not of the chat completion form. It was charged.", err)
	}
	choice := answer.Choices[0]
	r.FinishReason = choice.FinishReason
	r.Text, r.Reasoning = choice.Message.Content.String(), choice.Message.ReasoningContent
	return nil
}

// follow gathers a streamed answer and tells the client how far it is. Whoever
// leaves has paid for what came until then.
func (c *call) follow(s *gateway.Stream, r *chatResult) error {
	progress := &counter{c: c}
	var text, thought strings.Builder
	for chunk, err := range chat.NewStream(c.x.ID, s).Chunks() {
		if err != nil {
			return err
		}
		for _, choice := range chunk.Choices {
			content := choice.Delta.Content.String()
			_, _ = text.WriteString(content) // a builder takes everything
			_, _ = thought.WriteString(choice.Delta.ReasoningContent)
			progress.add(utf8.RuneCountInString(content) + utf8.RuneCountInString(choice.Delta.ReasoningContent))
			if choice.FinishReason != "" {
				r.FinishReason = choice.FinishReason
			}
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	r.Text, r.Reasoning = text.String(), thought.String()
	return c.fits(int64(len(r.Text)+len(r.Reasoning)), "Set max_tokens. The answer was charged.")
}
