package faultlab

import (
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

func (k Kind) op() upstream.Op { return traits[k].op }

// risks are the troubles with their chances of a thousand tries, by when they
// show. One of 2 is above 1 % of the requests with retries and parts; only an
// event above the reader's limit is rarer, for the memory that it takes.
var risks = []struct {
	trouble Trouble
	chance  int
}{
	{Unreachable, 20}, {Refuses, 30}, {Fails, 20}, {Rejects, 12}, {Disowns, 12}, {Panics, 12}, {Nothing, 12},
	{Vague, 12}, {Pretends, 12}, {Silent, 12},
	{Empty, 12}, {Garbage, 12}, {ErrorBody, 15}, {WrongType, 20},
	{Ends, 20}, {Breaks, 15}, {Bursts, 12}, {Stalls, 15}, {Errs, 25}, {Babbles, 25}, {Lingers, 25}, {Surplus, 100},
}

// hugeOf is of how many tries one has an event above every limit.
const hugeOf = 4000

func (s source) trouble(c *Case) Trouble {
	if c.Stream && c.Kind.Talks() && s.IntN(hugeOf) == 0 {
		return Huge
	}
	n := s.IntN(1000)
	for _, r := range risks {
		if n -= r.chance; n >= 0 {
			continue
		}
		if c.suffers(r.trouble) {
			return r.trouble
		}
		return Fine
	}
	return Fine
}

// suffers reports whether a trouble can happen to a request.
func (c *Case) suffers(t Trouble) bool {
	switch t {
	case Errs, Babbles, WrongType, Lingers:
		return c.Stream
	case Surplus:
		return c.Pictures > 0 && !c.Stream
	}
	return true
}

// try draws what a vendor does.
func (s source) try(c *Case) Try {
	t := Try{
		Connect: s.span(0, 50*time.Millisecond), Wait: s.span(time.Millisecond, 2*time.Second),
		Trouble: s.trouble(c), Place: s.IntN(1000), Answer: s.answer(c),
	}
	if s.chance(20) {
		t.Wait = s.span(10*time.Second, 45*time.Second) // slow, within the time-out
	}
	switch t.Trouble {
	case Refuses:
		t.Status = pick(s, 429, 429, 503, 529)
		t.Again = pick(s, 0, time.Second, 30*time.Second, 24*time.Hour)
	case Fails:
		t.Status = pick(s, 500, 502, 504)
	case Rejects:
		t.Status = pick(s, 400, 422)
	case Disowns:
		t.Status = 401
	}
	return t
}

// answer draws what a vendor says.
func (s source) answer(c *Case) Answer {
	a := Answer{
		Line: pick(s, "", "", "", "crlf", "cr"), Mark: s.chance(50), Notes: s.chance(50),
		Gap: s.span(0, pick(s, time.Millisecond, 50*time.Millisecond, time.Second)),
	}
	if s.chance(250) {
		a.Grain = s.between(1, 60)
	}
	if s.chance(20) {
		a.Gap = s.span(time.Second, 15*time.Second) // slow, within the time-out
	}
	switch {
	case c.Kind.Talks():
		s.talk(c, &a)
	case c.Kind == Embeddings:
		a.Report = s.report(Never, Zero, Negative, Fractional, Absurd)
		a.Input = int64(s.between(1, 40))
	case c.Kind == Speech:
		for range s.between(1, 6) {
			a.Sizes = append(a.Sizes, s.between(12, 700))
		}
	case c.Pictures > 0:
		a.Report = s.report(Never, Zero, Negative, Fractional, Absurd)
		a.Input = int64(s.between(1, len(c.Prompt)+20))
		a.Output = int64(s.between(1, 400)) * c.Pictures
		if c.Kind == Edit && a.Report == Once {
			a.Cached = int64(s.between(0, int(a.Input))) // of the pictures that were put in
		}
	}
	return a
}

// report draws how usage is reported: mostly once, at the end.
func (s source) report(others ...Reporting) Reporting {
	if s.chance(700) {
		return Once
	}
	return pick(s, others...)
}

func (s source) talk(c *Case, a *Answer) {
	for range pick(s, 1, 2, 3, 5, 8, 13, 40) {
		a.Words = append(a.Words, s.word()+" ")
	}
	if s.chance(100) && (c.Stream || !c.Kind.translated()) {
		a.Thoughts = s.IntN(len(a.Words)) // at least one is said
	}
	a.Input = int64(s.between(1, 60))
	if s.chance(50) {
		a.Input = int64(s.between(60, 5_000)) // above what was held
	}
	a.Cached = int64(pick(s, 0, 0, s.between(0, int(a.Input))))
	a.Output = int64(s.between(1, 300))
	others := []Reporting{Never, Twice, Zero, Negative, Fractional, Absurd}
	if !c.Kind.translated() && traits[c.Kind].dialect == upstream.ChatCompletion {
		others = append(others, Rising, Nested, First)
	}
	a.Report = s.report(others...)
	if a.Report == Negative || a.Report == Fractional || a.Report == Absurd {
		a.Input, a.Cached = int64(s.between(1, 60)), 0
	}
}
