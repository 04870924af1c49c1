package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/webhook"
)

func TestTheWaitingDeliveriesOfAnAccountAreBoundedAndForgottenWhenTheyAreDone(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := newQueue(16, 2, 12)
	for i := range 3000 {
		q.add(task{webhook.Delivery{ID: fmt.Sprint(i), Account: "acme"}, "slow", now.Add(time.Duration(i+1) * time.Second)}, now)
	}
	acme := q.accounts["acme"]
	if acme.waiting != maxPerReceiver {
		t.Errorf("%d wait, want %d", acme.waiting, maxPerReceiver)
	}
	q.add(task{webhook.Delivery{ID: "new", Account: "acme"}, "slow", now.Add(time.Hour)}, now.Add(1000*time.Second))
	if want := maxPerReceiver - 999 + 1; acme.waiting != want {
		t.Errorf("%d wait after most leases ended, want %d", acme.waiting, want)
	}
	first, ok := q.next(now.Add(1001 * time.Second))
	if !ok || first.delivery.ID != "1000" {
		t.Errorf("the first is %+v", first)
	}
	for last, ok := q.next(now.Add(2 * time.Hour)); ok; last, ok = q.next(now.Add(2 * time.Hour)) {
		t.Errorf("%s began, whose lease ends too early", last.delivery.ID)
	}
	if acme.waiting != 0 || q.idle != 15 || !q.wantsWork() {
		t.Errorf("%d wait, %d workers are idle", acme.waiting, q.idle)
	}
	q.done(first)
	if len(q.accounts) != 0 || len(q.receivers) != 0 || len(q.attempts) != 0 || q.idle != 16 {
		t.Errorf("%d accounts, %d hosts and %d idle workers at the end", len(q.accounts), len(q.attempts), q.idle)
	}
	for i := range 10 * maxPerReceiver {
		q.add(task{webhook.Delivery{Account: "acme"}, fmt.Sprint("h", i), now.Add(time.Hour)}, now)
	}
	if acme = q.accounts["acme"]; acme.waiting != maxPerAccount || len(q.receivers) != maxPerAccount {
		t.Errorf("%d wait for %d receivers", acme.waiting, len(q.receivers))
	}
	for _, ok := q.next(now); ok; _, ok = q.next(now) {
	}
	q = newQueue(16, 2, 12)
	q.add(task{webhook.Delivery{ID: "late"}, "other", now}, now)
	if _, ok := q.next(now.Add(1)); ok || len(q.accounts) != 0 {
		t.Errorf("%d accounts are left of a delivery that was too late", len(q.accounts))
	}
}

func TestAccountsTakeTurnsAndWithinThemTheirReceivers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	tests := []struct {
		name                         string
		workers, perHost, perAccount int
		add                          []string // account and receiver of each delivery
		started                      string   // of the deliveries, in order
	}{
		{"receivers of one account", 5, 2, 5, []string{"x a", "x a", "x a", "x a", "x b", "x c", "x c"}, "xa xb xc xa xc"},
		{"two accounts", 4, 4, 4, []string{"x a", "x a", "x a", "x a", "y b", "y b"}, "xa yb xa yb"},
		{"an account with many receivers", 4, 2, 3, []string{"x a", "x b", "x c", "x d", "x e", "y f"}, "xa yf xb xc"},
		{"an account leaves workers to others", 4, 2, 3, []string{"x a", "x b", "x c", "x d", "x e"}, "xa xb xc"},
		{"a receiver that two accounts share", 4, 2, 3, []string{"x a", "x a", "x a", "y a", "y b"}, "xa ya yb"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			q := newQueue(test.workers, test.perHost, test.perAccount)
			for _, text := range test.add {
				account, host, _ := strings.Cut(text, " ")
				q.add(task{webhook.Delivery{Account: account}, host, now.Add(time.Hour)}, now)
			}
			var started []string
			for next, ok := q.next(now); ok; next, ok = q.next(now) {
				started = append(started, next.delivery.Account+next.host)
			}
			if got := strings.Join(started, " "); got != test.started {
				t.Errorf("started %s, want %s", got, test.started)
			}
		})
	}
}

func TestAnAttemptThatEndsMakesRoomForTheNextOfItsReceiver(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := newQueue(5, 1, 5)
	for range 2 {
		q.add(task{webhook.Delivery{Account: "x"}, "a", now.Add(time.Hour)}, now)
	}
	first, _ := q.next(now)
	if _, ok := q.next(now); ok || !q.wantsWork() {
		t.Error("a second attempt with a receiver began")
	}
	q.done(first)
	if next, ok := q.next(now); !ok || next.host != "a" {
		t.Errorf("next is %+v", next)
	}
}
