package images

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// common are the rules of every model, whatever its form: what names it and what
// decides how the answer comes.
var common = rule.Table{
	{Name: "model", Check: rule.ModelID()},
	{Name: "stream", Check: rule.Bool()},
}

// mostUnknown are the pictures that one call may ask of a model that no table
// describes.
const mostUnknown = 100

// pictures is the rule of how many, where no table says more.
var pictures = rule.Table{{Name: "n", Check: rule.Integer(1, mostUnknown)}}

// openAI is the table of OpenAI's form.
var openAI = rule.Table{
	{Name: "prompt", Check: rule.NonEmptyString()},
	{Name: "n", Check: rule.Integer(1, 10)},
	{Name: "size", Check: rule.Check{Text: `"auto" or a width and a height such as "1024x1024"`, OK: isSize}},
	{Name: "quality", Check: rule.OneOf("auto", "low", "medium", "high", "standard", "hd")},
	{Name: "background", Check: rule.OneOf("transparent", "opaque", "auto")},
	{Name: "output_format", Check: rule.OneOf("png", "jpeg", "webp")},
	{Name: "output_compression", Check: rule.Integer(0, 100)},
	{Name: "response_format", Check: rule.OneOf("b64_json", "url")},
	{Name: "partial_images", Check: rule.Integer(0, 3)},
	{Name: "user", Check: rule.String()},
}

var sized = regexp.MustCompile(`^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$`)

func isSize(raw []byte) bool {
	s, ok := rawjson.String(raw)
	return ok && (s == "auto" || sized.MatchString(s))
}

// read fills the fields of OpenAI's form and checks what depends on the model.
// What is wrong in kind was noted, or is the business of a model that no table
// describes, and stays unread.
func (r *Request) read() {
	o := &r.parsed.object
	for name, to := range map[string]*string{
		"prompt": &r.Prompt, "size": &r.Size, "quality": &r.Quality, "background": &r.Background,
		"output_format": &r.OutputFormat, "response_format": &r.ResponseFormat, "user": &r.User,
	} {
		*to, _ = rawjson.String(o.Raw(name))
	}
	r.N, _ = rawjson.Int(o.Raw("n"))
	r.PartialImages, _ = rawjson.Int(o.Raw("partial_images"))
	r.Stream = string(o.Raw("stream")) == "true"
	if n, ok := rawjson.Int(o.Raw("output_compression")); ok {
		r.OutputCompression = &n
	}
	if r.Stream && r.N > 1 {
		r.parsed.problem.Refuse("n", `"n" must be 1 where "stream" is true: ask for several pictures without "stream".`)
	}
	if !r.parsed.known {
		r.parsed.problem.AllObey(pictures, o, "")
		return
	}
	if r.Prompt == "" {
		r.parsed.problem.Refuse("prompt", `"prompt" is missing: it says what the picture is to show.`)
	}
	r.checkSize("size", r.Size)
	if r.Background == "transparent" && r.OutputFormat == "jpeg" {
		r.parsed.problem.Refuse("background", `"background" can be "transparent" only where "output_format" is "png" or "webp".`)
	}
}

// checkSize checks a size against the family's list.
func (r *Request) checkSize(param, size string) {
	allowed := r.parsed.family.Sizes
	if size == "" || len(allowed) == 0 {
		return
	}
	for _, s := range allowed {
		if s == size {
			return
		}
	}
	r.parsed.problem.Refuse(param, fmt.Sprintf("The model %q makes pictures of the sizes %s, not %q.", r.Model, rule.Words(allowed), clip(size)))
}

// clip bounds what a message repeats of a caller's text.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Pixels are the sides of a size that is written "1024x1024" or "1024*1024";
// false if it names none.
func Pixels(size string) (width, height int64, ok bool) {
	w, h, ok := strings.Cut(strings.Replace(size, "*", "x", 1), "x")
	if !ok {
		return 0, 0, false
	}
	width, err1 := strconv.ParseInt(w, 10, 32)
	height, err2 := strconv.ParseInt(h, 10, 32)
	return width, height, err1 == nil && err2 == nil && width > 0 && height > 0
}
