package faultlab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// Ledger is a ledger that the lab can stand its gateways on.
type Ledger interface {
	billing.Meter
	billing.Accounts
}

// ledgerProbe is a ledger that is away for moments, and watches what is asked of it.
type ledgerProbe struct {
	Ledger
	lab  *Lab
	away *outages

	mu      sync.Mutex
	prices  map[string]*billing.Price
	settled map[string]billing.Usage // by request: what the first settlement that was told of took
	broken  []string                 // rules of a Meter that its caller has broken
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
	t.mu.Unlock()
	return t.Ledger.Reserve(ctx, c)
}

// Extend extends a hold, unless the ledger is away.
func (t *ledgerProbe) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	if err := t.interfere(ctx, true); err != nil {
		return err
	}
	t.mu.Lock()
	if _, twice := t.settled[h.ID]; twice {
		t.broken = append(t.broken, fmt.Sprintf("%s: the hold was extended after its settlement", h.ID))
	}
	t.mu.Unlock()
	return t.Ledger.Extend(ctx, h, soFar, more)
}

// Settle ends a hold, unless the ledger is away.
func (t *ledgerProbe) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	if err := t.interfere(ctx, t.locked(h.ID)); err != nil {
		return billing.Receipt{}, err
	}
	r, err := t.Ledger.Settle(ctx, h, u, with...)
	if err != nil {
		return r, err
	}
	if t.losesAnswers() {
		return billing.Receipt{}, errAway
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, twice := t.settled[h.ID]; twice && h.Operation != string(Beta.op()) {
		t.broken = append(t.broken, fmt.Sprintf("%s: it was settled again after the ledger had said that it was settled", h.ID))
	}
	t.settled[h.ID] = u
	return r, nil
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
