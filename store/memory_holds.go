package store

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// memoryHolds are the holds that a process decides in memory, since no other process uses the
// database, with the claims of their idempotency keys. A hold that dies with its process is
// given back in any case, so the disk need not have it. The disk learns how a request ended,
// what a running one has used by then, and every hold older than [storeAfter], so that a crash
// leaves a receipt of what vendors may bill.
//
// An account has available what its row says, less held. The row has only the holds with rows
// of their own.
//
// Only the committer writes rows. A batch starts from the rows in memory. It decides and takes
// what it needs under the lock, and updates the rows in memory when it is durable.
type memoryHolds struct {
	mu       sync.Mutex
	node     int64                        // the process, as holds name it
	accounts aged[string, account]        // rows as the last commit left them
	budgets  aged[int64, *ledger.Budget]  // the same of budgets, by id
	onPath   aged[subjectOf, []int64]     // the budgets in force on a subject of an account that has some
	rows     int                          // that accounts and budgets may have together, a budget counts twice
	held     map[string]billing.Money     // by account: in memory alone, and what a running batch will take
	reserved map[int64]billing.Money      // the same by budget
	open     map[string]*hold             // of this process, without those that outlive it
	claims   map[idempotency.Key]claimed  // of requests that run
	free     map[idempotency.Key]*freeKey // that no request has used, or that are being looked up
	ended    recent                       // ids that no new request may have
	lost     map[string]struct{}          // holds of batches that failed: they may have ended
	closing  bool
	young    []youngHold // in the order in which they were made
}

// youngHold is a hold that had no row when it was made.
type youngHold struct {
	id, account string
	made        time.Time
}

// freeKey is a key for which the disk had no row when it was looked up. A claim removes it,
// and need not look again.
type freeKey struct {
	found bool // the disk has answered
}

const (
	// storeAfter is the age at which a hold gets a row.
	storeAfter = time.Second
	// freeKeys bounds the keys that are known to be free.
	freeKeys = 1 << 10
	// recentIDs is how many ids of ended requests are known without a look at the receipts. An
	// older receipt refuses a second one with its id when that is settled.
	recentIDs = 1 << 14
)

// How many rows of accounts and of budgets are kept in memory: as many as fit into a sixteenth
// of the memory that the runtime may use. It is at least the first number, and the second
// number if the runtime's memory has no limit.
const (
	leastRows = 1 << 16
	mostRows  = 1 << 20
	rowBytes  = 256 // of one with its name and its place in the map
)

// rowsInMemory is how many rows are kept under a memory limit as [debug.SetMemoryLimit] has it.
func rowsInMemory(limit int64) int {
	if limit == math.MaxInt64 {
		return mostRows
	}
	return int(max(leastRows, limit/16/rowBytes))
}

// aged is a map that forgets by age: what was neither read nor written since half of the
// others were is forgotten first.
type aged[K comparable, V any] struct{ young, old map[K]V }

func newAged[K comparable, V any]() aged[K, V] {
	return aged[K, V]{young: map[K]V{}, old: map[K]V{}}
}

// get is a value, which is young from now on.
func (a *aged[K, V]) get(key K) (v V, known bool) {
	if v, known = a.young[key]; !known {
		if v, known = a.old[key]; known {
			a.set(key, v)
		}
	}
	return v, known
}

func (a *aged[K, V]) set(key K, v V) {
	a.young[key] = v
	delete(a.old, key)
}

func (a *aged[K, V]) delete(key K) {
	delete(a.young, key)
	delete(a.old, key)
}

// age forgets the old generation. The young one becomes the old one.
func (a *aged[K, V]) age() { a.young, a.old = map[K]V{}, a.young }

// newMemoryHolds keeps at most so many rows of accounts and budgets.
func newMemoryHolds(rows int) *memoryHolds {
	return &memoryHolds{
		accounts: newAged[string, account](), budgets: newAged[int64, *ledger.Budget](), onPath: newAged[subjectOf, []int64](), rows: rows,
		held: map[string]billing.Money{}, reserved: map[int64]billing.Money{},
		open: map[string]*hold{}, claims: map[idempotency.Key]claimed{}, free: map[idempotency.Key]*freeKey{}, lost: map[string]struct{}{},
		ended: recent{known: map[string]struct{}{}},
	}
}

// recent are the last ids that were added.
type recent struct {
	known map[string]struct{}
	ring  []string
	next  int
}

func (r *recent) add(id string) {
	if len(r.ring) < recentIDs {
		r.ring = append(r.ring, id)
	} else {
		delete(r.known, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % recentIDs
	}
	r.known[id] = struct{}{}
}

// reserve makes a hold in memory. known is false, and nothing has changed, if the account's
// row is not in memory: the committer then decides, and loads it. first says that no other
// hold waits for its row.
func (m *memoryHolds) reserve(r *reservation, now, expires int64, counted bool) (first, known bool, err error) {
	c := &r.request
	m.mu.Lock()
	defer m.mu.Unlock()
	a, known := m.accounts.get(c.Account)
	if !known {
		return false, false, nil
	}
	var budgets []*ledger.Budget
	if a.budgets > 0 {
		if budgets, known = m.budgetsOf(c, now); !known {
			return false, false, nil
		}
		if err := ledger.CheckCount(budgets); err != nil {
			return false, true, err
		}
	}
	if _, ended := m.ended.known[c.RequestID]; ended || c.RequestID == "" || m.open[c.RequestID] != nil {
		return false, true, ledger.ErrRequestIDUsed()
	}
	h := r.hold(now, expires, counted, budgets)
	payer := ledger.Payer{Budgets: budgets, Now: now}
	if !counted {
		payer.Account = &ledger.Balance{Posted: a.Posted, Held: a.Held + m.held[a.name]}
	}
	amounts := r.amounts
	if counted && len(budgets) > 0 { // otherwise nothing is held where usage is only counted
		if amounts, err = ledger.AmountsOf(c); err != nil {
			return false, true, err
		}
	}
	amount, err := payer.Reserve(amounts)
	if err != nil {
		return false, true, err
	}
	h.amount, h.claim, h.node = amount, r.claim, m.node
	m.add(h, amount)
	m.open[h.id] = h
	m.young = append(m.young, youngHold{h.id, h.account, time.Now()})
	r.made = h.asHold(payer.Available())
	return len(m.young) == 1, true, nil
}

// budgetsOf are the budgets that a request counts against, with what is held in memory; false
// if their rows are not in memory.
func (m *memoryHolds) budgetsOf(r *billing.HoldRequest, now int64) (found []*ledger.Budget, known bool) {
	for _, on := range ledger.Path(r) {
		ids, known := m.onPath.get(subjectOf{r.Account, on})
		if !known {
			return nil, false
		}
		for _, id := range ids {
			row, known := m.budgets.get(id)
			if !known {
				return nil, false
			}
			if row.Terms.Counts(r.Model) {
				row.Refresh(now)
				found = append(found, m.withHeld(row))
			}
		}
	}
	return found, true
}

// withHeld is a copy of a budget's row with what is held in memory.
func (m *memoryHolds) withHeld(row *ledger.Budget) *ledger.Budget {
	b := *row
	b.Held += m.reserved[b.ID]
	return &b
}

// add adds to what is held in memory, or takes off.
func (m *memoryHolds) add(h *hold, amount billing.Money) {
	if !h.counted {
		addMoney(m.held, h.account, amount)
	}
	for _, id := range h.budgets {
		addMoney(m.reserved, id, amount)
	}
}

// addMoney adds to a sum that is not kept where it is 0.
func addMoney[K comparable](to map[K]billing.Money, key K, amount billing.Money) {
	if sum := to[key] + amount; sum != 0 {
		to[key] = sum
	} else {
		delete(to, key)
	}
}

// claim claims a key for a request, unless another running request has it. free says that the
// disk knows of no earlier one.
func (m *memoryHolds) claim(c *idempotency.Claim, request string) (free bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if first, taken := m.claims[c.Key]; taken {
		return false, idempotency.ErrTaken(first.content, c.Content)
	}
	m.claims[c.Key] = claimed{content: c.Content, request: request}
	look := m.free[c.Key]
	delete(m.free, c.Key)
	return look != nil && look.found, nil
}

// look begins a look at the disk for a key, unless a running request has claimed it.
func (m *memoryHolds) look(key idempotency.Key) (c claimed, taken bool, begun *freeKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, taken = m.claims[key]; taken {
		return c, true, nil
	}
	if len(m.free) >= freeKeys {
		clear(m.free)
	}
	begun = &freeKey{}
	m.free[key] = begun
	return c, false, begun
}

// foundFree ends a look that found nothing, unless the key was claimed meanwhile.
func (m *memoryHolds) foundFree(key idempotency.Key, look *freeKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	look.found = m.free[key] == look
}

// unclaim ends a request's claim.
func (m *memoryHolds) unclaim(key idempotency.Key, request string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropClaim(key, request)
}

// dropClaim is unclaim for who has locked m.mu.
func (m *memoryHolds) dropClaim(key idempotency.Key, request string) {
	if m.claims[key].request == request {
		delete(m.claims, key)
	}
}

// hold is an open hold; nil if it is not in memory.
func (m *memoryHolds) hold(id string) *hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open[id]
}

// count is how many holds are open.
func (m *memoryHolds) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

// remove ends a hold in memory. m.mu is held.
func (m *memoryHolds) remove(h *hold) {
	if !h.stored {
		m.add(h, -h.amount)
	}
	if h.claim != nil {
		m.dropClaim(h.claim.Key, h.id)
	}
	delete(m.open, h.id)
	m.ended.add(h.id)
}

// balance is the row of an account with what is held in memory.
func (m *memoryHolds) balance(account string, row ledger.Balance) ledger.Balance {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, known := m.accounts.get(account); known {
		row = a.Balance // a row that was read may be older than what is held
	}
	row.Held += m.held[account]
	return row
}

// budget is balance for the row of a budget.
func (m *memoryHolds) budget(row *ledger.Budget) *ledger.Budget {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, _ := m.budgets.get(row.ID); known != nil {
		row = known
	}
	return m.withHeld(row)
}

// withoutRow are the holds that are in memory alone.
func (m *memoryHolds) withoutRow() (holds []*hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.open {
		if !h.stored {
			holds = append(holds, h)
		}
	}
	return holds
}

// total is what is held in memory alone.
func (m *memoryHolds) total() *big.Int {
	total := new(big.Int)
	for _, h := range m.withoutRow() {
		if h.counted {
			continue
		}
		total.Add(total, big.NewInt(int64(h.amount)))
	}
	return total
}

// newStoreHoldsOp gives rows to those of the holds that are still open.
//
// No caller waits for the op, and it is not given up either: it begins as an op that is taken.
func newStoreHoldsOp(holds []youngHold) *op {
	o := newOp(func(b *batch) {
		for _, h := range holds {
			b.wantHold(h.id, h.account, false)
		}
	}, func(b *batch) error {
		for _, young := range holds {
			h := b.holds[young.id]
			if h == nil || h.stored {
				continue
			}
			if _, used := b.receipts[h.id]; used { // it could never be settled
				b.db.memory.remove(b.db.memory.open[h.id])
				continue
			}
			b.touch(h)
		}
		return nil
	})
	o.unattended = holds
	o.start()
	return o
}

// postpone has holds get their rows later.
func (m *memoryHolds) postpone(holds []youngHold, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range holds {
		h.made = now
		m.young = append(m.young, h)
	}
}

// giveUp has holds get no rows, since those of their accounts are damaged.
func (m *memoryHolds) giveUp(holds []youngHold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, given := range holds {
		delete(m.lost, given.id)
		m.young = slices.DeleteFunc(m.young, func(h youngHold) bool { return h.id == given.id })
	}
}

// takeDue takes the holds that must get a row by now, at most a batch of them; in a store
// that closes those are all.
func (m *memoryHolds) takeDue(now time.Time, closing bool) (due []youngHold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for n < len(m.young) && len(due) < batchLimit && (closing || now.Sub(m.young[n].made) >= storeAfter) {
		if h := m.open[m.young[n].id]; h != nil && !h.stored {
			due = append(due, m.young[n])
		}
		n++
	}
	m.young = m.young[n:]
	m.closing = closing
	return due
}

// nextDue is how long there is nothing to do for takeDue; 0 for ever.
func (m *memoryHolds) nextDue(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.young) == 0 {
		return 0
	}
	return max(storeAfter-now.Sub(m.young[0].made), time.Millisecond)
}

// findAccounts gives a batch the rows that are in memory, and returns the names of the others.
func (m *memoryHolds) findAccounts(b *batch, names map[string]bool) (missing map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range names {
		if a, known := m.accounts.get(name); known {
			b.accounts[name] = &a
			continue
		}
		if missing == nil {
			missing = map[string]bool{}
		}
		missing[name] = true
	}
	return missing
}

// findBudgets gives a batch the budgets in force on a subject; false if their rows are not in
// memory.
func (m *memoryHolds) findBudgets(b *batch, of subjectOf) (known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids, known := m.onPath.get(of)
	var found []*budget
	for _, id := range ids {
		if !m.copyBudget(b, id) {
			return false
		}
		found = append(found, b.budgets[id])
	}
	if known {
		b.current[of] = found
	}
	return known
}

// findBudget gives a batch a budget by its id; false if its row is not in memory.
func (m *memoryHolds) findBudget(b *batch, id int64) (known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.copyBudget(b, id)
}

// copyBudget is findBudget for who has locked m.mu.
func (m *memoryHolds) copyBudget(b *batch, id int64) (known bool) {
	row, known := m.budgets.get(id)
	if known && b.budgets[id] == nil {
		b.budgets[id] = &budget{Budget: *row, before: *row}
	}
	return known
}

// findHolds gives a batch those of the holds that it wants which are in memory.
func (m *memoryHolds) findHolds(b *batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range append(slices.Collect(maps.Keys(b.wanted.holds)), b.wanted.fresh...) {
		if h := m.open[id]; h != nil {
			copied := *h
			copied.listed = false
			b.holds[id] = &copied
			b.wantAccount(h.account)
		}
	}
}

// decideLocked has the operations of a batch decide on what is available now, and takes
// that out of the reach of new holds.
func (m *memoryHolds) decideLocked(b *batch, decide func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.accounts.young)+2*len(m.budgets.young)+len(m.onPath.young) > m.rows/2 { // here, since a batch on its way needs its rows
		m.accounts.age()
		m.budgets.age()
		m.onPath.age()
	}
	// The rows that the batch has read are known from now on, and so are subjects without a
	// budget. The operations see as held what the rows have and what is in memory alone.
	for of, budgets := range b.current {
		m.onPath.set(of, idsOf(budgets))
	}
	for id, p := range b.budgets {
		row := p.Budget
		m.budgets.set(id, &row)
		p.Held += m.reserved[id]
		p.before = p.Budget
	}
	for name, a := range b.accounts {
		m.accounts.set(name, *a)
		a.Held += m.held[name]
		a.before = a.position
	}
	if err := decide(); err != nil {
		return err
	}
	// What they take counts as held until the batch is durable or has failed: the rows in memory
	// do not have it yet. What they give back is not available before that either.
	for name, a := range b.accounts {
		if take := a.before.Available() - a.Available(); take > 0 {
			b.takes = append(b.takes, func() { addMoney(m.held, name, -take) })
			addMoney(m.held, name, take)
		}
	}
	for id, p := range b.budgets {
		if take := p.before.Available(b.now) - p.Available(b.now); take > 0 && !p.fresh {
			b.takes = append(b.takes, func() { addMoney(m.reserved, id, -take) })
			addMoney(m.reserved, id, take)
		}
	}
	return nil
}

// publish brings the rows in memory up to date with a batch that is durable.
func (m *memoryHolds) publish(b *batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.giveBack()
	m.node = b.self
	for name, a := range b.accounts {
		row := account{name: name, position: a.position}
		before, _ := m.accounts.get(name)
		row.Held = before.Held + b.held[name] // and not a.Held, which counts what has no row
		m.accounts.set(name, row)
	}
	for of, budgets := range b.current {
		m.onPath.set(of, idsOf(budgets))
	}
	for id, p := range b.budgets {
		row, known := m.budgets.get(id)
		if !known && !p.fresh {
			continue
		}
		after := p.Budget
		after.Held = b.reserved[id] // and not p.Held, which counts what has no row
		if known {
			after.Held += row.Held
		}
		m.budgets.set(id, &after)
	}
	for _, h := range b.touched {
		before := m.open[h.id]
		switch {
		case h.ended && before != nil:
			m.remove(before)
		case h.ended:
			m.ended.add(h.id)
		case h.node != noNode:
			if before != nil && !before.stored { // the account's row holds it from now on
				m.add(before, -before.amount)
			}
			h.stored, h.written = true, h.amount
			m.open[h.id] = h
		}
	}
}

// abort takes back what a batch that is not durable has taken. After an error it is not known
// what the database has: rows are read again, and holds looked for.
func (m *memoryHolds) abort(b *batch, failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.giveBack()
	if !failed {
		return
	}
	for name := range b.accounts {
		m.accounts.delete(name)
	}
	m.budgets, m.onPath = newAged[int64, *ledger.Budget](), newAged[subjectOf, []int64]()
	for _, h := range b.touched {
		if m.open[h.id] == nil {
			continue
		}
		m.lost[h.id] = struct{}{}
		if !m.closing { // a store that closes makes no second attempt
			m.young = append(m.young, youngHold{h.id, h.account, time.Now()})
		}
	}
}

// findLost finds out what became of the holds of batches that failed, those of the accounts
// and holds that the batch needs: one whose row is damaged stops no other account.
func (b *batch) findLost() error {
	m := b.db.memory
	m.mu.Lock()
	wanted := map[string]bool{}
	for id := range m.lost {
		_, needed := b.wanted.holds[id]
		if h := m.open[id]; needed || h == nil || b.wanted.accounts[h.account] {
			wanted[id] = true
		}
	}
	m.mu.Unlock()
	ids := sortedKeys(wanted)
	ended := map[string]int64{} // when their holds were made
	err := b.each("SELECT id, created_at FROM receipt WHERE id IN[t]", ids, func(rows Row) error {
		var id string
		var created int64
		err := rows.Scan(&id, &created)
		ended[id] = created
		return err
	})
	if err != nil {
		return err
	}
	stored := map[string]*hold{}
	err = b.each("SELECT "+holdColumns+" FROM hold WHERE id IN[t]", ids, func(rows Row) error {
		h, err := scanHold(rows)
		stored[h.id] = h
		return err
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		h := m.open[id.(string)]
		delete(m.lost, id.(string))
		created, found := ended[id.(string)]
		switch row := stored[id.(string)]; {
		case h == nil: // a later batch has ended it
		case found && created == h.created: // and not another request's that had the same id
			m.remove(h)
		case row != nil: // the batch that failed has stored it, or was to change it
			row.stored, row.price, row.claim = true, h.price, h.claim
			if !h.stored {
				m.add(h, -h.amount)
			}
			m.open[h.id] = row
		}
	}
	return nil
}
