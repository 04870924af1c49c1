package webhook

import (
	"net/url"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/webhook"
)

// maxPerReceiver and maxPerAccount are how many deliveries wait in memory for one
// receiver of an account, and for all of them. More are left alone until their
// leases end.
const (
	maxPerReceiver = 1024
	maxPerAccount  = 8 * maxPerReceiver
)

// task is a delivery that is leased.
type task struct {
	delivery webhook.Delivery
	host     string
	until    time.Time
}

// queue holds deliveries that wait for a worker. Accounts take turns, and so do the receivers
// of an account. Neither an account with many receivers nor a receiver with many deliveries
// delays the others. One goroutine uses it.
type queue struct {
	idle       int            // workers
	perHost    int            // attempts at once with one receiver
	perAccount int            // attempts at once for one account
	attempts   map[string]int // that run, by receiver
	accounts   map[string]*account
	receivers  map[receiverKey]*receiverQueue // with deliveries that wait
	turns      int                            // given so far
}

// account is one with deliveries that wait or are being attempted.
type account struct {
	waiting, attempts int
	turn              int // its last one, or when it came
}

// receiverKey names one receiver of one account.
type receiverKey struct{ account, host string }

// receiverQueue is what waits for one of them.
type receiverQueue struct {
	waiting []task
	turn    int // its last one, or when it came
}

func newQueue(workers, perHost, perAccount int) *queue {
	return &queue{
		idle: workers, perHost: perHost, perAccount: perAccount,
		attempts: make(map[string]int), accounts: make(map[string]*account), receivers: make(map[receiverKey]*receiverQueue),
	}
}

// host is the receiver of an address.
func host(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// wantsWork reports whether a worker is idle and nothing may start on it.
func (q *queue) wantsWork() bool {
	_, r := q.startable()
	return q.idle > 0 && r == nil
}

// nextTurn is later than every turn before.
func (q *queue) nextTurn() int {
	q.turns++
	return q.turns
}

// add adds a task, unless too many wait for its receiver or of its account.
func (q *queue) add(t task, now time.Time) {
	key := receiverKey{t.delivery.Account, t.host}
	a, r := q.accounts[key.account], q.receivers[key]
	if a == nil {
		a = &account{turn: q.nextTurn()}
		q.accounts[key.account] = a
	}
	if r == nil {
		r = &receiverQueue{turn: q.nextTurn()}
		q.receivers[key] = r
	}
	a.waiting -= r.expire(now)
	if len(r.waiting) < maxPerReceiver && a.waiting < maxPerAccount {
		r.waiting = append(r.waiting, t)
		a.waiting++
	}
	q.forget(key)
}

// next removes the task that is to start, if there is one and a worker for it.
// It drops tasks whose leases end before the given time: they will be leased
// again.
func (q *queue) next(until time.Time) (task, bool) {
	for q.idle > 0 {
		key, r := q.startable()
		if r == nil {
			break
		}
		a := q.accounts[key.account]
		a.waiting -= r.expire(until)
		if len(r.waiting) == 0 {
			q.forget(key)
			continue
		}
		t := r.waiting[0]
		r.drop(1)
		q.idle--
		q.attempts[key.host]++
		a.waiting--
		a.attempts++
		a.turn, r.turn = q.nextTurn(), q.nextTurn()
		q.forget(key)
		return t, true
	}
	return task{}, false
}

// startable returns the next receiver for which an attempt may start. Its account and the
// receiver itself have room for one more. It is nil if there is none.
func (q *queue) startable() (key receiverKey, first *receiverQueue) {
	turn := 0 // of first's account
	for k, r := range q.receivers {
		a := q.accounts[k.account]
		if len(r.waiting) == 0 || a.attempts >= q.perAccount || q.attempts[k.host] >= q.perHost {
			continue
		}
		if first == nil || a.turn < turn || a.turn == turn && r.turn < first.turn {
			key, first, turn = k, r, a.turn
		}
	}
	return key, first
}

// done frees the worker of an attempt.
func (q *queue) done(t task) {
	q.idle++
	if q.attempts[t.host]--; q.attempts[t.host] == 0 {
		delete(q.attempts, t.host)
	}
	q.accounts[t.delivery.Account].attempts--
	q.forget(receiverKey{t.delivery.Account, t.host})
}

// forget removes a receiver for which nothing waits, and an account for which
// nothing waits or is being attempted.
func (q *queue) forget(key receiverKey) {
	if r := q.receivers[key]; r != nil && len(r.waiting) == 0 {
		delete(q.receivers, key)
	}
	if a := q.accounts[key.account]; a.attempts == 0 && a.waiting == 0 {
		delete(q.accounts, key.account)
	}
}

// expire drops the first tasks whose leases end before the given time, and
// returns how many.
func (r *receiverQueue) expire(before time.Time) (n int) {
	for n < len(r.waiting) && r.waiting[n].until.Before(before) {
		n++
	}
	r.drop(n)
	return n
}

// drop removes the first n tasks, with what they refer to.
func (r *receiverQueue) drop(n int) {
	clear(r.waiting[:n])
	r.waiting = r.waiting[n:]
}
