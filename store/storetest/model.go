package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledgermodel"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// model does random operations on the reference ledger, and on real ones that have
// to do the same. A character costs the least amount of money, so that a count of
// characters is an amount.
type model struct {
	t         *rapid.T
	reference *ledgermodel.Ledger
	ledgers   []Ledger
	price     *billing.Price
	set       func(time.Time) // the ledgers' clock
	crashed   func()          // nil where nothing survives
	lose      func(n int)     // makes the next COMMIT end in one of the ways of commitFaults; nil where there is none
	keep      int             // receipts that the ledgers keep; 0 for all
	run       int             // makes names and ids that no earlier check used
	ids       int
	clock     time.Time
	open      map[string]*modelHold
	settled   []billing.Receipt
}

// modelHold is what the reference does not know of an open hold.
type modelHold struct {
	hold    billing.Hold
	created time.Time
	soFar   billing.Usage
}

// steps are what may happen to a ledger.
func (m *model) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"create account": m.createAccount,
		"credit":         m.credit,
		"set budget":     m.setBudget,
		"put budget":     m.putBudget,
		"raise budget":   m.raiseBudget,
		"reset budget":   m.resetBudget,
		"delete budget":  m.deleteBudget,
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

// checkModel runs random operations on the reference, a ledger in a database and
// one in memory.
func checkModel(t *testing.T, place func(t testing.TB) Place) {
	b := newDBTest(t, place(t))
	longtest.Checks(t, 10)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := newModel(t, rt, b.clock.Now().UTC())
		memory := memory.NewLedger(memory.LedgerOptions{Now: func() time.Time { return m.clock }})
		m.run, m.set, m.ledgers = run, b.clock.Set, []Ledger{memory, b.Ledger}
		m.crashed = func() { // what the database recovers, the ledger in memory is told to do
			b = b.crash()
			m.ledgers[1] = b.Ledger
		}
		m.lose = func(n int) { b.faults.FailCommit(commitFaults[n].applied, commitFaults[n].err) }
		rt.Repeat(m.steps())
		for _, name := range slices.Sorted(maps.Keys(m.open)) { // no hold is left for the next check
			m.onEach(nil, func(l Ledger) error {
				_, err := l.Settle(context.Background(), m.open[name].hold, billing.Usage{})
				return err
			})
		}
	})
}

// checkModelAlone runs them on the reference and a ledger that forgets old receipts.
func checkModelAlone(t testing.TB, open func(o memory.LedgerOptions) Ledger) {
	rapid.Check(t, func(rt *rapid.T) {
		m, c := newModel(t, rt, startTime), newClock(startTime)
		m.set, m.keep = c.Set, rapid.IntRange(1, 6).Draw(rt, "keep")
		m.ledgers = []Ledger{open(memory.LedgerOptions{Now: c.Now, Receipts: m.keep})}
		rt.Repeat(m.steps())
	})
}

func newModel(t testing.TB, rt *rapid.T, at time.Time) *model {
	reference := ledgermodel.New()
	reference.Now = at.UnixNano()
	return &model{
		t: rt, clock: at, reference: reference, open: map[string]*modelHold{},
		price: price(t, billing.Rate{Unit: billing.Character, Amount: "0.001"}),
	}
}

func chars(n int64) billing.Usage { return billing.Usage{Characters: n} }

func (m *model) count(from, to int64) int64 { return rapid.Int64Range(from, to).Draw(m.t, "count") }

func (m *model) key() ledgermodel.Key {
	return ledgermodel.Key{
		Account: fmt.Sprintf("%s-%d", rapid.SampledFrom([]string{"acme", "zeta"}).Draw(m.t, "account"), m.run),
		Name:    rapid.SampledFrom([]string{"k1", "k2"}).Draw(m.t, "key"),
	}
}

// onEach does the same to every ledger. Each has to succeed if the reference did
// (want is nil), or to refuse for the same reason. noAccount is the code of an
// unknown account.
func (m *model) onEach(want error, do func(l Ledger) error, noAccount ...fault.Code) {
	for _, l := range m.ledgers {
		var code fault.Code
		switch {
		case errors.Is(want, ledgermodel.ErrNoAccount):
			code = append(noAccount, fault.NotFound)[0]
		case errors.Is(want, ledgermodel.ErrInsufficient):
			code = fault.InsufficientBalance
		case errors.Is(want, ledgermodel.ErrInvalid):
			code = fault.InvalidRequest
		case errors.Is(want, ledgermodel.ErrEnded):
			code = fault.InternalError
		}
		err := do(l)
		if code == fault.InsufficientBalance && fault.Is(err, fault.BudgetExceeded) { // the reference does not say which
			continue
		}
		if (code == "" && err != nil) || (code != "" && !fault.Is(err, code)) {
			m.t.Fatalf("%T: got %v, want %v", l, err, want)
		}
	}
}

// committing makes the COMMIT of an operation that will succeed lose its answer,
// once in a while.
func (m *model) committing() {
	if n := rapid.IntRange(0, 9*len(commitFaults)).Draw(m.t, "lost answer"); m.lose != nil && n < len(commitFaults) {
		m.lose(n)
	}
}

func (m *model) createAccount(*rapid.T) {
	name, credit := m.key().Account, m.count(-1, 100)
	m.onEach(m.reference.CreateAccount(name, credit), func(l Ledger) error {
		return l.CreateAccount(context.Background(), name, billing.Money(credit))
	})
}

func (m *model) credit(*rapid.T) {
	name, amount := m.key().Account, m.count(-60, 60)
	reference := rapid.SampledFrom([]string{"a", "b", "c", "d", "opening"}).Draw(m.t, "reference")
	m.onEach(m.reference.Credit(name, amount, reference), func(l Ledger) error {
		return l.Credit(context.Background(), name, billing.Money(amount), reference)
	})
}

func (m *model) setBudget(*rapid.T) {
	k, limit := m.key(), rapid.Ptr(rapid.Int64Range(0, 80), true).Draw(m.t, "budget")
	m.onEach(m.reference.SetBudget(k, limit), func(l Ledger) error {
		return l.SetBudget(context.Background(), k.Account, k.Name, (*billing.Money)(limit))
	})
}

// modelPeriods are the windows of budgets by the names that the reference has for them. "" is
// that of SetBudget.
var modelPeriods = map[string]time.Duration{"": 0, "hour": time.Hour, "7h": 7 * time.Hour}

// subject is what a budget of an account may be on.
func (m *model) subject(account string) (ledgermodel.Key, billing.Subject) {
	name := rapid.SampledFrom([]string{"", "k1", "k2", "group"}).Draw(m.t, "subject")
	on := billing.KeySubject(name)
	switch name {
	case "":
		on = billing.AccountSubject(account)
	case "group":
		on = billing.Subject{Kind: billing.OnGroup, Account: account, Name: name}
	}
	return ledgermodel.Key{Account: account, Name: name}, on
}

// charged is what a subject was charged in the running window, by the hour.
func (m *model) charged(on billing.Subject, account string, every time.Duration) (sum int64) {
	var since time.Time
	if every > 0 {
		since = time.Unix(0, m.clock.UnixNano()/int64(every)*int64(every)).Truncate(time.Hour)
	}
	for i := range m.settled {
		if r := &m.settled[i]; r.Account == account && !r.SettledAt.Before(since) && (on.Kind == billing.OnAccount || on == billing.KeySubject(r.Key)) {
			sum += int64(r.Charge)
		}
	}
	return sum
}

func (m *model) putBudget(*rapid.T) {
	account := m.key().Account
	k, on := m.subject(account)
	name, limit := rapid.SampledFrom(slices.Sorted(maps.Keys(modelPeriods))).Draw(m.t, "period"), m.count(0, 80)
	every := modelPeriods[name]
	want := m.reference.PutBudget(k, name, limit, int64(every), m.charged(on, account, every))
	if want == nil {
		m.committing()
	}
	m.onEach(want, func(l Ledger) error {
		got, err := l.PutBudget(context.Background(), account, on, billing.BudgetSpec{Limit: billing.Money(limit), Every: billing.Period(name)}, billing.By{})
		if want != nil {
			return err
		}
		if b := m.reference.Budgets[k][name]; int64(got.Spent) != b.SpentAt(m.reference.Now) || int64(got.Held) != b.Held {
			m.t.Fatalf("%T: put %+v, want %+v", l, got, b)
		}
		return err
	})
}

// onBudget does something to a budget in force, of the reference and of each ledger. The
// reference deletes it where reference is nil.
func (m *model) onBudget(reference func(b *ledgermodel.Budget), do func(l Ledger, b billing.Budget) error) {
	account := m.key().Account
	k, on := m.subject(account)
	names := slices.Sorted(maps.Keys(m.reference.Budgets[k]))
	if len(names) == 0 {
		m.t.Skip("there is no budget")
	}
	name := rapid.SampledFrom(names).Draw(m.t, "period")
	if reference != nil {
		reference(m.reference.Budgets[k][name])
	} else {
		delete(m.reference.Budgets[k], name)
	}
	m.committing()
	m.onEach(nil, func(l Ledger) error {
		all, err := l.Budgets(context.Background(), billing.BudgetQuery{Account: account, Subjects: []billing.Subject{on}})
		for _, b := range all {
			if string(b.Spec.Every) == name {
				return do(l, b)
			}
		}
		m.t.Fatalf("%T: there is no budget %q on %s: %+v, %v", l, name, on, all, err)
		return err
	})
}

func (m *model) raiseBudget(*rapid.T) {
	amount, until := m.count(0, 40), m.clock.Add(time.Duration(m.count(1, 90))*time.Minute)
	m.onBudget(func(b *ledgermodel.Budget) { b.Raise, b.Until = amount, until.UnixNano() }, func(l Ledger, b billing.Budget) error {
		return l.RaiseBudget(context.Background(), b.Account, b.ID, billing.Money(amount), until, billing.By{Actor: "model"})
	})
}

func (m *model) resetBudget(*rapid.T) {
	m.onBudget(func(b *ledgermodel.Budget) { b.Reset(m.reference.Now) }, func(l Ledger, b billing.Budget) error {
		return l.ResetBudget(context.Background(), b.Account, b.ID, billing.By{})
	})
}

func (m *model) deleteBudget(*rapid.T) {
	m.onBudget(nil, func(l Ledger, b billing.Budget) error {
		return l.DeleteBudget(context.Background(), b.Account, b.ID, billing.By{})
	})
}

func (m *model) reserve(*rapid.T) {
	k := m.key()
	r := ledgermodel.Request{
		Bound: m.count(0, 60), Least: m.count(0, 20),
		Usual: max(m.count(-30, 30), 0), Firm: max(m.count(-60, 60), 0), // half of them without
	}
	m.ids++
	id := fmt.Sprintf("r%d-%04d", m.run, m.ids)
	path := []ledgermodel.Key{{Account: k.Account}}
	var subjects []billing.Subject
	if m.count(0, 1) > 0 {
		path = append(path, ledgermodel.Key{Account: k.Account, Name: "group"})
		subjects = []billing.Subject{{Kind: billing.OnGroup, Account: k.Account, Name: "group"}}
	}
	under := 0
	for _, on := range append(path, k) {
		under += len(m.reference.Budgets[on])
	}
	if under > billing.MaxBudgets {
		m.t.Skip("too many budgets")
	}
	amount, available, want := m.reference.Reserve(id, k, r, path...)
	if want == nil {
		m.committing()
	}
	m.onEach(want, func(l Ledger) error {
		h, err := l.Reserve(context.Background(), billing.HoldRequest{
			Account: k.Account, Key: k.Name, RequestID: id, Model: "talker", Price: m.price,
			Bound: chars(r.Bound), Least: chars(r.Least), Usual: chars(r.Usual), Firm: chars(r.Firm), Subjects: subjects,
		})
		if want == nil {
			if int64(h.Amount) != amount || int64(h.Available) != available {
				m.t.Fatalf("%T: granted %d, available %d, want %d and %d", l, h.Amount, h.Available, amount, available)
			}
			m.open[id] = &modelHold{hold: h, created: m.clock}
		}
		return err
	}, fault.PermissionDenied)
}

// anyOpen is one of the open holds.
func (m *model) anyOpen() *modelHold {
	if len(m.open) == 0 {
		m.t.Skip("nothing is open")
	}
	return m.open[rapid.SampledFrom(slices.Sorted(maps.Keys(m.open))).Draw(m.t, "hold")]
}

func (m *model) extend(*rapid.T) {
	h, more := m.anyOpen(), m.count(-1, 40)
	soFar := chars(m.count(0, m.reference.Open[h.hold.ID].Amount)) // more would make the order of a recovery count
	want := m.reference.Extend(h.hold.ID, more)
	switch {
	case want == nil:
		m.committing()
		h.soFar = soFar
	case errors.Is(want, ledgermodel.ErrInvalid):
		want = ledgermodel.ErrEnded // the same code
	}
	m.onEach(want, func(l Ledger) error {
		return l.Extend(context.Background(), h.hold, soFar, billing.Money(more))
	})
}

func (m *model) settle(*rapid.T) {
	h, used := m.anyOpen(), chars(m.count(0, 120))
	want := m.ends(h, used, billing.ReasonComplete)
	m.committing()
	m.onEach(nil, func(l Ledger) error {
		got, err := l.Settle(context.Background(), h.hold, used, billing.Outcome{Reason: billing.ReasonComplete})
		m.same(l, got, want)
		return err
	})
}

// ends settles a hold of the reference and tells the receipt that it has to have.
func (m *model) ends(h *modelHold, used billing.Usage, reason string) billing.Receipt {
	end, err := m.reference.Settle(h.hold.ID, used.Characters)
	if err != nil {
		m.t.Fatal(err)
	}
	r := billing.Receipt{
		ID: h.hold.ID, CreatedAt: h.created, SettledAt: m.clock, Account: h.hold.Account, Key: h.hold.Key,
		Model: "talker", Status: billing.Captured, Usage: used, PriceVersion: m.price.Version(),
		Hold: billing.Money(end.Hold), Charge: billing.Money(end.Charge), Overrun: billing.Money(end.Overrun), Reason: reason,
	}
	if used.Characters == 0 {
		r.Status = billing.Released
	}
	delete(m.open, h.hold.ID)
	m.settled = append(m.settled, r)
	return r
}

// settleAgain is also what a duplicate of a lost answer does.
func (m *model) settleAgain(*rapid.T) {
	if len(m.settled) == 0 {
		m.t.Skip("nothing is settled")
	}
	i := rapid.IntRange(0, len(m.settled)-1).Draw(m.t, "settled")
	first, used := m.settled[i], chars(m.count(0, 120))
	var want error
	if m.keep > 0 && i < len(m.settled)-m.keep { // which the ledger has forgotten
		want = ledgermodel.ErrEnded
	}
	m.onEach(want, func(l Ledger) error {
		got, err := l.Settle(context.Background(), billing.Hold{ID: first.ID}, used)
		if want == nil {
			m.same(l, got, first)
		}
		return err
	})
	if want != nil {
		want = ledgermodel.ErrNoAccount // the same code
	}
	m.onEach(want, func(l Ledger) error {
		got, err := l.Receipt(context.Background(), first.Account, first.ID)
		if want == nil {
			m.same(l, got, first)
		}
		return err
	})
	m.onEach(m.reference.Extend(first.ID, 1), func(l Ledger) error {
		return l.Extend(context.Background(), billing.Hold{ID: first.ID}, chars(1), 1)
	})
}

// wait does not go so far that a hold expires: nobody sweeps here.
func (m *model) wait(t *rapid.T) {
	next := m.clock.Add(time.Duration(m.count(-20, 90)) * time.Minute) // clocks are set back too
	for _, h := range m.open {
		if next.Sub(h.created) >= 6*time.Hour {
			t.Skip("a hold would expire")
		}
	}
	m.clock, m.reference.Now = next, next.UnixNano()
	m.set(m.clock)
}

// crash ends the process of those that survive it. What they recover, the first,
// which does not, is told to do.
func (m *model) crash(t *rapid.T) {
	if m.crashed == nil || m.count(0, 3) > 0 {
		t.Skip("not now")
	}
	for _, name := range slices.Sorted(maps.Keys(m.open)) {
		h := m.open[name]
		want := m.ends(h, h.soFar, billing.ReasonInternal)
		got, err := m.ledgers[0].Settle(context.Background(), h.hold, h.soFar, billing.Outcome{Reason: billing.ReasonInternal})
		if err != nil {
			m.t.Fatal(err)
		}
		m.same(m.ledgers[0], got, want)
		// A hold that is younger than a second may have no row yet, and so no receipt after a crash.
		if err := m.ledgers[1].Extend(context.Background(), h.hold, h.soFar, 0); err != nil {
			m.t.Fatal(err)
		}
	}
	m.crashed()
}

func (m *model) same(l Ledger, got, want any) {
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Fatalf("%T (-want +got):\n%s", l, diff)
	}
}

// check compares everything that can be read with the reference, after each step.
func (m *model) check(*rapid.T) {
	ctx := context.Background()
	m.onEach(nil, func(l Ledger) error { return l.Verify(ctx) })
	for name, a := range m.reference.Accounts { // I1 to I3
		m.onEach(nil, func(l Ledger) error {
			got, err := l.Balance(ctx, name)
			m.same(l, got, billing.Balance{Account: name, Posted: billing.Money(a.Posted), Held: billing.Money(a.Held)})
			return err
		})
		m.onEach(nil, func(l Ledger) error {
			rows, err := l.Usage(ctx, billing.Query{Account: name, By: billing.ByDay})
			m.same(l, rows, plainSum(billing.Query{Account: name, By: billing.ByDay}, m.settled))
			return err
		})
	}
	m.checkBudgets()
	m.onEach(nil, func(l Ledger) error {
		open, told, err := openHolds(ctx, l)
		if told && len(open) != len(m.open) {
			m.t.Fatalf("%T: %d holds are open, want %d", l, len(open), len(m.open))
		}
		for _, o := range open {
			h, r := m.open[o.ID], m.reference.Open[o.ID]
			if h == nil || int64(o.Amount) != r.Amount || o.SoFar != h.soFar || int64(o.Available) != m.reference.Available(o.ID) {
				m.t.Fatalf("%T: open: %+v, want %+v", l, o, r)
			}
		}
		return err
	})
}

// checkBudgets compares the budgets in force with the reference.
func (m *model) checkBudgets() {
	want := map[string]int64{}
	for on, budgets := range m.reference.Budgets {
		for name, b := range budgets {
			shown := on.Name
			if shown == "" {
				shown = on.Account
			}
			want[fmt.Sprintf("%s: %s of %s", on.Account, name, shown)] = b.Held
		}
	}
	m.onEach(nil, func(l Ledger) error {
		got := map[string]int64{}
		for account := range m.reference.Accounts {
			all, err := l.Budgets(context.Background(), billing.BudgetQuery{Account: account})
			if err != nil {
				return err
			}
			for _, b := range all {
				shown := b.Subject.Name
				if shown == "" {
					shown = account
				}
				got[fmt.Sprintf("%s: %s of %s", account, b.Spec.Every, shown)] = int64(b.Held)
			}
		}
		m.same(l, got, want)
		return nil
	})
}
