package storetest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// model is the ledger in plain arithmetic, with real
// ones beside it that have to do the same. It shares no code with any.
type model struct {
	t       *rapid.T
	ledgers []Ledger
	price   *billing.Price
	set     func(time.Time) // the ledgers' clock
	crashed func()          // nil where nothing survives
	lose    func(n int)     // makes the next COMMIT end in one of the ways of commitFaults
	keep    int             // receipts that the ledgers keep; 0 for all
	run     int             // makes names and ids that no earlier check used
	ids     int
	clock   time.Time
	posted  map[string]billing.Money
	credits map[string]billing.Money // by account and reference
	budgets map[string]*modelBudget  // by account and key
	open    map[string]*modelHold
	settled []billing.Receipt
}

type modelBudget struct{ left, held billing.Money }

type modelHold struct {
	hold    billing.Hold
	created time.Time
	budget  *modelBudget
	amount  billing.Money
	soFar   billing.Usage
}

// steps are what may happen to a ledger.
func (m *model) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"create account": m.createAccount,
		"credit":         m.credit,
		"set budget":     m.setBudget,
		"reserve":        m.reserve,
		"reserve more":   m.reserve, // the step that most others need
		"extend":         m.extend,
		"settle":         m.settle,
		"settle again":   m.settleAgain,
		"wait":           m.wait,
		"crash":          m.crash,
		"":               m.check,
	}
}

// behaves runs random operations on the model, a ledger in a database and one
// in memory.
func checkModel(t *testing.T, place func(t testing.TB) Place) {
	b := newDBTest(t, place(t))
	nano := nanoPrice(t)
	fewChecks(t)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		m := newModel(t, nano, b.clock.Now().UTC())
		memory := memory.NewLedger(memory.LedgerOptions{Now: func() time.Time { return m.clock }})
		m.run, m.set, m.ledgers = run, b.clock.Set, []Ledger{memory, b.Ledger}
		m.crashed = func() { // what the database recovers, the ledger in memory is told to do
			b = b.crash()
			m.ledgers[1] = b.Ledger
		}
		m.lose = func(n int) { b.faults.FailCommit(commitFaults[n].applied, commitFaults[n].err) }
		t.Repeat(m.steps())
		m.end()
	})
}

// behavesAlone runs them on the model and a ledger that forgets old receipts.
func checkModelAlone(t *testing.T, open func(o memory.LedgerOptions) Ledger) {
	nano := nanoPrice(t)
	rapid.Check(t, func(t *rapid.T) {
		m, c := newModel(t, nano, startTime), newClock(startTime)
		m.set, m.keep = c.Set, rapid.IntRange(1, 6).Draw(t, "keep")
		m.ledgers = []Ledger{open(memory.LedgerOptions{Now: c.Now, Receipts: m.keep})}
		t.Repeat(m.steps())
	})
}

// nanoPrice is the least amount of money for each character.
func nanoPrice(t testing.TB) *billing.Price {
	return price(t, billing.Rate{Unit: billing.Character, Amount: "0.001"})
}

// fewChecks makes rapid try less than it does unless told: every step here is a
// commit.
func fewChecks(t *testing.T) {
	const usual, few = "100", "15"
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == usual {
		_ = f.Value.Set(few) // it is a number
		t.Cleanup(func() { _ = f.Value.Set(usual) })
	}
}

func newModel(t *rapid.T, p *billing.Price, at time.Time) *model {
	return &model{
		t: t, price: p, clock: at,
		posted: map[string]billing.Money{}, credits: map[string]billing.Money{},
		budgets: map[string]*modelBudget{}, open: map[string]*modelHold{},
	}
}

func (m *model) account() string {
	return fmt.Sprintf("%s-%d", rapid.SampledFrom([]string{"acme", "zeta"}).Draw(m.t, "account"), m.run)
}
func (m *model) key() string { return rapid.SampledFrom([]string{"k1", "k2"}).Draw(m.t, "key") }
func (m *model) count(from, to int64) int64 {
	return rapid.Int64Range(from, to).Draw(m.t, "count")
}

func chars(n int64) billing.Usage { return billing.Usage{Characters: n} }

// each does the same to every ledger; do fails the test if the result is wrong.
func (m *model) onEach(do func(l Ledger)) {
	for _, l := range m.ledgers {
		do(l)
	}
}

// committing makes the COMMIT of an operation that will succeed lose its answer,
// once in a while.
func (m *model) committing() {
	if n := rapid.IntRange(0, 9*len(commitFaults)).Draw(m.t, "lost answer"); m.lose != nil && n < len(commitFaults) {
		m.lose(n)
	}
}

// want fails unless err has the code; an empty code means no error.
func (m *model) want(l Ledger, err error, code fault.Code) {
	if (code == "" && err != nil) || (code != "" && !fault.Is(err, code)) {
		m.t.Fatalf("%T: got %v, want %q", l, err, code)
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
	var code fault.Code
	if _, taken := m.posted[name]; taken || credit < 0 {
		code = fault.InvalidRequest
	}
	m.onEach(func(l Ledger) { m.want(l, l.CreateAccount(context.Background(), name, credit), code) })
	if code == "" {
		m.posted[name] = credit
	}
}

func (m *model) credit(*rapid.T) {
	name, amount := m.account(), billing.Money(m.count(-60, 60))
	reference := rapid.SampledFrom([]string{"a", "b", "c", "d", "opening"}).Draw(m.t, "reference")
	before, repeated := m.credits[name+" "+reference]
	_, known := m.posted[name]
	code, moves := fault.Code(""), false
	switch {
	case !known:
		code = fault.NotFound
	case repeated && before == amount:
	case repeated || amount == 0 || m.available(name, nil)+amount < 0:
		code = fault.InvalidRequest
	default:
		moves = true
	}
	m.onEach(func(l Ledger) { m.want(l, l.Credit(context.Background(), name, amount, reference), code) })
	if moves {
		m.credits[name+" "+reference] = amount
		m.posted[name] += amount
	}
}

func (m *model) setBudget(*rapid.T) {
	name, key := m.account(), m.key()
	limit := rapid.Ptr(rapid.Int64Range(0, 80), true).Draw(m.t, "budget")
	var code fault.Code
	if _, known := m.posted[name]; !known {
		code = fault.NotFound
	}
	m.onEach(func(l Ledger) { m.want(l, l.SetBudget(context.Background(), name, key, (*billing.Money)(limit)), code) })
	if code != "" {
		return
	}
	delete(m.budgets, name+" "+key)
	if limit != nil {
		m.budgets[name+" "+key] = &modelBudget{left: billing.Money(*limit)}
	}
}

func (m *model) reserve(*rapid.T) {
	name, key := m.account(), m.key()
	bound, least := m.count(0, 60), m.count(0, 20)
	usual, firm := max(m.count(-30, 30), 0), max(m.count(-60, 60), 0) // half of them without
	m.ids++
	charge := billing.HoldRequest{
		Account: name, Key: key, RequestID: fmt.Sprintf("r%d-%04d", m.run, m.ids), Model: "talker",
		Price: m.price, Bound: chars(bound), Least: chars(least), Usual: chars(usual), Firm: chars(firm),
	}
	if least == 0 || least > bound {
		least = bound
	}
	b := m.budgets[name+" "+key]
	available := m.available(name, b)
	amount := m.grant(name, b, billing.Money(bound), billing.Money(usual), billing.Money(least), billing.Money(firm))
	alone := m.held(name) == 0 && (b == nil || b.held == 0)
	var code fault.Code
	if _, known := m.posted[name]; !known {
		code = fault.PermissionDenied
	} else if billing.Money(least) > available || !alone && amount < min(billing.Money(firm), billing.Money(bound)) {
		code = fault.InsufficientBalance
	}
	if code == "" {
		m.committing()
	}
	var h billing.Hold
	m.onEach(func(l Ledger) {
		var err error
		h, err = l.Reserve(context.Background(), charge)
		m.want(l, err, code)
		if code == "" && (h.Amount != amount || h.Available != available-amount) {
			m.t.Fatalf("%T: granted %d and %d, want %d of %d", l, h.Amount, h.Available, amount, available)
		}
	})
	if code != "" {
		return
	}
	m.open[h.ID] = &modelHold{hold: h, created: m.clock, budget: b, amount: amount}
	if b != nil {
		b.held += amount
	}
}

// grant is how much a request gets: its bound, or where the length is not known
// what leaves half of all balances free, but at least the usual.
func (m *model) grant(account string, b *modelBudget, bound, usual, least, firm billing.Money) billing.Money {
	all := m.available(account, b)
	if usual > 0 {
		spare := m.posted[account] - m.held(account) - m.posted[account]/2
		if b != nil {
			spare = min(spare, b.left-b.held-b.left/2)
		}
		if bound > spare {
			wish := max(usual, spare)
			if firm = min(firm, bound); firm > wish && firm <= all {
				wish = firm
			}
			bound = min(bound, wish)
		}
	}
	return max(min(bound, all), least)
}

// anyOpen is one of the open holds.
func (m *model) anyOpen() *modelHold {
	if len(m.open) == 0 {
		m.t.Skip("nothing is open")
	}
	return m.open[rapid.SampledFrom(slices.Sorted(maps.Keys(m.open))).Draw(m.t, "hold")]
}

func (m *model) extend(*rapid.T) {
	h, more := m.anyOpen(), billing.Money(m.count(-1, 40))
	soFar := chars(m.count(0, int64(h.amount))) // more would make the order of a recovery count
	var code fault.Code
	switch {
	case more < 0:
		code = fault.InternalError
	case more > m.available(h.hold.Account, h.budget):
		code = fault.InsufficientBalance
	default:
		m.committing()
	}
	m.onEach(func(l Ledger) { m.want(l, l.Extend(context.Background(), h.hold, soFar, more), code) })
	if code != "" {
		return
	}
	h.amount += more
	h.soFar = soFar
	if h.budget != nil {
		h.budget.held += more
	}
}

func (m *model) settle(*rapid.T) {
	h, used := m.anyOpen(), chars(m.count(0, 120))
	want := m.ends(h, used, billing.ReasonComplete)
	m.committing()
	m.onEach(func(l Ledger) {
		got, err := l.Settle(context.Background(), h.hold, used, billing.Outcome{Reason: billing.ReasonComplete})
		m.want(l, err, "")
		m.same(l, got, want)
	})
}

// ends takes an open hold out of the model and tells its receipt.
func (m *model) ends(h *modelHold, used billing.Usage, reason string) billing.Receipt {
	cost := billing.Money(used.Characters)
	charge := min(cost, h.amount+m.available(h.hold.Account, nil))
	r := billing.Receipt{
		ID: h.hold.ID, CreatedAt: h.created, SettledAt: m.clock, Account: h.hold.Account, Key: h.hold.Key,
		Model: "talker", Status: billing.Captured, Usage: used, PriceVersion: m.price.Version(),
		Hold: h.amount, Charge: charge, Overrun: cost - charge, Reason: reason,
	}
	if cost == 0 {
		r.Status = billing.Released
	}
	delete(m.open, h.hold.ID)
	m.settled = append(m.settled, r)
	m.posted[h.hold.Account] -= charge
	if h.budget != nil {
		h.budget.held -= h.amount
		h.budget.left = max(h.budget.left-charge, h.budget.held)
	}
	return r
}

// settleAgain is also what a duplicate of a lost answer does.
func (m *model) settleAgain(*rapid.T) {
	if len(m.settled) == 0 {
		m.t.Skip("nothing is settled")
	}
	i := rapid.IntRange(0, len(m.settled)-1).Draw(m.t, "settled")
	first, used := m.settled[i], chars(m.count(0, 120))
	forgotten := m.keep > 0 && i < len(m.settled)-m.keep
	m.onEach(func(l Ledger) {
		got, err := l.Settle(context.Background(), billing.Hold{ID: first.ID}, used)
		if forgotten {
			m.want(l, err, fault.InternalError)
			return
		}
		m.want(l, err, "")
		m.same(l, got, first)
		m.want(l, l.Extend(context.Background(), billing.Hold{ID: first.ID}, chars(1), 1), fault.InternalError)
	})
}

// wait does not go so far that a hold expires: nobody sweeps here.
func (m *model) wait(t *rapid.T) {
	next := m.clock.Add(time.Duration(m.count(1, 90)) * time.Minute)
	for _, h := range m.open {
		if next.Sub(h.created) >= 6*time.Hour {
			t.Skip("a hold would expire")
		}
	}
	m.clock = next
	m.set(m.clock)
}

// crash ends the process of those that survive it. What they recover, the
// others are told to do.
func (m *model) crash(t *rapid.T) {
	if m.crashed == nil || m.count(0, 3) > 0 {
		t.Skip("not now")
	}
	for _, name := range slices.Sorted(maps.Keys(m.open)) {
		h := m.open[name]
		want := m.ends(h, h.soFar, billing.ReasonInternal)
		got, err := m.ledgers[0].Settle(context.Background(), h.hold, h.soFar, billing.Outcome{Reason: billing.ReasonInternal})
		m.want(m.ledgers[0], err, "")
		m.same(m.ledgers[0], got, want)
	}
	m.crashed()
}

// end leaves no hold for the next check.
func (m *model) end() {
	for _, name := range slices.Sorted(maps.Keys(m.open)) {
		m.onEach(func(l Ledger) {
			_, err := l.Settle(context.Background(), m.open[name].hold, billing.Usage{})
			m.want(l, err, "")
		})
	}
}

func (m *model) same(l Ledger, got, want any) {
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Fatalf("%T (-want +got):\n%s", l, diff)
	}
}

// check compares everything that can be read with the model, after each step.
func (m *model) check(*rapid.T) {
	ctx := context.Background()
	m.onEach(func(l Ledger) {
		m.want(l, l.Verify(ctx), "")
		for name, posted := range m.posted { // I1 to I3
			got, err := l.Balance(ctx, name)
			m.want(l, err, "")
			m.same(l, got, billing.Balance{Account: name, Posted: posted, Held: m.held(name)})
			rows, err := l.Usage(ctx, billing.Query{Account: name, By: billing.ByDay})
			m.want(l, err, "")
			m.same(l, rows, m.usage(name))
		}
	})
	m.onEach(m.checkOpen)
}

func (m *model) checkOpen(l Ledger) {
	open, told, err := openHolds(context.Background(), l)
	m.want(l, err, "")
	if told && len(open) != len(m.open) {
		m.t.Fatalf("%T: %d holds are open, want %d", l, len(open), len(m.open))
	}
	for _, o := range open {
		if h := m.open[o.ID]; h == nil || o.Amount != h.amount || o.SoFar != h.soFar || o.Available != m.available(o.Account, h.budget) {
			m.t.Fatalf("%T: open: %+v, want %+v", l, o, h)
		}
	}
}

func (m *model) usage(account string) []billing.UsageRow {
	days := map[string]billing.UsageRow{}
	for _, r := range m.settled {
		if r.Account != account {
			continue
		}
		day := days[r.SettledAt.Format(time.DateOnly)]
		day.Group = r.SettledAt.Format(time.DateOnly)
		day.Requests++
		day.Usage.Characters += r.Usage.Characters
		day.Charge += r.Charge
		days[day.Group] = day
	}
	rows := []billing.UsageRow{}
	for _, day := range slices.Sorted(maps.Keys(days)) {
		rows = append(rows, days[day])
	}
	return rows
}
