package imagesapi

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Edit is a parsed request for changed pictures.
type Edit struct {
	images.Edit
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
func EncodeForm(typed *images.Edit) (*Edit, error) {
	var parts []upstream.Part
	name := imagePart
	if len(typed.Images) > 1 {
		name = imagesPart
	}
	for i := range typed.Images {
		parts = append(parts, part(&typed.Images[i], name))
	}
	if typed.Mask != nil {
		parts = append(parts, part(typed.Mask, maskPart))
	}
	for _, f := range texts(typed) {
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
func part(f *images.File, name string) upstream.Part {
	p := upstream.Part{Name: name, Filename: f.Name, ContentType: f.ContentType, Size: f.Size, Content: f.Open}
	if p.Filename == "" {
		p.Filename = name
	}
	return p
}

// text is a text field of a form.
type text struct{ name, value string }

// texts are the text fields, empty where they are absent.
func texts(e *images.Edit) []text {
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

// The input tokens of one image: the most that a vendor's tables have (a large
// one in high fidelity), and what the vendor counts for the first tile and for
// each further one of 512 by 512 pixels in the usual fidelity.
const (
	maxImageTokens  = 8_192
	firstTileTokens = 65
	nextTileTokens  = 129
)

// Count is the number of pictures that the request asks for.
func (e *Edit) Count() int64 { return e.request.Count() }

// InputBound is the most tokens that the prompt can be, images apart: no token
// is shorter than a byte.
func (e *Edit) InputBound() int64 {
	if e.Known() {
		return e.request.InputBound()
	}
	var all int64
	for i := range e.form.Parts {
		if p := &e.form.Parts[i]; !isFile(p) && p.Filename == "" {
			all += p.Size
		}
	}
	return min(all, maxInputTokens) + tokensAround
}

// ImageInputBound is the most tokens that the images can be.
func (e *Edit) ImageInputBound() int64 {
	if !e.request.CountsTokens() {
		return 0
	}
	return maxImageTokens * e.imageCount()
}

// OutputBound is [Request.OutputBound] of an edit.
func (e *Edit) OutputBound(perImage int64) int64 { return e.request.OutputBound(perImage) }

// Estimate is about how many tokens the prompt is, and the images.
func (e *Edit) Estimate() (prompt, shown int64) {
	return e.request.Estimate(), e.request.parsed.imageTokens
}

// imageCount is the number of images that the model sees.
func (e *Edit) imageCount() int64 {
	n := int64(len(e.Images))
	if e.Mask != nil {
		n++
	}
	return n
}

// estimate is about how many tokens the images are.
func (e *Edit) estimate() (tokens int64) {
	if !e.request.CountsTokens() {
		return 0
	}
	for i := range e.Images {
		tokens += fileTokens(&e.Images[i])
	}
	if e.Mask != nil {
		tokens += fileTokens(e.Mask)
	}
	return tokens
}

// fileTokens is about how many an image is: its shorter side is scaled to one tile.
func fileTokens(f *images.File) int64 {
	short, long := min(f.Width, f.Height), max(f.Width, f.Height)
	if short == 0 {
		return 0
	}
	return min(firstTileTokens+nextTileTokens*((long+short-1)/short), maxImageTokens)
}

// aliases are the names of qualities that the vendor does not know.
var aliases = map[string]string{"standard": "medium", "hd": "high"}

// Prepared is the request's body as an upstream gets it: the caller's form but
// for empty fields, the names and types of the files, and what the public API
// promises where the vendor has another default or another word.
func (e *Edit) Prepared() upstream.Body {
	body := upstream.FormBody(e.form.With(e.parts()))
	rules := e.request.parsed.family.Edit
	switch {
	case rules == nil:
		return body
	case !rules.Legacy:
		body = body.Delete("response_format") // which the vendor refuses: it has but one
		if word, ok := aliases[e.Quality]; ok {
			body = body.Set("quality", []byte(strconv.Quote(word)))
		}
		if e.Size == "" {
			body = body.Set("size", []byte(`"auto"`))
		}
		return body
	}
	if e.ResponseFormat == "" {
		body = body.Set("response_format", []byte(`"b64_json"`))
	}
	if e.Size == "auto" {
		body = body.Delete("size")
	}
	return body
}

// parts are the form's as a vendor wants them: files by the name and the type of
// their content, and nothing that is empty.
func (e *Edit) parts() []upstream.Part {
	image := imagePart
	if len(e.Images) > 1 {
		image = imagesPart
	}
	seen := 0
	parts := make([]upstream.Part, 0, len(e.form.Parts))
	for i := range e.form.Parts {
		p := e.form.Parts[i]
		_, text := textFields[p.Name]
		switch {
		case absent(&p), text && p.Size == 0:
			continue
		case text:
			p.Filename, p.ContentType = "", ""
		case p.Name == maskPart && e.Mask != nil:
			p.Filename, p.ContentType = vendorName(e.Mask, maskPart), e.Mask.ContentType
		case isFile(&p) && seen < len(e.Images):
			f := &e.Images[seen]
			seen++
			p.Name, p.Filename, p.ContentType = image, vendorName(f, imagePart+"-"+strconv.Itoa(seen)), f.ContentType
		}
		parts = append(parts, p)
	}
	return parts
}
