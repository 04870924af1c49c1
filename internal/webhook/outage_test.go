package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fickle is an Outbox that fails as it is told.
type fickle struct {
	*Memory
	mu   sync.Mutex
	fail map[string]int // calls that fail yet, by name; negative for panics
	seen map[string]int
}

func (f *fickle) call(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = make(map[string]int)
	}
	f.seen[name]++
	switch n := f.fail[name]; {
	case n > 0:
		f.fail[name]--
		return errors.New("the database is away")
	case n < 0:
		f.fail[name]++
		panic("the database is mad")
	}
	return nil
}

func (f *fickle) Due(ctx context.Context, owner string, until time.Time, n int) ([]Notice, error) {
	if err := f.call("due"); err != nil {
		return nil, err
	}
	return f.Memory.Due(ctx, owner, until, n)
}

func (f *fickle) Done(ctx context.Context, id string, at time.Time) error {
	return errors.Join(f.call("done"), f.Memory.Done(ctx, id, at))
}

func (f *fickle) Failed(ctx context.Context, n Notice, next time.Time, reason string, final bool) error {
	if err := f.call("failed"); err != nil {
		return err
	}
	return f.Memory.Failed(ctx, n, next, reason, final)
}

func (f *fickle) Secrets(ctx context.Context, account string) ([]Secret, error) {
	if err := f.call("secrets"); err != nil {
		return nil, err
	}
	return f.Memory.Secrets(ctx, account)
}

func TestAnOutboxThatIsAwayDelaysAndLosesNothing(t *testing.T) {
	for _, fail := range []map[string]int{
		{"due": 6}, {"due": -6}, {"done": 3}, {"done": -3}, {"failed": 3}, {"failed": -3}, {"secrets": 3}, {"secrets": -3},
		{"due": 4, "done": -2, "failed": 2, "secrets": 2}, {"done": 1000}, {"failed": 1000},
	} {
		name := fmt.Sprint(fail)
		synctest.Test(t, func(t *testing.T) {
			outbox, seen := &fickle{Memory: &Memory{}, fail: fail}, &tried{}
			outbox.Add(notice(1, "a.example"))
			_, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(_ context.Context, d Delivery) Result {
				if seen.note(d) == 1 {
					return Result{Retry, 500, "it said 500"}
				}
				return Result{Outcome: Delivered}
			})})
			time.Sleep(10 * time.Minute)
			end()
			e := outbox.List("")[0]
			if e.State != Sent {
				t.Errorf("%s: %+v", name, e)
			}
			for _, d := range seen.list() {
				if d.ID != "evt_00001" || string(d.Body) != `{"id":"evt_00001"}` {
					t.Errorf("%s: %+v", name, d)
				}
			}
			if n := len(seen.list()); n > 2 {
				t.Errorf("%s: %d tries", name, n)
			}
			if n := outbox.seen["failed"]; n > 10 { // what cannot be written within a lease is left
				t.Errorf("%s: a failure was written %d times", name, n)
			}
			if n := outbox.seen["due"]; n > 130 { // a poll is 5 s, and new ones come fewer
				t.Errorf("%s: the outbox was asked %d times", name, n)
			}
		})
	}
}

func TestAPanicOfATryIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &Memory{}, &tried{}
		outbox.Add(notice(1, "a.example"))
		outbox.Add(notice(2, "a.example"))
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(_ context.Context, d Delivery) Result {
			if seen.note(d) <= 2 {
				panic("geheim")
			}
			return Result{Outcome: Delivered}
		})})
		time.Sleep(time.Minute)
		end()
		for _, e := range outbox.List("") {
			if e.State != Sent || e.Tries != 1 || e.Reason == "" || strings.Contains(e.Reason, "geheim") {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestADeathBetweenTheTryAndItsRecordDeliversAgainWithTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox, seen := &fickle{Memory: &Memory{}, fail: map[string]int{"done": 1}}, &tried{}
		dead := make(chan struct{})
		outbox.Add(notice(1, "a.example"))
		client := posts(func(_ context.Context, d Delivery) Result {
			if seen.note(d) == 1 {
				close(dead)
			}
			return Result{Outcome: Delivered}
		})
		// The Memory has it done all the same: take it back, as a death would.
		_, end := runIn(t, DelivererOptions{Outbox: deaf{outbox}, Owner: "a", Client: client})
		<-dead
		end()
		_, end = runIn(t, DelivererOptions{Outbox: outbox, Owner: "b", Client: client})
		time.Sleep(59 * time.Second)
		if len(seen.list()) != 1 {
			t.Error("it was tried before the lease ended")
		}
		time.Sleep(10 * time.Second)
		end()
		all := seen.list()
		if len(all) != 2 || all[0].ID != all[1].ID || string(all[0].Body) != string(all[1].Body) || !all[1].At.After(all[0].At) {
			t.Errorf("%+v", all)
		}
	})
}

// deaf is an Outbox that takes nothing in.
type deaf struct{ Outbox }

func (deaf) Done(context.Context, string, time.Time) error { return errors.New("dead") }

// mortal is an Outbox that does nothing for a context that has ended.
type mortal struct{ *Memory }

func (m mortal) Done(ctx context.Context, id string, at time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return m.Memory.Done(ctx, id, at)
}

func TestRunEndsWithItsContextAndCountsNothingThatItBrokeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outbox := mortal{&Memory{}}
		for i := range 50 {
			outbox.Add(notice(i, fmt.Sprintf("h%d.example", i)))
		}
		_, end := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(ctx context.Context, d Delivery) Result {
			<-ctx.Done()
			if d.ID == "evt_00000" {
				return Result{Outcome: Delivered} // the answer was on its way
			}
			return Result{Retry, 0, "stopped"}
		})})
		synctest.Wait()
		began := time.Now()
		end()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
		for _, e := range outbox.List("") {
			if e.Tries != 0 || e.Reason != "" || (e.State == Sent) != (e.ID == "evt_00000") {
				t.Errorf("%+v", e)
			}
		}
	})
}
