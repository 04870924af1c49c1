package videoapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// readGamma reads and checks a request of the gamma family.
func (r *Request) readGamma() {
	p := &r.parsed
	r.fields(gammaFields, &p.object, "")
	r.readDrafts()
	r.readContent()
	p.asked = asked{seconds: r.Duration, resolution: r.Resolution, ratio: r.Ratio, sound: r.GenerateAudio, draft: r.Draft}
	if r.given("duration") && (r.Duration < shortest || r.Duration > longest) {
		p.problem.Fail(mustBe(DurationOutOfRange, "duration", fmt.Sprintf("an integer from %d to %d (seconds)", shortest, longest)))
	}
	r.readFrames(longest)
	if r.given("resolution") {
		r.checkResolution(r.Resolution, p.gamma.Resolutions)
	}
	if r.given("callback_url") && !isURL(r.CallbackURL) {
		p.problem.Fail(notURL("callback_url"))
	}
	sound := r.GenerateAudio != nil && *r.GenerateAudio
	for _, c := range [...]struct {
		field     string
		wants, is bool
	}{{"generate_audio", sound, p.gamma.Audio}, {"draft", r.Draft, p.gamma.Draft}} {
		if c.wants && !c.is {
			p.problem.Fail(refusal(InvalidParameter, c.field, fmt.Sprintf("The model %q has no %q: leave it out.", r.Model, c.field)))
		}
	}
}

// readFrames reads the number of pictures, which says how long the video is as
// duration does: one more than 24 a second. most are the seconds there may be.
func (r *Request) readFrames(most int64) {
	p := &r.parsed
	if !r.given("frames") {
		return
	}
	seconds := max((r.Frames+fps-2)/fps, 1)
	switch {
	case r.Frames < 1 || r.Frames > most*fps+1:
		p.problem.Fail(mustBe(DurationOutOfRange, "frames", fmt.Sprintf("an integer from 1 to %d", most*fps+1)))
	case r.given("duration") && seconds != r.Duration:
		r.contradict("frames", fmt.Sprintf(`"duration", which is %d`, r.Duration))
	default:
		p.asked.seconds = seconds
	}
}

// readUnknown reads of a model that no table describes what is billed, whichever
// family's form it has.
func (r *Request) readUnknown() {
	p := &r.parsed
	r.fields(unknownFields, &p.object, "")
	r.readDrafts()
	p.asked = asked{seconds: r.Duration, resolution: strings.ToLower(r.Resolution), sound: r.GenerateAudio, draft: r.Draft, ratio: r.Ratio}
	if p.asked.ratio == "" {
		p.asked.ratio = r.AspectRatio
	}
	r.readFrames(unknownMost)
	parameters, err := rawjson.Index(r.Parameters, nil, nil)
	if err != nil {
		return
	}
	p.parameters = parameters
	r.fields(unknownFields, &parameters, "parameters.")
	r.readRepeated("duration", func(raw []byte) (string, bool) {
		n, ok := rawjson.Int(raw)
		if ok && p.asked.seconds == 0 {
			p.asked.seconds = n
		}
		return "duration", n == p.asked.seconds
	})
	r.readRepeated("resolution", func(raw []byte) (string, bool) {
		word, _ := rawjson.String(raw)
		return "resolution", r.takeResolution(strings.ToLower(word))
	})
	r.readRepeated("size", func(raw []byte) (string, bool) {
		text, _ := rawjson.String(raw)
		s, ok := readSize(text)
		return "resolution", !ok || r.takeResolution(s.resolution)
	})
}

// takeResolution takes a resolution that parameters names; false if another was
// named.
func (r *Request) takeResolution(word string) bool {
	if a := &r.parsed.asked; a.resolution == "" {
		a.resolution = word
	}
	return r.parsed.asked.resolution == word
}

// readRepeated checks a member of parameters that may repeat another field: same
// reports which field that is, and whether both have the same value.
func (r *Request) readRepeated(name string, same func(raw []byte) (field string, ok bool)) {
	raw := r.parsed.parameters.Raw(name)
	if rawjson.IsNull(raw) {
		return
	}
	if field, ok := same(raw); !ok {
		r.contradict("parameters."+name, fmt.Sprintf("%q", field))
	}
}

// block is a row of the table of content blocks.
type block struct {
	kind  string
	inner string   // the member that holds what the block is about; empty for a text
	leaf  string   // the member of inner that is required
	link  bool     // leaf is an address
	roles []string // the values of role; nil if the block has none
	// takes says whether the model does; nil means that all do.
	takes func(*Gamma) bool
}

// blocks is the table of content blocks. The vendor's clients give an audio_url
// the role that the vendor wants of it.
var blocks = []block{
	{kind: "text"},
	{kind: "image_url", inner: "image_url", leaf: "url", link: true, roles: []string{"first_frame", "last_frame", "reference_image"}},
	{kind: "video_url", inner: "video_url", leaf: "url", link: true, roles: []string{"reference_video"}, takes: func(g *Gamma) bool { return g.Videos }},
	{kind: "audio_url", inner: "audio_url", leaf: "url", link: true, roles: []string{"reference_audio"}, takes: func(g *Gamma) bool { return g.Sounds }},
	{kind: "draft_task", inner: "draft_task", leaf: "task_id", takes: func(g *Gamma) bool { return g.Continues }},
}

func blockKinds() []string {
	kinds := make([]string, len(blocks))
	for i, b := range blocks {
		kinds[i] = b.kind
	}
	return kinds
}

// readContent checks the blocks of the gamma family.
func (r *Request) readContent() {
	p := &r.parsed
	prompt := strings.TrimSpace(r.Prompt) != ""
	text, other := prompt, false
	count := rawjson.Each(p.content, func(i int, at rawjson.Span) {
		raw := at.Of(p.content)
		isText, says := r.readBlock(fmt.Sprintf("content[%d]", i), raw)
		text, other = text || says, other || !isText
	})
	switch {
	case count <= 0 && !prompt:
		p.problem.Fail(refusal(ContentEmpty, "content", `Neither "prompt" nor "content" says what the video is to show.`))
	case !text && !other:
		p.problem.Fail(refusal(MissingRequired, "content", `"content" has no text: a video of text needs a prompt.`))
	}
	if p.problem.Err() == nil && count > 0 && json.Unmarshal(p.content, &r.Content, jsontext.AllowDuplicateNames(true)) != nil {
		p.problem.Fail(mustBe(InvalidParameter, "content", "made of the blocks of the API"))
	}
}

// readBlock checks one block. It reports whether that is a text, and whether it
// says something.
func (r *Request) readBlock(at string, raw []byte) (isText, says bool) {
	p := &r.parsed
	o, err := rawjson.Index(raw, elementRules, nil)
	if err != nil {
		r.unacceptable(at, raw, `an object that holds "type"`, err)
		return false, false
	}
	kind, _ := rawjson.String(o.Raw("type"))
	i := slices.IndexFunc(blocks, func(b block) bool { return b.kind == kind })
	switch {
	case rawjson.IsNull(o.Raw("type")):
		p.problem.Fail(missing(at+".type", rule.Words(blockKinds())))
		return false, false
	case i < 0:
		p.problem.Fail(mustBe(NotInEnum, at+".type", rule.Words(blockKinds())))
		return false, false
	}
	row := &blocks[i]
	if row.takes != nil && !row.takes(p.gamma) {
		p.problem.Fail(refusal(InvalidParameter, at+".type", fmt.Sprintf("The model %q takes no %s block.", r.Model, kind)))
	}
	r.checkRole(at+".role", o.Raw("role"), row)
	if row.inner == "" {
		return true, r.checkText(at+".text", o.Raw("text"))
	}
	r.checkInner(at+"."+row.inner, o.Raw(row.inner), row)
	return false, false
}

// elementRules are those of a block of content and of an element of media: what
// it is, and of what, is said once, and spelled exactly.
var elementRules = &rawjson.Rules{Once: true, Billed: []string{
	"type", "text", "role", "url", "image_url", "video_url", "audio_url", "draft_task", "task_id",
}}

// unacceptable notes what is no object, or one that elementRules do not allow.
func (r *Request) unacceptable(param string, raw []byte, be string, err error) {
	if raw[0] != '{' {
		r.parsed.problem.Fail(mustBe(InvalidParameter, param, be))
		return
	}
	r.parsed.problem.Fail(refusal(InvalidParameter, param, fmt.Sprintf("%q is not acceptable: %s of it.", param, err)))
}

func (r *Request) checkRole(param string, raw []byte, row *block) {
	if rawjson.IsNull(raw) {
		return
	}
	if role, ok := rawjson.String(raw); ok && slices.Contains(row.roles, role) {
		return
	}
	be := "left out"
	if len(row.roles) > 0 {
		be = rule.Words(row.roles)
	}
	r.parsed.problem.Fail(mustBe(UnsupportedRole, param, be))
}

// checkText reports whether a text says something.
func (r *Request) checkText(param string, raw []byte) bool {
	text, ok := rawjson.String(raw)
	switch {
	case rawjson.IsNull(raw):
		r.parsed.problem.Fail(missing(param, "what the video is to show"))
	case !ok:
		r.parsed.problem.Fail(mustBe(InvalidParameter, param, "a string"))
	}
	return strings.TrimSpace(text) != ""
}

// checkInner checks what a block is about.
func (r *Request) checkInner(param string, raw []byte, row *block) {
	if rawjson.IsNull(raw) {
		r.parsed.problem.Fail(missing(param, fmt.Sprintf("an object that holds %q", row.leaf)))
		return
	}
	o, err := rawjson.Index(raw, elementRules, nil)
	if err != nil {
		r.unacceptable(param, raw, fmt.Sprintf("an object that holds %q", row.leaf), err)
		return
	}
	leaf := o.Raw(row.leaf)
	text, ok := rawjson.String(leaf)
	switch {
	case rawjson.IsNull(leaf), ok && text == "":
		r.parsed.problem.Fail(missing(param+"."+row.leaf, "what the block is about"))
	case row.link:
		r.checkLink(param+"."+row.leaf, leaf)
	case !ok:
		r.parsed.problem.Fail(mustBe(InvalidParameter, param+"."+row.leaf, "a string"))
	}
}

// readDrafts finds the tasks that content names, of any model but the beta
// family's. A task may be named in exactly one way: an upstream that reads a
// name that is given twice, in another case or as its own `id`, would be asked
// for a task that was not checked.
func (r *Request) readDrafts() {
	p := &r.parsed
	for _, m := range p.object.Members {
		if raw := m.Value.Of(p.object.Src); m.Name == "content" && raw[0] == '[' {
			p.content = raw
			rawjson.Each(raw, func(i int, at rawjson.Span) {
				r.readDraft(fmt.Sprintf("content[%d]", i), rawjson.Span{Start: m.Value.Start + at.Start, End: m.Value.Start + at.End})
			})
		}
	}
}

// readDraft finds the task that a block names.
func (r *Request) readDraft(param string, at rawjson.Span) {
	p := &r.parsed
	inner, ok := r.onlyMember(param, at, "draft_task")
	if !ok {
		return
	}
	leaf, ok := r.onlyMember(param+".draft_task", inner, "task_id")
	if !ok {
		return
	}
	if id, ok := rawjson.String(leaf.Of(p.object.Src)); ok {
		p.drafts = append(p.drafts, draft{id, leaf})
	}
}

// onlyMember is the span of the only member of that name in an object of the
// source; false if there is none.
func (r *Request) onlyMember(param string, at rawjson.Span, name string) (value rawjson.Span, ok bool) {
	o, err := rawjson.Index(at.Of(r.parsed.object.Src), nil, nil)
	if err != nil {
		return value, false
	}
	for _, m := range o.Members {
		own := strings.EqualFold(m.Name, name)
		if own && (ok || m.Name != name) || name == "task_id" && strings.EqualFold(m.Name, "id") {
			r.parsed.problem.Fail(refusal(InvalidParameter, param, fmt.Sprintf("%q must name one task, as %q, once.", param, "task_id")))
			return value, false
		}
		if own {
			value, ok = rawjson.Span{Start: at.Start + m.Value.Start, End: at.Start + m.Value.End}, true
		}
	}
	return value, ok
}
