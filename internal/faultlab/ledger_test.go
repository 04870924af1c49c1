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

// Ledger is a ledger that the lab can stand its gateways on.
type Ledger interface {
	billing.Meter
	billing.Accounts
}

// ledgerProbe is a ledger that is away for moments, and watches what is asked of it.
// The reference ledger beside it does the same, in the same order.
type ledgerProbe struct {
	Ledger
	lab  *Lab
	away *outages

	order     sync.Mutex // held while the ledger and the reference do an operation
	reference *ledgermodel.Ledger

	mu      sync.Mutex
	prices  map[string]*billing.Price // by version
	pinned  map[string]*billing.Price // by request
	settled map[string]billing.Usage  // by request: what the first settlement that was told of took
	broken  []string                  // rules of a Meter that its caller has broken
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
	loses                 // it does what is asked, but its word of it is lost
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

// interfere is what a call meets interfere the ledger is asked. What is settled under
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

// losesAnswers reports whether the ledger's word of what it did is losesAnswers.
func (t *ledgerProbe) losesAnswers() bool {
	mode, away := t.away.at(t.lab.now())
	return away && mode == loses
}

// Reserve makes a hold, unless the ledger is away. Its word is never lost: what
// becomes of such a hold is a matter of the ledger's own recovery.
func (t *ledgerProbe) Reserve(ctx context.Context, c billing.HoldRequest) (billing.Hold, error) {
	if err := t.interfere(ctx, false); err != nil {
		return billing.Hold{}, err
	}
	t.mu.Lock()
	if c.Price != nil {
		t.prices[c.Price.Version()] = c.Price
	}
	t.pinned[c.RequestID] = c.Price
	t.mu.Unlock()
	t.order.Lock()
	defer t.order.Unlock()
	h, err := t.Ledger.Reserve(ctx, c)
	if err != nil && !fault.Is(err, fault.InsufficientBalance) {
		return h, err
	}
	cost := func(u billing.Usage) int64 {
		sum, err := c.Price.Cost(u)
		if err != nil {
			t.breaks("%s: %v", c.RequestID, err)
		}
		return int64(sum)
	}
	amount, available, refused := t.reference.Reserve(c.RequestID, ledgermodel.Key{Account: c.Account, Name: c.Key},
		ledgermodel.Request{Bound: cost(c.Bound), Least: cost(c.Least), Usual: cost(c.Usual), Firm: cost(c.Firm)})
	if (err == nil) != (refused == nil) || int64(h.Amount) != amount || int64(h.Available) != available {
		t.breaks("%s: the hold is %s and %s is available (%v), by the reference %d and %d (%v)", c.RequestID, h.Amount, h.Available, err, amount, available, refused)
	}
	return h, err
}

// breaks notes that something does not hold.
func (t *ledgerProbe) breaks(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, fmt.Sprintf(format, args...))
}

// Extend extends a hold, unless the ledger is away.
func (t *ledgerProbe) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	if err := t.interfere(ctx, true); err != nil {
		return err
	}
	t.mu.Lock()
	_, twice := t.settled[h.ID]
	t.mu.Unlock()
	if twice {
		t.breaks("%s: the hold was extended after its settlement", h.ID)
	}
	t.order.Lock()
	defer t.order.Unlock()
	err := t.Ledger.Extend(ctx, h, soFar, more)
	if err != nil && !fault.Is(err, fault.InsufficientBalance) {
		return err
	}
	if refused := t.reference.Extend(h.ID, int64(more)); (err == nil) != (refused == nil) {
		t.breaks("%s: the extension by %s ended with %v, by the reference with %v", h.ID, more, err, refused)
	}
	return err
}

// Settle ends a hold, unless the ledger is away.
func (t *ledgerProbe) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	if err := t.interfere(ctx, t.locked(h.ID)); err != nil {
		return billing.Receipt{}, err
	}
	r, err := t.settle(ctx, h, u, with)
	if err != nil {
		return r, err
	}
	if t.losesAnswers() {
		return billing.Receipt{}, errAway
	}
	t.mu.Lock()
	_, twice := t.settled[h.ID]
	t.settled[h.ID] = u
	t.mu.Unlock()
	if twice && h.Operation != string(Beta.op()) {
		t.breaks("%s: it was settled again after the ledger had said that it was settled", h.ID)
	}
	return r, nil
}

// settle settles a hold on the ledger and on the reference.
func (t *ledgerProbe) settle(ctx context.Context, h billing.Hold, u billing.Usage, with []billing.Record) (billing.Receipt, error) {
	t.order.Lock()
	defer t.order.Unlock()
	r, err := t.Ledger.Settle(ctx, h, u, with...)
	if err != nil {
		return r, err
	}
	t.mu.Lock()
	price := t.pinned[h.ID]
	t.mu.Unlock()
	cost, err := price.Cost(u)
	if r.Reason == billing.ReasonExpired { // it had ended by itself
		cost = 0
	}
	want, refused := t.reference.Settle(h.ID, int64(cost))
	if err != nil || refused != nil || want != (ledgermodel.Receipt{Hold: int64(r.Hold), Charge: int64(r.Charge), Overrun: int64(r.Overrun)}) {
		t.breaks("%s: it was settled as %+v (%v), by the reference as %+v (%v)", h.ID, r, err, want, refused)
	}
	return r, nil
}

// CreateAccount adds an account.
func (t *ledgerProbe) CreateAccount(ctx context.Context, name string, credit billing.Money) error {
	t.order.Lock()
	defer t.order.Unlock()
	return errors.Join(t.Ledger.CreateAccount(ctx, name, credit), t.reference.CreateAccount(name, int64(credit)))
}

// Credit gives an account something.
func (t *ledgerProbe) Credit(ctx context.Context, account string, amount billing.Money, reference string) error {
	t.order.Lock()
	defer t.order.Unlock()
	return errors.Join(t.Ledger.Credit(ctx, account, amount, reference), t.reference.Credit(account, int64(amount), reference))
}

// SetBudget bounds a key.
func (t *ledgerProbe) SetBudget(ctx context.Context, account, key string, budget *billing.Money) error {
	t.order.Lock()
	defer t.order.Unlock()
	return errors.Join(t.Ledger.SetBudget(ctx, account, key, budget), t.reference.SetBudget(ledgermodel.Key{Account: account, Name: key}, (*int64)(budget)))
}

// locked reports whether the end of a request is settled under a lock.
func (t *ledgerProbe) locked(id string) bool {
	r := t.lab.find(id)
	return r == nil || r.Case.Stream || r.Case.Kind == Speech
}

// Price is one by which a hold was made, for a gateway that comes after another.
func (t *ledgerProbe) Price(_ context.Context, version string) (*billing.Price, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.prices[version]; p != nil {
		return p, nil
	}
	return nil, errors.New("the price is not known")
}
