package video

import (
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Spent is what the task costs at the price that its hold pinned: nothing unless
// it succeeded. Seconds cost what was requested, whatever the upstream reports;
// tokens what it reports.
func (t *Task) Spent(p *billing.Price) billing.Usage {
	if t.State != Succeeded {
		return billing.Usage{}
	}
	answer, err := rawjson.Index(t.Answer, nil, nil)
	switch {
	case t.Tokens && err != nil:
		return t.estimated()
	case t.Tokens:
		return t.reported(answer.Raw("usage"))
	case t.Open && err == nil:
		return t.made(&answer, newTariff(p))
	}
	return t.Bound
}

// estimated are the tokens that a video of that kind takes, of which the hold is
// twice as many.
func (t *Task) estimated() billing.Usage {
	return billing.Usage{Output: (t.Bound.Output + 1) / 2, Estimated: true}
}

// reported are the upstream's tokens. A count that no video has is clamped to
// the hold.
func (t *Task) reported(usage []byte) billing.Usage {
	const absurd = 8 // times the hold: a video that was put in counts too
	o, err := rawjson.Index(usage, nil, nil)
	if err != nil {
		return t.estimated()
	}
	anomaly := false
	for _, name := range [...]string{"completion_tokens", "output_tokens", "total_tokens"} {
		raw := o.Raw(name)
		if rawjson.IsNull(raw) {
			continue
		}
		n, ok := rawjson.Int(raw)
		switch {
		case !ok || n < 0:
			anomaly = true
		case n/absurd > t.Bound.Output:
			return billing.Usage{Output: t.Bound.Output, Anomaly: true}
		default:
			return billing.Usage{Output: n, Zero: n == 0, Anomaly: anomaly}
		}
	}
	u := t.estimated()
	u.Anomaly = anomaly
	return u
}

// made is the length and the resolution that the upstream chose, at most the
// bound and never a variant without a price.
func (t *Task) made(answer *rawjson.Object, has tariff) billing.Usage {
	u := t.Bound
	if n, ok := rawjson.Int(answer.Raw("duration")); ok && n > 0 {
		u.Seconds = min(n, u.Seconds)
	} else if frames, ok := rawjson.Int(answer.Raw("frames")); ok && frames > 0 && frames < u.Seconds*fps {
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
