package faultlab

import (
	"strings"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
)

// verdict is what a request must have used, with the rule that says so. Where
// others is not empty each of them is right too: see doc.go, What is not exact.
type verdict struct {
	used   tally
	others []tally
	rule   string
}

// The rules, as ledger.md's table of who pays when it ends badly has them.
const (
	ruleUnasked   = "no vendor was asked: nothing"
	ruleFailed    = "failed before any output: nothing"
	ruleComplete  = "a complete answer: as reported, else as estimated"
	ruleWithheld  = "a whole answer that nobody got, as its charge could not be recorded: nothing"
	ruleCut       = "cut after output: what was delivered"
	ruleGone      = "the client left: the input and what had come"
	ruleGoneFirst = "the client left before anything came: what the vendor was asked for"
	ruleFilm      = "a video that succeeded: its length, or the tokens that were reported"
	ruleNoFilm    = "a video that did not come to be: nothing"
)

// right is what the run must have used.
func (r *Run) right() verdict {
	v := r.due()
	if v.rule == ruleComplete && r.withheld() {
		return verdict{rule: ruleWithheld, others: []tally{v.used}}
	}
	return v
}

// withheld reports whether a whole answer without a key did not reach its client,
// as far as that can be seen: its charge could not be recorded.
func (r *Run) withheld() bool {
	c := r.Case
	if c.Stream || c.Key != "" || c.Kind == Speech || c.Kind.Film() || r.complete || r.failed == nil {
		return false
	}
	return r.left != never || strings.Contains(r.failed.Error(), "could not be recorded")
}

// due is what the run must have used if the ledger was there.
func (r *Run) due() verdict {
	switch {
	case len(r.plays) == 0:
		return verdict{rule: ruleUnasked}
	case r.Case.Kind.Film():
		return r.rightFilm()
	case r.Case.Kind == Speech:
		return r.rightSpeech()
	case r.Case.Kind == Embeddings:
		return r.rightVectors()
	case r.Case.Stream && r.accepted:
		return r.rightStream()
	}
	p := r.last(0)
	switch {
	case !r.Case.Stream && p.answered():
		used, _ := r.Case.tally(p.script.marks)
		return verdict{used: used, rule: ruleComplete}
	case !r.goneIn(p):
		return verdict{rule: ruleFailed}
	}
	return r.goneFirst(r.Case.inputOnly())
}

// goneFirst is what a client pays who left before anything came.
func (r *Run) goneFirst(input tally) verdict {
	return verdict{used: input, rule: ruleGoneFirst}
}

// goneIn reports whether it was the client's leaving that ended a try which may
// have cost its vendor something.
func (r *Run) goneIn(p *played) bool {
	return r.left != never && p.dropped == r.left && p.over == never && p.sent && !p.refused
}

// answered reports whether all of a whole answer came, and is one.
func (p *played) answered() bool {
	s := p.script
	return p.eof && p.given == len(s.data) && len(s.marks) > 0 && s.marks[0].what == completes
}

// came are the events of a stream that the gateway could take.
func (p *played) came() []mark {
	for i, m := range p.script.marks {
		if p.given < m.ready && (!p.eof || p.given < m.whole) {
			return p.script.marks[:i]
		}
	}
	return p.script.marks
}

// rightStream is what a stream must have used of which the client got a 200.
func (r *Run) rightStream() verdict {
	p := r.last(0)
	var came []mark
	// What was read ahead of the client is not delivered where its answer is called
	// off before it reads.
	if r.reads > 0 && (p.over != never || p.dropped == never || p.dropped >= r.first) {
		came = p.came()
	}
	for i, m := range came {
		switch m.what {
		case completes:
			used, _ := r.Case.tally(came[:i+1])
			return verdict{used: used, rule: ruleComplete}
		case ruins:
			return r.cutStream(came[:i])
		}
	}
	if r.reads == 0 && r.left != never && p.over != never && p.over <= r.left { // nobody had asked for what was to come
		return verdict{others: []tally{r.Case.inputOnly()}, rule: ruleGone}
	}
	if !r.goneIn(p) {
		return r.cutStream(came)
	}
	used, others := r.Case.tally(came)
	return verdict{used: used, others: others, rule: ruleGone}
}

// cutStream is what a stream must have used that came to no end.
func (r *Run) cutStream(came []mark) verdict {
	seen := false
	for _, m := range came {
		seen = seen || m.partial || m.quarters > 0 && !m.unseen
	}
	if !seen {
		return verdict{rule: ruleFailed}
	}
	used, others := r.Case.tally(came)
	return verdict{used: used, others: others, rule: ruleCut}
}

// rightFilm is what a video must have used.
func (r *Run) rightFilm() verdict {
	c := r.Case
	if !r.last(0).answered() || c.Film.End != "succeeded" {
		return verdict{rule: ruleNoFilm}
	}
	used := tally{billing.Second: c.Seconds}
	if c.Kind == Gamma {
		const pixels, perSecond = 864 * 480, 24
		n := (pixels*perSecond*c.Seconds + 1023) / 1024
		if c.Film.Tokens >= 0 {
			n = c.Film.Tokens
		}
		used = tally{billing.Output: n}
	}
	return verdict{used: used, rule: ruleFilm}
}

// rightSpeech is what speech must have used: all characters, or those of the
// parts of which the client got any audio; of a client who left those of the parts
// that were asked for.
func (r *Run) rightSpeech() verdict {
	all := int64(utf8.RuneCountInString(r.Case.Prompt))
	whole, before := true, 0
	chars, asked := int64(0), int64(0)
	var under *played // the part that was asked for last
	for part := range r.Case.parts() {
		p := r.last(part)
		if p != nil {
			under = p
			asked += partCharacters
		}
		if p == nil || !p.answered() {
			whole = false
		}
		if p != nil && before < r.got {
			chars += partCharacters
			before += p.given
		}
	}
	switch {
	case whole:
		return verdict{used: tally{billing.Character: all}, rule: ruleComplete}
	case r.goneIn(under) || r.left != never && under.answered():
		return r.goneFirst(tally{billing.Character: min(asked, all)})
	case r.got == 0:
		return verdict{rule: ruleFailed}
	}
	return verdict{used: tally{billing.Character: min(chars, all)}, rule: ruleCut}
}

// rightVectors is what embeddings must have used: all parts or nothing, but of a
// client who left those parts that had come or were under way.
func (r *Run) rightVectors() verdict {
	c := r.Case
	whole := true
	var all, owed int64
	for part := range c.parts() {
		p := r.last(part)
		switch {
		case p == nil:
			whole = false
		case p.answered():
			n := c.vectorTokens(part, p.script.marks[0].report)
			all, owed = all+n, owed+n
		default:
			whole = false
			if r.goneIn(p) {
				owed += c.vectorEstimate(part)
			}
		}
	}
	switch {
	case whole:
		return verdict{used: tally{billing.Input: c.plausibleVectors(all)}, rule: ruleComplete}
	case r.left == never: // while it ran, be it that a part waited for another try
		return verdict{rule: ruleFailed}
	}
	return r.goneFirst(tally{billing.Input: c.plausibleVectors(owed)})
}

// inputOnly is what the input of a request is taken for, with the pictures that
// were asked for.
func (c *Case) inputOnly() tally {
	if c.Kind.Talks() {
		return tally{billing.Input: c.inputTokens()}
	}
	used := tally{billing.Input: int64(len(c.Prompt))/4 + 1, billing.Image: c.Pictures}
	if c.Kind == Edit {
		used[billing.ImageInput] = shownTokens
	}
	return used
}

// tally is what events used, or an answer that is one event. others are right
// too.
func (c *Case) tally(marks []mark) (used tally, others []tally) {
	if !c.Kind.Talks() {
		return c.pictureTally(marks), nil
	}
	used = c.talkTally(marks)
	n := len(marks)
	told := false // of output by a message that did not end
	for i := range marks {
		r := marks[i].report
		told = told || r != nil && r.output.known
	}
	if c.Stream && c.Kind.translated() && traits[c.Kind].dialect == upstream.Messages && told && marks[n-1].what != completes {
		untold := make([]mark, n)
		copy(untold, marks)
		for i := range untold {
			if r := untold[i].report; r != nil && r.output.known {
				untold[i].report = nil
			}
		}
		others = append(others, c.talkTally(untold))
	}
	return used, others
}
