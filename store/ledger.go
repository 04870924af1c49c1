package store

import (
	"context"
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/video"
)

var (
	_ billing.Meter        = (*DB)(nil)
	_ billing.Accounts     = (*DB)(nil)
	_ billing.Checkpointer = (*DB)(nil)
	_ billing.Records      = (*DB)(nil)
)

// Counting reports whether usage is recorded without money.
func (db *DB) Counting() bool { return db.options.Count }

// Currency is what the amounts are of.
func (db *DB) Currency() string { return db.options.Currency }

// Reserve is billing.Ledger's, durable when it returns. It waits at most
// Options.WaitTimeout; a hold that is made later all the same is given back. One
// that outlives its process (Charge.Until) makes the task of a video.CreateTask with
// it, or is refused by it: both are there or neither is.
func (db *DB) Reserve(ctx context.Context, c billing.Charge) (billing.Hold, error) {
	var ask billing.Ask
	if !db.options.Count {
		var err error
		if ask, err = c.Ask(); err != nil {
			return billing.Hold{}, err
		}
	}
	task, err := taskOf(&c)
	if err != nil {
		return billing.Hold{}, err
	}
	r := &reserving{charge: c, ask: ask, task: task}
	if err := db.committer.run(ctx, r, db.options.WaitTimeout); err != nil {
		return billing.Hold{}, err
	}
	return r.made, nil
}

// Extend is billing.Ledger's, durable when it returns. It also puts off the end
// of a hold that nobody settles.
func (db *DB) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	return db.committer.run(ctx, &extending{id: h.ID, soFar: soFar, more: more}, db.options.WaitTimeout)
}

// HasCapacity implements [billing.Checkpointer]: the next transaction has room, and the
// database takes it.
func (db *DB) HasCapacity() bool {
	c := db.committer
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) < batchLimit/4 && c.down == nil && !c.closed
}

// Settle is billing.Ledger's, durable when it returns. It keeps records of the
// types billing.Outcome, idempotency.Record, video.Step and video.Drop, and waits
// as long as ctx lets it; whether or not it was in time, it may be called again.
//
// A step that ends a task is made with the settlement or neither is: where the
// task is not as the step expects it, fault.ServiceUnavailable says to look
// again. Where the hold had ended before, nothing is written, unless it had ended
// by itself (Charge.Until) and left the task open: that ends then.
func (db *DB) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	s := &settling{id: h.ID, usage: u}
	s.settlementRecords, s.unkept = records(with)
	err := db.committer.run(ctx, s, 0)
	if err != nil {
		return billing.Receipt{}, err
	}
	return s.receipt, nil
}

// reserving makes a hold.
type reserving struct {
	charge billing.Charge
	ask    billing.Ask
	task   *video.CreateTask // that is made with it
	made   billing.Hold
}

func (r *reserving) needs(b *batch) {
	b.wantKey(r.charge.Account, r.charge.Key)
	if r.charge.RequestID != "" {
		b.wanted.fresh = append(b.wanted.fresh, r.charge.RequestID)
	}
	if r.task != nil {
		b.wantNew(r.task)
	}
	if r.charge.Claimed {
		b.claims.requests = append(b.claims.requests, r.charge.RequestID)
	}
}

func (r *reserving) decide(b *batch) error {
	c := &r.charge
	if c.RequestID == "" || b.requestIDUsed(c.RequestID) {
		return fault.New(fault.InternalError, "The gateway used a request id twice. Nothing was charged; send the request again.")
	}
	a := b.accounts[c.Account]
	if a == nil && b.db.options.Count {
		a = b.newAccount(c.Account)
	}
	if a == nil {
		return fault.New(fault.PermissionDenied, "The account that this API key belongs to does not exist in the ledger. The operator has to create it.")
	}
	if r.task != nil {
		if err := b.checkNewTask(r.task); err != nil {
			return err
		}
	}
	h := &hold{
		id: c.RequestID, node: b.node.id, account: c.Account, key: c.Key, operation: c.Operation, model: c.Model,
		version: c.Price.Version(), price: c.Price,
		created: b.now, expires: b.now + b.db.options.HoldFor.Nanoseconds(), counted: b.db.options.Count, fresh: true,
	}
	if p := b.current[ownKey{c.Account, c.Key}]; p != nil {
		h.budget = p.id
	}
	if !c.Until.IsZero() {
		h.node, h.expires = noNode, b.db.ledgerTime(c.Until, b.now)
	}
	account, budget := b.balances(h)
	amount, err := r.ask.Grant(account.position(), budget.position())
	if err != nil {
		return err
	}
	if c.Claimed {
		if err := b.takeClaim(h); err != nil {
			return err
		}
	}
	b.placeHold(h, amount)
	if r.task != nil {
		b.addTask(r.task, true)
	}
	b.holds[h.id] = h
	r.made = h.asHold(b.available(h))
	return nil
}

// noNode is the node of a hold that outlives its process: sweeps of dead
// processes leave it alone.
const noNode = 0

// undo gives back a hold that nobody waited for, and forgets its task.
func (r *reserving) undo() step {
	s := &settling{id: r.charge.RequestID, settlementRecords: settlementRecords{outcome: billing.Outcome{Reason: billing.ReasonInternal}}}
	if r.task != nil {
		s.drops = []video.Drop{{ID: r.task.Task.ID}}
	}
	return s
}

// requestIDUsed reports whether a request has an id already.
func (b *batch) requestIDUsed(id string) bool {
	_, ended := b.receipts[id]
	return ended || b.open[id] != nil || b.holds[id] != nil
}

// balances are the account's and the budget's that a hold counts against; nil
// where nothing bounds it. The hold decides: the server that ends it may bill in
// another way than the one that made it.
func (b *batch) balances(h *hold) (account, budget *balance) {
	if h.counted {
		return nil, nil
	}
	return &b.accounts[h.account].balance, b.budgets[h.budget].balanceOrNil()
}

// available is what the account and the budget can both still give.
func (b *batch) available(h *hold) billing.Money {
	account, budget := b.balances(h)
	return min(account.available(), budget.available())
}

// covered reports whether a hold may have amount more.
func (b *batch) covered(h *hold, amount billing.Money) bool { return amount <= b.available(h) }

// placeHold adds amount to a hold, in the account and in the budget, or in neither.
func (b *batch) placeHold(h *hold, amount billing.Money) bool {
	if !b.covered(h, amount) {
		return false
	}
	account, budget := b.balances(h)
	account.hold(amount)
	budget.hold(amount)
	h.amount += amount
	b.touch(h)
	return true
}

func (b *batch) touch(h *hold) {
	h.changed = true
	if !h.listed {
		h.listed = true
		b.touched = append(b.touched, h)
	}
}

// extending adds to a hold and keeps its checkpoint.
type extending struct {
	id    string
	soFar billing.Usage
	more  billing.Money
}

func (e *extending) needs(b *batch) { b.wantHold(e.id) }

func (e *extending) decide(b *batch) error {
	h := b.holds[e.id]
	if _, ended := b.receipts[e.id]; h == nil && !ended {
		return errUnknownHold()
	}
	switch {
	case h == nil:
		return billing.HoldEnded()
	case e.more < 0 || negative(e.soFar):
		return fault.New(fault.InternalError, "The gateway extended a hold by less than nothing.")
	}
	more := e.more
	if h.counted {
		more = 0
	}
	if !b.placeHold(h, more) {
		return fault.New(fault.InsufficientBalance, "Insufficient balance")
	}
	h.soFar, h.checkpoint = e.soFar, true
	if h.node != noNode {
		h.expires = b.now + b.db.options.HoldFor.Nanoseconds()
	}
	return nil
}

func errUnknownHold() error {
	return fault.New(fault.InternalError, "The gateway lost sight of a hold: the ledger has none by its id.")
}

// settling ends a hold.
type settling struct {
	id      string
	usage   billing.Usage
	recover bool // the last checkpoint is what was used
	settlementRecords
	unkept  error // why it cannot be kept
	receipt billing.Receipt
}

func (s *settling) needs(b *batch) {
	b.wantHold(s.id)
	s.wantTasks(b)
}

func (s *settling) decide(b *batch) error {
	if r, ended := b.receipts[s.id]; ended {
		s.receipt = r
		s.applyLate(b)
		return nil
	}
	h := b.holds[s.id]
	if h == nil {
		return errUnknownHold()
	}
	if s.unkept != nil {
		return s.unkept
	}
	if err := s.checkSteps(b, h.id); err != nil {
		return err
	}
	u := s.usage
	if s.recover {
		u = h.soFar
		if h.damaged != nil {
			return fault.Wrap(fault.InternalError, fmt.Sprintf("The checkpoint of the hold %.64q is damaged.", h.id), h.damaged)
		}
	}
	cost, err := b.cost(h, u)
	if err != nil {
		return err
	}
	r := billing.Receipt{
		ID: h.id, CreatedAt: timeAt(h.created), SettledAt: b.at(), Account: h.account, Key: h.key,
		Operation: h.operation, Model: h.model, Status: status(u), Usage: u, PriceVersion: h.version,
		Hold: h.amount, Reason: s.outcome.Reason, Channel: s.outcome.Channel,
	}
	if err := b.capture(h, &r, cost); err != nil {
		return err
	}
	for _, record := range s.answers {
		b.answers = append(b.answers, answer{record, r})
	}
	b.addAttempts(h, &r, s.outcome.Failed)
	s.applySteps(b)
	s.receipt = r
	return nil
}

// cost is what a hold's request is charged for u at the price that it pinned.
func (b *batch) cost(h *hold, u billing.Usage) (billing.Money, error) {
	if h.price == nil && h.version != "" {
		p, err := b.db.Price(b.ctx, h.version)
		if err != nil {
			return 0, err
		}
		h.price = p
	}
	cost, err := h.price.Cost(u)
	if err != nil || negative(u) {
		return 0, fault.Wrap(fault.InternalError, "The gateway could not price what the request used.", err)
	}
	return cost, nil
}

// status is that of a request that used u.
func status(u billing.Usage) string {
	if u.Zero || !u.IsZero() {
		return billing.Captured
	}
	return billing.Released
}

// capture moves the money of one settlement, or none of it.
func (b *batch) capture(h *hold, r *billing.Receipt, cost billing.Money) error {
	a, budget := b.balances(h)
	available := a.available()
	charge := min(cost, h.amount+available) // fits: nothing is held where available is Unlimited
	if cost > 0 && a != nil {
		owner := b.accounts[h.account]
		if !owner.revenue.Fits(cost) || !owner.overrun.Fits(cost-charge) {
			return fault.New(fault.InternalError, "The gateway's books cannot hold an amount this large.")
		}
		owner.revenue += cost
		owner.overrun += cost - charge
		b.entries = append(b.entries, entry{
			account: h.account, kind: captured, reference: h.id,
			customer: -charge, revenue: cost, overrun: charge - cost, held: h.amount, available: available,
		})
	}
	a.capture(h.amount, charge)
	budget.capture(h.amount, charge)
	r.Charge, r.Overrun = charge, cost-charge
	h.ended = true
	b.touch(h)
	b.settled = append(b.settled, settledReceipt{*r, h.counted})
	delete(b.holds, h.id)
	b.receipts[h.id] = *r
	return nil
}

// newAccount adds an account to the batch.
func (b *batch) newAccount(name string) *account {
	a := &account{name: name, fresh: true}
	b.accounts[name] = a
	return a
}

func errNoAccount(name string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no account %.64q.", name))
}
