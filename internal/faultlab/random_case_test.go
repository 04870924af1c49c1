package faultlab

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

// Payers are the callers of the lab.
const (
	rich   = 6 // callers whose money never ends and whom nothing limits
	poor   = 2 // callers who run out of money again and again
	frugal = 1 // a caller of a rich account with a budget
	narrow = 2 // callers with limits
	payers = rich + poor + frugal + narrow
)

// source makes the values of one case.
type source struct{ *rand.Rand }

// newSource is the source of a case, or, with a negative number, of the lab
// around them.
func newSource(seed uint64, number int) source {
	return source{rand.New(rand.NewPCG(seed, uint64(int64(number))+0x9e3779b97f4a7c15))}
}

// chance is true n times of a thousand.
func (s source) chance(n int) bool { return s.IntN(1000) < n }

// between is a number from low to high.
func (s source) between(low, high int) int { return low + s.IntN(high-low+1) }

// span is a time from low to high, in whole microseconds: what happens to one
// request at one time is told apart by the half microseconds of its client.
func (s source) span(low, high time.Duration) time.Duration {
	return low + time.Duration(s.Int64N(int64(high-low)+1)).Truncate(time.Microsecond)
}

// pick is one of several.
func pick[T any](s source, of ...T) T { return of[s.IntN(len(of))] }

// randomCase is the case of a number.
func randomCase(seed uint64, number int) *Case {
	s := newSource(seed, number)
	c := &Case{Seed: seed, Number: number, Kind: s.kind(), Payer: s.IntN(rich)}
	if s.chance(150) {
		c.Payer = s.between(rich, payers-1)
	}
	c.Stream = s.IntN(100) < traits[c.Kind].streams
	c.Pause = s.span(0, 40*time.Second)
	s.ask(c)
	copies := 1
	if s.chance(60) {
		c.Key = fmt.Sprintf("key-%d", number)
		copies = pick(s, 1, 2, 2, 3)
	}
	for i := range copies {
		c.Copies = append(c.Copies, s.copy(c, i))
	}
	return c
}

func (s source) kind() Kind {
	all := 0
	for _, k := range Kinds() {
		all += traits[k].share
	}
	n := s.IntN(all)
	for _, k := range Kinds() {
		if n -= traits[k].share; n < 0 {
			return k
		}
	}
	return Chat
}

// ask chooses what the request asks for.
func (s source) ask(c *Case) {
	c.Prompt = s.text(s.between(1, 30))
	switch {
	case c.Kind.Talks():
		c.ShowUsage = s.chance(300)
	case c.Kind.Lists():
		c.Texts = pick(s, 1, 1, 2, 3, 4, 7, 12)
	case c.Kind == Speech:
		c.Prompt = spoken(s.between(1, 42))
	case c.Kind.IsVideo():
		c.Seconds = int64(s.between(2, 15))
		c.Video = s.video(c.Kind)
		if c.Kind == Gamma {
			c.Seconds = int64(s.between(4, 12))
		}
	default:
		c.Pictures = 1
		if !c.Stream && c.Kind != Edit {
			c.Pictures = int64(s.between(1, 3))
		}
		if c.Stream {
			c.Partials = int64(s.IntN(4))
		}
	}
}

func (s source) video(k Kind) Video {
	f := Video{End: pick(s, "succeeded", "succeeded", "succeeded", "failed", "cancelled"), After: s.span(time.Second, 30*time.Minute), Trouble: pick(s, 0, 0, 5, 30)}
	if s.chance(50) {
		f.End = "never"
	}
	if k == Gamma {
		f.Tokens = int64(s.between(1_000, 60_000))
		if s.chance(200) {
			f.Tokens = -1
		}
	}
	return f
}

// text is a text of so many words, a few of them in a script without letters.
func (s source) text(words int) string {
	text := ""
	for i := range words {
		if i > 0 {
			text += " "
		}
		text += s.word()
	}
	return text
}

func (s source) word() string {
	if s.chance(50) {
		return pick(s, "水", "火山", "木の葉", "дом", "señor")
	}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	n := s.between(1, 9)
	word := make([]byte, n)
	for i := range word {
		word[i] = letters[s.IntN(len(letters))]
	}
	return string(word)
}

// partCharacters is how many characters of speech one upstream call takes in
// the lab, and wordCharacters how long a spoken word is, with its space.
const (
	partCharacters = 40
	wordCharacters = 4
)

// spoken is a text of so many words of equal length: where it is cut is known
// without the gateway's own way of cutting.
func spoken(words int) string {
	text := ""
	for i := range words {
		text += fmt.Sprintf("w%02d ", i)
	}
	return text[:len(text)-1]
}

// parts is how many upstream calls the request is made of.
func (c *Case) parts() int {
	switch c.Kind {
	case Embeddings, Rank:
		return (c.Texts + textsAtOnce - 1) / textsAtOnce
	case Speech:
		return (len(c.Prompt) + partCharacters - 1) / partCharacters
	}
	return 1
}

// copy chooses what one copy meets.
func (s source) copy(c *Case, i int) Copy {
	cp := Copy{Client: s.client(c)}
	if i > 0 {
		cp.After = s.span(0, 5*time.Second)
		if s.chance(300) {
			cp.After = 0 // at the same moment
		}
	}
	for range c.parts() {
		attempts := make([]attemptScript, mostAttempts)
		for n := range attempts {
			attempts[n] = s.attempt(c)
		}
		cp.Attempts = append(cp.Attempts, attempts)
	}
	if c.Kind.Talks() && c.MaxTokens == 0 {
		s.limit(c, cp)
	}
	return cp
}

// mostAttempts is how often a gateway may ask for one part of a request.
const mostAttempts = 3

// limit chooses the caller's bound of the output, which leaves room for what the
// vendors say. A message has one always; a completion always where it is
// translated, since a translation loses that a count was impossible.
func (s source) limit(c *Case, cp Copy) {
	if c.Kind == Chat && s.chance(500) {
		return
	}
	c.MaxTokens = 2
	for _, t := range cp.Attempts[0] {
		c.MaxTokens = max(c.MaxTokens, tokens(quarters(t.Answer.Words...)), t.Answer.Output)
	}
	c.MaxTokens += int64(s.IntN(200)) + 400 // of the other copies too
}

func (s source) client(c *Case) Client {
	cl := Client{Beats: s.chance(300)}
	if s.chance(50) {
		cl.Slow = s.span(time.Millisecond, pick(s, 100*time.Millisecond, 3*time.Second, 40*time.Second))
	}
	if s.chance(100) {
		cl.Sends = s.span(time.Millisecond, 20*time.Second)
	}
	switch n := s.IntN(1000); {
	case n < 5:
		cl.Leaves = Early
	case n < 60:
		cl.Leaves = AtTime
		longest := pick(s, time.Millisecond, 100*time.Millisecond, 2*time.Second, 20*time.Second, 2*time.Minute)
		cl.At = s.span(0, longest) + time.Microsecond/2 // apart from whatever a vendor does
	case n < 90 && (c.Stream || c.Kind == Speech):
		cl.Leaves, cl.Reads = Closing, s.IntN(12)
	}
	return cl
}

func (k Kind) op() upstream.Op { return traits[k].op }

// risks are the troubles with their chances of a thousand attempts, by when they
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

// hugeOf is of how many attempts one has an event above every limit.
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

// attempt chooses what a vendor does.
func (s source) attempt(c *Case) attemptScript {
	t := attemptScript{
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

// answer chooses what a vendor says.
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
	case c.Kind == Rank:
		a.Report = s.report(Never, Zero, Negative, Fractional, Absurd)
		a.Input = int64(s.between(1, 3))
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

// report chooses how usage is reported: mostly once, at the end.
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
