// Package tokencount reads the counts of tokens and pictures that upstreams
// report, and estimates how many tokens a text has, for holds and for charges
// where an upstream reported nothing.
package tokencount

import "github.com/tollhouse-ai/gateway/internal/rawjson"

// MaxCount is a count that no context window and no picture reaches. A larger
// count is cut to it.
const MaxCount = 1 << 30

// Count reads a count; ok is false if raw is absent or none. anomaly says that
// raw is there and is no count, or exceeds [MaxCount].
func Count(raw []byte) (n int64, ok, anomaly bool) {
	if rawjson.IsNull(raw) {
		return 0, false, false
	}
	n, ok = rawjson.Int(raw)
	switch {
	case !ok || n < 0:
		return 0, false, true
	case n > MaxCount:
		return MaxCount, true, true
	}
	return n, true, false
}

// Fields is how many counts a Report has at the most.
const Fields = 7

// Report gathers what an upstream says of usage. Reports are cumulative, not
// additive: each field keeps its largest value, so that order and repetition do
// not matter (faults.md, row 6). The zero Report is ready; it is not safe for
// concurrent use.
type Report struct {
	Has     [Fields]bool  // which fields had a usable count
	N       [Fields]int64 // the counts
	Anomaly bool          // something in the place of a count was none, or absurd
}

// Member is a member of a usage object: a count, or an object of counts.
type Member struct {
	Name  string
	Field int      // which count it is
	Inner []Member // of an object
}

// Read takes in one usage object and says which fields it counts. Null is
// ignored; anything else that is no object is an anomaly, but for objects inside.
func (p *Report) Read(raw []byte, members []Member) (told [Fields]bool) {
	if !p.read(raw, members, &told) {
		p.Anomaly = true
	}
	return told
}

// read is Read of an object, and of those within it; false if raw is neither one nor null.
func (p *Report) read(raw []byte, members []Member, told *[Fields]bool) (ok bool) {
	if rawjson.IsNull(raw) {
		return true
	}
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, raw, nil, nil) != nil {
		return false
	}
	for i := range members {
		m := &members[i]
		if m.Inner != nil {
			p.read(o.Raw(m.Name), m.Inner, told)
			continue
		}
		n, counted, anomaly := Count(o.Raw(m.Name))
		p.Anomaly = p.Anomaly || anomaly
		if counted {
			p.N[m.Field], p.Has[m.Field], told[m.Field] = max(p.N[m.Field], n), true, true
		}
	}
	return true
}
