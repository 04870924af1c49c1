//go:build unix

package crashtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
)

// audit compares the book with a database whose processes have all ended. It
// reads the tables beside the store, too: a store that deceives itself would
// deceive its callers alike.
type audit struct {
	*book
	ctx context.Context
	db  *store.DB
	raw *sql.DB
}

func (a audit) run() error {
	for _, part := range [...]func() error{
		a.nothingOpen, a.requests, a.journal, a.completeness, a.balances, a.answers, a.callers, a.invariants,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (a audit) nothingOpen() error {
	open, err := a.db.Ledger().OpenHolds(a.ctx)
	for _, h := range open {
		a.problem(leftOpen, "the hold %s of %s", h.ID, h.Amount)
	}
	return err
}

// requests takes the receipts of the requests that ran since the last audit.
func (a audit) requests() error {
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
		if found && h.keep && r.Status == billing.Captured && r.Reason == billing.ReasonComplete {
			a.kept[id] = h.request
		}
	}
	return nil
}

// request compares one receipt with what the client knows.
func (a audit) request(h *history, r billing.Receipt, found bool) {
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
func (a audit) journal() error {
	rows, err := a.raw.QueryContext(a.ctx, "SELECT number, account, kind, reference, customer, credit, revenue, overrun FROM entry WHERE number > $1 ORDER BY number", a.read)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		var e entry
		if err := rows.Scan(&a.read, &e.account, &e.kind, &e.reference, &e.customer, &e.credit, &e.revenue, &e.overrun); err != nil {
			return err
		}
		a.entry(e)
	}
	return rows.Err()
}

// entry is one movement of money as the database has it.
type entry struct {
	account, kind, reference           string
	customer, credit, revenue, overrun billing.Money
}

func (a audit) entry(e entry) {
	if e.customer+e.credit+e.revenue+e.overrun != 0 {
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
	case e.kind == "capture":
		a.capture(e)
	}
}

func (a audit) equal(e entry, got, want billing.Money) {
	if got != want {
		a.problem(wrong, "entry %+v: %s, want %s", e, got, want)
	}
}

func (a audit) grant(e entry) {
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

func (a audit) capture(e entry) {
	r, ok := a.ended[e.reference]
	switch {
	case !ok || r.Account != e.account:
		a.problem(wrong, "entry of a capture that has no receipt: %+v", e)
		return
	case a.posted[e.reference]:
		a.problem(doubled, "entry %+v", e)
	}
	a.posted[e.reference] = true
	a.equal(e, -e.customer, r.Charge)
}

// completeness looks for what was acknowledged and has no entry, and for
// receipts that no request has.
func (a audit) completeness() error {
	for id, r := range a.ended {
		if r.Charge > 0 && !a.posted[id] {
			a.problem(lost, "the entry of %+v", r)
			a.posted[id] = true // say it once
		}
	}
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
	var receipts int
	err := a.raw.QueryRowContext(a.ctx, "SELECT COUNT(*) FROM receipt").Scan(&receipts)
	if err == nil && receipts != len(a.ended) {
		a.problem(wrong, "%d receipts, want %d", receipts, len(a.ended))
	}
	return err
}

// balances compares every account with the sum that the client keeps.
func (a audit) balances() error {
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

// answers compares the idempotent answers with the settlements that keep one.
func (a audit) answers() error {
	rows, err := a.raw.QueryContext(a.ctx, "SELECT request, state, body, receipt FROM answer")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	missing := maps.Clone(a.kept)
	for rows.Next() {
		var id, state, receipt string
		var body []byte
		if err := rows.Scan(&id, &state, &body, &receipt); err != nil {
			return err
		}
		if _, ok := a.kept[id]; !ok || state != "kept" {
			a.problem(wrong, "the answer of %s is %q, its receipt %+v", id, state, a.ended[id])
			continue
		}
		delete(missing, id)
		var r billing.Receipt
		if err := json.Unmarshal([]byte(receipt), &r); err != nil || r != a.ended[id] || string(body) != string(answerOf(id)) {
			a.problem(wrong, "the answer of %s: %q, %+v, %v", id, body, r, err)
		}
	}
	for id := range missing {
		a.problem(lost, "the answer of %s, whose receipt is %+v", id, a.ended[id])
		delete(a.kept, id) // say it once
	}
	return rows.Err()
}

// callers asks as later duplicates do: one gets the answer, one gets the key of
// a request that kept none.
func (a audit) callers() error {
	for id, r := range a.kept {
		got, err := a.db.Ledger().Lookup(a.ctx, keyOf(r), idempotency.Content{1})
		if err != nil || got == nil || got.Receipt != a.ended[id] {
			a.problem(lost, "the answer of %s: %+v, %v", id, got, err)
		}
		break
	}
	for id, receipt := range a.ended {
		if _, kept := a.kept[id]; kept {
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

func (a audit) invariants() error {
	if err := a.db.Ledger().Verify(a.ctx); err != nil {
		a.problem(wrong, "Verify: %v", err)
	}
	return nil
}

// A harness that cannot fail proves nothing: each of these is what a store
// would leave that had one of the defects.
var meddlings = []struct{ name, statement, kind string }{
	{"a settlement is gone", "DELETE FROM receipt WHERE id = " + toldSettlement, lost},
	{"the entry of a settlement is gone", "DELETE FROM entry WHERE kind = 'capture' AND reference = " + toldSettlement, lost},
	{"a settlement is cheaper than was told", "UPDATE receipt SET charge = charge - 1000000000 WHERE id = " + toldSettlement, lost},
	{"an answer is gone", "DELETE FROM answer WHERE key = (SELECT MAX(key) FROM answer)", lost},
	{"a credit is gone", "DELETE FROM entry WHERE number = (SELECT MIN(number) FROM entry WHERE kind = 'credit')", lost},
	{"a settlement was posted twice", doubling("capture"), doubled},
	{"a credit was posted twice", "DROP INDEX entry_of_credit; " + doubling("credit"), doubled},
	{"an account was opened twice", doubling("opening"), doubled},
	{"a hold is open", "INSERT INTO hold SELECT 'x', 1, id, 0, 'k1', 'image', 'painter', '', 0, '', 0, 9000000000000000000, FALSE FROM account WHERE id = 'acme'", leftOpen},
	{"a balance is not what was given less what was charged", "UPDATE account SET posted = posted + 1 WHERE id = 'acme'", wrong},
	{"an answer has no end", "UPDATE answer SET state = 'open' WHERE key = (SELECT MAX(key) FROM answer)", wrong},
	{"a settlement nobody asked for", "UPDATE receipt SET id = 'x' WHERE id = (SELECT MAX(reference) FROM entry WHERE kind = 'capture')", wrong},
}

// toldSettlement is a request whose settlement was told. On a machine that is busy a
// process can be taken for dead, and what others end for it is told to nobody.
const toldSettlement = "(SELECT MAX(id) FROM receipt WHERE reason = 'complete' AND charge > 0)"

func doubling(kind string) string {
	return "INSERT INTO entry (account, kind, reference, customer, credit, revenue, overrun, held, available, created_at)" +
		" SELECT account, kind, reference, customer, credit, revenue, overrun, held, available, created_at" +
		" FROM entry WHERE number = (SELECT MIN(number) FROM entry WHERE kind = '" + kind + "')"
}

func TestTheAuditFindsEachDefect(t *testing.T) {
	b := onSQLite(t)
	for _, m := range meddlings {
		b.next()
		b.renew()
		work := b.task()
		work.Ops = 10
		b.run(work, never)
		if err := b.checkDatabase(m.statement); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if !slices.ContainsFunc(b.book.problems, func(p problem) bool { return p.kind == m.kind }) {
			t.Errorf("%s: found %v, want one that is %s", m.name, b.book.problems, m.kind)
		}
	}
}

// book is what the client of one database knows: what was asked for, what was
// acknowledged, and so what has to be there. It is safe for concurrent use
// while children speak.
type book struct {
	mu       sync.Mutex
	figures  *figures
	postgres bool
	problems []problem

	accounts map[string]*account
	credits  map[string]*grant   // by reference
	given    []*grant            // in the order in which they were asked for
	running  map[string]*history // requests since the last audit
	ended    map[string]billing.Receipt
	kept     map[string]request // ended requests with an answer
	posted   map[string]bool    // ended requests that the journal has
	late     []request          // ended requests, for a second settlement
	read     int64              // the last entry of the journal that was read
}

// problem is a way in which the database and the book disagree.
type problem struct{ kind, text string }

// The kinds of a problem.
const (
	lost     = "lost"     // acknowledged, and not there
	doubled  = "doubled"  // there twice
	leftOpen = "open"     // not ended by the recovery
	wrong    = "wrong"    // neither what was asked for nor nothing
	stranger = "stranger" // the store said what it must not say
)

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

func newBook(f *figures, postgres bool) *book {
	return &book{
		figures: f, postgres: postgres, accounts: map[string]*account{}, credits: map[string]*grant{},
		running: map[string]*history{}, ended: map[string]billing.Receipt{}, kept: map[string]request{},
		posted: map[string]bool{},
	}
}

func (b *book) problem(kind, format string, args ...any) {
	b.problems = append(b.problems, problem{kind, fmt.Sprintf(format, args...)})
}

// hear notes what a child says.
func (b *book) hear(e event) {
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
		b.problem(stranger, "%s %s %s", e.Kind, e.ID, e.Error)
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

func (b *book) create(e event) {
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

func (b *book) credit(e event) {
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

func (b *book) request(e event) {
	h := b.running[e.ID]
	if h == nil {
		h = &history{request: request{e.ID, e.Account}}
		b.running[e.ID] = h
	}
	state := e.answer()
	switch e.Kind {
	case reserved:
		h.hold, h.amount = state, e.N
	case extended:
		if state == asked {
			h.marks = append(h.marks, mark{n: e.N, more: e.More})
		}
		h.marks[len(h.marks)-1].state = state
	case settled:
		h.settle, h.used = state, e.N
		if state == asked {
			h.keep = e.Keep
		} else {
			h.receipt = *e.Receipt
		}
	}
	if state == yes {
		b.figures.add(e.Kind, 1)
	}
}

// repeat compares the receipt of a second settlement with that of the first.
func (b *book) repeat(e event) {
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

// ends are the ways in which a request may have ended; none means that it is
// not there. Which of them it was depends on how far the process came.
func (b *book) ends(h *history) (ends []end, may bool) {
	switch h.hold {
	case unasked, no:
		return nil, true
	case asked:
		return []end{{0, h.amount, billing.ReasonInternal}}, true
	}
	last := end{0, h.amount, billing.ReasonInternal}
	before := last
	for _, m := range h.marks {
		if m.state != no {
			before, last = last, end{m.n, last.held + m.more, billing.ReasonInternal}
		}
	}
	complete := end{h.used, last.held, billing.ReasonComplete}
	switch {
	case h.settle == yes && !b.postgres:
		return []end{complete}, false
	case h.settle != unasked: // or it was settled by its checkpoint
		return []end{complete, last}, false
	case len(h.marks) > 0 && h.marks[len(h.marks)-1].state == asked:
		return []end{last, before}, false
	}
	return []end{last}, false
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
