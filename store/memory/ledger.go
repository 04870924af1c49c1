// Package memory keeps in one process what package store keeps in a database: a
// [Ledger] of accounts, holds and receipts, API [Keys], the [Answers] that idempotency
// keys stand for, and the [Tasks] of videos with their webhook deliveries. All of it is
// gone when the process ends. They keep the same rules as the database does, and pass
// the same tests (package storetest).
//
// Everything is safe for concurrent use.
package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// defaultReceipts is how many settled receipts a Ledger keeps unless told.
const defaultReceipts = 100_000

// LedgerOptions configure a [Ledger]. The zero value is a prepaid ledger on
// the wall clock.
type LedgerOptions struct {
	// Now is the clock; nil means [time.Now]. It must be safe for concurrent
	// use and must not call the ledger.
	Now func() time.Time
	// Receipts is how many settled receipts are kept; 0 means 100,000. Beyond it the
	// oldest is forgotten: its id is then unknown to Receipt and Settle. Sums of
	// usage are never dropped.
	Receipts int
	// Count records usage without money. No balance is checked, no money moves and nothing is
	// held. Prices may be missing and only inform (a receipt's Charge). An account exists as
	// soon as it is named. Credits and budgets are refused.
	Count bool
	// Currency is what the amounts are of; empty means "USD".
	Currency string
}

// Ledger is a ledger in memory. It keeps every rule of docs/reference/billing.md that does not
// need a disk; what it knows is gone with the process. Use [NewLedger].
type Ledger interface {
	billing.Meter
	billing.Accounts
	// OpenHolds are the requests that have not been settled, sorted by id. It never
	// fails.
	OpenHolds(ctx context.Context) ([]billing.OpenHold, error)
	// Price is one by which a hold was made, by its version; fault.NotFound if that
	// of no hold and of no receipt that is kept. A gateway that takes over another's
	// videos asks for it.
	Price(ctx context.Context, version string) (*billing.Price, error)
}

// memoryLedger is the [Ledger]. One lock guards everything, so each call is one transaction.
// No call blocks on anything else, and contexts are ignored. Every error is a *[fault.Error].
//
// Memory grows with the number of accounts, credits and open holds. It also grows by one row
// per hour for each key and model that an account used in that hour.
type memoryLedger struct {
	options LedgerOptions

	mu       sync.Mutex
	accounts map[string]*account
	requests map[string]*request // by id: the open ones, and the settled ones in receipts
	receipts []*request          // the newest that were settled, as many as are kept
	settled  int                 // how many ever were
	sums     ledger.Sums         // of all accounts

	lastBudget int64 // id
}

// NewLedger returns an empty ledger. It is safe for concurrent use.
//
// It holds the cost of a request's bound, or less if the account and the budgets can
// spare no more. What a request costs above its hold is taken from what the account has
// available, even above the budgets. The rest is the operator's, as the receipt's
// Overrun.
//
// A hold of an unknown account is fault.PermissionDenied. These are fault.InternalError: a
// request id that is empty or used, a record other than [billing.Outcome], and a usage that is
// negative or has no price. A settlement that was refused for that can be repeated. The ledger
// ends no hold by itself: the caller must end holds at HoldRequest.Until.
func NewLedger(o LedgerOptions) Ledger {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Currency == "" {
		o.Currency = billing.DefaultCurrency
	}
	if o.Receipts <= 0 {
		o.Receipts = defaultReceipts
	}
	return &memoryLedger{options: o, accounts: map[string]*account{}, requests: map[string]*request{}}
}

// Currency implements [billing.Accounts].
func (l *memoryLedger) Currency() string { return l.options.Currency }

// Counting implements [billing.Accounts].
func (l *memoryLedger) Counting() bool { return l.options.Count }

// Reserve implements [billing.Meter].
func (l *memoryLedger) Reserve(_ context.Context, r billing.HoldRequest) (billing.Hold, error) {
	var amounts ledger.Amounts
	if !l.options.Count {
		var err error
		if amounts, err = ledger.AmountsOf(&r); err != nil {
			return billing.Hold{}, err
		}
	}
	if len(r.With) > 0 {
		return billing.Hold{}, fault.New(fault.InternalError, fmt.Sprintf("A ledger in memory cannot keep a record of type %T with a hold.", r.With[0]))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.RequestID == "" || l.requests[r.RequestID] != nil {
		return billing.Hold{}, ledger.ErrRequestIDUsed()
	}
	a, err := l.payer(r.Account)
	if err != nil {
		return billing.Hold{}, err
	}
	var budgets []*ledger.Budget
	if len(a.budgets) > 0 {
		budgets, err = a.budgetsOf(&r)
	}
	if err == nil && l.options.Count && len(budgets) > 0 {
		amounts, err = ledger.AmountsOf(&r)
	}
	if err != nil {
		return billing.Hold{}, err
	}
	now := l.now()
	h := &request{price: r.Price, account: a, payer: ledger.Payer{Account: a.balance, Budgets: budgets, Now: now.UnixNano(), Sums: &l.sums}, receipt: billing.Receipt{
		ID: r.RequestID, CreatedAt: now, Account: a.name, Key: r.Key,
		Operation: r.Operation, Model: r.Model, PriceVersion: r.Price.Version(),
	}}
	if h.receipt.Hold, err = h.payer.Reserve(amounts); err != nil {
		return billing.Hold{}, err
	}
	l.requests[r.RequestID] = h
	return h.asHold(), nil
}

// Extend implements [billing.Meter]. Where it fails nothing changes.
func (l *memoryLedger) Extend(_ context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.find(h.ID)
	if err != nil {
		return err
	}
	if r.settled() {
		return ledger.ErrHoldEnded()
	}
	r.payer.Now = l.now().UnixNano()
	if more, err = r.payer.Extend(&soFar, more); err != nil {
		return err
	}
	r.receipt.Hold += more
	r.receipt.Usage = soFar
	return nil
}

// Settle implements [billing.Meter]. Where it fails the hold stays open and can be
// settled again.
func (l *memoryLedger) Settle(_ context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.find(h.ID)
	if err != nil {
		return billing.Receipt{}, err
	}
	if r.settled() {
		return r.receipt, nil
	}
	outcome, err := outcomeOf(with)
	if err != nil {
		return billing.Receipt{}, err
	}
	at := l.now() // before any money moves: it is the caller's code
	r.payer.Now = at.UnixNano()
	if r.available, err = r.payer.Settle(&r.receipt, r.price, u, &outcome, at); err != nil {
		return billing.Receipt{}, err
	}
	r.account.tally(&r.receipt)
	r.attempts = withWaste(outcome.Failed, r.price)
	r.account.wasted(r)
	l.keep(r)
	return r.receipt, nil
}

// keep keeps a request that was settled, in the place of the oldest if there is no other.
func (l *memoryLedger) keep(r *request) {
	if place := l.settled % l.options.Receipts; place == len(l.receipts) {
		l.receipts = append(l.receipts, r)
	} else {
		delete(l.requests, l.receipts[place].receipt.ID)
		l.receipts[place] = r
	}
	l.settled++
}

func (l *memoryLedger) now() time.Time { return l.options.Now().UTC() }

func (l *memoryLedger) find(id string) (*request, error) {
	if r := l.requests[id]; r != nil {
		return r, nil
	}
	return nil, ledger.ErrUnknownHold()
}

// outcomeOf reads the records of a settlement. One that could not be kept is
// an error: a ledger must not drop what its caller believes durable.
func outcomeOf(with []billing.Record) (billing.Outcome, error) {
	var outcome billing.Outcome
	for _, record := range with {
		o, ok := record.(billing.Outcome)
		if !ok {
			return billing.Outcome{}, fault.New(fault.InternalError, fmt.Sprintf("The ledger in memory cannot keep a record of type %T.", record))
		}
		outcome = o
	}
	return outcome, nil
}

// request is one hold from Reserve on, and its receipt in the making: while the
// hold is open the receipt's Status is empty and its Usage is the last
// checkpoint.
type request struct {
	receipt billing.Receipt
	price   *billing.Price
	account *account
	payer   ledger.Payer // with the budgets that were in force when the hold was made

	available billing.Money     // what else the account could have given when it was captured
	attempts  []billing.Attempt // that failed
}

func (r *request) settled() bool { return r.receipt.Status != "" }

// asHold is the value that the gateway carries around.
func (r *request) asHold() billing.Hold {
	return billing.Hold{
		ID: r.receipt.ID, Account: r.receipt.Account, Key: r.receipt.Key,
		Operation: r.receipt.Operation, Model: r.receipt.Model,
		Price: r.price, Amount: r.receipt.Hold, Available: r.payer.Available(),
	}
}

// OpenHolds implements [Ledger].
func (l *memoryLedger) OpenHolds(context.Context) ([]billing.OpenHold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []billing.OpenHold
	for _, r := range l.requests {
		if !r.settled() {
			r.payer.Now = l.now().UnixNano()
			open = append(open, billing.OpenHold{Hold: r.asHold(), CreatedAt: r.receipt.CreatedAt, SoFar: r.receipt.Usage})
		}
	}
	slices.SortFunc(open, func(a, b billing.OpenHold) int { return strings.Compare(a.ID, b.ID) })
	return open, nil
}

// Price implements [Ledger].
func (l *memoryLedger) Price(_ context.Context, version string) (*billing.Price, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		if r.receipt.PriceVersion == version {
			return r.price, nil
		}
	}
	return nil, ledger.ErrNoPrice(version)
}
