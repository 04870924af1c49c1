package billing

// purse is money of which a part is set aside: an account's balance, or what a
// key's budget has left. 0 ≤ held ≤ posted. A nil purse bounds nothing and
// moves nothing.
type purse struct{ posted, held Money }

// position is what [Ask.Grant] needs to know of it.
func (p *purse) position() Balance {
	if p == nil {
		return Unbounded()
	}
	return Balance{Posted: p.posted, Held: p.held}
}

// available is what can still be set aside.
func (p *purse) available() Money {
	if p == nil {
		return Unlimited
	}
	return p.posted - p.held
}

// hold sets amount aside; the caller has compared it with available.
func (p *purse) hold(amount Money) {
	if p != nil {
		p.held += amount
	}
}

// capture gives a held amount back and takes charge, or what there is beside other
// holds: what a request costs above its key's budget is the account's.
func (p *purse) capture(held, charge Money) {
	if p != nil {
		p.held -= held
		p.posted = max(p.posted-charge, p.held)
	}
}
