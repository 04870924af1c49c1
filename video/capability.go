package video

import (
	"fmt"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// readGamma reads and checks a request of the gamma family.
func (r *Request) readGamma() {
	p := &r.parsed
	r.fields(gammaFields, &p.object, "")
	r.readDrafts()
	r.readContent()
	p.asked = asked{seconds: r.Duration, resolution: r.Resolution, ratio: r.Ratio, sound: r.GenerateAudio, draft: r.Draft}
	if r.given("duration") && (r.Duration < shortest || r.Duration > longest) {
		p.problem.Fail(must(DurationOutOfRange, "duration", fmt.Sprintf("an integer from %d to %d (seconds)", shortest, longest)))
	}
	r.readFrames(longest)
	if r.given("resolution") {
		r.checkResolution(r.Resolution, p.gamma.Resolutions)
	}
	if r.given("callback_url") && !isLink(r.CallbackURL) {
		p.problem.Fail(notLink("callback_url"))
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
		p.problem.Fail(must(DurationOutOfRange, "frames", fmt.Sprintf("an integer from 1 to %d", most*fps+1)))
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
	r.readAgain("duration", func(raw []byte) (string, bool) {
		n, ok := rawjson.Int(raw)
		if ok && p.asked.seconds == 0 {
			p.asked.seconds = n
		}
		return "duration", n == p.asked.seconds
	})
	r.readAgain("resolution", func(raw []byte) (string, bool) {
		word, _ := rawjson.String(raw)
		return "resolution", r.resolve(strings.ToLower(word))
	})
	r.readAgain("size", func(raw []byte) (string, bool) {
		text, _ := rawjson.String(raw)
		s, ok := readSize(text)
		return "resolution", !ok || r.resolve(s.resolution)
	})
}

// resolve takes a resolution that parameters names; false if another was named.
func (r *Request) resolve(word string) bool {
	if a := &r.parsed.asked; a.resolution == "" {
		a.resolution = word
	}
	return r.parsed.asked.resolution == word
}

// readAgain reads a member of parameters that says again what may have been said
// before: same reports which field that is, and whether both say the same.
func (r *Request) readAgain(name string, same func(raw []byte) (field string, ok bool)) {
	raw := r.parsed.parameters.Raw(name)
	if rawjson.IsNull(raw) {
		return
	}
	if field, ok := same(raw); !ok {
		r.contradict("parameters."+name, fmt.Sprintf("%q", field))
	}
}
