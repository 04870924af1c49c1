package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
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

func embeddingsTool() *tool {
	return &tool{
		name: "create_embeddings", title: "Embed texts",
		about: "Makes a vector of each text, by which texts can be compared. The vectors are in the structured result only.",
		fields: []field{
			modelField("The embedding model. Vectors of different models cannot be compared."),
			{name: "input", kind: texts, required: true, high: 256, about: "The texts."},
			{name: "dimensions", kind: integer, low: 1, high: 16384, about: "The length of the vectors, where the model can choose."},
		},
		models: kinds(gateway.KindEmbeddings),
		output: outputOf[embeddingsResult](),
		ask: func(a arguments) (question, error) {
			data, err := body{}.take(a, "model", "input", "dimensions").bytes()
			return question{op: upstream.Embeddings, body: data}, err
		},
		answer: (*call).answerEmbeddings,
	}
}

// embeddingsResult is the structured result of create_embeddings.
type embeddingsResult struct {
	paid
	Model      string      `json:"model" jsonschema:"the model that made the vectors"`
	Dimensions int         `json:"dimensions" jsonschema:"the length of each vector"`
	Embeddings [][]float32 `json:"embeddings" jsonschema:"one vector for each text, in the order of the texts"`
}

func (c *call) answerEmbeddings(r *gateway.Result) (*sdk.CallToolResult, error) {
	var answer embeddings.Response
	if err := json.Unmarshal(r.Body, &answer, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fault.Wrap(fault.BadGateway, "The model's answer is not of the form of embeddings. It was charged.", err)
	}
	result := embeddingsResult{Model: c.args.text("model"), Embeddings: make([][]float32, len(answer.Data))}
	var size int64
	for _, e := range answer.Data {
		if e.Index < 0 || e.Index >= int64(len(answer.Data)) {
			return nil, fault.New(fault.BadGateway, "The model's answer numbers its vectors wrongly. It was charged.")
		}
		const digits = 12 // of a number, about
		size += int64(len(e.Embedding)) * digits
		result.Embeddings[e.Index], result.Dimensions = e.Embedding, len(e.Embedding)
	}
	r.Release()
	if err := c.fits(size, "Embed fewer texts at a time. These were charged."); err != nil {
		return nil, err
	}
	result.paid = c.receipt(r)
	return success(result, say("%d vectors of %d numbers each are in the structured result. %s", len(result.Embeddings), result.Dimensions, result.line())), nil
}

func speechTool() *tool {
	return &tool{
		name: "text_to_speech", title: "Speak a text",
		about: "Speaks a text and returns the audio. It is charged by the character.",
		fields: []field{
			modelField("The model that speaks."),
			{name: "text", kind: text, required: true, high: 20_000, about: "What is said. Languages may be mixed."},
			{name: "voice", kind: text, about: "A voice of the model; list_models names them. If left out, its first one."},
			{name: "format", kind: text, enum: []string{"mp3", "wav"}, about: "The format of the audio, where the model can choose."},
			{name: "instructions", kind: text, about: "How it is said: tone, pace, feeling. Only models with \"instruct\" in their name take it."},
		},
		models: kinds(gateway.KindSpeech),
		output: outputOf[speechResult](),
		ask: func(a arguments) (question, error) {
			b := body{}.take(a, "model", "voice", "instructions")
			b.as(a, "text", "input")
			b.as(a, "format", "response_format")
			data, err := b.bytes()
			return question{op: upstream.Speech, body: data}, err
		},
		answer: (*call).answerSpeech,
	}
}

// speechResult is the structured result of text_to_speech.
type speechResult struct {
	paid
	Model    string `json:"model" jsonschema:"the model that spoke"`
	MIMEType string `json:"mime_type" jsonschema:"the type of the audio among the contents"`
	Bytes    int    `json:"bytes" jsonschema:"the size of the audio"`
}

func (c *call) answerSpeech(r *gateway.Result) (*sdk.CallToolResult, error) {
	audio := r.Body // of an earlier call
	if r.Audio != nil {
		var err error
		if audio, err = c.listen(r.Audio); err != nil {
			return nil, err
		}
	}
	kind := cmp.Or(r.Header.Get("Content-Type"), "audio/mpeg")
	result := speechResult{paid: c.receipt(r), Model: c.args.text("model"), MIMEType: kind, Bytes: len(audio)}
	return success(result, &sdk.AudioContent{Data: audio, MIMEType: kind}, say("%s", result.line())), nil
}

// listen reads the audio to its end. Where it is too long, the rest is not made.
func (c *call) listen(a *gateway.Audio) (_ []byte, err error) {
	defer func() { _ = a.Close() }()
	var audio bytes.Buffer
	for {
		piece, err := a.Next()
		if errors.Is(err, io.EOF) {
			return audio.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		_, _ = audio.Write(piece) // a buffer takes everything
		if err := c.fits(int64(audio.Len()), "Speak a shorter text, or choose mp3. What was spoken until then is charged."); err != nil {
			return nil, err
		}
	}
}
