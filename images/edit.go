package images

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/upstream"
)

// Edit is a request for changed pictures (api.md, Image edit). A field that the
// API does not name goes into Extra and travels unchanged.
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

	form    *upstream.Form
	request *Request // the same fields, which obey the rules of generations as well
}

// The names of the parts that are files.
const (
	imagePart  = "image"
	imagesPart = "image[]"
	maskPart   = "mask"
)

// EncodeForm makes a form of an edit that was made in Go and reads it again as
// [ParseForm] does, so that both obey the same rules.
func EncodeForm(typed *Edit) (*Edit, error) {
	var parts []upstream.Part
	name := imagePart
	if len(typed.Images) > 1 {
		name = imagesPart
	}
	for i := range typed.Images {
		parts = append(parts, typed.Images[i].part(name))
	}
	if typed.Mask != nil {
		parts = append(parts, typed.Mask.part(maskPart))
	}
	for _, f := range typed.texts() {
		if f.value != "" {
			parts = append(parts, upstream.Field(f.name, f.value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(typed.Extra)) {
		parts = append(parts, upstream.Field(name, typed.Extra[name]))
	}
	return ParseForm(upstream.NewForm(parts, nil))
}

// part is the file as a part of a form.
func (f *File) part(name string) upstream.Part {
	p := upstream.Part{Name: name, Filename: f.Name, ContentType: f.ContentType, Size: f.Size, Content: f.Open}
	if p.Filename == "" {
		p.Filename = name
	}
	return p
}

// text is a text field of a form.
type text struct{ name, value string }

// texts are the text fields, empty where they are absent.
func (e *Edit) texts() []text {
	t := []text{
		{"model", e.Model}, {"prompt", e.Prompt}, {"size", e.Size}, {"quality", e.Quality}, {"background", e.Background},
		{"output_format", e.OutputFormat}, {"response_format", e.ResponseFormat}, {"user", e.User},
	}
	if e.N != 0 {
		t = append(t, text{"n", strconv.FormatInt(e.N, 10)})
	}
	if e.Stream {
		t = append(t, text{"stream", "true"})
	}
	if e.PartialImages != 0 {
		t = append(t, text{"partial_images", strconv.FormatInt(e.PartialImages, 10)})
	}
	return t
}

// Form is the form that the edit was parsed from.
func (e *Edit) Form() *upstream.Form { return e.form }

// Known reports whether a table describes the model. What is not known passes
// through, and its counts are believed.
func (e *Edit) Known() bool { return e.request.parsed.known }

// Validate reports the first rule of the API that the request breaks, nil if
// there is none.
func (e *Edit) Validate() error { return e.request.Validate() }

// ReadAnswer is [Request.ReadAnswer] of an edit.
func (e *Edit) ReadAnswer(data []byte, requestID string, tokens bool) (Answer, error) {
	return e.request.ReadAnswer(data, requestID, tokens)
}

// NewTap is [Request.NewTap] of an edit.
func (e *Edit) NewTap(requestID string, tokens bool) *Tap { return e.request.NewTap(requestID, tokens) }
