package store

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// position is what an account's row says of money.
type position struct {
	ledger.Balance
	ledger.Sums
	budgets int64 // in force
}

// account is a row in the hands of a batch.
type account struct {
	name string
	position
	before position // as it was read
	fresh  bool
}

// hold is the row of a request that has not been settled.
type hold struct {
	id, account, key, operation, model string

	node       int64
	budgets    []int64 // that it counts against, by their ids; never changed
	version    string
	price      *billing.Price // nil until it is needed
	noPrice    error          // why it cannot be had
	amount     billing.Money
	checkpoint string // what was used by then, a billing.Usage in JSON; may be empty
	created    int64
	expires    int64
	counted    bool // nothing is held for it, and no money moves

	claim   *idempotency.Claim // of its key, if that has no row; may be nil
	stored  bool               // its row is there
	written billing.Money      // the part of amount that is in the rows of its account and budget
	ended   bool
	listed  bool // among what the batch touched
}

// asHold is the value that the gateway carries around.
func (h *hold) asHold(available billing.Money) billing.Hold {
	return billing.Hold{
		ID: h.id, Account: h.account, Key: h.key, Operation: h.operation, Model: h.model,
		Price: h.price, Amount: h.amount, Available: available,
	}
}

// entry is one movement of money in the journal.
type entry struct {
	account, kind, reference string
	customer, credit         billing.Money
}

// The kinds of an entry.
const (
	opening  = "opening"
	credited = "credit"
)

// timeAt is a time of the database.
func timeAt(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

// formatUsage is a usage as a row keeps it.
func formatUsage(u billing.Usage) (string, error) {
	text, err := json.Marshal(u)
	return string(text), err
}

// parseUsage is the inverse of formatUsage; an empty text is no usage.
func parseUsage(text string) (u billing.Usage, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &u)
	}
	return u, err
}

// wanted are the rows that the operations of a batch need.
type wanted struct {
	accounts map[string]bool
	holds    map[string]bool        // of requests that run, or ran; true if a settlement ends it
	fresh    []string               // ids that no request may have had
	requests []*billing.HoldRequest // new ones, with the budgets on their paths
	subjects []subjectOf            // whose budgets are changed
}

// ownKey is a key of an account.
type ownKey struct{ account, key string }

// wantAccount names an account that an operation looks at or changes.
func (b *batch) wantAccount(name string) {
	if b.wanted.accounts == nil {
		b.wanted.accounts = map[string]bool{}
	}
	b.wanted.accounts[name] = true
}

// wantHold names a hold with its account, which is locked before it.
func (b *batch) wantHold(id, account string, ends bool) {
	if b.wanted.holds == nil {
		b.wanted.holds = map[string]bool{}
	}
	b.wanted.holds[id] = b.wanted.holds[id] || ends
	if account != "" {
		b.wantAccount(account)
	}
}

// wantRequest names a new request, with its account and the budgets that it counts against.
func (b *batch) wantRequest(r *billing.HoldRequest) {
	b.wantAccount(r.Account)
	b.wanted.requests = append(b.wanted.requests, r)
}

// wantBudgets names a subject whose budgets are changed.
func (b *batch) wantBudgets(account string, on billing.Subject) {
	b.wantAccount(account)
	b.wanted.subjects = append(b.wanted.subjects, subjectOf{account, on})
}

// load reads what is wanted. It reads accounts in the order of their names, the order in which
// every process locks them, and so the holds and the keys of their requests. Then come tasks,
// then what belongs to the accounts and needs no lock. What depends on other answers, and is
// seldom needed, comes last.
func (b *batch) load() error {
	if b.db.memory != nil {
		if err := b.findLost(); err != nil {
			return err
		}
		b.db.memory.findHolds(b)
	}
	sync := func() error { return b.tx.sync(b.ctx) }
	for _, read := range [...]func() error{
		b.loadAccounts, b.guessBudgets, b.loadHolds, b.loadReceipts, b.loadClaims, sync, b.checkedIn,
		b.loadUnnamedAccounts, b.loadEndedReceipts, b.loadTasks, b.loadBudgets, sync,
	} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// each calls scan for each row that a bulk query finds, on a [Pipeline] not before sync.
func (b *batch) each(query string, args []any, scan func(Row) error) error {
	if len(args) == 0 {
		return nil
	}
	return b.db.bulk(query).each(args, func(query string, args []any) error { return b.tx.read(b.ctx, scan, query, args...) })
}

func (b *batch) loadAccounts() error { return b.lockAccounts(b.wanted.accounts) }

// lockAccounts reads accounts and locks their rows until the end of the batch. Accounts in
// memory are not read.
func (b *batch) lockAccounts(names map[string]bool) error {
	if m := b.db.memory; m != nil {
		names = m.findAccounts(b, names)
	}
	return b.each("SELECT "+accountColumns+" FROM account WHERE id IN[t] ORDER BY id FOR UPDATE", sortedKeys(names), func(rows Row) error {
		a, err := scanAccount(rows)
		b.accounts[a.name] = a
		return err
	})
}

// loadHolds reads holds. It deletes the rows of holds that a settlement ends, so that only one
// of several settlements finds the row. If the settlement is refused, the row is added again.
func (b *batch) loadHolds() error {
	var ends, others []any
	for _, id := range slices.Sorted(maps.Keys(b.wanted.holds)) {
		switch {
		case b.holds[id] != nil:
		case b.wanted.holds[id] && b.db.dialect.Shared:
			ends = append(ends, id)
		default:
			others = append(others, id)
		}
	}
	if b.careful {
		for _, id := range b.wanted.fresh {
			if b.holds[id] == nil {
				others = append(others, id)
			}
		}
	}
	load := func(query string, ids []any, stored bool) error {
		return b.each(query, ids, func(rows Row) error {
			h, err := scanHold(rows)
			if err != nil {
				return err
			}
			b.holds[h.id] = h
			if h.stored = stored; !stored {
				b.touch(h)
				b.tx.wrote = true
			}
			return nil
		})
	}
	if err := load("DELETE FROM hold WHERE id IN[t] RETURNING "+holdColumns, ends, false); err != nil {
		return err
	}
	return load("SELECT "+holdColumns+" FROM hold WHERE id IN[t]", others, true)
}

// loadUnnamedAccounts reads the accounts of holds that the callers did not name.
func (b *batch) loadUnnamedAccounts() error {
	unnamed := map[string]bool{}
	for _, h := range b.holds {
		if b.accounts[h.account] == nil {
			unnamed[h.account] = true
		}
	}
	return b.lockAccounts(unnamed)
}

// loadReceipts reads the receipts that carry the id of a new request.
func (b *batch) loadReceipts() error { return b.receiptsOf(anys(b.wanted.fresh)) }

// loadEndedReceipts reads the receipts of holds that are not open.
func (b *batch) loadEndedReceipts() error {
	var ids []any
	for id, ends := range b.wanted.holds {
		if h := b.holds[id]; h == nil || (!ends && !h.stored) { // a hold in memory may have the id of another
			ids = append(ids, id)
		}
	}
	return b.receiptsOf(ids)
}

func (b *batch) receiptsOf(ids []any) error {
	return b.each("SELECT "+receiptColumns+" FROM receipt WHERE id IN[t]", ids, func(rows Row) error {
		r, err := scanReceipt(rows)
		b.receipts[r.ID] = r
		return err
	})
}

// scanAccount reads a row of accountColumns.
func scanAccount(rows Row) (*account, error) {
	var a account
	err := rows.Scan(&a.name, &a.Posted, &a.Held, &a.Credited, &a.Revenue, &a.Overrun, &a.budgets)
	a.before = a.position
	return &a, err
}

// scanHold reads a row of holdColumns.
func scanHold(rows Row) (*hold, error) {
	var h hold
	var budgets string
	err := rows.Scan(&h.id, &h.node, &h.account, &budgets, &h.key, &h.operation, &h.model,
		&h.version, &h.amount, &h.checkpoint, &h.created, &h.expires, &h.counted)
	h.written = h.amount
	if err == nil {
		h.budgets, err = parseIDs(budgets)
	}
	return &h, err
}

// scanReceipt reads a row of receiptColumns, and what follows into more.
func scanReceipt(rows Row, more ...any) (billing.Receipt, error) {
	var r billing.Receipt
	var created, settled int64
	u := &r.Usage
	err := rows.Scan(append([]any{&r.ID, &r.Account, &r.Key, &r.Operation, &r.Model, &r.Status, &r.PriceVersion,
		&r.Hold, &r.Charge, &r.Overrun, &r.Reason, &r.Channel, &created, &settled,
		&u.Input, &u.CachedInput, &u.CacheWrite, &u.Output, &u.Reasoning,
		&u.ImageInput, &u.ImageOutput, &u.Images, &u.Seconds, &u.Characters, &u.SearchUnits, &u.Requests,
		&u.Variant, (*flagged)(&u.Estimated), (*flagged)(&u.Zero), (*flagged)(&u.Anomaly)}, more...)...)
	r.CreatedAt, r.SettledAt = timeAt(created), timeAt(settled)
	return r, err
}

// flush writes what the operations decided.
func (b *batch) flush() error {
	b.sumHeld()
	for _, write := range [...]func(){
		b.writeAccounts, b.writeBudgets, b.writeHolds, b.writeReceipts, b.writeUsage, b.writeLateUsage, b.writeEntries, b.writeClaims, b.writeAnswers, b.writeResponses, b.writeTasks, b.writeNotices,
	} {
		write()
	}
	return b.err
}

// write runs a bulk statement, which has to change a row for each row of arguments,
// unless something was not written before.
func (b *batch) write(query string, args []any) {
	if b.err == nil {
		b.err = b.tx.writeBulk(b.ctx, query, args, true)
	}
}

// writeAny is write for a statement that need not find its rows.
func (b *batch) writeAny(query string, args []any) {
	if b.err == nil {
		b.err = b.tx.writeBulk(b.ctx, query, args, false)
	}
}

// A balance is changed by a difference, and the result must be a legal balance: nothing
// that was decided in memory gets past this guard.
const legalBalance = " AND posted + c.column2 >= held + c.column3 AND held + c.column3 >= 0"

// sumHeld sums, by account and budget, how the holds of the batch change.
func (b *batch) sumHeld() {
	for _, h := range b.touched {
		more := h.amount - h.written
		if h.ended {
			more = -h.written
		}
		if !h.counted {
			addMoney(b.held, h.account, more)
		}
		for _, id := range h.budgets {
			addMoney(b.reserved, id, more)
		}
	}
}

// writeAccounts adds new accounts, and changes the others by what the batch made of them.
func (b *batch) writeAccounts() {
	var fresh, changed []any
	for _, a := range b.accounts {
		held := b.held[a.name]
		after := a.position
		after.Held = a.before.Held
		switch {
		case a.fresh:
			fresh = append(fresh, a.name, a.Posted, held, a.Credited, a.Revenue, a.Overrun, a.budgets, b.now)
		case after != a.before || held != 0:
			changed = append(changed, a.name, a.Posted-a.before.Posted, held, a.Credited-a.before.Credited,
				a.Revenue-a.before.Revenue, a.Overrun-a.before.Overrun, a.budgets-a.before.budgets)
		}
	}
	b.write("INSERT INTO account ("+accountColumns+", created_at) ROWS[tnnnnnnn]", fresh)
	b.write("UPDATE account SET posted = posted + c.column2, held = held + c.column3, credited = credited + c.column4,"+
		" revenue = revenue + c.column5, overrun = overrun + c.column6, budgets = budgets + c.column7 FROM (ROWS[tnnnnnn]) AS c WHERE id = c.column1"+legalBalance, changed)
}

// writeHolds writes the open holds, and the prices of holds that had no row.
func (b *batch) writeHolds() {
	var gone, fresh, changed []any
	var stored string // the last price
	for _, h := range b.touched {
		switch {
		case h.ended && h.stored:
			gone = append(gone, h.id)
		case h.ended:
		case h.stored:
			changed = append(changed, h.id, h.amount, h.checkpoint, h.expires)
		default:
			fresh = append(fresh, h.id, h.node, h.account, formatIDs(h.budgets), h.key, h.operation, h.model, h.version, h.amount, h.checkpoint, h.created, h.expires, h.counted)
			if h.version != stored && h.price != nil && b.err == nil {
				stored, b.err = h.version, b.storePrice(h.price)
			}
		}
	}
	b.write("DELETE FROM hold WHERE id IN[t]", gone)
	b.write("INSERT INTO hold ("+holdColumns+") ROWS[tnttttttntnnb]", fresh)
	b.write("UPDATE hold SET amount = c.column2, so_far = c.column3, expires_at = c.column4 FROM (ROWS[tntn]) AS c WHERE id = c.column1", changed)
}

// writeReceipts writes the receipts of holds that have ended, with the attempts that
// failed before. Most have nothing but tokens and cost no more than was paid: they are
// written without the rare columns, since each argument of a statement takes its time.
func (b *batch) writeReceipts() {
	var plain, rare []any
	for i := range b.settled {
		r := &b.settled[i]
		u := &r.Usage
		number := b.priceNumber(r.price)
		tokens := billing.Usage{Input: u.Input, CachedInput: u.CachedInput, Output: u.Output, Reasoning: u.Reasoning}
		to := &plain
		if *u != tokens || r.Overrun != 0 || r.available != 0 || r.failed != 0 {
			to = &rare
		}
		*to = append(*to, r.ID, r.Account, r.Key, r.Operation, r.Model, r.Status, number, r.Hold, r.Charge, r.Reason, r.Channel,
			r.CreatedAt.UnixNano(), r.SettledAt.UnixNano(), r.counted, u.Input, u.CachedInput, u.Output, u.Reasoning)
		if to == &rare {
			rare = append(rare, r.Overrun, r.available, u.CacheWrite, u.ImageInput, u.ImageOutput, u.Images, u.Seconds, u.Characters, u.SearchUnits, u.Requests,
				u.Variant, flag(u.Estimated), flag(u.Zero), flag(u.Anomaly), r.failed, r.wasted)
		}
	}
	b.write("INSERT INTO receipt ("+plainColumns+") ROWS[ttttttnnnttnnbnnnn]", plain)
	b.write("INSERT INTO receipt ("+plainColumns+", "+rareColumns+") ROWS[ttttttnnnttnnbnnnnnnnnnnnnnntnnnnn]", rare)
	b.write("INSERT INTO attempt ("+attemptColumns+") ROWS[tnttttnntnnnn]", b.attempts)
}

// addAttempts notes the attempts that failed before a request ended, with its receipt, and
// returns their waste.
func (b *batch) addAttempts(h *hold, r *billing.Receipt, failed []billing.Attempt) (wasted billing.Money, err error) {
	for i := range failed {
		a := &failed[i]
		used := ""
		if !a.Used.IsZero() {
			if used, err = formatUsage(a.Used); err != nil {
				return 0, err
			}
		}
		waste := ledger.Waste(a, h.price)
		wasted = ledger.AddCapped(wasted, waste)
		b.attempts = append(b.attempts, r.ID, int64(i+1), r.Account, a.Channel, a.Model, a.Code, int64(a.Status),
			flag(a.Billable), used, waste, ledger.Nanos(a.StartedAt), a.Duration.Nanoseconds(), r.SettledAt.UnixNano())
	}
	return wasted, nil
}

// flagged is scanned from a flag.
type flagged bool

// Scan implements [sql.Scanner].
func (f *flagged) Scan(v any) error {
	*f = v == int64(1)
	return nil
}

// flag is a boolean that sums and extremes can be taken of.
func flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

// writeEntries adds the entries of credits to the journal.
func (b *batch) writeEntries() {
	args := make([]any, 0, len(b.entries)*6)
	for i := range b.entries {
		e := &b.entries[i]
		args = append(args, e.account, e.kind, e.reference, e.customer, e.credit, b.now)
	}
	b.write("INSERT INTO entry ("+entryColumns+") ROWS[tttnnn]", args)
}
