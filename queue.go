package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
)

// pendingSettlement is a capture that could not be made durable when its call ended.
type pendingSettlement struct {
	hold      billing.Hold
	usage     billing.Usage
	outcome   billing.Outcome
	answer    *idempotency.Record // for duplicates of the request; may be nil
	with      []billing.Record    // more that is durable with it, where the meter keeps it
	tries     int
	announced <-chan struct{} // closed when the Observer knows that it waits
}

// settlementQueue holds pending captures. It is bounded: what does not fit is left to
// the ledger's own recovery of open holds. Those of one account are tried one
// after the other, and accounts beside each other, so that an account whose
// captures fail, since its row is locked, does not delay the others.
type settlementQueue struct {
	mu           sync.Mutex
	accounts     map[string][]pendingSettlement // only those that have some
	size         int
	startAccount func(account string) // starts the tries of an account; nil while run does not run
}

const (
	queueLimit = 10_000
	queueTries = 16 // at once
)

// add queues p; false if the queue is full.
func (q *settlementQueue) add(p pendingSettlement) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size >= queueLimit {
		return false
	}
	if q.accounts == nil {
		q.accounts = make(map[string][]pendingSettlement)
	}
	account := p.hold.Account
	before := q.accounts[account]
	q.accounts[account] = append(before, p)
	q.size++
	if len(before) == 0 && q.startAccount != nil {
		q.startAccount(account)
	}
	return true
}

func (q *settlementQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// head is the first capture of an account that has some.
func (q *settlementQueue) head(account string) pendingSettlement {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.accounts[account][0]
}

// drop removes the head of an account; again puts it back at the end, so that one
// capture that keeps failing does not stop the account's others. It reports
// whether more are left.
func (q *settlementQueue) drop(account string, again bool) (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.accounts[account]
	p := items[0]
	items[0] = pendingSettlement{} // or its answer would stay in memory
	items = items[1:]
	if again {
		p.tries++
		items = append(items, p)
	} else {
		q.size--
	}
	if len(items) == 0 {
		delete(q.accounts, account)
		return false
	}
	q.accounts[account] = items
	return true
}

// run tries the captures until they succeed or ctx ends, at most queueTries at
// once. It returns when no try runs any more.
func (q *settlementQueue) run(ctx context.Context, try func(context.Context, pendingSettlement) error) {
	slots := make(chan struct{}, queueTries)
	var running sync.WaitGroup
	begin := func(account string) {
		running.Go(func() { q.retry(ctx, account, slots, try) })
	}
	q.mu.Lock()
	q.startAccount = begin
	for account := range q.accounts {
		begin(account)
	}
	q.mu.Unlock()
	<-ctx.Done()
	q.mu.Lock()
	q.startAccount = nil
	q.mu.Unlock()
	running.Wait()
}

// retry tries the captures of one account until none is left or ctx ends, with a
// growing pause after each that fails.
func (q *settlementQueue) retry(ctx context.Context, account string, slots chan struct{}, try func(context.Context, pendingSettlement) error) {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	pause := first
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		failed := try(ctx, q.head(account)) != nil
		<-slots
		if !q.drop(account, failed) {
			return
		}
		if !failed {
			pause = first
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			pause = min(2*pause, most)
		}
	}
}
