package billing

// journal is the double-entry book: every movement of money is one entry whose
// legs sum to zero. It keeps the newest entries; an older one is folded into
// the opening sums of its account and of the platform, so that memory stays
// bounded and replaying what is left still gives every balance.
type journal struct {
	entries ring[entry]
	opening legs // of every folded entry
	totals  legs // of every entry ever posted
}

// entry is one movement of money.
type entry struct {
	account   *account
	reference string // of a credit; the request's id of a capture
	legs
	// Of a capture only: whose, what was set aside for it and what else the
	// account could have given (ledger.md, I6).
	request         *request
	held, available Money
}

// legs are the two or more sides of a movement: the customer's account and the
// platform's three.
type legs struct {
	customer Money
	credit   Money // platform:credit, where customers' money comes from
	revenue  Money // platform:revenue, the full cost of what was delivered
	overrun  Money // platform:overrun, the part of it that the operator bears
}

// post appends e and returns its number, or 0 if a total would not fit Money.
func (j *journal) post(e entry) uint64 {
	totals, ok := j.totals.plus(e.legs)
	if !ok {
		return 0
	}
	j.totals = totals
	if old, full := j.entries.push(e); full {
		old.account.opening += old.customer
		j.opening, _ = j.opening.plus(old.legs)
	}
	return j.entries.pushed
}

// plus adds leg by leg; ok is false if a sum does not fit.
func (l legs) plus(m legs) (total legs, ok bool) {
	ok = l.customer.Fits(m.customer) && l.credit.Fits(m.credit) &&
		l.revenue.Fits(m.revenue) && l.overrun.Fits(m.overrun)
	return legs{
		customer: l.customer + m.customer,
		credit:   l.credit + m.credit,
		revenue:  l.revenue + m.revenue,
		overrun:  l.overrun + m.overrun,
	}, ok
}

// sum is zero for a sound entry and for sound totals.
func (l legs) sum() Money { return l.customer + l.credit + l.revenue + l.overrun }
