package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
)

// places are the places of running calls, and those who wait for one. All that
// is done without anybody waiting is to count a call of its key and its account.
type places struct {
	most, queue int           // places in all, and waiting ones; most < 0 means no bound
	kept        int           // of the last places for callers that run few
	patience    time.Duration // of one who waits

	mu       sync.Mutex
	running  int
	accounts map[string]*share
	keys     map[owner]*share
	tidyAt   int // how many keys are counted before the idle ones are forgotten
	waiting  []*waiter
	turns    uint64        // places that were handed on
	freed    time.Time     // when the last place became free, if all were taken
	pace     time.Duration // the time between two of them, on average
}

// owner is a key of an account.
type owner struct{ account, key string }

// share is what a key or an account has of the places.
type share struct {
	running int
	waiting int
	turn    uint64 // when it last got a place that it had waited for
}

// place is one call's; the zero place is none.
type place struct {
	taken        bool
	account, key *share
}

// waiter is a call that waits. Its place is taken for it.
type waiter struct {
	place
	answer chan error // has room for the one answer
}

func newPlaces(a Admission) *places {
	const part, least = 32, 1024
	return &places{
		most: a.MaxCalls, queue: a.MaxWaiting, kept: a.MaxCalls / part, patience: a.MaxWait, tidyAt: least,
		accounts: make(map[string]*share), keys: make(map[owner]*share),
	}
}

// take takes a place, or waits for one. None of those who wait already may take
// what the newcomer may, or they would have it.
func (s *places) take(ctx context.Context, p *auth.Principal, to *place) error {
	s.mu.Lock()
	to.account, to.key = s.shares(p)
	if s.fits(to) {
		s.seat(to)
		s.mu.Unlock()
		return nil
	}
	w, err := s.join(*to)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err = s.await(ctx, w); err == nil {
		to.taken = true
	}
	return err
}

// fits reports whether there is a place that the caller may take. None is kept
// for others where nobody else is known.
func (s *places) fits(p *place) bool {
	free := s.most - s.running
	if p.account.running > s.kept && len(s.accounts) > 1 {
		free -= s.kept
	}
	if p.key.running > s.kept && len(s.keys) > 1 {
		free -= s.kept
	}
	return free > 0 || s.most < 0
}

func (s *places) seat(p *place) {
	p.taken = true
	s.running++
	p.account.running++
	p.key.running++
}

// join puts a call into the queue, unless it would wait too long. In a full
// queue it takes the place of one whose caller runs more.
func (s *places) join(p place) (*waiter, error) {
	ahead := 0
	for _, other := range s.waiting {
		if !p.before(&other.place) {
			ahead++
		}
	}
	if s.pace*time.Duration(ahead) > s.patience || len(s.waiting) >= s.queue && !s.displace(&p) {
		return nil, errFull
	}
	w := &waiter{p, make(chan error, 1)}
	p.account.waiting++
	p.key.waiting++
	s.waiting = append(s.waiting, w)
	return w, nil
}

// displace refuses the waiting call whose callers run and wait the most, and of
// several the one that came last, if the newcomer's do so less.
func (s *places) displace(p *place) bool {
	if len(s.waiting) == 0 {
		return false
	}
	last := 0
	for i, w := range s.waiting {
		if w.burden() >= s.waiting[last].burden() {
			last = i
		}
	}
	if p.burden()+1 >= s.waiting[last].burden() {
		return false
	}
	s.remove(last).answer <- errFull
	return true
}

// remove takes a call out of the queue.
func (s *places) remove(i int) *waiter {
	w := s.waiting[i]
	w.account.waiting--
	w.key.waiting--
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return w
}

// burden is how much the call's account, and its key, run and wait for.
func (p *place) burden() int {
	return p.account.running + p.account.waiting + p.key.running + p.key.waiting
}

// await waits for the answer.
func (s *places) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	var err error = errFull
	select {
	case answer := <-w.answer:
		return answer
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case answer := <-w.answer: // it came at the same moment
		return answer
	default:
	}
	s.remove(slices.Index(s.waiting, w))
	return err
}

// give gives a place back, to whoever is next.
func (s *places) give(p *place) {
	if !p.taken {
		return
	}
	p.taken = false
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	s.running--
	p.account.running--
	p.key.running--
	for s.hand() {
	}
}

// hand gives a free place to the first, in the order of fairness, of those who
// may take it; false if there is nobody.
func (s *places) hand() bool {
	first := -1
	for i, w := range s.waiting {
		if s.fits(&w.place) && (first < 0 || w.before(&s.waiting[first].place)) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	w := s.remove(first)
	s.turns++
	w.account.turn, w.key.turn = s.turns, s.turns
	s.seat(&w.place)
	w.answer <- nil
	return true
}

// measure keeps the average time between two places that become free, as long as
// none is left for everybody.
func (s *places) measure() {
	if s.most < 0 || s.running < s.most-2*s.kept {
		s.freed, s.pace = time.Time{}, 0
		return
	}
	now := time.Now()
	if !s.freed.IsZero() {
		// Of a longer gap the places may have been free for the most part.
		s.pace += (min(now.Sub(s.freed), 8*s.patience) - s.pace) / 8
	}
	s.freed = now
}

// before is the order of fairness: fewer running calls first, else the longer
// time without a turn; of accounts, then of their keys.
func (p *place) before(other *place) bool {
	switch {
	case p.account.running != other.account.running:
		return p.account.running < other.account.running
	case p.account != other.account:
		return p.account.turn < other.account.turn
	case p.key.running != other.key.running:
		return p.key.running < other.key.running
	}
	return p.key.turn < other.key.turn
}

// shares are the counts of a caller.
func (s *places) shares(p *auth.Principal) (account, key *share) {
	who := owner{p.Account, p.Key}
	if key = s.keys[who]; key != nil {
		return s.accounts[p.Account], key
	}
	if len(s.keys) >= s.tidyAt {
		s.tidy()
	}
	if account = s.accounts[p.Account]; account == nil {
		account = new(share)
		s.accounts[p.Account] = account
	}
	key = new(share)
	s.keys[who] = key
	return account, key
}

// tidy forgets the callers that run nothing and wait for nothing.
func (s *places) tidy() {
	maps.DeleteFunc(s.keys, func(_ owner, k *share) bool { return k.idle() })
	used := make(map[string]bool, len(s.keys))
	for who := range s.keys {
		used[who.account] = true
	}
	maps.DeleteFunc(s.accounts, func(name string, a *share) bool { return a.idle() && !used[name] })
	s.tidyAt = max(2*len(s.keys), s.tidyAt)
}

func (s *share) idle() bool { return s.running == 0 && s.waiting == 0 }

// load is how many run and wait, and whether the next of those who have most is
// refused.
func (s *places) load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := len(s.waiting)
	full := s.most >= 0 && s.running >= s.most && (waiting >= s.queue || s.pace*time.Duration(waiting) > s.patience)
	return Load{Running: s.running, Waiting: waiting, Full: full}
}
