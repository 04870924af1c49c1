package video

import (
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/video"
)

// Bound is the most that a request may consume, which is held while its task
// runs.
type Bound struct {
	Usage billing.Usage
	// Tokens says that the price is for tokens, which the upstream reports.
	Tokens bool
	// Open says that the price is for seconds, and that the request leaves length or
	// resolution to the upstream. Success costs what the upstream made, at most Usage.
	Open bool
}

// Bound is what the request may consume at the price, nil for a model without
// one. It fails with a 400 for a variant that has no price.
func (r *Request) Bound(p *billing.Price) (Bound, error) {
	t := newTariff(p)
	a := r.asked
	seconds := a.seconds
	if seconds == 0 {
		seconds = r.longest()
	}
	if t.tokens {
		n := tokens(pixels(r.resolutions()[0]), seconds)
		return Bound{Usage: billing.Usage{Output: 2 * n}, Tokens: true}, nil
	}
	u := billing.Usage{Seconds: seconds, Variant: r.resolutions()[0]}
	if t.free() {
		return Bound{Usage: u}, r.checkPriced(u.Variant)
	}
	variant, ok := r.variant(t)
	if !ok {
		return Bound{}, r.unpriced(t)
	}
	u.Variant = variant
	return Bound{Usage: u, Open: a.seconds == 0 || a.resolution == ""}, nil
}

// tokens is what a video of so many pixels and seconds takes, rounded up.
func tokens(pixels, seconds int64) int64 { return (pixels*fps*seconds + 1023) / 1024 }

// longest is the longest that the video can be.
func (r *Request) longest() int64 {
	if r.row != nil {
		return r.row.Longest
	}
	return unknownLongest
}

// resolutions are those that the video may have, the largest first.
func (r *Request) resolutions() []string {
	switch {
	case r.asked.resolution != "":
		return []string{r.asked.resolution}
	case r.row == nil:
		return []string{unknownResolution, p720, p480}
	}
	all := slices.Clone(r.row.Resolutions)
	slices.Reverse(all)
	return all
}

// variant is the key under which the price lists the video; false if it has none.
func (r *Request) variant(t tariff) (string, bool) {
	for _, resolution := range r.resolutions() {
		for _, suffix := range r.suffixes() {
			every := resolution + suffix
			if one := every + "@" + r.asked.ratio; t.has(one) {
				return one, true
			}
			if t.has(every) {
				return every, true
			}
		}
	}
	return "", t.has("") // one price for every second
}

// suffixes are what the key of the price may have behind the resolution, the
// first that has a price counts. A model with sound makes it unless it is told
// not to; the gamma family's price of sound is needed where sound is asked for.
func (r *Request) suffixes() []string {
	const sound, draft = "+audio", "+draft"
	a, beta := r.asked, r.Family() == video.FamilyBeta
	switch {
	case a.draft:
		return []string{draft}
	case a.sound != nil && !*a.sound:
		return []string{""}
	case r.row != nil && r.row.Sound && (beta || a.sound == nil):
		return []string{sound, ""}
	case a.sound != nil && !beta:
		return []string{sound}
	}
	return []string{""}
}

// unpriced is the refusal of a variant that has no price.
func (r *Request) unpriced(t tariff) error {
	field, a := "", r.asked
	switch {
	case !t.resolution(r.resolutions()):
	case a.draft:
		field = "draft"
	case a.sound != nil && *a.sound && r.Family() != video.FamilyBeta:
		field = "generate_audio"
	}
	if field != "" {
		return refusal(invalidParameter, field, "The model %q has no price with %q: leave it out.", r.Model, field)
	}
	return r.noPrice(safetext.Truncate(r.resolutions()[0], 16))
}

// checkPriced refuses a resolution that the model offers only where it is priced.
func (r *Request) checkPriced(resolution string) error {
	if r.row == nil || !r.row.Priced || resolution != p1080 {
		return nil
	}
	return r.noPrice(resolution)
}

func (r *Request) noPrice(resolution string) *fault.Error {
	return refusal(resolutionNotSupported, "resolution", "There is no price for %s videos of the model %q.", resolution, r.Model)
}

// tariff is what a price is for.
type tariff struct {
	seconds map[string]bool // the variants
	tokens  bool
	other   bool // a unit that no video is made of
}

func newTariff(p *billing.Price) tariff {
	t := tariff{seconds: make(map[string]bool)}
	for _, rate := range p.Rates() {
		switch rate.Unit {
		case billing.Second:
			t.seconds[rate.Variant] = true
		case billing.Output, billing.Input:
			t.tokens = true
		default:
			t.other = true
		}
	}
	t.tokens = t.tokens && len(t.seconds) == 0
	return t
}

// free reports whether there is no price.
func (t tariff) free() bool { return len(t.seconds) == 0 && !t.other }

func (t tariff) has(variant string) bool { return t.seconds[variant] }

// resolution reports whether a variant of one of the resolutions has a price.
func (t tariff) resolution(resolutions []string) bool {
	for variant := range t.seconds {
		if i := strings.IndexAny(variant, "+@"); i >= 0 {
			variant = variant[:i]
		}
		if slices.Contains(resolutions, variant) {
			return true
		}
	}
	return false
}

// BilledUsage is what the task is billed for at the price that its hold pinned. It is nothing
// unless the task succeeded. It is the seconds that were requested, or the tokens that the
// upstream reports.
func BilledUsage(t *video.Task, p *billing.Price) billing.Usage {
	if t.State != video.Succeeded {
		return billing.Usage{}
	}
	answer, err := rawjson.Index(t.Answer, nil, nil)
	switch {
	case t.Tokens && err != nil:
		return estimatedTokens(t)
	case t.Tokens:
		return reportedTokens(t, answer.Raw("usage"))
	case t.Open && err == nil:
		return chosenUsage(t, &answer, newTariff(p))
	}
	return t.Bound
}

// estimatedTokens are those that a video of that kind takes. The hold is twice as many.
func estimatedTokens(t *video.Task) billing.Usage {
	return billing.Usage{Output: (t.Bound.Output + 1) / 2, Estimated: true}
}

// reportedTokens are those that the upstream counted. A count that no video has is clamped to
// the hold.
func reportedTokens(t *video.Task, usage []byte) billing.Usage {
	const maxOverBound = 8 // times the hold: a video that was put in counts too
	o, err := rawjson.Index(usage, nil, nil)
	if err != nil {
		return estimatedTokens(t)
	}
	anomaly := false
	for _, name := range [...]string{"completion_tokens", "output_tokens", "total_tokens"} {
		n, ok, absurd := tokencount.Count(o.Raw(name))
		anomaly = anomaly || absurd
		switch {
		case !ok:
		case n/maxOverBound > t.Bound.Output:
			return billing.Usage{Output: t.Bound.Output, Anomaly: true}
		default:
			return billing.Usage{Output: n, Zero: n == 0, Anomaly: anomaly}
		}
	}
	u := estimatedTokens(t)
	u.Anomaly = anomaly
	return u
}

// chosenUsage is the length and the resolution that the upstream chose, at most
// the bound and never a variant without a price.
func chosenUsage(t *video.Task, answer *rawjson.Object, has tariff) billing.Usage {
	u := t.Bound
	if n, ok, _ := tokencount.Count(answer.Raw("duration")); ok && n > 0 {
		u.Seconds = min(n, u.Seconds)
	} else if frames, ok, _ := tokencount.Count(answer.Raw("frames")); ok && frames > 0 && frames < u.Seconds*fps {
		u.Seconds = max((frames+fps-2)/fps, 1)
	}
	resolution, _ := rawjson.String(answer.Raw("resolution"))
	resolution = strings.ToLower(resolution)
	rest := ""
	if i := strings.IndexAny(u.Variant, "+@"); i >= 0 {
		rest = u.Variant[i:]
	}
	known := slices.ContainsFunc(classes, func(c class) bool { return c.resolution == resolution })
	if variant := resolution + rest; known && pixels(resolution) <= pixels(strings.TrimSuffix(u.Variant, rest)) && has.has(variant) {
		u.Variant = variant
	}
	return u
}
