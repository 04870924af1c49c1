package images

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// parameters is the table of the alpha family's parameters.
var parameters = rule.Table{
	{Name: "size", Check: rule.String()},
	{Name: "n", Check: rule.Check{Text: "1: a call makes one picture", OK: func(raw []byte) bool { return string(raw) == "1" }}},
	{Name: "seed", Check: rule.Check{Text: "an integer", OK: func(raw []byte) bool { _, ok := rawjson.Int(raw); return ok }}},
	{Name: "watermark", Check: rule.Bool()},
	{Name: "negative_prompt", Check: rule.String()},
	{Name: "prompt_extend", Check: rule.Bool()},
}

// inside are the rules of the names directly in `input`, in its messages and in their blocks,
// besides those of every body. The alpha family needs them: of two texts or images the
// upstream might draw the other one.
var inside = &rawjson.Rules{Unique: true, Billed: append([]string{"role", "text", "image", "url"}, rule.Body.Billed...)}

// decodeInput is the typed input.
func decodeInput(raw []byte) (*images.Input, error) {
	input := new(images.Input)
	if err := json.Unmarshal(raw, input, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, err
	}
	return input, nil
}

// readMessages reads and checks the form of `input.messages`.
func (r *Request) readMessages() error {
	if r.Stream {
		r.problem.Refuse("stream", fmt.Sprintf(`The model %q does not stream: leave "stream" out.`, safetext.Truncate(r.Model, maxQuoted)))
	}
	if err := r.readInput(); err != nil {
		return err
	}
	r.readParameters()
	return nil
}

// readInput reads and checks the only message.
func (r *Request) readInput() error {
	raw := r.object.Raw("input")
	switch {
	case rawjson.IsNull(raw):
		r.problem.Refuse("input", `"input" is missing: it holds "messages", with one message of role "user".`)
		return nil
	case raw[0] != '{':
		r.problem.Note("input", "an object that holds \"messages\"")
		return nil
	}
	input, err := rawjson.Index(raw, inside, nil)
	if err != nil {
		var at *rawjson.SyntaxError
		i := slices.IndexFunc(r.object.Members, func(m rawjson.Member) bool { return m.Name == "input" })
		if errors.As(err, &at) { // its offset is that in the body
			err = &rawjson.SyntaxError{Offset: int64(r.object.Members[i].Value.Start) + at.Offset, Reason: at.Reason, Field: at.Field}
		}
		return rule.Unacceptable(err)
	}
	messages := rawjson.Elements(input.Raw("messages"))
	if len(messages) != 1 {
		r.problem.Note("input.messages", `an array of exactly one message, of role "user"`)
		return nil
	}
	r.readMessage(messages[0])
	if r.Input, err = decodeInput(raw); err != nil {
		r.problem.Note("input.messages", "made of the fields of the API")
	}
	return nil
}

func (r *Request) readMessage(raw []byte) {
	const at = "input.messages[0]"
	m, err := rawjson.Index(raw, inside, nil)
	if err != nil {
		r.unacceptable(at, raw, "an object", err)
		return
	}
	if role, _ := rawjson.String(m.Raw("role")); role != "user" {
		r.problem.Note(at+".role", `"user"`)
	}
	var texts, links int
	content := m.Raw("content")
	count := rawjson.Each(content, func(i int, b rawjson.Span) {
		r.readBlock(fmt.Sprintf("%s.content[%d]", at, i), b.Of(content), &texts, &links)
	})
	if count < 0 {
		r.problem.Note(at+".content", `an array of blocks, at least one of which is {"text": "…"}`)
	}
	if texts == 0 {
		r.problem.Note(at+".content", `given at least one block {"text": "…"}`)
	}
	r.checkImageCount(at+".content", links)
}

// readBlock checks one block and counts what it is.
func (r *Request) readBlock(at string, raw []byte, texts, links *int) {
	b, err := rawjson.Index(raw, inside, nil)
	if err != nil {
		r.unacceptable(at, raw, `an object that holds "text" or "image"`, err)
		return
	}
	text, image := b.Raw("text"), b.Raw("image")
	switch {
	case rawjson.IsNull(text) == rawjson.IsNull(image):
		r.problem.Note(at, `an object that holds either "text" or "image"`)
	case rawjson.IsNull(image):
		*texts++
		if text[0] != '"' {
			r.problem.Note(at+".text", "a string")
		}
	default:
		*links++
		link, _ := rawjson.String(image)
		if u, err := url.Parse(link); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
			r.problem.Note(at+".image", "an https URL that the upstream can reach")
		}
	}
}

// unacceptable notes what is no object, or one whose names are not as inside says.
func (r *Request) unacceptable(at string, raw []byte, must string, err error) {
	if raw[0] != '{' {
		r.problem.Note(at, must)
		return
	}
	r.problem.Refuse(at, fmt.Sprintf("%q is not acceptable: %s.", at, rawjson.Inside(err)))
}

// checkImageCount checks how many reference images the model takes.
func (r *Request) checkImageCount(at string, given int) {
	m := r.row
	switch {
	case m.Largest < 0:
	case m.Largest == 0 && given > 0:
		r.problem.Refuse(at, fmt.Sprintf("The model %q makes pictures of text and takes no image. A model that edits takes them, such as %q.", m.ID, editor()))
	case given < m.Fewest || given > m.Largest:
		r.problem.Refuse(at, fmt.Sprintf("The model %q edits images: it needs %d to %d of them, not %d.", m.ID, m.Fewest, m.Largest, given))
	}
}

// editor is the first model that takes images.
func editor() string {
	for _, f := range Families {
		for _, m := range f.Models {
			if m.Largest > 0 {
				return m.ID
			}
		}
	}
	return ""
}

// readParameters reads and checks the parameters.
func (r *Request) readParameters() {
	raw := r.object.Raw("parameters")
	if rawjson.IsNull(raw) {
		return
	}
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		r.problem.Note("parameters", "an object")
		return
	}
	r.parameters = o
	if !r.known {
		r.problem.AllObey(pictures, &o, "parameters.")
		return
	}
	r.problem.AllObey(parameters, &o, "parameters.")
	size, named := rawjson.String(o.Raw("size"))
	if named && size == "" {
		r.problem.Note("parameters.size", "one of "+rule.Words(r.family.Sizes))
	}
	r.checkSize("parameters.size", size)
	r.Parameters = new(images.Parameters)
	if r.problem.Err() == nil && json.Unmarshal(raw, r.Parameters) != nil {
		r.problem.Note("parameters", "made of the fields of the API")
	}
}
