package store

import (
	"context"
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/ledger"
	"github.com/tollhouse-ai/gateway/responses/state"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// Ledger is everything of a database in which money moves. Give it to the gateway as the
// Meter, as the Tasks and as the store of answers. A call is then settled, its answer kept and
// its task changed in one transaction.
//
// If the process that submits a video dies before an upstream's answer is kept, the task stays
// video.Submitting with its hold, and its idempotency key stays claimed. Duplicates get
// fault.IdempotencyConflict until the task or the hold has ended. No key ever makes two jobs.
type Ledger interface {
	billing.Meter
	billing.Checkpointer
	billing.Accounts
	idempotency.Store
	video.Store
	video.Clock
	webhooks
	// OpenHolds are the requests that have not been settled, sorted by id.
	OpenHolds(ctx context.Context) ([]billing.OpenHold, error)
	// Price returns the price row of a version. Rows that receipts refer to are never removed,
	// so every receipt can be recomputed. An empty version is the nil Price, which is free. It
	// fails with fault.NotFound if the version was never loaded.
	Price(ctx context.Context, version string) (*billing.Price, error)
}

// webhooks are what the gateway delivers webhooks from, and what the admin API lists.
type webhooks interface {
	webhook.Outbox
	// Deliveries returns an account's deliveries with their state, the newest first; those of
	// all accounts if account is empty. It returns at most limit of them (100 if limit is not
	// positive), and never more than 1,000. Ended deliveries are kept for seven days.
	Deliveries(ctx context.Context, account string, limit int) ([]webhook.Status, error)
	// Resend makes a delivery due now, in whatever state it is, with all its attempts again. It
	// returns false if no delivery has the id.
	Resend(ctx context.Context, id string) (found bool, err error)
	// WebhookSecret returns the secret that signs an account's deliveries, and makes one if
	// there is none. With rotate it makes a new one: the previous secret signs too for 24 hours,
	// older ones no longer. Whoever has the secret can forge deliveries.
	WebhookSecret(ctx context.Context, account string, rotate bool) (webhook.Secret, error)
}

// Ledger is the ledger in the database, always the same one.
func (db *DB) Ledger() Ledger { return db.ledger }

// dbLedger is the [Ledger] of a database.
type dbLedger struct{ *DB }

// noNode is the node of a hold that outlives its process: sweeps of dead
// processes leave it alone.
const noNode = 0

// Counting implements [billing.Reports].
func (db *dbLedger) Counting() bool { return db.options.Count }

// Currency implements [billing.Reports].
func (db *dbLedger) Currency() string { return db.options.Currency }

// HasCapacity implements [billing.Checkpointer]: the next transaction is not full, and
// the database took the last one.
func (db *dbLedger) HasCapacity() bool {
	c := db.committer
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) < batchLimit/4 && c.down == nil && !c.closed
}

// Reserve implements [billing.Meter]. On Postgres the hold is durable when Reserve returns,
// and so is a hold that outlives its process; for SQLite see memoryHolds. It waits at most
// Options.WaitTimeout. A hold that is made after that is given back. A hold that outlives its
// process (HoldRequest.Until) is made with the task of a video.CreateTask: both are stored, or
// neither.
func (db *dbLedger) Reserve(ctx context.Context, c billing.HoldRequest) (billing.Hold, error) {
	var amounts ledger.Amounts
	if !db.options.Count {
		var err error
		if amounts, err = ledger.AmountsOf(&c); err != nil {
			return billing.Hold{}, err
		}
	}
	r := &reservation{request: c, amounts: amounts}
	if err := r.sortRecords(); err != nil {
		return billing.Hold{}, err
	}
	if db.memory != nil {
		return db.reserveInMemory(ctx, r)
	}
	if err := db.committer.run(ctx, r.op(), db.options.WaitTimeout); err != nil {
		return billing.Hold{}, err
	}
	return r.made, nil
}

// reserveInMemory makes a hold without the disk, unless it outlives the process or the
// account's row is not in memory. A key is claimed in memory first, so that no
// other request comes between the look at its answer and the hold.
func (db *dbLedger) reserveInMemory(ctx context.Context, r *reservation) (made billing.Hold, err error) {
	m, c := db.memory, &r.request
	if err := db.committer.admit(); err != nil {
		return billing.Hold{}, err
	}
	if r.claim != nil { // it is given up again unless the hold is made in memory
		var free bool
		if free, err = m.claim(r.claim, c.RequestID); err != nil {
			return billing.Hold{}, err
		}
		defer func() {
			if h := m.hold(c.RequestID); err != nil || h == nil || h.claim == nil { // which has a row, or is none
				m.unclaim(r.claim.Key, c.RequestID)
			}
		}()
		if !free {
			err = db.checkUnused(ctx, r.claim)
		}
		if err != nil {
			return billing.Hold{}, err
		}
	}
	if c.Until.IsZero() && db.committer.healthy() == nil { // otherwise the committer decides, or says that it cannot
		now, err := db.clock()
		if err != nil {
			return billing.Hold{}, err
		}
		first, known, err := m.reserve(r, now, now+db.options.HoldFor.Nanoseconds(), db.options.Count)
		if first {
			db.committer.wakeUp() // it gets a row if it lasts
		}
		if known || err != nil {
			return r.made, err
		}
	}
	if err := db.committer.run(ctx, r.op(), db.options.WaitTimeout); err != nil {
		return billing.Hold{}, err
	}
	return r.made, nil
}

// checkUnused refuses the claim of a key that has an answer.
func (db *dbLedger) checkUnused(ctx context.Context, c *idempotency.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, db.options.WaitTimeout)
	defer cancel()
	first, err := db.answer(ctx, c.Key)
	if err == nil && first != nil {
		err = idempotency.ErrTaken(first.content, c.Content)
	}
	return err
}

// reservation makes a hold.
type reservation struct {
	request billing.HoldRequest
	amounts ledger.Amounts
	task    *video.CreateTask  // made with the hold; nil if there is none
	claim   *idempotency.Claim // of the request's key; nil if there is none
	made    billing.Hold       // the result
}

// sortRecords finds what becomes durable with the hold.
func (r *reservation) sortRecords() error {
	for _, record := range r.request.With {
		switch n := record.(type) {
		case idempotency.Claim:
			r.claim = &n
		case video.CreateTask:
			if r.task != nil || n.Task.RequestID != r.request.RequestID || r.request.Until.IsZero() {
				return fault.New(fault.InternalError, "The gateway made a video whose hold is not its own, or ends with the process.")
			}
			r.task = &n
		default:
			return fault.New(fault.InternalError, fmt.Sprintf("The ledger cannot keep a record of type %T with a hold.", record))
		}
	}
	return nil
}

func (r *reservation) op() *op {
	o := newOp(r.needs, r.decide)
	o.begins, o.undo = true, r.undo
	return o
}

func (r *reservation) needs(b *batch) {
	b.wantRequest(&r.request)
	if r.request.RequestID != "" {
		b.wanted.fresh = append(b.wanted.fresh, r.request.RequestID)
	}
	if r.task != nil {
		b.wantNewTask(r.task)
	}
	if r.claim != nil {
		b.claims.wanted = append(b.claims.wanted, r.claim.Key)
	}
}

func (r *reservation) decide(b *batch) error {
	c := &r.request
	made := b.holds[c.RequestID]
	if _, ended := b.receipts[c.RequestID]; c.RequestID == "" || ended || made != nil {
		if b.again && r.made.ID != "" { // it is its own
			if made != nil {
				b.touch(made) // and counts as open from now on
			}
			return nil
		}
		return ledger.ErrRequestIDUsed()
	}
	a := b.accounts[c.Account]
	if a == nil && b.db.options.Count {
		a = b.newAccount(c.Account)
	}
	if a == nil {
		return ledger.ErrNoPayer()
	}
	if r.task != nil {
		if err := b.checkNewTask(r.task); err != nil {
			return err
		}
	}
	budgets, err := b.budgetsOf(a, c)
	if err != nil {
		return err
	}
	h := r.hold(b.now, b.now+b.db.options.HoldFor.Nanoseconds(), b.db.options.Count, budgets)
	h.node = b.self
	if !c.Until.IsZero() {
		h.node, h.expires = noNode, b.db.ledgerTime(c.Until, b.now)
	}
	if err := b.checkClaim(r.claim); err != nil {
		return err
	}
	amounts := r.amounts
	if h.counted && len(h.budgets) > 0 { // otherwise nothing is held where usage is only counted
		if amounts, err = ledger.AmountsOf(c); err != nil {
			return err
		}
	}
	amount, err := b.payer(h).Reserve(amounts)
	if err != nil {
		return err
	}
	b.addClaim(r.claim, h)
	h.amount = amount
	b.touch(h)
	if r.task != nil {
		b.addTask(r.task, true)
	}
	b.holds[h.id] = h
	r.made = h.asHold(b.payer(h).Available())
	return nil
}

// hold is the request's hold, which counts against some budgets.
func (r *reservation) hold(created, expires int64, counted bool, budgets []*ledger.Budget) *hold {
	c := &r.request
	h := &hold{
		id: c.RequestID, account: c.Account, key: c.Key, operation: c.Operation, model: c.Model,
		version: c.Price.Version(), price: c.Price, created: created, expires: expires, counted: counted,
	}
	for _, p := range budgets {
		h.budgets = append(h.budgets, p.ID)
	}
	return h
}

// undo gives back a hold that no caller waited for, and deletes its task.
func (r *reservation) undo() *op {
	s := &settlement{id: r.request.RequestID, account: r.request.Account}
	s.outcome.Reason, s.frees = billing.ReasonInternal, true
	if r.task != nil {
		s.drops = []video.Drop{{ID: r.task.Task.ID}}
	}
	return s.op()
}

// payer returns the account and the budgets that a hold counts against. The hold decides, since
// the server that ends it may bill in another way than the one that made it.
func (b *batch) payer(h *hold) ledger.Payer {
	p := ledger.Payer{Now: b.now}
	if !h.counted {
		a := b.accounts[h.account]
		p.Account, p.Sums = &a.Balance, &a.Sums
	}
	for _, id := range h.budgets {
		if of := b.budgets[id]; of != nil {
			p.Budgets = append(p.Budgets, &of.Budget)
		}
	}
	return p
}

// touch has a hold written when the batch is.
func (b *batch) touch(h *hold) {
	if !h.listed {
		h.listed = true
		b.touched = append(b.touched, h)
	}
}

// Extend implements [billing.Meter]; the extension is durable when it returns. It also
// postpones the end of a hold that is not settled.
func (db *dbLedger) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	e := &extension{id: h.ID, soFar: soFar, more: more}
	return db.committer.run(ctx, newOp(func(b *batch) { b.wantHold(h.ID, h.Account, false) }, e.decide), db.options.WaitTimeout)
}

// extension adds to a hold and keeps its checkpoint.
type extension struct {
	id    string
	soFar billing.Usage
	more  billing.Money
	done  bool          // it was, unless that was rolled back
	after billing.Money // what is held then
}

func (e *extension) decide(b *batch) error {
	if _, ended := b.receipts[e.id]; ended {
		return ledger.ErrHoldEnded()
	}
	h := b.holds[e.id]
	if h == nil {
		return ledger.ErrUnknownHold()
	}
	more := e.more
	if b.again && e.done && h.amount >= e.after {
		more = 0
	}
	checkpoint, err := formatUsage(e.soFar)
	if err != nil {
		return err
	}
	if more, err = b.payer(h).Extend(&e.soFar, more); err != nil {
		return err
	}
	h.amount += more
	b.touch(h)
	h.checkpoint = checkpoint
	if h.node != noNode {
		h.expires = b.now + b.db.options.HoldFor.Nanoseconds()
	}
	e.done, e.after = true, h.amount
	return nil
}

// Settle implements [billing.Meter]; the settlement is durable when it returns. It keeps
// records of the types billing.Outcome, idempotency.Record, state.Response, video.Step and
// video.Drop. It waits as long as ctx allows, and may be repeated whether or not it was in
// time.
//
// A step that ends a task is written with the settlement, or neither is. If the task is not as
// the step expects, fault.ServiceUnavailable says to look again. If the hold had ended before,
// nothing is written, with one exception: a hold that ended by itself (HoldRequest.Until) and
// left the task open ends the task now.
func (db *dbLedger) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	s := &settlement{id: h.ID, account: h.Account, usage: u}
	s.settlementRecords, s.unkept = sortRecords(with)
	if err := db.committer.run(ctx, s.op(), 0); err != nil {
		return billing.Receipt{}, err
	}
	return s.receipt, nil
}

// settlement ends a hold.
type settlement struct {
	id      string
	account string
	usage   billing.Usage
	recover bool // the last checkpoint is what was used
	frees   bool // the request's key, if it has one, unless something is captured
	settlementRecords
	unkept  error // why the records cannot be kept
	receipt billing.Receipt
}

// settlementRecords are the records of a settlement, by their types.
type settlementRecords struct {
	outcome billing.Outcome
	answers []idempotency.Record
	stored  []*state.Response
	steps   []video.Step
	drops   []video.Drop
}

// sortRecords sorts what is to be durable with a settlement. A record that could
// not be kept is an error: a ledger must not drop what its caller believes durable.
func sortRecords(with []billing.Record) (k settlementRecords, err error) {
	for _, record := range with {
		switch r := record.(type) {
		case billing.Outcome:
			k.outcome = r
		case idempotency.Record:
			k.answers = append(k.answers, r)
		case state.Response:
			k.stored = append(k.stored, &r)
		case video.Step:
			if !r.Task.State.Terminal() {
				return k, fault.New(fault.InternalError, "The gateway settled a video that has not ended.")
			}
			k.steps = append(k.steps, r)
		case video.Drop:
			k.drops = append(k.drops, r)
		default:
			return k, fault.New(fault.InternalError, fmt.Sprintf("The ledger cannot keep a record of type %T.", record))
		}
	}
	return k, nil
}

func (s *settlement) op() *op {
	o := newOp(s.needs, s.decide)
	for i := range s.answers {
		o.bytes += s.answers[i].Bytes()
	}
	for _, r := range s.stored {
		o.bytes += len(r.Body)
	}
	return o
}

func (s *settlement) needs(b *batch) {
	b.wantHold(s.id, s.account, true)
	s.wantTasks(b)
}

func (s *settlement) decide(b *batch) error {
	if r, ended := b.receipts[s.id]; ended {
		s.receipt = r
		s.applySteps(b, true)
		return nil
	}
	h := b.holds[s.id]
	if h == nil {
		return ledger.ErrUnknownHold()
	}
	if s.unkept != nil {
		return s.unkept
	}
	if err := s.checkSteps(b, h.id); err != nil {
		return err
	}
	u := s.usage
	if s.recover {
		var err error
		if u, err = parseUsage(h.checkpoint); err != nil {
			return fault.Wrap(fault.InternalError, fmt.Sprintf("The checkpoint of the hold %.64q is damaged.", h.id), err)
		}
	}
	if err := b.loadPrice(h); err != nil {
		return err
	}
	r := billing.Receipt{
		ID: h.id, CreatedAt: timeAt(h.created), Account: h.account, Key: h.key,
		Operation: h.operation, Model: h.model, PriceVersion: h.version, Hold: h.amount,
	}
	available, err := b.payer(h).Settle(&r, h.price, u, &s.outcome, timeAt(b.now))
	if h.counted || r.Charge <= r.Hold {
		available = 0 // it is kept where it explains a charge above the hold
	}
	var wasted billing.Money
	if err == nil {
		wasted, err = b.addAttempts(h, &r, s.outcome.Failed)
	}
	if err != nil {
		return err
	}
	h.ended = true
	b.touch(h)
	b.settled = append(b.settled, settledReceipt{r, h.counted, h.price, available, int64(len(s.outcome.Failed)), wasted})
	delete(b.holds, h.id)
	b.receipts[h.id] = r
	switch {
	case s.frees && r.Status == billing.Captured:
		b.claims.spent = append(b.claims.spent, r)
	case s.frees, r.Status == billing.Released && (len(s.answers) > 0 || h.claim != nil):
		b.claims.freed = append(b.claims.freed, h.id)
	default:
		b.addAnswers(h, s.answers, r)
	}
	b.responses = append(b.responses, s.stored...)
	s.applySteps(b, false)
	s.receipt = r
	return nil
}

// loadPrice finds the price that a hold pinned.
func (b *batch) loadPrice(h *hold) (err error) {
	if h.price == nil && h.version != "" && h.noPrice == nil {
		h.price, h.noPrice = b.db.ledger.Price(b.ctx, h.version)
	}
	return h.noPrice
}

// CreateAccount implements [billing.Accounts], durable when it returns.
func (db *dbLedger) CreateAccount(ctx context.Context, name string, credit billing.Money) error {
	if err := ledger.CheckAccountName(name); err != nil {
		return err
	}
	created := int64(0) // when it was, unless that was rolled back
	return db.committer.runToEnd(ctx, newOp(
		func(b *batch) { b.wantAccount(name) },
		func(b *batch) error {
			if b.again && b.accounts[name] != nil {
				var at int64
				_, err := b.tx.find(b.ctx, "SELECT created_at FROM account WHERE id = ?", []any{name}, &at)
				if err != nil || at == created {
					return err
				}
			}
			created = b.now
			return b.createAccount(name, credit)
		},
	))
}

// EnsureAccount implements [billing.Accounts], durable when it returns.
func (db *dbLedger) EnsureAccount(ctx context.Context, name string, credit billing.Money) error {
	return ledger.EnsureAccount(ctx, db, name, credit)
}

func (b *batch) createAccount(name string, credit billing.Money) error {
	if err := ledger.CheckNewAccount(name, b.accounts[name] != nil, credit, b.db.options.Count); err != nil {
		return err
	}
	if credit == billing.Unlimited {
		return errTooLarge()
	}
	a := b.newAccount(name)
	if credit > 0 {
		b.post(a, opening, "opening", credit)
	}
	return nil
}

// newAccount adds an account to the batch.
func (b *batch) newAccount(name string) *account {
	a := &account{name: name, fresh: true}
	b.accounts[name] = a
	return a
}

// Credit implements [billing.Accounts], durable when it returns.
func (db *dbLedger) Credit(ctx context.Context, account string, amount billing.Money, reference string) error {
	if db.options.Count {
		return ledger.ErrCountsOnly("amount")
	}
	return db.committer.runToEnd(ctx, newOp(
		func(b *batch) { b.wantAccount(account) },
		func(b *batch) error { return b.credit(account, amount, reference) },
	))
}

// credit moves money between the platform and a customer.
func (b *batch) credit(account string, amount billing.Money, reference string) error {
	a := b.accounts[account]
	if a == nil {
		return ledger.ErrNoAccount(account)
	}
	before, err := b.credited(account, reference)
	if err != nil {
		return err
	}
	again, err := ledger.CheckCredit(amount, reference, before, a.Available())
	if again || err != nil {
		return err
	}
	if !ledger.Fits(a.Posted, amount) || !ledger.Fits(a.Credited, amount) {
		return errTooLarge()
	}
	b.post(a, credited, reference, amount)
	return nil
}

// credited is what a reference already stands for.
func (b *batch) credited(account, reference string) (before ledger.Credited, err error) {
	for _, e := range b.entries {
		if e.kind == credited && e.account == account && e.reference == reference {
			return ledger.Credited{Amount: e.customer, Found: true}, nil
		}
	}
	before.Found, err = b.tx.find(b.ctx, "SELECT customer FROM entry WHERE kind = 'credit' AND account = ? AND reference = ?", []any{account, reference}, &before.Amount)
	return before, err
}

// post adds an amount that was found to fit to an account, with its entry.
func (b *batch) post(a *account, kind, reference string, amount billing.Money) {
	a.Posted += amount
	a.Credited += amount
	b.entries = append(b.entries, entry{account: a.name, kind: kind, reference: reference, customer: amount, credit: -amount})
}

// errTooLarge refuses what one account cannot hold. What all accounts have together
// is bounded by nothing: it is summed where it is read, and not here, since every
// operation of the ledger would wait for that.
func errTooLarge() error {
	return fault.Invalid("amount", "An account cannot hold an amount this large.")
}
