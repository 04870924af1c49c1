package billing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// request is one hold from Reserve on, and its receipt in the making: while the
// hold is open the receipt's Status is empty and its Usage is the last
// checkpoint.
type request struct {
	receipt Receipt
	price   *Price
	account *account
	budget  *purse // the key's, as it was when the hold was made; nil if none
	entry   uint64 // number of the journal entry that captured it; 0 if none did

	attempts []Attempt // that failed
}

func (r *request) settled() bool { return r.receipt.Status != "" }

// available is what the account and the budget can both still give.
func (r *request) available() Money {
	return min(r.account.purse.available(), r.budget.available())
}

// hold sets amount aside in the account and in the budget, or in neither.
func (r *request) hold(amount Money) bool {
	if amount > r.available() {
		return false
	}
	r.account.purse.hold(amount)
	r.budget.hold(amount)
	r.receipt.Hold += amount
	return true
}

// asHold is the value that the gateway carries around.
func (r *request) asHold() Hold {
	return Hold{
		ID: r.receipt.ID, Account: r.receipt.Account, Key: r.receipt.Key,
		Operation: r.receipt.Operation, Model: r.receipt.Model,
		Price: r.price, Amount: r.receipt.Hold, Available: r.available(),
	}
}

// ending is the status of a request that used u. Nothing costs without usage.
func ending(u Usage) string {
	if u.Zero || !u.IsZero() {
		return Captured
	}
	return Released
}

// OpenHold is a request that has not been settled.
type OpenHold struct {
	Hold
	CreatedAt time.Time
	SoFar     Usage // the last checkpoint given to Extend
}

// OpenHolds are the requests that have not been settled, sorted by id.
func (l *Ledger) OpenHolds() []OpenHold {
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []OpenHold
	for _, r := range l.requests {
		if !r.settled() {
			open = append(open, OpenHold{Hold: r.asHold(), CreatedAt: r.receipt.CreatedAt, SoFar: r.receipt.Usage})
		}
	}
	slices.SortFunc(open, func(a, b OpenHold) int { return strings.Compare(a.ID, b.ID) })
	return open
}

// Receipt is the settled end of one request; fault.NotFound if the account has
// none by that id, if the request is still running, or if its receipt was
// dropped as one of the oldest.
func (l *Ledger) Receipt(_ context.Context, account, id string) (Receipt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.requests[id]
	if r == nil || !r.settled() || r.receipt.Account != account {
		return Receipt{}, noReceipt(id)
	}
	return r.receipt, nil
}

func noReceipt(id string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no receipt %.64q.", id))
}

// Price is one by which a hold was made, by its version; fault.NotFound if that of
// no hold and of no receipt that is kept. A gateway that takes over another's
// videos asks for it.
func (l *Ledger) Price(_ context.Context, version string) (*Price, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		if r.receipt.PriceVersion == version {
			return r.price, nil
		}
	}
	return nil, fault.New(fault.NotFound, fmt.Sprintf("There is no price version %.64q.", version))
}
