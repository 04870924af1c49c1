package video

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// readBeta reads and checks a request of the beta family.
func (r *Request) readBeta() {
	r.checkFields(betaFields, &r.object, "")
	r.readParameters(betaParameters)
	r.asked = asked{seconds: usualDuration, resolution: usualResolution}
	if r.given("duration") {
		r.asked.seconds = r.Duration
	}
	if r.given("resolution") {
		r.asked.resolution = r.Resolution
	}
	if r.row.Sound {
		if raw := r.parameters.Raw("audio"); !rawjson.IsNull(raw) {
			rule.Set(&r.asked.sound, raw, false)
		}
	}
	r.checkResolution(r.asked.resolution)
	r.checkLength(r.readInput())
	r.readRatio()
	r.readRepeated()
}

// readParameters reads parameters and checks them by a table.
func (r *Request) readParameters(table rule.Table) {
	if o, err := rawjson.Index(r.Parameters, nil, nil); err == nil {
		r.parameters = o
		r.checkFields(table, &o, "parameters.")
	}
}

// checkLength checks the duration by the model's row.
func (r *Request) checkLength(reference bool) {
	n, most := r.asked.seconds, r.row.Longest
	if reference && r.row.LongestWithReference != 0 {
		most = r.row.LongestWithReference
	}
	switch only := r.row.Durations; {
	case len(only) > 0 && !slices.Contains(only, n):
		words := strings.Trim(strings.ReplaceAll(fmt.Sprint(only), " ", " or "), "[]")
		r.mustBe(durationOutOfRange, "duration", words+" (seconds)")
	case n < r.row.Shortest || n > most:
		r.mustBe(durationOutOfRange, "duration", fmt.Sprintf("an integer from %d to %d (seconds)", r.row.Shortest, most))
	}
}

// readRatio reads the aspect ratio, which may be said in three places.
func (r *Request) readRatio() {
	if r.given("aspect_ratio") {
		r.asked.ratio = r.AspectRatio
		if !slices.Contains(ratios, r.AspectRatio) {
			r.mustBe(notInEnum, "aspect_ratio", rule.Words(ratios))
		}
	}
	ratio, _ := rawjson.String(r.parameters.Raw("ratio"))
	text, _ := rawjson.String(r.parameters.Raw("size"))
	size, _ := readSize(text)
	for _, said := range [...]struct{ name, ratio string }{{"ratio", ratio}, {"size", size.ratio}} {
		switch {
		case said.ratio == "":
		case r.asked.ratio == "":
			r.asked.ratio = said.ratio
		case r.asked.ratio != said.ratio:
			r.contradict("parameters."+said.name, fmt.Sprintf("the aspect ratio %q", safetext.Truncate(r.asked.ratio, 16)))
		}
	}
	if !rawjson.IsNull(r.parameters.Raw("ratio")) && !slices.Contains(ratios, ratio) {
		r.mustBe(notInEnum, "parameters.ratio", rule.Words(ratios))
	}
	if r.asked.ratio == "" && (r.row.Size || r.row.Ratio) {
		r.asked.ratio = usualRatio
	}
	if _, ok := sizeOf(r.asked.resolution, r.asked.ratio); r.row.Size && size.ratio == "" && !ok {
		r.fail(notInEnum, "aspect_ratio", "There is no %s video of %s.", safetext.Truncate(r.asked.resolution, 16), safetext.Truncate(r.asked.ratio, 16))
	}
}

// readRepeated checks that parameters agrees with the billed fields; a value given only there
// is used.
func (r *Request) readRepeated() {
	a := &r.asked
	repeats := func(name, field string, value any, same bool) {
		switch {
		case same:
		case r.row == nil:
			r.contradict("parameters."+name, fmt.Sprintf("%q", field))
		default:
			r.contradict("parameters."+name, fmt.Sprintf("%q, which is %v", field, value))
		}
	}
	if n, ok := rawjson.Int(r.parameters.Raw("duration")); ok {
		if a.seconds == 0 {
			a.seconds = n
		}
		repeats("duration", "duration", a.seconds, n == a.seconds)
	}
	resolution := func(name, said string) {
		if a.resolution == "" {
			a.resolution = said
		}
		repeats(name, "resolution", fmt.Sprintf("%q", safetext.Truncate(a.resolution, 16)), said == a.resolution)
	}
	if text, ok := rawjson.String(r.parameters.Raw("resolution")); ok {
		resolution("resolution", strings.ToLower(text))
	}
	if raw := r.parameters.Raw("size"); !rawjson.IsNull(raw) {
		text, _ := rawjson.String(raw)
		s, ok := readSize(text)
		switch {
		case ok:
			resolution("size", s.resolution)
		case r.row != nil:
			r.mustBe(invalidParameter, "parameters.size", `a width and a height such as "1280*720"`)
		}
	}
}

// readInput checks the members of input that the model's row names. It reports
// whether a reference video is among them.
func (r *Request) readInput() (reference bool) {
	if !r.given("input") {
		r.missing("input", "an object that holds "+rule.Words(r.row.Needs))
		return false
	}
	input, err := rawjson.Index(r.Input, nil, nil)
	if err != nil {
		return false // noted
	}
	prompt, isText := rawjson.String(input.Raw("prompt"))
	for _, name := range r.row.Needs {
		param, raw := "input."+name, input.Raw(name)
		switch {
		case rawjson.IsNull(raw):
			r.missing(param, needs[name])
		case name == "img_url":
			r.checkLink(param, raw)
		case name == "reference_urls":
			r.checkElements(param, raw, r.checkLink)
		case name == "media":
			reference = r.checkMedia(param, raw)
		case !isText:
			r.mustBe(invalidParameter, param, "a string")
		case strings.TrimSpace(prompt) == "":
			r.fail(missingRequired, param, `%q is empty: it says what the video is to show.`, param)
		}
	}
	if n := utf8.RuneCountInString(prompt); n > r.row.Prompt {
		r.fail(promptTooLong, "input.prompt", "The prompt has %d characters, and the model takes %d.", n, r.row.Prompt)
	}
	if raw := input.Raw("audio_url"); !rawjson.IsNull(raw) {
		r.checkLink("input.audio_url", raw)
	}
	return reference
}

// needs is the table of what input must have.
var needs = map[string]string{
	"prompt":         "what the video is to show",
	"img_url":        "the address of the picture that is animated",
	"reference_urls": "an array of addresses of what the video refers to",
	"media":          `an array of objects that hold "type" and "url"`,
}

// media are the types of the 2.7 layout's media: those of the public API, and
// what else the vendor's pages name.
var media = []string{"reference_video", "reference_image", "first_frame", "driving_audio", "last_frame", "first_clip", "reference_voice"}

// checkMedia reports whether a reference video is among the media.
func (r *Request) checkMedia(param string, raw []byte) (reference bool) {
	r.checkElements(param, raw, func(at string, raw []byte) {
		item, ok := r.element(at, raw, `an object that holds "type" and "url"`)
		if !ok {
			return
		}
		kind, _ := rawjson.String(item.Raw("type"))
		switch {
		case rawjson.IsNull(item.Raw("type")):
			r.missing(at+".type", rule.Words(media))
		case !slices.Contains(media, kind):
			r.mustBe(notInEnum, at+".type", rule.Words(media))
		}
		reference = reference || kind == "reference_video"
		if url := item.Raw("url"); rawjson.IsNull(url) {
			r.missing(at+".url", anAddress)
		} else {
			r.checkLink(at+".url", url)
		}
	})
	return reference
}

// checkElements checks the elements of an array that must have some.
func (r *Request) checkElements(param string, raw []byte, check func(at string, raw []byte)) {
	switch n := rawjson.Each(raw, func(i int, at rawjson.Span) { check(fmt.Sprintf("%s[%d]", param, i), at.Of(raw)) }); {
	case n < 0:
		r.mustBe(invalidParameter, param, "an array")
	case n == 0:
		r.fail(missingRequired, param, "%q is empty.", param)
	}
}

// elementRules are the rules of a block of content and of an element of media. The members
// that say what it is come once, and are spelled exactly.
var elementRules = &rawjson.Rules{Once: true, Billed: []string{
	"type", "text", "role", "url", "image_url", "video_url", "audio_url", "draft_task", "task_id",
}}

// element reads an object of a list, or within one. It notes what is none, or does
// not obey elementRules.
func (r *Request) element(param string, raw []byte, be string) (rawjson.Object, bool) {
	o, err := rawjson.Index(raw, elementRules, nil)
	switch {
	case err == nil:
	case raw[0] != '{':
		r.mustBe(invalidParameter, param, be)
	default:
		r.fail(invalidParameter, param, "%q is not acceptable: %s.", param, rawjson.Inside(err))
	}
	return o, err == nil
}
