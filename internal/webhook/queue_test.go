package webhook

import (
	"fmt"
	"testing"
	"time"
)

func TestAReceiversLineIsBoundedAndForgottenWhenItIsEmpty(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := newQueue(16, 2)
	for i := range 3000 {
		q.put(task{Notice{ID: fmt.Sprint(i)}, "slow", now.Add(time.Duration(i+1) * time.Second)}, now)
	}
	if n := len(q.lines["slow"].waiting); n != mostWaiting {
		t.Errorf("%d wait", n)
	}
	q.put(task{Notice{ID: "new"}, "slow", now.Add(time.Hour)}, now.Add(1000*time.Second))
	if n := len(q.lines["slow"].waiting); n != mostWaiting-999+1 {
		t.Errorf("%d wait after most leases ended", n)
	}
	first, ok := q.next(now.Add(1001 * time.Second))
	if !ok || first.notice.ID != "1000" {
		t.Errorf("the first is %+v", first)
	}
	for _, ok := q.next(now.Add(2 * time.Hour)); ok; _, ok = q.next(now.Add(2 * time.Hour)) {
		t.Error("one began whose lease ends too early")
	}
	if len(q.lines) != 1 || q.idle != 15 || !q.hungry() {
		t.Errorf("%d lines, %d idle", len(q.lines), q.idle)
	}
	q.done("slow")
	if len(q.lines) != 0 || len(q.ready) != 0 || q.idle != 16 {
		t.Errorf("%d lines and %d idle at the end", len(q.lines), q.idle)
	}
	q.put(task{Notice{ID: "late"}, "other", now}, now)
	if _, ok := q.next(now.Add(1)); ok || len(q.lines) != 0 {
		t.Errorf("%d lines are left of one that was too late", len(q.lines))
	}
}

func TestReceiversTakeTurns(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := newQueue(5, 2)
	for _, host := range []string{"a", "a", "a", "a", "b", "c", "c"} {
		q.put(task{host: host, until: now.Add(time.Hour)}, now)
	}
	order := ""
	for t, ok := q.next(now); ok; t, ok = q.next(now) {
		order += t.host
	}
	if order != "abcac" || q.idle != 0 || q.hungry() {
		t.Errorf("the order is %s, %d are idle", order, q.idle)
	}
	q.done("b")
	if _, ok := q.next(now); ok {
		t.Error("a third try with a receiver began")
	}
	q.done("a")
	if t2, ok := q.next(now); !ok || t2.host != "a" {
		t.Errorf("next is %+v", t2)
	}
}
