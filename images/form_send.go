package images

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/upstream"
)

// aliases are the names of qualities that the vendor does not know.
var aliases = map[string]string{"standard": "medium", "hd": "high"}

// Prepared is the request's body as an upstream gets it: the caller's form but
// for empty fields, the names and types of the files, and what api.md promises
// where the vendor has another default or another word.
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
			p.Filename, p.ContentType = e.Mask.proper(maskPart), e.Mask.ContentType
		case isFile(&p) && seen < len(e.Images):
			f := &e.Images[seen]
			seen++
			p.Name, p.Filename, p.ContentType = image, f.proper(imagePart+"-"+strconv.Itoa(seen)), f.ContentType
		}
		parts = append(parts, p)
	}
	return parts
}
