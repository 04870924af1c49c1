package webhook

import (
	"net/url"
	"slices"
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

// queue holds what waits for a worker. Accounts take turns, and within an account
// its receivers do, so that neither an account with many receivers nor a receiver
// with many deliveries delays the others. It is used by one goroutine.
type queue struct {
	idle       int // workers
	perHost    int // attempts at once with one receiver
	perAccount int // attempts at once for one account
	attempts   map[string]int
	accounts   map[string]*accountQueue
	order      []*accountQueue // the accounts, the next to get a turn first
}

// accountQueue is an account with deliveries that wait or are being attempted.
type accountQueue struct {
	account  string
	hosts    map[string]*receiverQueue
	order    []*receiverQueue // its receivers, the next to get a turn first
	waiting  int
	attempts int
}

// receiverQueue is what waits for one receiver of one account.
type receiverQueue struct {
	host    string
	waiting []task
}

func newQueue(workers, perHost, perAccount int) *queue {
	return &queue{
		idle: workers, perHost: perHost, perAccount: perAccount,
		attempts: make(map[string]int), accounts: make(map[string]*accountQueue),
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
	if q.idle == 0 {
		return false
	}
	s, _ := q.startable()
	return s == nil
}

// add adds a task, unless too many wait for its receiver or of its account.
func (q *queue) add(t task, now time.Time) {
	s := q.accounts[t.delivery.Account]
	if s == nil {
		s = &accountQueue{account: t.delivery.Account, hosts: make(map[string]*receiverQueue)}
		q.accounts[s.account] = s
		q.order = append(q.order, s)
	}
	l := s.hosts[t.host]
	if l == nil {
		l = &receiverQueue{host: t.host}
		s.hosts[t.host] = l
		s.order = append(s.order, l)
	}
	s.waiting -= l.expire(now)
	if len(l.waiting) >= maxPerReceiver || s.waiting >= maxPerAccount {
		q.forget(s, l)
		return
	}
	l.waiting = append(l.waiting, t)
	s.waiting++
}

// next removes the task that is to start, if there is one and a worker for it.
// It drops tasks whose leases end before the given time: they will be leased
// again.
func (q *queue) next(until time.Time) (task, bool) {
	for q.idle > 0 {
		s, l := q.startable()
		if s == nil {
			break
		}
		expired := l.expire(until)
		s.waiting -= expired
		if len(l.waiting) == 0 {
			q.forget(s, l)
			continue
		}
		t := l.waiting[0]
		l.waiting[0] = task{}
		l.waiting = l.waiting[1:]
		s.waiting--
		q.idle--
		s.attempts++
		q.attempts[l.host]++
		s.order = append(without(s.order, l), l)
		q.order = append(without(q.order, s), s)
		q.forget(s, l)
		return t, true
	}
	return task{}, false
}

// startable is the first account in turn, and its first receiver, of which an
// attempt may start; nil if there is none.
func (q *queue) startable() (*accountQueue, *receiverQueue) {
	for _, s := range q.order {
		if s.waiting == 0 || s.attempts >= q.perAccount {
			continue
		}
		for _, l := range s.order {
			if len(l.waiting) > 0 && q.attempts[l.host] < q.perHost {
				return s, l
			}
		}
	}
	return nil, nil
}

// done frees the worker of an attempt.
func (q *queue) done(t task) {
	q.idle++
	if q.attempts[t.host]--; q.attempts[t.host] == 0 {
		delete(q.attempts, t.host)
	}
	s := q.accounts[t.delivery.Account]
	s.attempts--
	q.forget(s, nil)
}

// forget removes a receiver for which nothing waits, and an account for which
// nothing waits or is being attempted.
func (q *queue) forget(s *accountQueue, l *receiverQueue) {
	if l != nil && len(l.waiting) == 0 {
		delete(s.hosts, l.host)
		s.order = without(s.order, l)
	}
	if s.attempts == 0 && s.waiting == 0 {
		delete(q.accounts, s.account)
		q.order = without(q.order, s)
	}
}

// without removes the one element that equals x.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(other T) bool { return other == x })
}

// expire drops the first tasks whose leases end before the given time, and
// returns how many.
func (l *receiverQueue) expire(before time.Time) (n int) {
	for len(l.waiting) > 0 && l.waiting[0].until.Before(before) {
		l.waiting[0] = task{}
		l.waiting = l.waiting[1:]
		n++
	}
	return n
}
