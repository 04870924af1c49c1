package clients

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func openAIClient(s *fixture, more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithAPIKey(s.Key.Reveal()), option.WithBaseURL(s.url + "/v1"), option.WithMaxRetries(0), option.WithHTTPClient(s.client),
	}, more...)...)
}

func openAIRequest(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

func TestOpenAIGoGetsAnAnswer(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	s.spends(t, func() billing.Money {
		var response *http.Response
		r, err := c.Chat.Completions.New(t.Context(), openAIRequest("delta-k3", "hello there"), option.WithResponseInto(&response))
		if err != nil {
			t.Fatal(err)
		}
		m := r.Choices[0].Message
		if r.Model != "delta-k3" || m.Content == "" || m.JSON.ExtraFields["reasoning_content"].Raw() == "" {
			t.Errorf("response %s", r.RawJSON())
		}
		if !strings.HasPrefix(response.Header.Get("X-Request-Id"), "req_") || response.Header.Get("X-Gateway-Charge") == "" {
			t.Errorf("headers %v", response.Header)
		}
		return chatCost(r.Usage.PromptTokens, r.Usage.CompletionTokens)
	})
}

func TestOpenAIGoAccumulatesAStreamAndRepliesToIt(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	params := openAIRequest("delta-k3", "what is the weather?")
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name:       "weather",
		Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}},
	})}
	var all openai.ChatCompletionAccumulator
	s.spends(t, func() billing.Money {
		stream := c.Chat.Completions.NewStreaming(t.Context(), params)
		for stream.Next() {
			if !all.AddChunk(stream.Current()) {
				t.Fatalf("the accumulator refused %s", stream.Current().RawJSON())
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		return chatCost(all.Usage.PromptTokens, all.Usage.CompletionTokens)
	})
	m := all.Choices[0].Message
	if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" {
		t.Fatalf("message %+v", m)
	}
	// The accumulated answer is the next turn: its content is null.
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	params.Messages = append(params.Messages, m.ToParam(), openai.ToolMessage("sunny", m.ToolCalls[0].ID))
	r, err := c.Chat.Completions.New(t.Context(), params)
	if err != nil || !strings.Contains(r.Choices[0].Message.Content, "sunny") {
		t.Errorf("after the tool: %+v, %v", r, err)
	}
}

func TestOpenAIGoSeesAStreamThatBreaks(t *testing.T) {
	c := openAIClient(newFixture(t, options{upstream: sim.New(sim.Options{
		Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Break: sim.Cut, After: 4} },
	})}))
	stream := c.Chat.Completions.NewStreaming(t.Context(), openAIRequest("sim-chat", "one two three four five six"))
	chunks := 0
	for stream.Next() {
		chunks++
	}
	if stream.Err() == nil || chunks == 0 {
		t.Errorf("%d chunks, then %v", chunks, stream.Err())
	}
}

func TestOpenAIGoMapsErrors(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	hot := openAIRequest("sim-chat", "x")
	hot.Temperature = openai.Float(3)
	for _, tt := range []struct {
		name   string
		do     func() error
		status int
		code   string
		param  string
	}{
		{"a bad field of a chat", func() error { _, err := c.Chat.Completions.New(t.Context(), hot); return err }, 400, "invalid_request_error", "temperature"},
		{"a wrong key", func() error {
			wrong := openAIClient(s, option.WithAPIKey("sk-wrong"))
			_, err := wrong.Models.List(t.Context())
			return err
		}, 401, "unauthorized", ""},
		{"no texts", func() error {
			_, err := c.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "vectors", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("")}})
			return err
		}, 400, "invalid_request_error", "input"},
		{"too many pictures", func() error {
			_, err := c.Images.Generate(t.Context(), openai.ImageGenerateParams{Model: "imagegen-2", Prompt: "a", N: openai.Int(11)})
			return err
		}, 400, "invalid_request_error", "n"},
		{"a mask of another size", func() error {
			_, err := c.Images.Edit(t.Context(), openai.ImageEditParams{
				Model: "imagegen-2", Prompt: "a", Image: openai.ImageEditParamsImageUnion{OfFile: bytes.NewReader(picture(t, 16))}, Mask: bytes.NewReader(picture(t, 8)),
			})
			return err
		}, 400, "invalid_mask", "mask"},
		{"an unknown voice", func() error {
			_, err := c.Audio.Speech.New(t.Context(), openai.AudioSpeechNewParams{
				Model: "alpha3-tts-flash", Input: "hi", Voice: openai.AudioSpeechNewParamsVoiceUnion{OfString: openai.String("unknown")},
			})
			return err
		}, 400, "endpoint_model_mismatch", "voice"},
	} {
		var e *openai.Error
		if err := tt.do(); !errors.As(err, &e) || e.StatusCode != tt.status || e.Code != tt.code || e.Param != tt.param || e.Message == "" {
			t.Errorf("%s: %+v", tt.name, err)
		}
	}
	if s.Posted(t) != billing.One {
		t.Errorf("refusals cost %s", billing.One-s.Posted(t))
	}
}

func TestOpenAIGoListsModels(t *testing.T) {
	c := openAIClient(newFixture(t, options{}))
	list, err := c.Models.List(t.Context())
	if err != nil || len(list.Data) != len(kinds) {
		t.Errorf("models %+v, %v", list, err)
	}
	if m, err := c.Models.Get(t.Context(), "delta-k3"); err != nil || m.ID != "delta-k3" {
		t.Errorf("model %+v, %v", m, err)
	}
}

func TestOpenAIGoEmbedsInBothEncodings(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	params := openai.EmbeddingNewParams{
		Model: "vectors", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b", "c"}}, Dimensions: openai.Int(8),
	}
	var plain *openai.CreateEmbeddingResponse
	s.spends(t, func() (cost billing.Money) {
		var err error
		if plain, err = c.Embeddings.New(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		return billing.Money(plain.Usage.PromptTokens) * 1000
	})
	if len(plain.Data) != 3 || plain.Data[2].Index != 2 || len(plain.Data[2].Embedding) != 8 || plain.Model != "vectors" {
		t.Fatalf("%s", plain.RawJSON())
	}
	// The type of its response has numbers only: base64 is read beside it.
	params.EncodingFormat = openai.EmbeddingNewParamsEncodingFormatBase64
	var packed struct{ Data []struct{ Embedding string } }
	if err := c.Post(t.Context(), "embeddings", params, &packed); err != nil {
		t.Fatal(err)
	}
	for i, e := range packed.Data {
		raw, err := base64.StdEncoding.DecodeString(e.Embedding)
		if err != nil || len(raw) != 4*8 {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
		for j, want := range plain.Data[i].Embedding {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:])); got != float32(want) {
				t.Errorf("vector %d: %v, want %v", i, got, want)
			}
		}
	}
}

func TestOpenAIGoMakesPictures(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	s.spends(t, func() billing.Money {
		r, err := c.Images.Generate(t.Context(), openai.ImageGenerateParams{
			Model: "imagegen-2", Prompt: "a red cube", N: openai.Int(2), Size: openai.ImageGenerateParamsSize1024x1024, Quality: openai.ImageGenerateParamsQualityLow,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Data) != 2 || r.Usage.OutputTokens == 0 || r.Usage.InputTokensDetails.TextTokens == 0 || r.Created == 0 {
			t.Errorf("%d pictures, usage %+v", len(r.Data), r.Usage)
		}
		isPNG(t, r.Data[1].B64JSON)
		return 2 * billing.One / 10
	})
	legacy, err := c.Images.Generate(t.Context(), openai.ImageGenerateParams{
		Model: "imagegen-legacy-2", Prompt: "a", Size: "256x256", ResponseFormat: openai.ImageGenerateParamsResponseFormatURL,
	})
	if err != nil || !strings.HasPrefix(legacy.Data[0].URL, "data:image/png;base64,") {
		t.Errorf("%+v, %v", legacy, err)
	}
}

func TestOpenAIGoEditsPictures(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	file := func() io.Reader { return bytes.NewReader(picture(t, 16)) }
	for name, images := range map[string]openai.ImageEditParamsImageUnion{
		"one": {OfFile: file()}, "an array of one": {OfFileArray: []io.Reader{file()}}, "two": {OfFileArray: []io.Reader{file(), file()}},
	} {
		s.spends(t, func() billing.Money {
			r, err := c.Images.Edit(t.Context(), openai.ImageEditParams{
				Model: "imagegen-2", Prompt: "make it blue", Image: images, Mask: file(), N: openai.Int(2),
				Size: openai.ImageEditParamsSize1024x1024, Quality: "standard", ResponseFormat: openai.ImageEditParamsResponseFormatB64JSON,
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(r.Data) != 2 || r.Usage.InputTokensDetails.ImageTokens == 0 || r.Usage.OutputTokens == 0 || r.Created == 0 {
				t.Errorf("%s: %d pictures, usage %+v", name, len(r.Data), r.Usage)
			}
			isPNG(t, r.Data[1].B64JSON)
			return 2 * billing.One / 10
		})
	}
}

func TestOpenAIGoStreamsPartialPictures(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	var made, edited []string
	s.spends(t, func() billing.Money {
		stream := c.Images.GenerateStreaming(t.Context(), openai.ImageGenerateParams{Model: "imagegen-2", Prompt: "a red cube", PartialImages: openai.Int(2)})
		for stream.Next() {
			made = append(made, stream.Current().Type)
			isPNG(t, stream.Current().B64JSON)
		}
		edits := c.Images.EditStreaming(t.Context(), openai.ImageEditParams{
			Model: "imagegen-2", Prompt: "make it blue", PartialImages: openai.Int(2),
			Image: openai.ImageEditParamsImageUnion{OfFile: bytes.NewReader(picture(t, 16))},
		})
		for edits.Next() {
			edited = append(edited, edits.Current().Type)
			isPNG(t, edits.Current().B64JSON)
		}
		if err := errors.Join(stream.Err(), edits.Err()); err != nil {
			t.Fatal(err)
		}
		return 2 * billing.One / 10
	})
	if want := []string{"image_generation.partial_image", "image_generation.partial_image", "image_generation.completed"}; !slices.Equal(made, want) {
		t.Errorf("events %v", made)
	}
	if want := []string{"image_edit.partial_image", "image_edit.partial_image", "image_edit.completed"}; !slices.Equal(edited, want) {
		t.Errorf("events %v", edited)
	}
}

func TestOpenAIGoSpeaks(t *testing.T) {
	s := newFixture(t, options{})
	c := openAIClient(s)
	const text = "One sentence. And another one."
	s.spends(t, func() billing.Money {
		r, err := c.Audio.Speech.New(t.Context(), openai.AudioSpeechNewParams{
			Model: "alpha3-tts-flash", Input: text, ResponseFormat: openai.AudioSpeechNewParamsResponseFormatWAV,
			Voice: openai.AudioSpeechNewParamsVoiceUnion{OfString: openai.String("alloy")},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		data, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "audio/wav" || !bytes.HasPrefix(data, []byte("RIFF")) || len(data) < 1000 {
			t.Errorf("%v, %v, %d bytes", err, r.Header, len(data))
		}
		return billing.Money(len(text)) * 1000
	})
}

// A client that retried the refusal of a repeated submission would loop.
func TestOpenAIGoSubmitsAVideoByItsOwnMeansAndDoesNotRetryARefusal(t *testing.T) {
	s := newFixture(t, options{credit: 10 * billing.One, owing: true})
	requests := 0
	c := openAIClient(s, option.WithMaxRetries(2), option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		requests++
		return next(r)
	}))
	boat := json.RawMessage(`{"model":"beta2.7-t2v","duration":5,"resolution":"720p","input":{"prompt":"a boat"}}`)
	var task struct{ ID, Status string }
	if err := c.Post(t.Context(), "videos/generations", boat, &task); err != nil || task.Status != "processing" {
		t.Fatalf("%+v, %v", task, err)
	}
	if err := c.Get(t.Context(), "videos/generations/"+task.ID, nil, &task); err != nil || task.Status != "processing" {
		t.Errorf("%+v, %v", task, err)
	}
	requests = 0
	err := c.Post(t.Context(), "videos/generations", boat, &task)
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != 409 || e.Code != "idempotency_conflict" || requests != 1 {
		t.Errorf("repeated: %v after %d requests", err, requests)
	}
}
