package videoapi

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/word"
)

// readBeta reads and checks a request of the beta family.
func (r *Request) readBeta() {
	p := &r.parsed
	r.fields(betaFields, &p.object, "")
	if parameters, err := rawjson.Index(r.Parameters, nil, nil); err == nil {
		p.parameters = parameters
		r.fields(betaParameters, &parameters, "parameters.")
	}
	p.asked = asked{seconds: usualDuration, resolution: usualResolution}
	if r.given("duration") {
		p.asked.seconds = r.Duration
	}
	if r.given("resolution") {
		p.asked.resolution = r.Resolution
	}
	if p.beta.Sound {
		p.asked.sound = boolean(p.parameters.Raw("audio"))
	}
	r.checkResolution(p.asked.resolution, p.beta.Resolutions)
	reference := r.readInput()
	r.checkLength(reference)
	r.readRatio()
	r.checkRepeated()
}

// checkLength checks the duration by the model's row.
func (r *Request) checkLength(reference bool) {
	row, n := r.parsed.beta, r.parsed.asked.seconds
	most := row.Longest
	if reference && row.LongestWithReference != 0 {
		most = row.LongestWithReference
	}
	switch {
	case len(row.Durations) > 0 && !slices.Contains(row.Durations, n):
		words := strings.Trim(strings.ReplaceAll(fmt.Sprint(row.Durations), " ", " or "), "[]")
		r.parsed.problem.Fail(mustBe(DurationOutOfRange, "duration", words+" (seconds)"))
	case n < row.Shortest || n > most:
		r.parsed.problem.Fail(mustBe(DurationOutOfRange, "duration", fmt.Sprintf("an integer from %d to %d (seconds)", row.Shortest, most)))
	}
}

// readRatio reads the aspect ratio, which may be said in three places.
func (r *Request) readRatio() {
	p := &r.parsed
	if r.given("aspect_ratio") {
		p.asked.ratio = r.AspectRatio
		if !slices.Contains(ratios, r.AspectRatio) {
			p.problem.Fail(mustBe(NotInEnum, "aspect_ratio", rule.Words(ratios)))
		}
	}
	said := map[string]string{}
	said["ratio"], _ = rawjson.String(p.parameters.Raw("ratio"))
	if text, _ := rawjson.String(p.parameters.Raw("size")); text != "" {
		s, _ := readSize(text)
		said["size"] = s.ratio
	}
	for _, name := range [...]string{"ratio", "size"} {
		switch ratio := said[name]; {
		case ratio == "":
		case p.asked.ratio == "":
			p.asked.ratio = ratio
		case p.asked.ratio != ratio:
			r.contradict("parameters."+name, fmt.Sprintf("the aspect ratio %q", word.Truncate(p.asked.ratio, 16)))
		}
	}
	if raw := p.parameters.Raw("ratio"); !rawjson.IsNull(raw) && !slices.Contains(ratios, said["ratio"]) {
		p.problem.Fail(mustBe(NotInEnum, "parameters.ratio", rule.Words(ratios)))
	}
	if p.asked.ratio == "" && (p.beta.Size || p.beta.Ratio) {
		p.asked.ratio = usualRatio
	}
	if _, ok := sizeOf(p.asked.resolution, p.asked.ratio); p.beta.Size && said["size"] == "" && !ok {
		p.problem.Fail(refusal(NotInEnum, "aspect_ratio", fmt.Sprintf("There is no %s video of %s.", word.Truncate(p.asked.resolution, 16), word.Truncate(p.asked.ratio, 16))))
	}
}

// checkRepeated checks that parameters repeats what is billed, where it does.
func (r *Request) checkRepeated() {
	p := &r.parsed
	if n, ok := rawjson.Int(p.parameters.Raw("duration")); ok && n != p.asked.seconds {
		r.contradict("parameters.duration", fmt.Sprintf(`"duration", which is %d`, p.asked.seconds))
	}
	otherwise := fmt.Sprintf(`"resolution", which is %q`, word.Truncate(p.asked.resolution, 16))
	if raw := p.parameters.Raw("resolution"); !rawjson.IsNull(raw) {
		if word, ok := rawjson.String(raw); ok && strings.ToLower(word) != p.asked.resolution {
			r.contradict("parameters.resolution", otherwise)
		}
	}
	if raw := p.parameters.Raw("size"); !rawjson.IsNull(raw) {
		text, _ := rawjson.String(raw)
		s, ok := readSize(text)
		switch {
		case !ok:
			p.problem.Fail(mustBe(InvalidParameter, "parameters.size", `a width and a height such as "1280*720"`))
		case s.resolution != p.asked.resolution:
			r.contradict("parameters.size", otherwise)
		}
	}
}

// readInput checks the members of input that the model's row names. It reports
// whether a reference video is among them.
func (r *Request) readInput() (reference bool) {
	p := &r.parsed
	if !r.given("input") {
		p.problem.Fail(missing("input", "an object that holds "+rule.Words(p.beta.Needs)))
		return false
	}
	input, err := rawjson.Index(r.Input, nil, nil)
	if err != nil {
		return false // noted
	}
	prompt, _ := rawjson.String(input.Raw("prompt"))
	for _, name := range p.beta.Needs {
		raw := input.Raw(name)
		if rawjson.IsNull(raw) {
			p.problem.Fail(missing("input."+name, needs[name].what))
			continue
		}
		reference = needs[name].check(r, raw) || reference
	}
	if n := utf8.RuneCountInString(prompt); n > p.beta.Prompt {
		p.problem.Fail(refusal(PromptTooLong, "input.prompt", fmt.Sprintf("The prompt has %d characters, and the model takes %d.", n, p.beta.Prompt)))
	}
	if raw := input.Raw("audio_url"); !rawjson.IsNull(raw) {
		r.checkLink("input.audio_url", raw)
	}
	return reference
}

// needs is the table of what input must have: what it is, and its check, which
// reports a reference video.
var needs = map[string]struct {
	what  string
	check func(r *Request, raw []byte) bool
}{
	"prompt":         {"what the video is to show", (*Request).checkPrompt},
	"img_url":        {"the address of the picture that is animated", func(r *Request, raw []byte) bool { r.checkLink("input.img_url", raw); return false }},
	"reference_urls": {"an array of addresses of what the video refers to", (*Request).checkReferences},
	"media":          {"an array of objects that hold \"type\" and \"url\"", (*Request).checkMedia},
}

func (r *Request) checkPrompt(raw []byte) bool {
	text, ok := rawjson.String(raw)
	switch {
	case !ok:
		r.parsed.problem.Fail(mustBe(InvalidParameter, "input.prompt", "a string"))
	case strings.TrimSpace(text) == "":
		r.parsed.problem.Fail(refusal(MissingRequired, "input.prompt", `"input.prompt" is empty: it says what the video is to show.`))
	}
	return false
}

// checkLink checks that a value is an address.
func (r *Request) checkLink(param string, raw []byte) {
	text, ok := rawjson.String(raw)
	switch {
	case !ok:
		r.parsed.problem.Fail(mustBe(InvalidParameter, param, "a string"))
	case !isURL(text):
		r.parsed.problem.Fail(notURL(param))
	}
}

func (r *Request) checkReferences(raw []byte) bool {
	r.elements("input.reference_urls", raw, r.checkLink)
	return false
}

func (r *Request) checkMedia(raw []byte) (reference bool) {
	r.elements("input.media", raw, func(at string, raw []byte) {
		item, err := rawjson.Index(raw, elementRules, nil)
		if err != nil {
			r.unacceptable(at, raw, `an object that holds "type" and "url"`, err)
			return
		}
		kind := item.Raw("type")
		word, ok := rawjson.String(kind)
		switch {
		case rawjson.IsNull(kind):
			r.parsed.problem.Fail(missing(at+".type", rule.Words(media)))
		case !ok || !slices.Contains(media, word):
			r.parsed.problem.Fail(mustBe(NotInEnum, at+".type", rule.Words(media)))
		}
		reference = reference || word == "reference_video"
		if url := item.Raw("url"); rawjson.IsNull(url) {
			r.parsed.problem.Fail(missing(at+".url", "an http or https address"))
		} else {
			r.checkLink(at+".url", url)
		}
	})
	return reference
}

// elements checks the elements of an array that must have some.
func (r *Request) elements(param string, raw []byte, check func(at string, raw []byte)) {
	switch n := rawjson.Each(raw, func(i int, at rawjson.Span) { check(fmt.Sprintf("%s[%d]", param, i), at.Of(raw)) }); {
	case n < 0:
		r.parsed.problem.Fail(mustBe(InvalidParameter, param, "an array"))
	case n == 0:
		r.parsed.problem.Fail(refusal(MissingRequired, param, fmt.Sprintf("%q is empty.", param)))
	}
}
