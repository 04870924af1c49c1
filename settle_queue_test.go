package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/retryqueue"
)

// lockedAccounts is a meter's side of the queue: a try at a capture of an account
// that is locked fails after five seconds, any other succeeds at once.
type lockedAccounts struct {
	mu      sync.Mutex
	locked  map[string]bool
	settled map[string]int
	running map[string]int
	most    int // tries of one account at once
}

func (l *lockedAccounts) try(ctx context.Context, p pendingSettlement, _ int) error {
	account := p.hold.Account
	l.mu.Lock()
	locked := l.locked[account]
	l.running[account]++
	l.most = max(l.most, l.running[account])
	l.mu.Unlock()
	if locked {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		<-ctx.Done()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[account]--
	if locked {
		return errors.New("the row of the account is locked")
	}
	l.settled[account]++
	return nil
}

func (l *lockedAccounts) lock(account string, locked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locked[account] = locked
}

func (l *lockedAccounts) count(account string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled[account]
}

func putOffs(q *retryqueue.Queue[pendingSettlement], account string, n int) {
	for i := range n {
		q.Add(account, pendingSettlement{hold: billing.Hold{ID: fmt.Sprint(account, i), Account: account}})
	}
}

func TestPutOffCapturesOfALockedAccountDelayThoseOfNoOther(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration // the others' captures are put off so long after Run has begun
	}{
		{"put off before Run", 0},
		{"put off while Run tries the locked account's", 2 * time.Second},
		{"put off after an hour of failures", time.Hour + time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				meter := &lockedAccounts{locked: map[string]bool{"acme": true}, settled: map[string]int{}, running: map[string]int{}}
				q := newSettlementQueue(meter.try)
				putOffs(q, "acme", 200)
				if c.after == 0 {
					putOffs(q, "other", 3)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					q.Run(ctx)
				}()
				if c.after > 0 {
					time.Sleep(c.after)
					putOffs(q, "other", 3)
				}
				synctest.Wait()
				if n := meter.count("other"); n != 3 || q.Len() != 200 {
					t.Errorf("at once %d captures of the other account are settled, want 3; %d wait", n, q.Len())
				}
				meter.lock("acme", false)
				time.Sleep(10 * time.Second) // a try that has begun, and the longest pause
				synctest.Wait()
				if n := meter.count("acme"); n != 200 || q.Len() != 0 {
					t.Errorf("when it is unlocked, %d captures of the account are settled, want 200; %d wait", n, q.Len())
				}
				if meter.most != 1 {
					t.Errorf("%d captures of one account are tried at once, want 1", meter.most)
				}
				cancel()
				<-done
			})
		})
	}
}

func TestRunEndsWhilePutOffCapturesAreTriedAndTheNextRunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meter := &lockedAccounts{locked: map[string]bool{}, settled: map[string]int{}, running: map[string]int{}}
		q := newSettlementQueue(meter.try)
		for i := range 50 { // more than are tried at once
			account := fmt.Sprint("account", i)
			meter.lock(account, true)
			putOffs(q, account, 2)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			q.Run(ctx)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Fatal("Run goes on after the end of its context")
		}
		if q.Len() != 100 {
			t.Errorf("%d captures wait, want 100", q.Len())
		}
		for i := range 50 {
			meter.lock(fmt.Sprint("account", i), false)
		}
		ctx, cancel = context.WithCancel(t.Context())
		go q.Run(ctx)
		synctest.Wait()
		if q.Len() != 0 {
			t.Errorf("%d captures wait in the next Run, want 0", q.Len())
		}
		cancel()
	})
}
