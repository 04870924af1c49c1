// Package images is the capability of making pictures of texts and of pictures:
// its requests and answers, and models that are written in Go.
package images

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a request for pictures. Models whose ids begin with "alpha-" take
// Input and Parameters, all others Prompt and what follows it. A field that the
// API does not name goes into Extra and travels unchanged.
type Request struct {
	Model string `json:"model"`

	Prompt            string `json:"prompt,omitzero"`
	N                 int64  `json:"n,omitzero"`    // pictures; 0 means 1
	Size              string `json:"size,omitzero"` // "1024x1024"
	Quality           string `json:"quality,omitzero"`
	Background        string `json:"background,omitzero"`      // transparent, opaque or auto
	OutputFormat      string `json:"output_format,omitzero"`   // png, jpeg or webp
	ResponseFormat    string `json:"response_format,omitzero"` // b64_json or url
	OutputCompression *int64 `json:"output_compression,omitzero"`
	Stream            bool   `json:"stream,omitzero"` // read by the server; in process there is no stream of pictures
	PartialImages     int64  `json:"partial_images,omitzero"`
	User              string `json:"user,omitzero"`

	Input      *Input      `json:"input,omitzero"`
	Parameters *Parameters `json:"parameters,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field
}

// Input is what the alpha family draws: exactly one message.
type Input struct {
	Messages []Message      `json:"messages"`
	Extra    jsontext.Value `json:",embed"`
}

// Message is the alpha family's message, of role "user".
type Message struct {
	Role    string         `json:"role"`
	Content []Block        `json:"content"`
	Extra   jsontext.Value `json:",embed"`
}

// Block is a text or the https address of an image.
type Block struct {
	Text  string         `json:"text,omitzero"`
	Image string         `json:"image,omitzero"`
	Extra jsontext.Value `json:",embed"`
}

// Parameters are the alpha family's; nil members have the API's defaults.
type Parameters struct {
	Size           string         `json:"size,omitzero"` // "1024*1024"
	N              *int64         `json:"n,omitzero"`
	Seed           *int64         `json:"seed,omitzero"`
	Watermark      *bool          `json:"watermark,omitzero"`
	NegativePrompt string         `json:"negative_prompt,omitzero"`
	PromptExtend   *bool          `json:"prompt_extend,omitzero"`
	Extra          jsontext.Value `json:",embed"`
}

// Edit is a request for changed pictures. A field that the API does not name
// goes into Extra and travels unchanged.
type Edit struct {
	Model  string
	Prompt string // what is to change
	// Images are the pictures that are changed or combined, PNG, JPEG or WebP
	// files. How many there may be depends on the model.
	Images []File
	// Mask is a PNG file of the first image's size, whose transparent area is
	// what is changed; nil for none.
	Mask *File

	N              int64  // pictures that are made; 0 means 1
	Size           string // "1024x1024"
	Quality        string
	Background     string // transparent, opaque or auto
	OutputFormat   string // png, jpeg or webp
	ResponseFormat string // b64_json or url
	Stream         bool   // read by the server; in process there is no stream of pictures
	PartialImages  int64
	User           string
	Extra          map[string]string // every other text field
}

// Handler makes pictures in Go. It is safe for concurrent use. An error that is
// a *fault.Error reaches the caller as it is; any other becomes an internal
// error without details. The request is read-only.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Serve makes an upstream of a Go function. It does not stream: a call for a
// stream is refused.
func Serve(h Handler) upstream.Upstream {
	return funcmodel.Function[Request, Response]{Op: upstream.GenerateImage, Read: funcmodel.View[Request], Answer: h}
}

// EditHandler changes pictures in Go. It is as a [Handler] is; the files of the
// edit can be opened until it returns.
type EditHandler func(ctx context.Context, e *Edit) (*Response, error)

// ServeEdits makes an upstream of a Go function that changes pictures. It does
// not stream: a call for a stream is refused.
func ServeEdits(h EditHandler) upstream.Upstream {
	return funcmodel.Function[Edit, Response]{Op: upstream.EditImage, Read: funcmodel.View[Edit], Answer: h}
}
