package imagesapi

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/word"
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

// inside are the rules of the names directly in `input`, which the alpha family
// obeys beside those of every body, and in its messages and blocks: of two
// texts or pictures the upstream might draw the other one.
var inside = &rawjson.Rules{Unique: true, Billed: append([]string{"role", "text", "image", "url"}, rule.Body.Billed...)}

// readMessages reads and checks the form of `input.messages`.
func (r *Request) readMessages(typed *images.Request) error {
	o := &r.object
	if string(o.Raw("stream")) == "true" {
		r.problem.Refuse("stream", fmt.Sprintf(`The model %q does not stream: leave "stream" out.`, word.Truncate(r.Model, maxQuoted)))
	}
	if err := r.readInput(typed); err != nil {
		return err
	}
	r.readParameters(typed)
	return nil
}

// readInput reads and checks the only message.
func (r *Request) readInput(typed *images.Request) error {
	o := &r.object
	raw := o.Raw("input")
	if rawjson.IsNull(raw) {
		r.problem.Refuse("input", `"input" is missing: it holds "messages", with one message of role "user".`)
		return nil
	}
	if raw[0] != '{' {
		r.problem.Note("input", "an object that holds \"messages\"")
		return nil
	}
	input, err := rawjson.Index(raw, inside, nil)
	if err != nil {
		var at *rawjson.SyntaxError
		if errors.As(err, &at) {
			err = &rawjson.SyntaxError{Offset: start(o, "input") + at.Offset, Reason: at.Reason}
		}
		return rule.Unacceptable(err)
	}
	message, ok := onlyElement(input.Raw("messages"))
	if !ok {
		r.problem.Note("input.messages", `an array of exactly one message, of role "user"`)
		return nil
	}
	r.readMessage(message)
	if r.Input, err = decodeInput(raw, typed); err != nil {
		r.problem.Note("input.messages", "made of the fields of the API")
	}
	return nil
}

// decodeInput is the typed input: typed's, or decoded if that is nil.
func decodeInput(raw []byte, typed *images.Request) (*images.Input, error) {
	if typed != nil {
		return typed.Input, nil
	}
	input := &images.Input{}
	if err := json.Unmarshal(raw, input, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, err
	}
	return input, nil
}

// start is where the value of a member begins.
func start(o *rawjson.Object, name string) int64 {
	for _, m := range o.Members {
		if m.Name == name {
			return int64(m.Value.Start)
		}
	}
	return 0
}

// onlyElement is the only element of an array; false if there is not exactly one.
func onlyElement(raw []byte) (element []byte, ok bool) {
	count := rawjson.Each(raw, func(_ int, at rawjson.Span) { element = at.Of(raw) })
	return element, count == 1
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
		text, image := r.block(fmt.Sprintf("%s.content[%d]", at, i), b.Of(content))
		texts, links = texts+text, links+image
	})
	if count < 0 {
		r.problem.Note(at+".content", `an array of blocks, at least one of which is {"text": "…"}`)
	}
	if texts == 0 {
		r.problem.Note(at+".content", `given at least one block {"text": "…"}`)
	}
	r.checkImageCount(at+".content", links)
}

// block checks one block and says what it is.
func (r *Request) block(at string, raw []byte) (texts, links int) {
	b, err := rawjson.Index(raw, inside, nil)
	if err != nil {
		r.unacceptable(at, raw, `an object that holds "text" or "image"`, err)
		return 0, 0
	}
	text, image := b.Raw("text"), b.Raw("image")
	switch {
	case rawjson.IsNull(text) == rawjson.IsNull(image):
		r.problem.Note(at, `an object that holds either "text" or "image"`)
		return 0, 0
	case rawjson.IsNull(image):
		if text[0] != '"' {
			r.problem.Note(at+".text", "a string")
		}
		return 1, 0
	}
	if link, ok := rawjson.String(image); !ok || !isLink(link) {
		r.problem.Note(at+".image", "an https URL that the upstream can reach")
	}
	return 0, 1
}

// unacceptable notes what is no object, or one whose names are not as inside says.
func (r *Request) unacceptable(at string, raw []byte, must string, err error) {
	if raw[0] != '{' {
		r.problem.Note(at, must)
		return
	}
	r.problem.Refuse(at, fmt.Sprintf("%q is not acceptable: %s of it.", at, err))
}

// isLink reports whether text is an https address.
func isLink(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
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
func (r *Request) readParameters(typed *images.Request) {
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
	size, _ := rawjson.String(o.Raw("size"))
	if raw := o.Raw("size"); size == "" && !rawjson.IsNull(raw) {
		r.problem.Note("parameters.size", "one of "+rule.Words(r.family.Sizes))
	}
	r.checkSize("parameters.size", size)
	if typed != nil {
		r.Parameters = typed.Parameters
		return
	}
	r.Parameters = &images.Parameters{}
	if r.problem.Err() == nil && json.Unmarshal(raw, r.Parameters) != nil {
		r.problem.Note("parameters", "made of the fields of the API")
	}
}
