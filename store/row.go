package store

import (
	"encoding/json"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// balance is money of which a part is set aside; 0 ≤ held ≤ posted. A nil balance
// bounds nothing and moves nothing.
type balance struct{ posted, held billing.Money }

// position is what [billing.Ask.Grant] needs to know of it.
func (p *balance) position() billing.Balance {
	if p == nil {
		return billing.Unbounded()
	}
	return billing.Balance{Posted: p.posted, Held: p.held}
}

func (p *balance) available() billing.Money {
	if p == nil {
		return billing.Unlimited
	}
	return p.posted - p.held
}

// hold sets amount aside; the caller has compared it with available.
func (p *balance) hold(amount billing.Money) {
	if p != nil {
		p.held += amount
	}
}

// capture gives a held amount back and takes charge, or what there is beside other
// holds: what a request costs above its key's budget is the account's.
func (p *balance) capture(held, charge billing.Money) {
	if p != nil {
		p.held -= held
		p.posted = max(p.posted-charge, p.held)
	}
}

// position is what an account's row says of money.
type position struct {
	balance
	credited billing.Money // what the platform gave
	revenue  billing.Money // the full cost of what was delivered
	overrun  billing.Money // the part of it that the operator bore
	budgets  int64         // keys that have one
}

// account is a row in the hands of a batch.
type account struct {
	name string
	position
	before position // as it was read
	fresh  bool
}

// budget is what a key may still spend.
type budget struct {
	id int64
	of ownKey
	balance
	before balance // as it was read
	ended  bool
}

// balanceOrNil is the purse of a budget, nil for none.
func (p *budget) balanceOrNil() *balance {
	if p == nil {
		return nil
	}
	return &p.balance
}

// hold is the row of a request that has not been settled.
type hold struct {
	id, account, key, operation, model string

	node       int64
	budget     int64 // 0 for none
	version    string
	price      *billing.Price // nil until it is needed
	amount     billing.Money
	soFar      billing.Usage
	checkpoint bool  // soFar was given
	damaged    error // why soFar cannot be read
	created    int64
	expires    int64
	counted    bool // nothing is held for it, and no money moves

	fresh, changed, ended bool // since the last commit
	listed                bool // among what the batch touched
}

// asHold is the value that the gateway carries around.
func (h *hold) asHold(available billing.Money) billing.Hold {
	return billing.Hold{
		ID: h.id, Account: h.account, Key: h.key, Operation: h.operation, Model: h.model,
		Price: h.price, Amount: h.amount, Available: available,
	}
}

// entry is one movement of money in the journal.
type entry struct {
	account, kind, reference           string
	customer, credit, revenue, overrun billing.Money
	held, available                    billing.Money
}

// The kinds of an entry.
const (
	opening  = "opening"
	credited = "credit"
	captured = "capture"
)

// timeAt is a time of the database.
func timeAt(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

// formatUsage is a checkpoint as its row keeps it.
func formatUsage(u billing.Usage) (string, error) {
	text, err := json.Marshal(u)
	return string(text), err
}

// parseUsage is the inverse of formatUsage; an empty text is no usage.
func parseUsage(text string) (u billing.Usage, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &u)
	}
	return u, err
}

// negative reports whether a count is below zero, which no request consumes.
func negative(u billing.Usage) bool {
	for _, count := range u.Units {
		if count < 0 {
			return true
		}
	}
	return false
}
