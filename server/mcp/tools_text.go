package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/rerank"
	"github.com/tollhouse-ai/gateway/upstream"
)

// chatTool is chat, of one prompt without a history.
func chatTool() *tool {
	return &tool{
		name: "chat", title: "Ask a language model",
		description: "Sends a prompt to a language model and returns its answer. The model sees nothing of this conversation: put all that it needs into the prompt.",
		fields: []field{
			modelField("The language model to ask."),
			{name: "prompt", kind: stringKind, required: true, description: "What the model is asked or told to do."},
			{name: "system", kind: stringKind, description: "How the model is to behave, if that matters."},
			{name: "images", kind: stringList, max: 16, description: "Pictures that the model is to look at: https URLs, or data: URIs. Not every model sees."},
			{name: "max_tokens", kind: integer, min: 1, description: "The most tokens of the answer, thinking included. It bounds the cost."},
			{name: "temperature", kind: number, min: 0, max: 2, description: "How random the answer is. Leave it out unless it matters: some models take none."},
			{name: "json", kind: boolean, description: "The answer is to be one JSON object. Say in the prompt which members it has.", defaultValue: false},
		},
		models:  ofKind(gateway.KindChat, gateway.KindMessages),
		output:  outputSchema[chatResult](),
		request: chatRequest, answer: (*call).answerChat,
	}
}

// chatResult is the structured result of chat.
type chatResult struct {
	chargeInfo
	Model        string `json:"model" jsonschema:"the model that answered"`
	Text         string `json:"text" jsonschema:"the answer"`
	Reasoning    string `json:"reasoning,omitzero" jsonschema:"what the model thought before, where it tells"`
	FinishReason string `json:"finish_reason" jsonschema:"stop: the answer is whole; length: it was cut off at max_tokens or because the money ended"`
}

// chatRequest is the request of a chat. A prompt with images becomes blocks.
func chatRequest(a arguments) (*gateway.Request, error) {
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
	b := body{"messages": append(messages, prompt)}.copy(a, "model", "max_tokens", "temperature")
	if a.truth("json") {
		b["response_format"] = body{"type": "json_object"}
	}
	if a.stream {
		b["stream"] = true
	}
	return b.request(upstream.ChatCompletion)
}

// answerChat is the result of chat. An answer that was cut off says so in words too, since a
// model may not look at finish_reason.
func (c *call) answerChat(r *gateway.Response) (*sdk.CallToolResult, error) {
	result := chatResult{Model: c.args.text("model")}
	var err error
	if r.Stream != nil {
		err = c.collectStream(r.Stream, &result)
	} else {
		err = result.parse(r.Body)
	}
	if err != nil {
		return nil, err
	}
	result.chargeInfo = c.receipt(r)
	note := ""
	if result.FinishReason == "length" {
		note = "The answer was cut off: it reached max_tokens, or the account's money. "
	}
	return success(result, textContent("%s", result.Text), textContent("%s%s", note, result.receiptLine())), nil
}

// parse reads an answer that was not streamed.
func (r *chatResult) parse(data []byte) error {
	const form = "the chat completion form"
	answer, err := decode[chat.Response](data, form)
	if err == nil && len(answer.Choices) == 0 {
		err = notOfForm(form, nil)
	}
	if err != nil {
		return err
	}
	choice := answer.Choices[0]
	r.FinishReason = choice.FinishReason
	r.Text, r.Reasoning = choice.Message.Content.String(), choice.Message.ReasoningContent
	return nil
}

// collectStream gathers a streamed answer and notifies the client of the progress.
// A client that disconnects has paid for what came until then.
func (c *call) collectStream(s *gateway.Stream, r *chatResult) error {
	progress := &progressCounter{c: c}
	var text, thought strings.Builder
	for chunk, err := range chat.NewStream(c.entry.ID, s).Chunks() {
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
	return c.checkSize(int64(len(r.Text)+len(r.Reasoning)), "Set max_tokens. The answer was charged.")
}

func embeddingsTool() *tool {
	return &tool{
		name: "create_embeddings", title: "Embed texts",
		description: "Makes a vector of each text, by which texts can be compared. The vectors are in the structured result only.",
		fields: []field{
			modelField("The embedding model. Vectors of different models cannot be compared."),
			{name: "input", kind: stringList, required: true, max: 256, description: "The texts."},
			{name: "dimensions", kind: integer, min: 1, max: 16384, description: "The length of the vectors, where the model can choose."},
		},
		models: ofKind(gateway.KindEmbeddings),
		output: outputSchema[embeddingsResult](),
		request: func(a arguments) (*gateway.Request, error) {
			return body{}.copy(a, "model", "input", "dimensions").request(upstream.Embeddings)
		},
		answer: (*call).answerEmbeddings,
	}
}

// embeddingsResult is the structured result of create_embeddings.
type embeddingsResult struct {
	chargeInfo
	Model      string      `json:"model" jsonschema:"the model that made the vectors"`
	Dimensions int         `json:"dimensions" jsonschema:"the length of each vector"`
	Embeddings [][]float32 `json:"embeddings" jsonschema:"one vector for each text, in the order of the texts"`
}

// answerEmbeddings puts the vectors in the order of the inputs. It releases the body before it
// writes the result, since both together may be large.
func (c *call) answerEmbeddings(r *gateway.Response) (*sdk.CallToolResult, error) {
	answer, err := decode[embeddings.Response](r.Body, "the form of embeddings")
	if err != nil {
		return nil, err
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
	c.entry.Release()
	if err := c.checkSize(size, "Embed fewer texts at a time. These were charged."); err != nil {
		return nil, err
	}
	result.chargeInfo = c.receipt(r)
	return success(result, textContent("%d vectors of %d numbers each are in the structured result. %s", len(result.Embeddings), result.Dimensions, result.receiptLine())), nil
}

func rerankTool() *tool {
	return &tool{
		name: "rerank", title: "Rank documents",
		description: "Puts documents in the order of their relevance to a query, and scores each.",
		fields: []field{
			modelField("The model that ranks."),
			{name: "query", kind: stringKind, required: true, description: "What the documents are ranked for."},
			{name: "documents", kind: stringList, required: true, max: 1000, description: "The texts to rank, none of them empty."},
			{name: "top_n", kind: integer, min: 1, max: 1000, description: "How many results are wanted; all if left out."},
		},
		models: ofKind(gateway.KindRerank),
		output: outputSchema[rerankResult](),
		request: func(a arguments) (*gateway.Request, error) {
			return body{}.copy(a, "model", "query", "documents", "top_n").request(upstream.Rerank)
		},
		answer: (*call).answerRerank,
	}
}

// rerankResult is the structured result of rerank.
type rerankResult struct {
	chargeInfo
	Model   string      `json:"model" jsonschema:"the model that ranked"`
	Results []rankedRow `json:"results" jsonschema:"the most relevant first"`
}

// rankedRow is the score of one document.
type rankedRow struct {
	Index int64   `json:"index" jsonschema:"which document, counted from 0"`
	Score float64 `json:"score" jsonschema:"grows with the relevance"`
}

// answerRerank is the result of rerank, without the documents, which the caller has.
func (c *call) answerRerank(r *gateway.Response) (*sdk.CallToolResult, error) {
	answer, err := decode[rerank.Response](r.Body, "the form of a ranking")
	if err != nil {
		return nil, err
	}
	result := rerankResult{chargeInfo: c.receipt(r), Model: c.args.text("model")}
	var text strings.Builder
	for _, row := range answer.Results {
		result.Results = append(result.Results, rankedRow{row.Index, row.RelevanceScore})
		fmt.Fprintf(&text, "%d: %g\n", row.Index, row.RelevanceScore)
	}
	return success(result, textContent("Document: score\n%s", text.String()), textContent("%s", result.receiptLine())), nil
}

func speechTool() *tool {
	return &tool{
		name: "text_to_speech", title: "Speak a text",
		description: "Speaks a text and returns the audio. It is charged by the character.",
		fields: []field{
			modelField("The model that speaks."),
			{name: "text", kind: stringKind, required: true, max: 20_000, description: "What is said. Languages may be mixed."},
			{name: "voice", kind: stringKind, description: "A voice of the model; list_models names them. If left out, its first one."},
			{name: "format", kind: stringKind, enum: []string{"mp3", "wav"}, description: "The format of the audio, where the model can choose."},
			{name: "instructions", kind: stringKind, description: "How it is said: tone, pace, feeling. Only models with \"instruct\" in their name take it."},
		},
		models: ofKind(gateway.KindSpeech),
		output: outputSchema[speechResult](),
		request: func(a arguments) (*gateway.Request, error) {
			b := body{}.copy(a, "model", "voice", "instructions")
			b.copyAs(a, "text", "input")
			b.copyAs(a, "format", "response_format")
			return b.request(upstream.Speech)
		},
		answer: (*call).answerSpeech,
	}
}

// speechResult is the structured result of text_to_speech.
type speechResult struct {
	chargeInfo
	Model    string `json:"model" jsonschema:"the model that spoke"`
	MIMEType string `json:"mime_type" jsonschema:"the type of the audio among the contents"`
	Bytes    int    `json:"bytes" jsonschema:"the size of the audio"`
}

// answerSpeech is the result of text_to_speech, with the whole audio: a tool has no stream of
// bytes.
func (c *call) answerSpeech(r *gateway.Response) (*sdk.CallToolResult, error) {
	audio := r.Body // of an earlier call
	if r.Audio != nil {
		var err error
		if audio, err = c.collectAudio(r.Audio); err != nil {
			return nil, err
		}
	}
	kind := cmp.Or(r.Header.Get("Content-Type"), "audio/mpeg")
	result := speechResult{chargeInfo: c.receipt(r), Model: c.args.text("model"), MIMEType: kind, Bytes: len(audio)}
	return success(result, &sdk.AudioContent{Data: audio, MIMEType: kind}, textContent("%s", result.receiptLine())), nil
}

// collectAudio reads the audio to its end. Where it is too long, the rest is not made.
func (c *call) collectAudio(a *gateway.Audio) (_ []byte, err error) {
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
		if err := c.checkSize(int64(audio.Len()), "Speak a shorter text, or choose mp3. What was spoken until then is charged."); err != nil {
			return nil, err
		}
	}
}
