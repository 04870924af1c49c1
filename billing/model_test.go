package billing_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// model is the ledger as ledger.md describes it, in plain arithmetic: a list
// of everything that ever happened and sums over it. It shares no code with
// the Ledger beside it.
type model struct {
	t       *rapid.T
	ledger  *billing.Ledger
	price   *billing.Price
	keep    int // receipts that the ledger keeps
	clock   time.Time
	posted  map[string]billing.Money
	credits map[string]billing.Money // by account and reference
	issued  billing.Money
	budgets map[string]*modelBudget // by account and key
	open    map[string]*modelHold
	settled []billing.Receipt
	ids     int
}

type modelBudget struct{ left, held billing.Money }

type modelHold struct {
	hold    billing.Hold
	created time.Time
	budget  *modelBudget
	amount  billing.Money
	soFar   billing.Usage
}

var (
	modelAccounts = []string{"acme", "zeta"}
	modelKeys     = []string{"k1", "k2"}
)

func newModel(t *rapid.T) *model {
	m := &model{
		t: t, keep: rapid.IntRange(1, 6).Draw(t, "keep"), clock: morning,
		posted: map[string]billing.Money{}, credits: map[string]billing.Money{},
		budgets: map[string]*modelBudget{}, open: map[string]*modelHold{},
	}
	m.ledger = billing.NewLedger(billing.LedgerOptions{Receipts: m.keep, Now: func() time.Time { return m.clock }})
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Character, Amount: "0.001"}) // one nano-unit each
	if err != nil {
		t.Fatal(err)
	}
	m.price = price
	return m
}

func (m *model) account() string { return rapid.SampledFrom(modelAccounts).Draw(m.t, "account") }
func (m *model) key() string     { return rapid.SampledFrom(modelKeys).Draw(m.t, "key") }
func (m *model) count(from, to int64) int64 {
	return rapid.Int64Range(from, to).Draw(m.t, "count")
}

func chars(n int64) billing.Usage { return billing.Usage{Characters: n} }

// want fails unless err has the code; an empty code means no error.
func (m *model) want(err error, code fault.Code) {
	if (code == "" && err != nil) || (code != "" && !fault.Is(err, code)) {
		m.t.Fatalf("got %v, want %q", err, code)
	}
}

func (m *model) held(account string) (held billing.Money) {
	for _, h := range m.open {
		if h.hold.Account == account {
			held += h.amount
		}
	}
	return held
}

func (m *model) available(account string, b *modelBudget) billing.Money {
	available := m.posted[account] - m.held(account)
	if b != nil {
		available = min(available, b.left-b.held)
	}
	return available
}

func (m *model) createAccount(*rapid.T) {
	name, credit := m.account(), billing.Money(m.count(-1, 100))
	err := m.ledger.CreateAccount(context.Background(), name, credit)
	if _, taken := m.posted[name]; taken || credit < 0 {
		m.want(err, fault.InvalidRequest)
		return
	}
	m.want(err, "")
	m.posted[name] = credit
	m.issued += credit
}

func (m *model) credit(*rapid.T) {
	name, amount := m.account(), billing.Money(m.count(-60, 60))
	reference := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(m.t, "reference")
	err := m.ledger.Credit(context.Background(), name, amount, reference)
	before, repeated := m.credits[name+" "+reference]
	_, known := m.posted[name]
	switch {
	case !known:
		m.want(err, fault.NotFound)
	case repeated && before == amount:
		m.want(err, "")
	case repeated || amount == 0 || m.available(name, nil)+amount < 0:
		m.want(err, fault.InvalidRequest)
	default:
		m.want(err, "")
		m.credits[name+" "+reference] = amount
		m.posted[name] += amount
		m.issued += amount
	}
}

func (m *model) setBudget(*rapid.T) {
	name, key := m.account(), m.key()
	limit := rapid.Ptr(rapid.Int64Range(0, 80), true).Draw(m.t, "budget")
	err := m.ledger.SetBudget(context.Background(), name, key, (*billing.Money)(limit))
	if _, known := m.posted[name]; !known {
		m.want(err, fault.NotFound)
		return
	}
	m.want(err, "")
	delete(m.budgets, name+" "+key)
	if limit != nil {
		m.budgets[name+" "+key] = &modelBudget{left: billing.Money(*limit)}
	}
}

func (m *model) reserve(*rapid.T) {
	name, key := m.account(), m.key()
	bound, least := m.count(0, 60), m.count(0, 20)
	m.ids++
	id := fmt.Sprintf("r%04d", m.ids)
	h, err := m.ledger.Reserve(context.Background(), billing.Charge{
		Account: name, Key: key, RequestID: id, Model: "talker", Price: m.price, Bound: chars(bound), Least: chars(least),
	})
	if _, known := m.posted[name]; !known {
		m.want(err, fault.PermissionDenied)
		return
	}
	if least == 0 || least > bound {
		least = bound
	}
	b := m.budgets[name+" "+key]
	available := m.available(name, b)
	if billing.Money(least) > available {
		m.want(err, fault.InsufficientBalance)
		return
	}
	m.want(err, "")
	amount := min(billing.Money(bound), available)
	if h.Amount != amount || h.Available != available-amount {
		m.t.Fatalf("granted %d and %d, want %d of %d", h.Amount, h.Available, amount, available)
	}
	m.open[id] = &modelHold{hold: h, created: m.clock, budget: b, amount: amount}
	if b != nil {
		b.held += amount
	}
}

// anyOpen is one of the open holds.
func (m *model) anyOpen() *modelHold {
	if len(m.open) == 0 {
		m.t.Skip("nothing is open")
	}
	return m.open[rapid.SampledFrom(slices.Sorted(maps.Keys(m.open))).Draw(m.t, "hold")]
}

func (m *model) extend(*rapid.T) {
	h, more, soFar := m.anyOpen(), billing.Money(m.count(-1, 40)), chars(m.count(0, 40))
	err := m.ledger.Extend(context.Background(), h.hold, soFar, more)
	switch {
	case more < 0:
		m.want(err, fault.InternalError)
	case more > m.available(h.hold.Account, h.budget):
		m.want(err, fault.InsufficientBalance)
	default:
		m.want(err, "")
		h.amount += more
		h.soFar = soFar
		if h.budget != nil {
			h.budget.held += more
		}
	}
}

func (m *model) settle(*rapid.T) {
	h, used := m.anyOpen(), m.count(0, 120)
	available := m.available(h.hold.Account, h.budget)
	got, err := m.ledger.Settle(context.Background(), h.hold, chars(used), billing.Outcome{Reason: billing.ReasonComplete})
	m.want(err, "")
	charge := min(billing.Money(used), h.amount+available)
	want := billing.Receipt{
		ID: h.hold.ID, CreatedAt: h.created, SettledAt: m.clock, Account: h.hold.Account, Key: h.hold.Key,
		Model: "talker", Status: billing.Captured, Usage: chars(used), PriceVersion: m.price.Version(),
		Hold: h.amount, Charge: charge, Overrun: billing.Money(used) - charge, Reason: billing.ReasonComplete,
	}
	if used == 0 {
		want.Status = billing.Released
	}
	if got != want {
		m.t.Fatalf("settled as\n%+v, want\n%+v", got, want)
	}
	delete(m.open, h.hold.ID)
	m.settled = append(m.settled, want)
	m.posted[h.hold.Account] -= charge
	if h.budget != nil {
		h.budget.left -= charge
		h.budget.held -= h.amount
	}
}

// settleAgain is also what a duplicate of a lost answer does (I4).
func (m *model) settleAgain(*rapid.T) {
	if len(m.settled) == 0 {
		m.t.Skip("nothing is settled")
	}
	i := rapid.IntRange(0, len(m.settled)-1).Draw(m.t, "settled")
	first := m.settled[i]
	got, err := m.ledger.Settle(context.Background(), billing.Hold{ID: first.ID}, chars(m.count(0, 120)))
	if i < len(m.settled)-m.keep {
		m.want(err, fault.InternalError)
		return
	}
	m.want(err, "")
	if got != first {
		m.t.Fatalf("settled again as\n%+v, was\n%+v", got, first)
	}
	m.want(m.ledger.Extend(context.Background(), billing.Hold{ID: first.ID}, chars(1), 1), fault.InternalError)
}

func (m *model) wait(*rapid.T) { m.clock = m.clock.Add(time.Duration(m.count(1, 180)) * time.Minute) }

// check compares everything that can be read with the model, after each step.
func (m *model) check(*rapid.T) {
	m.want(m.ledger.Verify(context.Background()), "")
	var total, charged billing.Money
	for name, posted := range m.posted {
		total += posted
		held := m.held(name)
		if held < 0 || held > posted { // I2
			m.t.Fatalf("the model holds %d of %d", held, posted)
		}
		got, err := m.ledger.Balance(context.Background(), name)
		if want := (billing.Balance{Account: name, Posted: posted, Held: held}); err != nil || got != want { // I1, I3
			m.t.Fatalf("balance %+v, %v; want %+v", got, err, want)
		}
	}
	for _, r := range m.settled {
		charged += r.Charge
	}
	if total != m.issued-charged { // I1, I7: the journal of receipts gives the balances
		m.t.Fatalf("%d was issued and %d charged, %d is left", m.issued, charged, total)
	}
	m.checkUsage()
	m.checkOpen()
}

func (m *model) checkOpen() {
	open := m.ledger.OpenHolds()
	if len(open) != len(m.open) {
		m.t.Fatalf("%d holds are open, want %d", len(open), len(m.open))
	}
	for _, o := range open {
		if h := m.open[o.ID]; h == nil || o.Amount != h.amount || o.SoFar != h.soFar || o.Available != m.available(o.Account, h.budget) {
			m.t.Fatalf("open: %+v, want %+v", o, h)
		}
	}
}

func (m *model) checkUsage() {
	want := map[string]billing.UsageRow{}
	for _, r := range m.settled {
		day := want[r.SettledAt.Format(time.DateOnly)]
		day.Group = r.SettledAt.Format(time.DateOnly)
		day.Requests++
		day.Usage.Characters += r.Usage.Characters
		day.Charge += r.Charge
		want[day.Group] = day
	}
	rows, err := m.ledger.Usage(context.Background(), billing.Query{By: billing.ByDay})
	if err != nil || len(rows) != len(want) {
		m.t.Fatalf("usage %+v, %v; want %+v", rows, err, want)
	}
	for _, row := range rows {
		if row != want[row.Group] {
			m.t.Fatalf("usage %+v, want %+v", row, want[row.Group])
		}
	}
}

func TestTheLedgerBehavesAsItsModelAndKeepsItsInvariantsAfterEachStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"create account": m.createAccount,
			"credit":         m.credit,
			"set budget":     m.setBudget,
			"reserve":        m.reserve,
			"reserve more":   m.reserve, // the step that most others need
			"extend":         m.extend,
			"settle":         m.settle,
			"settle again":   m.settleAgain,
			"wait":           m.wait,
			"":               m.check,
		})
	})
}
