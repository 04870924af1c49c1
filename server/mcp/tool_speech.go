package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
)

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
