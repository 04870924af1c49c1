//go:build unix

package crashtest

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
)

// ledgerAudit compares the client's record with a database whose processes have
// all ended.
type ledgerAudit struct {
	*ledgerRecord
	database
}

func (a ledgerAudit) run() error {
	if err := a.sound(&a.problems); err != nil {
		return err
	}
	for _, part := range [...]func() error{a.requests, a.journal, a.completeness, a.balances, a.budgets, a.answers, a.callers} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// requests takes the receipts of the requests that ran since the last audit.
func (a ledgerAudit) requests() error {
	for _, id := range slices.Sorted(maps.Keys(a.running)) {
		h := a.running[id]
		r, err := a.db.Ledger().Receipt(a.ctx, h.Account, id)
		found := !fault.Is(err, fault.NotFound)
		if h.settle == yes && h.receipt.Reason == billing.ReasonInternal {
			a.figures.add("overtaken", 1)
		}
		if found && err != nil {
			return err
		}
		a.request(h, r, found)
		delete(a.running, id)
		if found {
			a.ended[id] = r
			a.late = append(a.late, h.request)
			a.accounts[h.Account].charged += int64(r.Charge / billing.One)
		}
		switch {
		case !found || !h.keep || r.Status != billing.Captured:
		case r.Reason == billing.ReasonComplete:
			a.kept[id] = h.request
		default:
			a.spent[id] = true
		}
	}
	return nil
}

// request compares one receipt with what the client knows.
func (a ledgerAudit) request(h *history, r billing.Receipt, found bool) {
	ends, may := a.ends(h)
	switch {
	case !found && may:
	case !found:
		a.problem(lost, "%s is not there: %+v", h.ID, *h)
	case h.settle == yes && r != h.receipt:
		a.problem(lost, "%s was acknowledged as %+v and is %+v", h.ID, h.receipt, r)
	case !slices.ContainsFunc(ends, func(e end) bool { return e.is(h, r) }):
		a.problem(wrong, "%s ended as %+v, which is none of %+v: %+v", h.ID, r, ends, *h)
	}
}

// journal reads the entries that are new: each has to be known and the only one.
func (a ledgerAudit) journal() error {
	return a.each(func(rows *sql.Rows) error {
		var e entry
		err := rows.Scan(&a.read, &e.account, &e.kind, &e.reference, &e.customer, &e.credit)
		if err == nil {
			a.entry(e)
		}
		return err
	}, "SELECT number, account, kind, reference, customer, credit FROM entry WHERE number > $1 ORDER BY number", a.read)
}

// entry is one movement of money as the database has it.
type entry struct {
	account, kind, reference string
	customer, credit         billing.Money
}

func (a ledgerAudit) entry(e entry) {
	if e.customer+e.credit != 0 {
		a.problem(wrong, "entry %+v", e)
	}
	switch owner := a.accounts[e.account]; {
	case owner == nil:
		a.problem(wrong, "entry of an account that nobody asked for: %+v", e)
	case e.kind == "opening":
		if owner.seen {
			a.problem(doubled, "entry %+v", e)
		}
		owner.seen = true
		a.equal(e, e.customer, units(opening(e.account)))
	case e.kind == "credit":
		a.grant(e)
	default:
		a.problem(wrong, "entry of another kind: %+v", e)
	}
}

func (a ledgerAudit) equal(e entry, got, want billing.Money) {
	if got != want {
		a.problem(wrong, "entry %+v: %s, want %s", e, got, want)
	}
}

func (a ledgerAudit) grant(e entry) {
	g := a.credits[e.reference]
	switch {
	case g == nil || g.Account != e.account:
		a.problem(wrong, "entry of a credit that nobody asked for: %+v", e)
		return
	case g.seen:
		a.problem(doubled, "entry %+v", e)
	}
	g.seen = true
	a.equal(e, e.customer, units(g.Amount))
}

// completeness looks for what was acknowledged and has no entry, and for
// receipts that no request has.
func (a ledgerAudit) completeness() error {
	for _, g := range a.credits {
		if g.done && !g.seen {
			a.problem(lost, "credit %+v", *g)
		}
	}
	for name, o := range a.accounts {
		if (o.done || o.refused > 0) && !o.seen {
			a.problem(lost, "account %s", name)
		}
		if o.refused > 0 && o.refused == o.asks {
			a.problem(wrong, "account %s was never made by those who asked for it", name)
		}
	}
	receipts, err := a.count("SELECT COUNT(*) FROM receipt")
	if err == nil && receipts != len(a.ended) {
		a.problem(wrong, "%d receipts, want %d", receipts, len(a.ended))
	}
	return err
}

// balances compares every account with the sum that the client keeps.
func (a ledgerAudit) balances() error {
	want := map[string]int64{}
	for name, o := range a.accounts {
		if o.seen {
			want[name] = opening(name) - o.charged
		}
	}
	for _, g := range a.credits {
		if g.seen {
			want[g.Account] += g.Amount
		}
	}
	all, err := a.db.Ledger().Balances(a.ctx, "", 1_000_000)
	if err != nil {
		return err
	}
	if len(all) != len(want) {
		a.problem(wrong, "%d accounts, want %d", len(all), len(want))
	}
	for name, n := range want {
		got, err := a.db.Ledger().Balance(a.ctx, name)
		if err != nil {
			return fmt.Errorf("balance of %s: %w", name, err)
		}
		if got != (billing.Balance{Account: name, Posted: units(n)}) {
			a.problem(wrong, "account %s has %+v, want %d and nothing held", name, got, n)
		}
	}
	return nil
}

// budgets compares what the budgets of each account have counted with its charges.
func (a ledgerAudit) budgets() error {
	all, err := a.db.Ledger().Budgets(a.ctx, billing.BudgetQuery{})
	if err != nil {
		return err
	}
	for _, b := range all {
		want := int64(0)
		switch {
		case b.Subject.Kind != billing.OnAccount:
			continue
		case b.Spec.Every == "":
			want = a.accounts[b.Account].charged
		default: // what was counted may be of a window that is over
			err := a.each(func(rows *sql.Rows) error {
				var spent, charged int64
				err := rows.Scan(&spent, &charged)
				if spent != charged {
					a.problem(wrong, "the budget %d of %s has counted %d in its window, and the charges are %d", b.ID, b.Account, spent, charged)
				}
				return err
			}, "SELECT spent, COALESCE((SELECT CAST(SUM(charge) AS BIGINT) FROM receipt WHERE receipt.account = budget.account AND settled_at >= since), 0) FROM budget WHERE id = $1", b.ID)
			if err != nil {
				return err
			}
			want = int64(b.Spent / billing.One)
		}
		if b.Spent != units(want) || b.Held != 0 {
			a.problem(wrong, "the budget of %s has counted %s and holds %s, want %d and nothing", b.Account, b.Spent, b.Held, want)
		}
		a.figures.add("budgets compared", 1)
	}
	return nil
}

// answers compares the idempotent answers with the settlements that keep one. Of a request
// that recovery has charged the key is kept without an answer.
func (a ledgerAudit) answers() error {
	missing, spent := maps.Clone(a.kept), maps.Clone(a.spent)
	err := a.each(func(rows *sql.Rows) error {
		var id, state, receipt string
		var body []byte
		if err := rows.Scan(&id, &state, &body, &receipt); err != nil {
			return err
		}
		if spent[id] && state == "large" && body == nil {
			delete(spent, id)
			return nil
		}
		if _, ok := a.kept[id]; !ok || state != "kept" {
			a.problem(wrong, "the answer of %s is %q, its receipt %+v", id, state, a.ended[id])
			return nil
		}
		delete(missing, id)
		var r billing.Receipt
		if err := json.Unmarshal([]byte(receipt), &r); err != nil || r != a.ended[id] || string(body) != string(answerOf(id)) {
			a.problem(wrong, "the answer of %s: %q, %+v, %v", id, body, r, err)
		}
		return nil
	}, "SELECT request, state, body, receipt FROM answer")
	for id := range missing {
		a.problem(lost, "the answer of %s, whose receipt is %+v", id, a.ended[id])
		delete(a.kept, id) // report it once
	}
	for id := range spent {
		a.problem(lost, "the key of %s, whose receipt is %+v", id, a.ended[id])
		delete(a.spent, id)
	}
	return err
}

// callers asks as later duplicates do: one gets the answer, one the key of a request
// that was not charged.
func (a ledgerAudit) callers() error {
	for id, r := range a.kept {
		got, err := a.db.Ledger().Lookup(a.ctx, keyOf(r), idempotency.Content{1})
		if err != nil || got == nil || got.Receipt != a.ended[id] {
			a.problem(lost, "the answer of %s: %+v, %v", id, got, err)
		}
		break
	}
	for id, receipt := range a.ended {
		if _, kept := a.kept[id]; kept || a.spent[id] {
			continue
		}
		r := request{id, receipt.Account}
		if got, err := a.db.Ledger().Lookup(a.ctx, keyOf(r), idempotency.Content{1}); err != nil || got != nil {
			a.problem(leftOpen, "the key of %s: %+v, %v", id, got, err)
		}
		break
	}
	return nil
}

// ledgerRecord is what the client of one database knows: what was asked for, what
// was acknowledged, and so what has to be there. It is safe for concurrent use
// while children report.
type ledgerRecord struct {
	problems
	mu       sync.Mutex
	figures  *figures
	postgres bool

	accounts map[string]*account
	credits  map[string]*grant   // by reference
	given    []*grant            // in the order in which they were asked for
	running  map[string]*history // requests since the last audit
	ended    map[string]billing.Receipt
	kept     map[string]request // ended requests with an answer
	spent    map[string]bool    // those that recovery charged, with a key
	late     []request          // ended requests, for a second settlement
	read     int64              // the last entry of the journal that was read
}

// account is what a customer has.
type account struct {
	asks       int  // calls that asked for it
	refused    int  // those that were told that it is there
	done, seen bool // acknowledged; in the journal
	charged    int64
}

// grant is a credit.
type grant struct {
	credit
	done, seen bool
}

// answered is what is known of a call to the store.
type answered int

const (
	unasked answered = iota
	asked            // and no answer: it may have happened
	yes
	no
)

// history is a request as its client knows it.
type history struct {
	request
	hold, settle answered
	amount, used int64
	keep         bool
	marks        []mark
	receipt      billing.Receipt // the acknowledged one
}

// mark is a checkpoint.
type mark struct {
	n, more int64
	state   answered
}

func newLedgerRecord(f *figures, postgres bool) *ledgerRecord {
	return &ledgerRecord{
		figures: f, postgres: postgres, accounts: map[string]*account{}, credits: map[string]*grant{},
		running: map[string]*history{}, ended: map[string]billing.Receipt{}, kept: map[string]request{}, spent: map[string]bool{},
	}
}

// hear records what a child reports.
func (b *ledgerRecord) hear(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case created:
		b.create(e)
	case credited:
		b.credit(e)
	case reserved, extended, settled:
		b.request(e)
	case repeated:
		b.repeat(e)
	case broken, unnamed:
		b.problem(unexpected, "%s %s %s", e.Kind, e.ID, e.Error)
	}
}

// answer is the state of a call after an event.
func (e event) answer() answered {
	switch {
	case !e.Done:
		return asked
	case e.Code == "":
		return yes
	}
	return no
}

func (b *ledgerRecord) create(e event) {
	a := b.accounts[e.ID]
	if a == nil {
		a = &account{}
		b.accounts[e.ID] = a
	}
	switch e.answer() {
	case yes:
		if a.done {
			b.problem(doubled, "account %s was created twice", e.ID)
		}
		a.done = true
	case no:
		a.refused++
	default:
		a.asks++
	}
}

func (b *ledgerRecord) credit(e event) {
	c := b.credits[e.ID]
	if c == nil {
		c = &grant{credit: credit{e.Account, e.ID, e.N}}
		b.credits[e.ID] = c
		b.given = append(b.given, c)
	}
	if e.answer() == yes {
		c.done = true
		b.figures.add(credited, 1)
	}
}

func (b *ledgerRecord) request(e event) {
	h := b.running[e.ID]
	if h == nil {
		h = &history{request: request{e.ID, e.Account}}
		b.running[e.ID] = h
	}
	state := e.answer()
	switch e.Kind {
	case reserved:
		h.hold, h.amount, h.keep = state, e.N, h.keep || e.Keep
	case extended:
		if state == asked {
			h.marks = append(h.marks, mark{n: e.N, more: e.More})
		}
		h.marks[len(h.marks)-1].state = state
	case settled:
		h.settle, h.used = state, e.N
		if state != asked {
			h.receipt = *e.Receipt
		}
	}
	if state == yes {
		b.figures.add(e.Kind, 1)
	}
}

// repeat compares the receipt of a second settlement with that of the first.
func (b *ledgerRecord) repeat(e event) {
	if !e.Done {
		return
	}
	first, ok := b.ended[e.ID]
	if h := b.running[e.ID]; h != nil && h.settle == yes {
		first, ok = h.receipt, true
	}
	if !ok || *e.Receipt != first {
		b.problem(doubled, "the second settlement of %s gave %+v, the first %+v", e.ID, *e.Receipt, first)
	}
	b.figures.add(repeated, 1)
}

// end is a way in which a request may have ended.
type end struct {
	used, held int64
	reason     string
}

// ends are the ways in which a request may have ended, and whether it may not be there
// at all. Which of them it was depends on how far the process came.
func (b *ledgerRecord) ends(h *history) (ends []end, may bool) {
	switch h.hold {
	case unasked, no:
		return nil, true
	case asked:
		return []end{{0, h.amount, billing.ReasonInternal}}, true
	}
	last := end{0, h.amount, billing.ReasonInternal}
	before := last
	may = !b.postgres // a young hold that no call has made durable
	for _, m := range h.marks {
		if m.state == yes {
			may = false
		}
		if m.state != no {
			before, last = last, end{m.n, last.held + m.more, billing.ReasonInternal}
		}
	}
	complete := end{h.used, last.held, billing.ReasonComplete}
	switch {
	case h.settle == yes && !b.postgres:
		return []end{complete}, false
	case h.settle != unasked: // or it was settled by its checkpoint
		return []end{complete, last}, may
	case len(h.marks) > 0 && h.marks[len(h.marks)-1].state == asked:
		return []end{last, before}, may
	}
	return []end{last}, may
}

// is reports whether a receipt tells of this end.
func (e end) is(h *history, r billing.Receipt) bool {
	status := billing.Captured
	if e.used == 0 {
		status = billing.Released
	}
	return r.ID == h.ID && r.Account == h.Account && r.Status == status && r.Reason == e.reason &&
		r.Usage == images(e.used) && r.Hold == units(e.held) && r.Charge == units(e.used) && r.Overrun == 0
}
