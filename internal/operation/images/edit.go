package images

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The names of the parts that are files.
const (
	imagePart  = "image"
	imagesPart = "image[]"
	maskPart   = "mask"
)

// EncodeForm makes a form of an edit that was made in Go and reads it as [ParseForm] does, so
// that both obey the same rules.
func EncodeForm(typed *images.Edit) (*Request, error) {
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
	texts := &images.Request{
		Model: typed.Model, Prompt: typed.Prompt, N: typed.N, Size: typed.Size, Quality: typed.Quality, User: typed.User,
		Background: typed.Background, OutputFormat: typed.OutputFormat, ResponseFormat: typed.ResponseFormat,
		Stream: typed.Stream, PartialImages: typed.PartialImages,
	}
	for _, f := range openAI {
		if text := formText(f.Into(texts)); text != "" {
			parts = append(parts, upstream.Field(f.Name, text))
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

// formText is what a field points to as the text of a form; empty where it is absent.
func formText(field any) string {
	switch v := field.(type) {
	case *string:
		return *v
	case *int64:
		if *v != 0 {
			return strconv.FormatInt(*v, 10)
		}
	case *bool:
		if *v {
			return "true"
		}
	}
	return ""
}

// Form is the form that an edit was parsed from; nil for another request.
func (r *Request) Form() *upstream.Form { return r.form }

// The input tokens of one image. The first is the most in a vendor's tables, of a large image
// in high fidelity. The others are what the vendor counts in the usual fidelity: for the first
// tile, and for each further tile of 512 by 512 pixels.
const (
	maxImageTokens  = 8_192
	firstTileTokens = 65
	nextTileTokens  = 129
)

// textBytes is the length of the text fields of a form.
func textBytes(form *upstream.Form) (all int64) {
	for i := range form.Parts {
		if p := &form.Parts[i]; !isFile(p) && p.Filename == "" {
			all += p.Size
		}
	}
	return all
}

// files are what the model of an edit sees: the images and the mask.
func (r *Request) files() []images.File {
	switch e := r.Edit; {
	case e == nil:
		return nil
	case e.Mask == nil:
		return e.Images
	default:
		return append(slices.Clone(e.Images), *e.Mask)
	}
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

// preparedForm returns the form as an upstream gets it. It is the client's form without empty
// fields, with valid names and types of the files. It states what the public API promises if
// the vendor has another default or another word.
func (r *Request) preparedForm() upstream.Body {
	body := upstream.FormBody(r.form.With(r.preparedParts()))
	e, rules := r.Edit, r.family.Edit
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

// preparedParts are the form's as a vendor wants them: files by the name and the
// type of their content, and nothing that is empty.
func (r *Request) preparedParts() []upstream.Part {
	e := r.Edit
	image := imagePart
	if len(e.Images) > 1 {
		image = imagesPart
	}
	seen := 0
	parts := make([]upstream.Part, 0, len(r.form.Parts))
	for i := range r.form.Parts {
		p := r.form.Parts[i]
		text := openAI.Find(p.Name) != nil
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
