package operation

import (
	"fmt"
	"math"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// Quote is what a request may cost, computed once, before its hold. For example, of a body
// of 1,000 bytes for a model with a max_output of 32,000 and hold_tokens of 4,096, in tokens
// of input + output:
//
//	                                  Bound            Usual           Firm
//	max_tokens 500                     1,000 +    500
//	a stream without max_tokens        1,000 +  4,096                                   (extended as it runs)
//	a whole answer without             1,000 + 32,000  1,000 + 4,096
//	max_tokens 500, which some
//	  channel leaves out               1,000 + 32,000  1,000 + 4,096    1,000 + 32,000
//	max_tokens 500 and an image by
//	  URL: 2,000 tokens, or 40,000    41,000 +    500  3,000 +   500   41,000 +    500
//
// [billing.HoldRequest] says what the three are, and Least. See docs/reference/billing.md, Bounds of a
// charge.
type Quote struct {
	Bound, Usual, Least, Firm billing.Usage
	Plausible                 Plausible
	// Inexact says that an answer may consume less than Bound, even if it is sold by units
	// that are ordered. An example is a video that leaves its length or resolution to the
	// vendor.
	Inexact bool

	conversation conversation // zero for anything else
}

// Plausible bounds the counts that are believed, each on its own.
type Plausible struct{ Input, Output, Images, SearchUnits int64 }

// Unchecked accepts any count.
func Unchecked() Plausible {
	return Plausible{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
}

const (
	MaxContext = 1 << 21 // is larger than every context window, in tokens
	CountSlack = 1024    // is how many tokens more than its bound an upstream may count
)

// Exactly is the quote of a request that consumes all of u.
func Exactly(u billing.Usage, p Plausible) Quote { return Quote{Bound: u, Least: u, Plausible: p} }

// Expected is what one request among many consumes at most: a caller's bound, or a model's
// hold_tokens, even if its max_output is lower. It bounds implausible counts, and is counted
// against a key's tokens per minute.
func (q *Quote) Expected() billing.Usage {
	if q.conversation.facts != nil {
		return q.conversation.usual
	}
	return q.Bound
}

// Tokens are the most that a vendor may bill for a conversation, and which limit, if any, it
// obeys.
type Tokens struct {
	Input       int64 // most tokens of the input, media by the configured bound
	ExtraMedia  int64 // how many more a vendor may count for media whose size is not known, or large
	InputLimit  int64 // most that a vendor is believed to have read; 0 where the body does not say it
	Candidates  int64 // of the answer; at least 1
	CallerBound int64 // the caller's bound of one candidate; 0 for none
	Dropped     bool  // some channel of the model leaves CallerBound out, which then bounds nothing
	// Uncounted says that the output cannot be counted while it is made, so all of it is held
	// at once. It is not streamed, or its reasoning is not shown.
	Uncounted  bool
	CacheWrite bool  // the input is held as if a cache took all of it, which costs most
	Requests   int64 // 1 if the price has a part for the request itself
}

// Quote is the quote of a conversation. A whole answer without a bound is held for as much as
// the vendor may make, if the account can spare it. Nothing extends its hold. What no limit
// sent to a vendor lowers is firm.
func (t Tokens) Quote(m *Facts) Quote {
	c := conversation{Tokens: t, facts: m, sent: t.CallerBound}
	if t.Dropped {
		c.sent, c.Uncounted = 0, true
	}
	c.usual = c.usage(c.Input, c.Candidates*m.HoldTokens)
	if c.sent > 0 {
		c.usual.Output = c.Candidates * m.OutputBound(c.sent)
	}
	usual := c.usual
	most := c.usage(c.Input+c.ExtraMedia, usual.Output)
	unbounded := c.Uncounted && c.sent == 0
	if unbounded {
		most.Output = c.Candidates * m.UnboundedOutput()
		usual.Output = min(usual.Output, most.Output)
	}
	q := Quote{
		Bound: most, Least: c.usage(c.Input, c.Candidates), conversation: c,
		Plausible: Plausible{Input: c.plausibleInput(), Output: c.Candidates * m.plausibleOutput(), Images: math.MaxInt64},
	}
	if unbounded || c.ExtraMedia > 0 {
		q.Usual = usual
	}
	switch {
	case unbounded && c.Dropped:
		q.Firm = most
	case c.ExtraMedia > 0:
		q.Firm = c.usage(c.Input+c.ExtraMedia, usual.Output)
	}
	return q
}

// conversation is how the quote of a conversation comes about.
type conversation struct {
	Tokens
	facts *Facts
	sent  int64         // CallerBound if every vendor gets it, else 0
	most  billing.Money // what the caller lets the request cost; 0 for no bound

	// usual is held for one request among many: the caller's bound, or the model's
	// hold_tokens, which a stream extends.
	usual billing.Usage
}

// Limit bounds the cost of the request by most, at a price. The output of a conversation is
// held, and later limited, to what that pays for. 0 is no bound. Limit fails with
// fault.BudgetExceeded if most does not pay for the input and one token, or for what no limit
// lowers. If the request is no conversation, most must pay for all of it.
func (q *Quote) Limit(p *billing.Price, most billing.Money) error {
	if most == 0 || p == nil {
		return nil
	}
	least, c := q.Bound, &q.conversation
	if c.facts != nil {
		least = c.usage(c.Input+c.ExtraMedia, c.Candidates)
		if c.Dropped {
			least = q.Firm
		}
	}
	cost, err := p.Cost(least)
	if err != nil {
		return nil // the hold decides
	}
	if cost > most {
		return &fault.Error{
			Code: fault.BudgetExceeded, Param: "X-Gateway-Max-Cost", Retry: fault.RetryNo,
			Message: fmt.Sprintf("The request costs at least %s, more than the %s that it may cost. Ask for less, or allow more.", cost, max(most, 0)),
		}
	}
	if c.facts == nil {
		return nil
	}
	c.most = most
	output := c.mostOutput(p)
	q.Bound.Output, q.Usual.Output, q.Firm.Output = min(q.Bound.Output, output), min(q.Usual.Output, output), min(q.Firm.Output, output)
	return nil
}

// mostOutput is how many output tokens the caller's bound of the cost pays for.
func (c *conversation) mostOutput(p *billing.Price) int64 {
	if c.most == 0 || p == nil {
		return math.MaxInt64
	}
	return pays(p, c.most, c.usage(c.Input+c.ExtraMedia, 0), c.Candidates*MaxContext)
}

// MostCovered is how many output tokens a stream's hold may cover, however much the account has.
func (q *Quote) MostCovered(h *billing.Hold) int64 { return q.conversation.mostOutput(h.Price) }

// plausibleInput is the most input tokens that a vendor can report and be believed.
func (c *conversation) plausibleInput() int64 {
	if c.InputLimit == 0 {
		return MaxContext
	}
	return min(c.InputLimit, MaxContext)
}

// usage is a usage of so many tokens, the input being of the dearest unit.
func (c *conversation) usage(in, out int64) billing.Usage {
	u := billing.Usage{Input: in, Output: out, Requests: c.Requests}
	if c.CacheWrite {
		u.Input, u.CacheWrite = 0, in
	}
	return u
}

// Open reports whether the output of a conversation has no known bound, so that it can cost
// more than Bound. It streams without a bound, or its model's cap is not known.
func (q *Quote) Open() bool {
	c := &q.conversation
	return c.facts != nil && c.sent == 0 && (!c.Uncounted || c.facts.MaxOutput == 0)
}

// MaxOutput is the bound of one candidate's output that the vendor is sent because the money
// pays for no more. It is 0 if the money pays for all. A stream's hold grows with it, so that
// all that is available counts. A whole answer has its hold.
func (q *Quote) MaxOutput(h *billing.Hold) int64 {
	c := &q.conversation
	if c.facts == nil || h.Price == nil || h.Available == billing.Unlimited && c.most == 0 {
		return 0
	}
	money, wanted := h.Amount, c.facts.OutputBound(c.sent)
	if !c.Uncounted {
		money += h.Available
	} else if c.sent == 0 {
		wanted = c.facts.UnboundedOutput()
	}
	if c.most > 0 && (money > c.most || h.Available == billing.Unlimited) {
		money = c.most
	}
	most := pays(h.Price, money, c.inputHeld(h), c.Candidates*wanted) / c.Candidates
	if most >= wanted {
		return 0
	}
	if c.Uncounted && c.sent == 0 && c.facts.MaxOutput == 0 {
		most = min(most, defaultMaxOutput)
	}
	if most = max(most, 1); c.CallerBound > 0 && most >= c.CallerBound {
		return 0
	}
	return most
}

// Covered is how many output tokens of a stream its hold covers. maxOutput is the bound of
// each candidate that the vendor was sent, 0 for the caller's own. Covered is 0 if the hold
// covers all, and the caller did not bound the cost.
func (q *Quote) Covered(h *billing.Hold, maxOutput int64) int64 {
	c := &q.conversation
	money := h.Amount
	switch {
	case c.facts == nil || h.Price == nil || h.Available == billing.Unlimited && c.most == 0:
		return 0
	case h.Available == billing.Unlimited:
		money = c.most
	}
	allowed := c.outputLimit(maxOutput)
	if covered := pays(h.Price, money, c.inputHeld(h), allowed); covered < allowed || c.most > 0 { // a vendor that makes more is cut
		return max(covered, 1)
	}
	return 0
}

// inputHeld is how much of a hold is for the input.
func (c *conversation) inputHeld(h *billing.Hold) billing.Usage {
	if c.ExtraMedia > 0 {
		all := c.Input + c.ExtraMedia
		if c.most > 0 { // which has to pay for all of it
			return c.usage(all, 0)
		}
		if cost, err := h.Price.Cost(c.usage(all, c.usual.Output)); err == nil && cost <= h.Amount {
			return c.usage(all, 0)
		}
	}
	return c.usage(c.Input, 0)
}

// pays is how many output tokens money pays for beside the input, at most limit.
func pays(p *billing.Price, money billing.Money, input billing.Usage, limit int64) int64 {
	both := input
	both.Output = limit
	if cost, err := p.Cost(both); err == nil && cost <= money {
		return limit // a cost is rounded up once, not for the input and the output
	}
	cost, err := p.Cost(input)
	if err != nil {
		return 0
	}
	return p.Affords(money-cost, billing.Output, limit)
}

// outputLimit is the most output that an upstream produces which was limited to asked tokens
// of each candidate, 0 for the caller's own bound.
func (c *conversation) outputLimit(asked int64) int64 {
	switch {
	case asked > 0 && !c.Dropped:
	case c.sent == 0:
		asked = c.facts.UnboundedOutput()
	default:
		asked = c.facts.OutputBound(c.sent)
	}
	return asked * c.Candidates
}

// Clamp returns u with its impossible counts replaced by what is expected. If the output
// tokens of the delivered text (said) are more, they replace an impossible output. Each count
// is checked on its own: an implausible one does not reduce the others. A conversation that
// costs anything has the request itself too, where that has a price.
func (q *Quote) Clamp(u billing.Usage, said int64) billing.Usage {
	limit, most := q.Plausible, q.Expected()
	if q.conversation.facts != nil && (u.Zero || !u.IsZero()) {
		u.Requests = q.conversation.Requests
	}
	if u.Output+u.ImageOutput > limit.Output {
		u.Anomaly = true
		u.Output = min(u.Output, max(most.Output, said))
		u.Reasoning = min(u.Reasoning, u.Output)
		u.ImageOutput = min(u.ImageOutput, most.ImageOutput)
	}
	if u.Input+u.CachedInput+u.CacheWrite+u.ImageInput > limit.Input {
		u.Anomaly = true
		held := most.Input + most.CacheWrite
		u.CachedInput = min(u.CachedInput, held)
		u.CacheWrite = min(u.CacheWrite, held-u.CachedInput)
		u.Input = min(u.Input, held-u.CachedInput-u.CacheWrite)
		u.ImageInput = min(u.ImageInput, most.ImageInput)
	}
	if u.Images > limit.Images {
		u.Anomaly = true
		u.Images = min(u.Images, most.Images)
	}
	if u.SearchUnits > limit.SearchUnits {
		u.Anomaly = true
		u.SearchUnits = min(u.SearchUnits, most.SearchUnits)
	}
	return u
}
