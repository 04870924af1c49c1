package faultlab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledgermodel"
)

// Ledger is a ledger that a lab can stand its gateways on.
type Ledger interface {
	billing.Meter
	billing.Accounts
}

// checkedLedger is a ledger with the reference beside it, which does the same in the
// same order. Where the two disagree, it is noted.
type checkedLedger struct {
	Ledger
	mu        sync.Mutex // held while both do an operation, none of which waits
	reference *ledgermodel.Ledger
	pinned    map[string]*billing.Price // by request
	broken    []string
}

func newCheckedLedger(l Ledger) *checkedLedger {
	return &checkedLedger{Ledger: l, reference: ledgermodel.New(), pinned: map[string]*billing.Price{}}
}

// breaks notes that something does not hold; the caller holds mu.
func (c *checkedLedger) breaks(format string, args ...any) {
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}

// Reserve makes a hold. What is refused for another reason than the balance is none
// of the reference's.
func (c *checkedLedger) Reserve(ctx context.Context, r billing.HoldRequest) (billing.Hold, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, err := c.Ledger.Reserve(ctx, r)
	if err != nil && !fault.Is(err, fault.InsufficientBalance) && !fault.Is(err, fault.BudgetExceeded) {
		return h, err
	}
	c.pinned[r.RequestID] = r.Price
	cost := func(u billing.Usage) int64 {
		sum, err := r.Price.Cost(u)
		if err != nil {
			c.breaks("%s: %v", r.RequestID, err)
		}
		return int64(sum)
	}
	amount, available, refused := c.reference.Reserve(r.RequestID, ledgermodel.Key{Account: r.Account, Name: r.Key},
		ledgermodel.Request{Bound: cost(r.Bound), Least: cost(r.Least), Usual: cost(r.Usual), Firm: cost(r.Firm)})
	if (err == nil) != (refused == nil) || int64(h.Amount) != amount || int64(h.Available) != available {
		c.breaks("%s: the hold is %s and %s is available (%v), by the reference %d and %d (%v)", r.RequestID, h.Amount, h.Available, err, amount, available, refused)
	}
	return h, err
}

// Extend extends a hold.
func (c *checkedLedger) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.Ledger.Extend(ctx, h, soFar, more)
	if err != nil && !fault.Is(err, fault.InsufficientBalance) && !fault.Is(err, fault.BudgetExceeded) {
		return err
	}
	if refused := c.reference.Extend(h.ID, int64(more)); (err == nil) != (refused == nil) {
		c.breaks("%s: the extension by %s ended with %v, by the reference with %v", h.ID, more, err, refused)
	}
	return err
}

// Settle ends a hold.
func (c *checkedLedger) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err := c.Ledger.Settle(ctx, h, u, with...)
	if err != nil {
		return r, err
	}
	cost, err := c.pinned[h.ID].Cost(u)
	if r.Reason == billing.ReasonExpired { // it had ended by itself
		cost = 0
	}
	want, refused := c.reference.Settle(h.ID, int64(cost))
	if err != nil || refused != nil || want != (ledgermodel.Receipt{Hold: int64(r.Hold), Charge: int64(r.Charge), Overrun: int64(r.Overrun)}) {
		c.breaks("%s: it was settled as %+v (%v), by the reference as %+v (%v)", h.ID, r, err, want, refused)
	}
	return r, nil
}

// CreateAccount adds an account.
func (c *checkedLedger) CreateAccount(ctx context.Context, name string, credit billing.Money) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.Ledger.CreateAccount(ctx, name, credit), c.reference.CreateAccount(name, int64(credit)))
}

// Credit gives an account something.
func (c *checkedLedger) Credit(ctx context.Context, account string, amount billing.Money, reference string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.Ledger.Credit(ctx, account, amount, reference), c.reference.Credit(account, int64(amount), reference))
}

// SetBudget bounds a key.
func (c *checkedLedger) SetBudget(ctx context.Context, account, key string, budget *billing.Money) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.Ledger.SetBudget(ctx, account, key, budget), c.reference.SetBudget(ledgermodel.Key{Account: account, Name: key}, (*int64)(budget)))
}

// verify checks the invariants, and that every account has what the reference says
// and nothing is held.
func (c *checkedLedger) verify(problem func(format string, args ...any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx := context.Background()
	if err := c.Verify(ctx); err != nil {
		problem("the ledger: %v", err)
	}
	if n := len(c.broken); n > 0 {
		problem("%d operations of the ledger were wrong, or were asked of it against the rules of a Meter: %v", n, c.broken[0])
	}
	for name, a := range c.reference.Accounts {
		b, err := c.Balance(ctx, name)
		if err != nil || int64(b.Posted) != a.Posted || b.Held != 0 || a.Held != 0 {
			problem("%s has %s, of which %s are held (%v), by the reference %d and %d", name, b.Posted, b.Held, err, a.Posted, a.Held)
		}
	}
}

// ledgerProbe is a ledger that is away for moments, and watches what is asked of it.
type ledgerProbe struct {
	*checkedLedger
	lab  *Lab
	away *outages

	probed  sync.Mutex
	prices  map[string]*billing.Price // by version
	settled map[string]bool           // requests of which a settlement was told
}

// outages are the moments in which a ledger is away, by the lab's clock.
type outages struct {
	mu    sync.Mutex
	until time.Duration
	mode  outage
}

// outage is how a ledger is away.
type outage uint8

const (
	refuses outage = iota // it says so at once
	hangs                 // it says nothing
	loses                 // it does what is asked, but its answer is lost
	slow                  // it takes a while
)

var errAway = errors.New("the ledger is away")

func (o *outages) begin(until time.Duration, mode outage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until, o.mode = until, mode
}

func (o *outages) at(now time.Duration) (outage, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mode, now < o.until
}

// interfere is what a call meets before the ledger is asked. What is settled under
// a lock, as the end of a stream is, meets no wait: in a bubble time does not go
// on while somebody waits for a lock.
func (t *ledgerProbe) interfere(ctx context.Context, locked bool) error {
	mode, away := t.away.at(t.lab.now())
	if locked && away && (mode == hangs || mode == slow) {
		mode = refuses
	}
	switch {
	case !away || mode == loses:
		return nil
	case mode == hangs:
		<-ctx.Done()
		return ctx.Err()
	case mode == slow:
		if !wait(ctx, 700*time.Millisecond) {
			return ctx.Err()
		}
		return nil
	}
	return errAway
}

// Reserve makes a hold, unless the ledger is away. Its answer is never lost: what
// becomes of such a hold is a matter of the ledger's own recovery.
func (t *ledgerProbe) Reserve(ctx context.Context, r billing.HoldRequest) (billing.Hold, error) {
	if err := t.interfere(ctx, false); err != nil {
		return billing.Hold{}, err
	}
	t.probed.Lock()
	if r.Price != nil {
		t.prices[r.Price.Version()] = r.Price
	}
	t.probed.Unlock()
	return t.checkedLedger.Reserve(ctx, r)
}

// wasSettled reports whether the caller was told that a request is settled; now says
// that it is told.
func (t *ledgerProbe) wasSettled(id string, now bool) bool {
	t.probed.Lock()
	defer t.probed.Unlock()
	before := t.settled[id]
	t.settled[id] = before || now
	return before
}

// against notes that a rule of a Meter was broken by its caller.
func (t *ledgerProbe) against(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.breaks(format, args...)
}

// Extend extends a hold, unless the ledger is away.
func (t *ledgerProbe) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	if err := t.interfere(ctx, true); err != nil {
		return err
	}
	if t.wasSettled(h.ID, false) {
		t.against("%s: the hold was extended after its settlement", h.ID)
	}
	return t.checkedLedger.Extend(ctx, h, soFar, more)
}

// Settle ends a hold, unless the ledger is away.
func (t *ledgerProbe) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	run := t.lab.find(h.ID)
	if err := t.interfere(ctx, run == nil || run.Case.Stream || run.Case.Kind == Speech); err != nil {
		return billing.Receipt{}, err
	}
	r, err := t.checkedLedger.Settle(ctx, h, u, with...)
	if err != nil {
		return r, err
	}
	if mode, away := t.away.at(t.lab.now()); away && mode == loses {
		return billing.Receipt{}, errAway
	}
	if t.wasSettled(h.ID, true) && h.Operation != string(Beta.op()) {
		t.against("%s: it was settled again after the ledger had said that it was settled", h.ID)
	}
	return r, nil
}

// Price is one by which a hold was made, for a gateway that comes after another.
func (t *ledgerProbe) Price(_ context.Context, version string) (*billing.Price, error) {
	t.probed.Lock()
	defer t.probed.Unlock()
	if p := t.prices[version]; p != nil {
		return p, nil
	}
	return nil, errors.New("the price is not known")
}
