package faultlab

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
)

// expectation is what a request must have used, with the rule that says so. Where
// others is not empty each of them is right too: see the package documentation, What is not exact.
type expectation struct {
	used   tally
	others []tally
	rule   string
}

// The rules, as docs/reference/billing.md has them under "Cancelled, cut and failed requests".
const (
	ruleUnasked   = "no vendor was asked: nothing"
	ruleFailed    = "failed before any output: nothing"
	ruleComplete  = "a complete answer: as reported, else as estimated"
	ruleWithheld  = "a whole answer that nobody got, as its charge could not be recorded: nothing"
	ruleCut       = "cut after output: what was delivered"
	ruleGone      = "the client left: the input and what had come"
	ruleGoneParts = "the client left: the parts that a vendor had answered"
	ruleRefused   = "a part was refused: the parts that a vendor had answered"
	ruleVideo     = "a video that succeeded: its length, or the tokens that were reported"
	ruleNoVideo   = "a video that did not come to be: nothing"
)

// right is what the run must have used.
func (r *Run) right() expectation {
	v := r.due()
	if v.rule == ruleComplete && r.withheld() {
		return expectation{rule: ruleWithheld, others: []tally{v.used}}
	}
	return v
}

// withheld reports whether a whole answer without a key did not reach its client,
// as far as that can be seen: its charge could not be recorded.
func (r *Run) withheld() bool {
	c := r.Case
	if c.Stream || c.Key != "" || c.Kind == Speech || c.Kind.IsVideo() || r.complete || r.failed == nil {
		return false
	}
	return r.left != never || strings.Contains(r.failed.Error(), "could not be recorded")
}

// due is what the run must have used if the ledger was there.
func (r *Run) due() expectation {
	switch {
	case len(r.attempts) == 0:
		return expectation{rule: ruleUnasked}
	case r.Case.Kind.IsVideo():
		return r.rightVideo()
	case r.Case.Kind == Speech:
		return r.rightSpeech()
	case r.Case.Kind.Lists():
		return r.rightList()
	case r.Case.Stream && r.accepted:
		return r.rightStream()
	}
	if p := r.last(0); !r.Case.Stream && p.answered() { // whether or not its client had left
		used, _ := r.Case.tally(p.script.marks)
		return expectation{used: used, rule: ruleComplete}
	}
	return expectation{rule: ruleFailed}
}

// goneIn reports whether it was the client's leaving that ended an attempt: at once, or
// when the answer had begun.
func (r *Run) goneIn(p *attempt) bool {
	return r.left != never && p.dropped >= r.left && p.over == never && p.sent && !p.refused
}

// answered reports whether all of a whole answer came, and is one.
func (p *attempt) answered() bool {
	s := p.script
	return p.eof && p.given == len(s.data) && len(s.marks) > 0 && s.marks[0].what == completes
}

// came are the events of a stream that the gateway could take.
func (p *attempt) came() []mark {
	for i, m := range p.script.marks {
		if p.given < m.ready && (!p.eof || p.given < m.whole) {
			return p.script.marks[:i]
		}
	}
	return p.script.marks
}

// rightStream is what a stream must have used of which the client got a 200.
func (r *Run) rightStream() expectation {
	p := r.last(0)
	if r.left != never && r.reads == 0 && r.Case.Kind.Talks() { // what was read ahead of the client has come
		v := expectation{rule: ruleGone}
		for i := range len(p.came()) + 1 {
			used, others := r.Case.tally(p.came()[:i])
			v.others = append(append(v.others, used), others...)
		}
		return v
	}
	var came []mark
	// What was read ahead of the client is not delivered where its answer is called
	// off before it reads. Pictures are made to their end.
	if !r.Case.Kind.Talks() || r.reads > 0 && (p.over != never || p.dropped == never || p.dropped >= r.first) {
		came = p.came()
	}
	for i, m := range came {
		switch m.what {
		case completes:
			used, _ := r.Case.tally(came[:i+1])
			v := expectation{used: used, rule: ruleComplete}
			if r.Case.Kind.translated() && !r.complete && p.dropped != never && p.over == never { // between two reads of what a translation makes of the end
				v.others = []tally{r.Case.talkTally(untold(came[:i], func(*report) bool { return true }))}
			}
			return v
		case ruins:
			return r.cutStream(came[:i])
		}
	}
	if r.left == never || r.Case.Kind.Talks() && !r.goneIn(p) {
		return r.cutStream(came)
	}
	used, others := r.Case.tally(came)
	return expectation{used: used, others: others, rule: ruleGone}
}

// cutStream is what a stream must have used that came to no end.
func (r *Run) cutStream(came []mark) expectation {
	seen := false
	for _, m := range came {
		seen = seen || m.partial || m.quarters > 0 && !m.unseen
	}
	if !seen {
		return expectation{rule: ruleFailed}
	}
	used, others := r.Case.tally(came)
	return expectation{used: used, others: others, rule: ruleCut}
}

// rightVideo is what a video must have used.
func (r *Run) rightVideo() expectation {
	c := r.Case
	if !r.last(0).answered() || c.Video.End != "succeeded" {
		return expectation{rule: ruleNoVideo}
	}
	used := tally{billing.Second: c.Seconds}
	if c.Kind == Gamma {
		const pixels, perSecond = 864 * 480, 24
		n := (pixels*perSecond*c.Seconds + 1023) / 1024
		if c.Video.Tokens >= 0 {
			n = c.Video.Tokens
		}
		used = tally{billing.Output: n}
	}
	return expectation{used: used, rule: ruleVideo}
}

// rightSpeech is what speech must have used: all characters, or those of the parts of which
// the client got any audio. If the client disconnected, it is those of the parts that a vendor
// had answered.
func (r *Run) rightSpeech() expectation {
	all := int64(utf8.RuneCountInString(r.Case.Prompt))
	whole, before := true, 0
	chars, asked := int64(0), int64(0)
	for part := range r.Case.parts() {
		p := r.last(part)
		if p != nil {
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
		return expectation{used: tally{billing.Character: all}, rule: ruleComplete}
	case r.left != never: // the last of them may have failed at the same moment
		v := expectation{used: tally{billing.Character: min(asked, all)}, rule: ruleGoneParts}
		for _, n := range []int64{chars, asked - partCharacters} {
			v.others = append(v.others, tally{billing.Character: min(n, all)})
		}
		return v
	case r.got == 0:
		return expectation{rule: ruleFailed}
	}
	return expectation{used: tally{billing.Character: min(chars, all)}, rule: ruleCut}
}

// rightList is what embeddings or a ranking must have used: all parts or nothing, but of a
// caller whose part was refused those that were answered.
func (r *Run) rightList() expectation {
	c := r.Case
	whole := true
	var all int64
	refused := false
	for part := range c.parts() {
		p := r.last(part)
		switch {
		case p == nil:
			whole = false
		case p.answered():
			n := c.partCount(part, p.script.marks[0].report)
			all += n
		default:
			whole = false
			refused = refused || p.plan.Trouble == Rejects
		}
	}
	if whole {
		return expectation{used: c.listTally(all), rule: ruleComplete}
	}
	if refused && all > 0 { // unless a vendor's failure came first
		return expectation{used: c.listTally(all), others: []tally{{}}, rule: ruleRefused}
	}
	return expectation{rule: ruleFailed}
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
		others = append(others, c.talkTally(untold(marks, func(r *report) bool { return r.output.known })))
	}
	return used, others
}

// untold is some events without those of their reports that a translation keeps for the
// end.
func untold(marks []mark, kept func(*report) bool) []mark {
	marks = slices.Clone(marks)
	for i := range marks {
		if r := marks[i].report; r != nil && kept(r) {
			marks[i].report = nil
		}
	}
	return marks
}

// inputTokens is what a conversation's input is taken for: four tokens around
// its one message, and the message with its quotes.
func (c *Case) inputTokens() int64 { return tokens(4*4 + 2 + quarters(c.Prompt)) }

// talkTally is what a conversation used. Reports are cumulative: each count
// stands for all before it, and the largest counts. What was said after the last
// report is estimated, as is each side of which there is no report.
func (c *Case) talkTally(marks []mark) tally {
	var text, since, floor int64
	var input, cached, output count
	for _, m := range marks {
		text += m.quarters
		since += m.quarters
		if m.report == nil {
			continue
		}
		input.merge(m.report.input)
		cached.merge(m.report.cached)
		output.merge(m.report.output)
		floor = max(floor, m.report.floor)
		if m.report.output.known {
			since = 0
		}
	}
	out := output.n
	if !output.known {
		out = max(tokens(text), floor)
	} else if since > 0 {
		out = max(out, tokens(text))
	}
	in := input.n
	if c.Kind.chats() { // where the cached tokens are among those of the input
		in -= cached.n
	}
	if !input.known {
		in = max(c.inputTokens()-cached.n, 0)
	}
	if out > 2*mostOutput+slack { // than the model can say: the hold that the request asked for, or the text
		out = max(cmp.Or(c.MaxTokens, heldTokens), tokens(text))
	}
	if bound := int64(len(c.Body())); in+cached.n > bound+ownPrompt { // a token is at least a byte
		cached.n = min(cached.n, bound)
		in = min(in, bound-cached.n)
	}
	return tally{billing.Input: in, billing.CachedInput: cached.n, billing.Output: out}
}

// ownPrompt is how many tokens a vendor may put before a prompt, and slack how many more
// than a model can say it may count.
const ownPrompt, slack = 16_384, 1024

// chats reports whether the vendor speaks in completions, or in responses.
func (k Kind) chats() bool { return traits[k].dialect != Messages.op() }

// merge takes in another count of the same thing.
func (c *count) merge(other count) {
	if other.known {
		c.known, c.n = true, max(c.n, other.n)
	}
}

// What the tables of the image vendors say, in tokens. They have an image in low quality, a
// partial one, the lab's image as it is estimated and at the most, and what may stand around a
// prompt.
const (
	pictureTokens = 408
	partialTokens = 100
	shownTokens   = 65 + 129
	shownMost     = 8_192
	aroundPrompt  = 64
)

// pictureTally is what pictures used.
func (c *Case) pictureTally(marks []mark) tally {
	partials := int64(0)
	for _, m := range marks {
		if m.partial {
			partials++
		}
		if m.what == completes {
			return c.finishedPictures(m.report)
		}
	}
	used := c.inputOnly()
	if partials > 0 { // by the share of the pictures that came
		all := pictureTokens + c.Partials*partialTokens
		used[billing.ImageOutput] = max(all*partials/(max(c.Partials, partials)+1), 1)
	}
	return used
}

func (c *Case) finishedPictures(r *report) tally {
	if r == nil {
		r = &report{}
	}
	made := max(r.pictures.n, 1)
	most := c.Pictures * (pictureTokens + c.Partials*partialTokens)
	used := tally{billing.Image: min(made, c.Pictures)}
	if c.Kind == Print { // which is paid for by the unit
		return used
	}
	shownBound := int64(0)
	if c.Kind == Edit {
		shownBound = shownMost
	}
	if !r.output.known {
		used[billing.Input], used[billing.ImageOutput] = int64(len(c.Prompt))/4+1, most
		if c.Kind == Edit {
			used[billing.ImageInput] = shownTokens
		}
		return used
	}
	used[billing.Input], used[billing.ImageInput], used[billing.ImageOutput] = r.input.n-r.cached.n, r.cached.n, r.output.n
	if r.output.odd || made > c.Pictures {
		used[billing.Input] = min(used[billing.Input], int64(len(c.Prompt))+aroundPrompt)
		used[billing.ImageInput] = min(used[billing.ImageInput], shownBound)
		used[billing.ImageOutput] = min(used[billing.ImageOutput], most)
	}
	return used
}

// partCount is what one part of a list used: tokens, or search units.
func (c *Case) partCount(part int, r *report) int64 {
	if r == nil || !r.input.known {
		return c.partEstimate(part)
	}
	return r.input.n
}

// partEstimate is what the texts with their quotes are taken for, and one token
// for each; a few documents are one search unit.
func (c *Case) partEstimate(part int) int64 {
	if c.Kind == Rank {
		return 1
	}
	n, texts := int64(0), c.textsOf(part)
	for i := range texts {
		n += quarters(c.textAt(part*textsAtOnce+i)) + 2
	}
	return n/4 + int64(texts)
}

// listTally is what a list used, where what no such texts can be is clamped to the hold.
func (c *Case) listTally(n int64) tally {
	switch c.Kind {
	case Rank:
		return tally{billing.SearchUnit: min(n, int64(c.parts()))} // each is one, whatever its texts
	case Judge:
		return tally{billing.Request: 1}
	}
	return tally{billing.Input: c.plausibleVectors(n)}
}

// plausibleVectors clamps what no such texts can be to the hold.
func (c *Case) plausibleVectors(n int64) int64 {
	const aroundText, slack = 4, 1024
	bound := int64(0)
	for i := range c.Texts {
		bound += int64(len(c.textAt(i))) + 2 + aroundText
	}
	if n > 2*bound+slack {
		return bound
	}
	return n
}

// tally is what a request used, by the units of the price list.
type tally map[billing.Unit]int64

// row is the price of a model: amounts as they are written in a configuration.
type row []billing.Rate

// prices are the rows of a generation of the price list. A reload brings the
// next one, in which everything costs something else; the amounts are such that
// a charge hardly ever comes out even.
func prices(generation int) map[string]row {
	per := func(unit billing.Unit, millionths int) billing.Rate {
		n := millionths + 7*(generation%50)
		return billing.Rate{Unit: unit, Amount: fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000)}
	}
	second := func(variant string, millionths int) billing.Rate {
		r := per(billing.Second, millionths)
		r.Variant = variant
		return r
	}
	return map[string]row{
		"talk-1":               {per(billing.Input, 150_001), per(billing.CachedInput, 75_003), per(billing.Output, 600_007)},
		"talk-2":               {per(billing.Input, 3_000_001), per(billing.CachedInput, 300_001), per(billing.Output, 15_000_013)},
		"talk-3":               {per(billing.Input, 1_250_003), per(billing.CachedInput, 125_001), per(billing.Output, 10_000_019)},
		"ranker-1":             {per(billing.SearchUnit, 2_003)},
		"judge-1":              {per(billing.Request, 1_001)},
		"vector-1":             {per(billing.Input, 20_003)},
		"imagegen-1":           {per(billing.Input, 5_000_001), per(billing.ImageInput, 10_000_003), per(billing.ImageOutput, 40_000_007)},
		"imagegen-legacy-2":    {per(billing.Image, 20_001)},
		"voice-1":              {per(billing.Character, 15_000_011)},
		"beta2.6-t2v":          {second("720p", 100_003)},
		"gamma-1-0-pro-250528": {per(billing.Output, 2_500_009)},
	}
}

// newPriceList is a price list for a gateway.
func newPriceList(rows map[string]row) (*billing.PriceList, error) {
	all := map[string]*billing.Price{}
	for model, row := range rows {
		p, err := billing.NewPrice(row...)
		if err != nil {
			return nil, err
		}
		all[model] = p
	}
	return billing.NewPriceList(all), nil
}

// cost is what a tally costs by a row, in nano-units: an exact sum of exact
// products, rounded up once. It shares nothing with package billing but the
// names of the units.
func (t tally) cost(r row) (int64, error) {
	sum := new(big.Rat)
	for _, rate := range r {
		amount, ok := new(big.Rat).SetString(rate.Amount)
		if !ok {
			return 0, fmt.Errorf("the amount %q cannot be read", rate.Amount)
		}
		if !slices.Contains([]billing.Unit{billing.Image, billing.Second, billing.SearchUnit, billing.Request}, rate.Unit) { // which are priced one by one
			amount.Quo(amount, big.NewRat(1_000_000, 1))
		}
		sum.Add(sum, amount.Mul(amount, new(big.Rat).SetInt64(t[rate.Unit])))
	}
	sum.Mul(sum, big.NewRat(1_000_000_000, 1))
	up := new(big.Int).Add(sum.Num(), new(big.Int).Sub(sum.Denom(), big.NewInt(1)))
	return up.Quo(up, sum.Denom()).Int64(), nil
}
