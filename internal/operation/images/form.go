package images

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// maxTextField bounds a text field in bytes.
const maxTextField = 1 << 20

// ParseForm reads the request whose body is form. It fails with a 400 if
// the form says something twice that counts, or under another spelling; other
// rules are for [Request.Validate]. It looks at the beginnings of the images, and
// into the form no further. The form must stay open as long as the Request is used.
func ParseForm(form *upstream.Form) (*Request, error) {
	r := &Request{Edit: &images.Edit{}, form: form}
	if err := checkNames(form.Parts); err != nil {
		return nil, err
	}
	document, err := r.readTexts()
	if err != nil {
		return nil, err
	}
	if r.object, err = rawjson.Index(document, nil, nil); err != nil {
		return nil, fault.Wrap(fault.InternalError, "The gateway cannot read the form.", err)
	}
	r.checkTexts()
	if err := r.readFiles(); err != nil {
		return nil, err
	}
	r.checkFiles()
	if r.CountsTokens() {
		for _, f := range r.files() {
			r.imageTokens += fileTokens(&f)
		}
	}
	return r, nil
}

// checkNames refuses a known name that comes twice or in other letters. The vendor might read
// it, and what is billed must be what is sent.
func checkNames(parts []upstream.Part) error {
	seen := make(map[string]bool, len(parts))
	for i := range parts {
		name := parts[i].Name
		known := openAI.Find(name) != nil
		switch {
		case name == imagePart, name == imagesPart:
			continue
		case (known || name == maskPart) && seen[name]:
			return fault.Invalid(name, fmt.Sprintf("The form has the field %q twice.", name))
		case !known && name != maskPart:
			if meant := knownName(name); meant != "" {
				return fault.Invalid(meant, fmt.Sprintf("The form has a field %q: spell it %q.", name, meant))
			}
		}
		seen[name] = true
	}
	return nil
}

// knownName returns the known name that name spells differently; empty if there is none.
func knownName(name string) string {
	plain, _, _ := strings.Cut(strings.ToLower(name), "[")
	plain = strings.TrimSpace(plain)
	if openAI.Find(plain) != nil || plain == imagePart || plain == maskPart {
		return plain
	}
	return ""
}

// isFile reports whether a part is one of the images, whatever it calls itself.
func isFile(p *upstream.Part) bool {
	return p.Name == imagePart || p.Name == imagesPart || p.Name == maskPart
}

// absent reports whether a part counts as not sent.
func absent(p *upstream.Part) bool { return p.Size == 0 && p.Filename == "" }

// readTexts is the JSON object of the text fields, in which they have the types
// that a JSON request would give them.
func (r *Request) readTexts() ([]byte, error) {
	document := []byte("{")
	for i := range r.form.Parts {
		p := &r.form.Parts[i]
		field := openAI.Find(p.Name)
		known := field != nil
		if isFile(p) || absent(p) || p.Size == 0 && known || !known && (p.Filename != "" || p.Size > maxTextField) {
			continue
		}
		value, err := p.Text(maxTextField)
		switch {
		case p.Size > maxTextField:
			return nil, fault.Invalid(p.Name, fmt.Sprintf("%q is longer than %d bytes.", p.Name, maxTextField))
		case err != nil:
			return nil, fault.Wrap(fault.InternalError, "The gateway cannot read the form any more.", err)
		case !known:
			if r.Edit.Extra == nil {
				r.Edit.Extra = make(map[string]string)
			}
			r.Edit.Extra[p.Name] = value
			continue
		case !utf8.ValidString(value):
			return nil, fault.Invalid(p.Name, fmt.Sprintf("%q is not UTF-8.", p.Name))
		}
		if len(document) > 1 {
			document = append(document, ',')
		}
		document = append(rawjson.Quote(document, p.Name), ':')
		document = appendText(document, field, value)
	}
	return append(document, '}'), nil
}

// appendText appends the text of a form's field as JSON of the field's kind. If the text is
// not of that kind, it is a string, which the rules then refuse.
func appendText(dst []byte, f *rule.Row[images.Request], text string) []byte {
	plain := false
	switch v := jsontext.Value(text); f.Into(new(images.Request)).(type) {
	case *int64, **int64:
		plain = v.Kind() == '0' && v.IsValid() && strings.TrimSpace(text) == text
	case *bool:
		plain = text == "true" || text == "false"
	}
	if plain {
		return append(dst, text...)
	}
	return rawjson.Quote(dst, text)
}

// checkTexts reads the text fields and checks them by the rules of generations,
// which are the same, and by those of edits.
func (r *Request) checkTexts() {
	r.readCommon()
	f := &r.family
	switch {
	case f.Edit == nil && r.known, f.Messages:
		r.problem.Refuse("model", fmt.Sprintf("The model %q takes its images at another endpoint: call /v1/images/generations, not /v1/images/edits.", safetext.Truncate(r.Model, maxQuoted)))
	case r.known:
		f.Sizes = f.Edit.Sizes
		if string(r.object.Raw("n")) == "0" { // some SDKs send what was not set
			r.problem.Refuse("n", `"n" is 0: it must be an integer from 1 to 10. Set it to 1, or leave it out.`)
		}
	}
	f.Messages = false
	r.readFields()
	r.check()
	e := r.Edit
	e.Model, e.Prompt, e.N, e.Size, e.Quality, e.User = r.Model, r.Prompt, r.N, r.Size, r.Quality, r.User
	e.Background, e.OutputFormat, e.ResponseFormat = r.Background, r.OutputFormat, r.ResponseFormat
	e.Stream, e.PartialImages = r.Stream, r.PartialImages
	if f.Edit != nil {
		r.checkEdit(f.Edit)
	}
}

// checkEdit are the rules of the text fields that depend on the family.
func (r *Request) checkEdit(rules *EditRules) {
	p := &r.problem
	if utf8.RuneCountInString(r.Prompt) > rules.Prompt {
		p.Refuse("prompt", fmt.Sprintf("The prompt is longer than the %d characters that the model %q takes.", rules.Prompt, r.Model))
	}
	if !rules.Legacy {
		if word, ok := aliases[r.Quality]; ok {
			r.Quality = word // by which its bound is found
		}
		if r.ResponseFormat == "url" {
			p.Refuse("response_format", fmt.Sprintf(`The model %q always answers with "b64_json".`, r.Model))
		}
		return
	}
	for _, name := range [...]string{"output_format", "background"} {
		if r.object.Raw(name) != nil {
			p.Refuse(name, fmt.Sprintf("The model %q does not take %q: leave it out.", r.Model, name))
		}
	}
	if r.Stream {
		p.Refuse("stream", fmt.Sprintf(`The model %q does not stream: leave "stream" out.`, r.Model))
	}
}

// readFiles finds the images and the mask and reads their headers.
func (r *Request) readFiles() error {
	p, e := &r.problem, r.Edit
	for i := range r.form.Parts {
		part := &r.form.Parts[i]
		if !isFile(part) || absent(part) {
			continue
		}
		f := images.File{Name: part.Filename, Size: part.Size, Open: part.Content}
		err := readFile(&f)
		var unfit unfitError
		switch {
		case errors.As(err, &unfit):
			p.Refuse(part.Name, fmt.Sprintf("The file %q in %q cannot be used: %s.", safetext.Truncate(f.Name, maxQuoted), part.Name, unfit))
		case err != nil:
			return fault.Wrap(fault.InternalError, "The gateway cannot read the form any more.", err)
		}
		if part.Name == maskPart {
			e.Mask = &f
		} else {
			e.Images = append(e.Images, f)
		}
	}
	return nil
}

// checkFiles are the rules of the images and the mask.
func (r *Request) checkFiles() {
	p, e := &r.problem, r.Edit
	if len(e.Images) == 0 {
		p.Refuse(imagePart, `"image" is missing: it is the file that is to be changed.`)
		return
	}
	if rules := r.family.Edit; rules != nil {
		r.checkImages(rules)
	}
	if e.Mask == nil {
		return
	}
	first := &e.Images[0]
	switch m := e.Mask; {
	case m.ContentType != TypePNG:
		p.Refuse(maskPart, `"mask" must be a PNG file, whose transparent area is what is to be changed.`)
	case m.Size > maxMaskBytes:
		p.Refuse(maskPart, fmt.Sprintf("The mask is larger than %d bytes.", maxMaskBytes))
	case m.Width != first.Width || m.Height != first.Height:
		p.Fail(&fault.Error{
			Code: fault.InvalidMask, Param: maskPart,
			Message: fmt.Sprintf("The mask is %d by %d pixels large and the image %d by %d: they must be of the same size.", m.Width, m.Height, first.Width, first.Height),
		})
	}
}

// checkImages are those that depend on the family.
func (r *Request) checkImages(rules *EditRules) {
	p, e := &r.problem, r.Edit
	switch {
	case len(e.Images) > rules.Images && rules.Images == 1:
		p.Refuse(imagePart, fmt.Sprintf("The model %q takes one image, not %d.", e.Model, len(e.Images)))
	case len(e.Images) > rules.Images:
		p.Refuse(imagePart, fmt.Sprintf("The model %q takes at most %d images, not %d.", e.Model, rules.Images, len(e.Images)))
	}
	for i := range e.Images {
		f := &e.Images[i]
		switch {
		case f.Size > rules.MostBytes:
			p.Refuse(imagePart, fmt.Sprintf("The image is larger than the %d bytes that the model %q takes.", rules.MostBytes, e.Model))
		case rules.Legacy && (f.ContentType != TypePNG || f.Width != f.Height):
			p.Refuse(imagePart, fmt.Sprintf("The model %q takes square PNG files only.", e.Model))
		}
	}
}
