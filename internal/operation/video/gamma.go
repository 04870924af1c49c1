package video

import (
	"cmp"
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
	r.checkFields(gammaFields, &r.object, "")
	r.readDrafts()
	r.readContent()
	r.asked = asked{seconds: r.Duration, resolution: r.Resolution, ratio: r.Ratio, sound: r.GenerateAudio, draft: r.Draft}
	if r.given("duration") {
		r.checkLength(false)
	}
	r.readFrames(r.row.Longest)
	if r.given("resolution") {
		r.checkResolution(r.Resolution)
	}
	if r.given("callback_url") && !isURL(r.CallbackURL) {
		r.mustBe(urlInvalid, "callback_url", anAddress)
	}
	sound := r.GenerateAudio != nil && *r.GenerateAudio
	for _, c := range [...]struct {
		field     string
		wants, is bool
	}{{"generate_audio", sound, r.row.Sound}, {"draft", r.Draft, r.row.Draft}} {
		if c.wants && !c.is {
			r.fail(invalidParameter, c.field, "The model %q has no %q: leave it out.", r.Model, c.field)
		}
	}
}

// readFrames reads the number of frames, which says how long the video is, as duration does.
// It is one more than 24 a second. most is the longest video in seconds.
func (r *Request) readFrames(most int64) {
	if !r.given("frames") {
		return
	}
	seconds := max((r.Frames+fps-2)/fps, 1)
	switch {
	case r.Frames < 1 || r.Frames > most*fps+1:
		r.mustBe(durationOutOfRange, "frames", fmt.Sprintf("an integer from 1 to %d", most*fps+1))
	case r.given("duration") && seconds != r.Duration:
		r.contradict("frames", fmt.Sprintf(`"duration", which is %d`, r.Duration))
	default:
		r.asked.seconds = seconds
	}
}

// readUnknown reads of a model that no table describes what is billed, whichever
// family's form it has.
func (r *Request) readUnknown() {
	r.checkFields(unknownFields, &r.object, "")
	r.readDrafts()
	r.asked = asked{
		seconds: r.Duration, resolution: strings.ToLower(r.Resolution), sound: r.GenerateAudio, draft: r.Draft,
		ratio: cmp.Or(r.Ratio, r.AspectRatio),
	}
	r.readFrames(unknownMost)
	r.readParameters(unknownFields)
	r.readRepeated()
}

// block is a row of the table of content blocks.
type block struct {
	kind  string
	inner string   // the member that holds what the block is about; empty for a text
	leaf  string   // the member of inner that is required
	link  bool     // leaf is an address
	roles []string // the values of role; nil if the block has none
	// takes says whether the model does; nil means that all do.
	takes func(*Model) bool
}

// blocks is the table of content blocks. The vendor's clients give an audio_url
// the role that the vendor wants of it.
var blocks = []block{
	{kind: "text"},
	{kind: "image_url", inner: "image_url", leaf: "url", link: true, roles: []string{"first_frame", "last_frame", "reference_image"}},
	{kind: "video_url", inner: "video_url", leaf: "url", link: true, roles: []string{"reference_video"}, takes: func(m *Model) bool { return m.Videos }},
	{kind: "audio_url", inner: "audio_url", leaf: "url", link: true, roles: []string{"reference_audio"}, takes: func(m *Model) bool { return m.Sounds }},
	{kind: "draft_task", inner: "draft_task", leaf: "task_id", takes: func(m *Model) bool { return m.Continues }},
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
	prompt := strings.TrimSpace(r.Prompt) != ""
	text, other := prompt, false
	count := rawjson.Each(r.content, func(i int, at rawjson.Span) {
		isText, says := r.readBlock(fmt.Sprintf("content[%d]", i), at.Of(r.content))
		text, other = text || says, other || !isText
	})
	switch {
	case count <= 0 && !prompt:
		r.fail(contentEmpty, "content", `Neither "prompt" nor "content" says what the video is to show.`)
	case !text && !other:
		r.fail(missingRequired, "content", `"content" has no text: a video of text needs a prompt.`)
	}
	if !r.problem.Found() && count > 0 && json.Unmarshal(r.content, &r.Content, jsontext.AllowDuplicateNames(true)) != nil {
		r.mustBe(invalidParameter, "content", "made of the blocks of the API")
	}
}

// readBlock checks one block. It reports whether that is a text, and whether it
// says something.
func (r *Request) readBlock(at string, raw []byte) (isText, says bool) {
	o, ok := r.element(at, raw, `an object that holds "type"`)
	if !ok {
		return false, false
	}
	kind, _ := rawjson.String(o.Raw("type"))
	i := slices.IndexFunc(blocks, func(b block) bool { return b.kind == kind })
	switch {
	case rawjson.IsNull(o.Raw("type")):
		r.missing(at+".type", rule.Words(blockKinds()))
		return false, false
	case i < 0:
		r.mustBe(notInEnum, at+".type", rule.Words(blockKinds()))
		return false, false
	}
	row := &blocks[i]
	if row.takes != nil && !row.takes(r.row) {
		r.fail(invalidParameter, at+".type", "The model %q takes no %s block.", r.Model, kind)
	}
	r.checkRole(at+".role", o.Raw("role"), row.roles)
	if row.inner == "" {
		return true, r.checkText(at+".text", o.Raw("text"))
	}
	r.checkInner(at+"."+row.inner, o.Raw(row.inner), row)
	return false, false
}

func (r *Request) checkRole(param string, raw []byte, roles []string) {
	role, ok := rawjson.String(raw)
	switch {
	case rawjson.IsNull(raw), ok && slices.Contains(roles, role):
	case len(roles) == 0:
		r.mustBe(unsupportedRole, param, "left out")
	default:
		r.mustBe(unsupportedRole, param, rule.Words(roles))
	}
}

// checkText reports whether a text says something.
func (r *Request) checkText(param string, raw []byte) bool {
	text, ok := rawjson.String(raw)
	switch {
	case rawjson.IsNull(raw):
		r.missing(param, "what the video is to show")
	case !ok:
		r.mustBe(invalidParameter, param, "a string")
	}
	return strings.TrimSpace(text) != ""
}

// checkInner checks what a block is about.
func (r *Request) checkInner(param string, raw []byte, row *block) {
	holds := fmt.Sprintf("an object that holds %q", row.leaf)
	if rawjson.IsNull(raw) {
		r.missing(param, holds)
		return
	}
	o, ok := r.element(param, raw, holds)
	if !ok {
		return
	}
	param += "." + row.leaf
	leaf := o.Raw(row.leaf)
	text, ok := rawjson.String(leaf)
	switch {
	case rawjson.IsNull(leaf), ok && text == "":
		r.missing(param, "what the block is about")
	case row.link:
		r.checkLink(param, leaf)
	case !ok:
		r.mustBe(invalidParameter, param, "a string")
	}
}

// readDrafts finds the tasks that content names, for all models but the beta family's. A task
// may be named in exactly one way. If a name is repeated, in another case or as `id`, an
// upstream could be asked for a task that was not checked.
func (r *Request) readDrafts() {
	for _, m := range r.object.Members {
		raw := m.Value.Of(r.object.Src)
		if m.Name != "content" || raw[0] != '[' {
			continue
		}
		r.content = raw
		rawjson.Each(raw, func(i int, at rawjson.Span) {
			param := fmt.Sprintf("content[%d]", i)
			inner, ok := r.onlyMember(param, rawjson.Span{Start: m.Value.Start + at.Start, End: m.Value.Start + at.End}, "draft_task")
			if !ok {
				return
			}
			leaf, ok := r.onlyMember(param+".draft_task", inner, "task_id")
			if !ok {
				return
			}
			if id, ok := rawjson.String(leaf.Of(r.object.Src)); ok {
				r.drafts = append(r.drafts, draft{id, leaf})
			}
		})
	}
}

// onlyMember is the span of the only member of that name in an object of the
// source; false if there is none.
func (r *Request) onlyMember(param string, at rawjson.Span, name string) (value rawjson.Span, ok bool) {
	o, err := rawjson.Index(at.Of(r.object.Src), nil, nil)
	if err != nil {
		return value, false
	}
	for _, m := range o.Members {
		own := strings.EqualFold(m.Name, name)
		if own && (ok || m.Name != name) || name == "task_id" && strings.EqualFold(m.Name, "id") {
			r.fail(invalidParameter, param, "%q must name one task, as %q, once.", param, "task_id")
			return value, false
		}
		if own {
			value, ok = rawjson.Span{Start: at.Start + m.Value.Start, End: at.Start + m.Value.End}, true
		}
	}
	return value, ok
}
