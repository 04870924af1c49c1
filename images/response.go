package images

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
)

// Response is pictures. Those of the alpha family are in Output, all others in
// Data; [Response.Images] gives either. Fields that the API does not name are
// in Extra, here and in its parts.
type Response struct {
	Created      int64          `json:"created,omitzero"`
	Data         []Image        `json:"data,omitzero"`
	Output       *Output        `json:"output,omitzero"`
	Background   string         `json:"background,omitzero"`
	OutputFormat string         `json:"output_format,omitzero"`
	Quality      string         `json:"quality,omitzero"`
	Size         string         `json:"size,omitzero"`
	Usage        *Usage         `json:"usage,omitzero"` // nil if the upstream reported none
	Extra        jsontext.Value `json:",embed"`

	// Raw is the answer as it came, but for the model's id and request_id.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Image is one picture: its bytes in base64, or where they can be fetched.
type Image struct {
	B64JSON       string         `json:"b64_json,omitzero"`
	URL           string         `json:"url,omitzero"`
	RevisedPrompt string         `json:"revised_prompt,omitzero"`
	Extra         jsontext.Value `json:",embed"`
}

// Bytes are the picture's, of B64JSON or of a "data:" URL. One of any other URL has to
// be fetched from there, and is an error here.
func (i Image) Bytes() ([]byte, error) {
	text := i.B64JSON
	if text == "" {
		_, data, ok := strings.Cut(i.URL, ";base64,")
		if !ok || !strings.HasPrefix(i.URL, "data:") {
			return nil, errors.New("the picture is not in the answer; fetch it from its URL")
		}
		text = data
	}
	return base64.StdEncoding.DecodeString(text)
}

// Output is the alpha family's answer.
type Output struct {
	Choices []Choice       `json:"choices"`
	Extra   jsontext.Value `json:",embed"`
}

// Choice is one candidate of it.
type Choice struct {
	FinishReason string         `json:"finish_reason"`
	Message      Message        `json:"message"`
	Extra        jsontext.Value `json:",embed"`
}

// Usage is the upstream's count: of pictures by the alpha family, of tokens by
// others.
type Usage struct {
	ImageCount *int64 `json:"image_count,omitzero"`
	Height     int64  `json:"height,omitzero"`
	Width      int64  `json:"width,omitzero"`

	InputTokens        int64          `json:"input_tokens,omitzero"`
	InputTokensDetails *Details       `json:"input_tokens_details,omitzero"`
	OutputTokens       int64          `json:"output_tokens,omitzero"`
	TotalTokens        int64          `json:"total_tokens,omitzero"`
	Extra              jsontext.Value `json:",embed"`
}

// Details says of what the input tokens are.
type Details struct {
	TextTokens  int64          `json:"text_tokens"`
	ImageTokens int64          `json:"image_tokens"`
	Extra       jsontext.Value `json:",embed"`
}

// Images are the pictures, whichever form the answer has.
func (r *Response) Images() []Image {
	images := r.Data
	if r.Output == nil {
		return images
	}
	for _, c := range r.Output.Choices {
		for _, b := range c.Message.Content {
			if b.Image != "" {
				images = append(images, Image{URL: b.Image})
			}
		}
	}
	return images
}
