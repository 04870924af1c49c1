// Package images has the requests and answers for generating and editing images, and makes
// models of Go functions.
// A *gateway.Gateway answers requests; g stands for one here:
//
//	answer, err := g.Images(ctx, &images.Request{Model: "my-model", Prompt: "A toll bridge."})
//	data, err := answer.Data[0].Bytes()    // or its URL, as the model answers
//	up := images.Serve(handler)            // a model that is a Go function
package images

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a request to generate images. Models whose ids begin with "alpha-" take Input and
// Parameters. All others take Prompt and the fields after it. A field that the API does not
// name goes into Extra and passes unchanged.
type Request struct {
	Model string `json:"model"`

	Prompt            string `json:"prompt,omitzero"`
	N                 int64  `json:"n,omitzero"`    // images; 0 means 1
	Size              string `json:"size,omitzero"` // "1024x1024"
	Quality           string `json:"quality,omitzero"`
	Background        string `json:"background,omitzero"`      // transparent, opaque or auto
	OutputFormat      string `json:"output_format,omitzero"`   // png, jpeg or webp
	ResponseFormat    string `json:"response_format,omitzero"` // b64_json or url
	OutputCompression *int64 `json:"output_compression,omitzero"`
	Stream            bool   `json:"stream,omitzero"` // read by the server; in process there is no stream of images
	PartialImages     int64  `json:"partial_images,omitzero"`
	User              string `json:"user,omitzero"`

	Input      *Input      `json:"input,omitzero"`
	Parameters *Parameters `json:"parameters,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field
}

// MarshalJSON writes the members of Extra beside the others, also for the classic
// encoding/json, which does not know embedded members.
func (r Request) MarshalJSON() ([]byte, error) {
	type members Request
	return json.Marshal(members(r))
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

// Edit is a request for changed images. A field that the API does not name
// goes into Extra and travels unchanged.
type Edit struct {
	Model  string
	Prompt string // what is to change
	// Images are the images to edit or combine: PNG, JPEG or WebP files. The model limits their
	// number.
	Images []File
	// Mask is a PNG file of the first image's size. Its transparent area is edited. It may be
	// nil.
	Mask *File

	N              int64  // images that are made; 0 means 1
	Size           string // "1024x1024"
	Quality        string
	Background     string // transparent, opaque or auto
	OutputFormat   string // png, jpeg or webp
	ResponseFormat string // b64_json or url
	Stream         bool   // read by the server; in process there is no stream of images
	PartialImages  int64
	User           string
	Extra          map[string]string // every other text field
}

// Handler generates images in Go. It must be safe for concurrent use and must not change the
// request. The caller gets a *fault.Error as it is; any other error becomes an internal error
// without details.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Serve makes an upstream of a Go function. It does not stream: a call for a
// stream is refused.
func Serve(h Handler) upstream.Upstream {
	return funcmodel.Function[Request, Response]{Op: upstream.GenerateImage, Read: funcmodel.View[Request], Answer: h}
}

// EditHandler changes images in Go. It is as a [Handler] is; the files of the
// edit can be opened until it returns.
type EditHandler func(ctx context.Context, e *Edit) (*Response, error)

// ServeEdits makes an upstream of a Go function that changes images. It does
// not stream: a call for a stream is refused.
func ServeEdits(h EditHandler) upstream.Upstream {
	return funcmodel.Function[Edit, Response]{Op: upstream.EditImage, Read: funcmodel.View[Edit], Answer: h}
}

// Response is images. Those of the alpha family are in Output, all others in
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

	// Raw is the vendor's answer with the public model id and request_id.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Image is one image: its bytes in base64, or where they can be fetched.
type Image struct {
	B64JSON       string         `json:"b64_json,omitzero"`
	URL           string         `json:"url,omitzero"`
	RevisedPrompt string         `json:"revised_prompt,omitzero"`
	Extra         jsontext.Value `json:",embed"`
}

// Bytes are the image's, of B64JSON or of a "data:" URL. One of any other URL has to
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

// Usage is the upstream's count: of images by the alpha family, of tokens by
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

// Images returns the images, in whichever form the answer has them.
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

// File is an image that a client sends. For an [Edit] only Name, Size and Open matter; the
// gateway reads ContentType, Width and Height from the file.
type File struct {
	Name string // the file's; may be empty
	// ContentType is image/png, image/jpeg or image/webp, by what the file begins with.
	ContentType   string
	Size          int64 // in bytes
	Width, Height int64 // in pixels
	// Open opens the content. It may be called several times, also at once.
	Open func() (io.ReadCloser, error)
}

// BytesFile is a file in memory. data must not change any more.
func BytesFile(name string, data []byte) File {
	return File{Name: name, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

// PathFile is a file on disk, which must stay as it is until the call has ended.
func PathFile(path string) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is no regular file", path)
	}
	return File{Name: filepath.Base(path), Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}, nil
}

// maxFileBytes is the largest image that any vendor takes.
const maxFileBytes = 50 << 20

// ReaderFile reads a file to its end, into memory; prefer [PathFile] for a large one. It fails
// if the file is larger than any vendor takes.
func ReaderFile(name string, r io.Reader) (File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return File{}, err
	}
	if len(data) > maxFileBytes {
		return File{}, fmt.Errorf("the file is larger than %d bytes", maxFileBytes)
	}
	return BytesFile(name, data), nil
}
