package embeddings

import (
	"math"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// counts are the members of usage that the API names; negative where they were
// not reported.
type counts struct{ prompt, total int64 }

const unreported = -1

// readCounts reads usage leniently: what is no count was not reported.
func readCounts(raw []byte) (c counts, o rawjson.Object) {
	c = counts{unreported, unreported}
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return c, rawjson.Object{Src: []byte("{}")}
	}
	if n, ok := rawjson.Int(o.Raw("prompt_tokens")); ok && n >= 0 {
		c.prompt = n
	}
	if n, ok := rawjson.Int(o.Raw("total_tokens")); ok && n >= 0 {
		c.total = n
	}
	return c, o
}

// reported tells whether there is any count, and whether one is left out.
func (c counts) reported() (any, all bool) {
	return c.prompt >= 0 || c.total >= 0, c.prompt >= 0 && c.total >= 0
}

// complete gives each count that is left out the other's value: embeddings have
// no output. Without any, both are n.
func (c counts) complete(n int64) counts {
	switch {
	case c.prompt < 0 && c.total < 0:
		return counts{n, n}
	case c.prompt < 0:
		c.prompt = c.total
	case c.total < 0:
		c.total = c.prompt
	}
	return c
}

// add stops at the largest int64: an absurd report must not wrap around.
func (c counts) add(d counts) counts {
	return counts{c.prompt + min(d.prompt, math.MaxInt64-c.prompt), c.total + min(d.total, math.MaxInt64-c.total)}
}

// set is usage with these counts and whatever else it holds.
func (c counts) set(usage rawjson.Object) rawjson.Edit {
	return rawjson.Set("usage", usage.Apply(nil,
		rawjson.Set("prompt_tokens", strconv.AppendInt(nil, c.prompt, 10)),
		rawjson.Set("total_tokens", strconv.AppendInt(nil, c.total, 10))))
}

// CompleteUsage gives an answer's usage the one of prompt_tokens and
// total_tokens that a vendor leaves out, for drivers. It is data itself if there
// is nothing to do, and fails if data is not one JSON object.
func CompleteUsage(data []byte) ([]byte, error) {
	l, err := read(data)
	if err != nil {
		return nil, err
	}
	c, usage := readCounts(l.object.Raw("usage"))
	if some, all := c.reported(); !some || all {
		return data, nil
	}
	return l.object.Apply(nil, c.complete(0).set(usage)), nil
}
