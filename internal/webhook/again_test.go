package webhook

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestANoticeThatIsSentAnewDuringATryHasAllItsTriesBeforeIt(t *testing.T) {
	for name, tries := range map[string]int{"the first": 0, "the last": 30} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outbox := new(Memory)
				outbox.Add(Notice{ID: "evt_1", Account: "a", URL: "https://a.example/x", CreatedAt: time.Now().Add(-100 * 24 * time.Hour), Tries: tries})
				end := make(chan struct{})
				_, stop := runIn(t, DelivererOptions{Outbox: outbox, Client: posts(func(ctx context.Context, _ Delivery) Result {
					select {
					case <-end:
					case <-ctx.Done():
					}
					return Result{Outcome: Gone, Status: 410, Reason: "410"}
				})})
				synctest.Wait()
				if !outbox.Resend("evt_1") {
					t.Fatal("it is not there")
				}
				end <- struct{}{}
				synctest.Wait()
				if e := outbox.List("")[0]; e.State != Waiting || e.Tries != 0 {
					t.Errorf("after the end of the try from before it is %s with %d tries", e.State, e.Tries)
				}
				stop()
			})
		})
	}
}

func TestADelivererThatIsRunAgainMakesNoMoreTriesAtOnceAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		d, err := NewDeliverer(DelivererOptions{Outbox: new(Memory), PerAccount: workers, Client: posts(func(ctx context.Context, _ Delivery) Result {
			raise(&most, running.Add(1))
			defer running.Add(-1)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			return Result{Outcome: Delivered, Status: 200}
		})})
		if err != nil {
			t.Fatal(err)
		}
		outbox := d.o.Outbox.(*Memory)
		for round := range 3 {
			for i := range 100 {
				outbox.Add(Notice{ID: fmt.Sprint(round, "-", i), Account: "a", URL: fmt.Sprintf("https://h%d.example/x", i), CreatedAt: time.Now()})
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- d.Run(ctx) }()
			time.Sleep(500 * time.Millisecond)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Minute) // the leases end
		}
		if n := most.Load(); n != workers {
			t.Errorf("%d tries at once", n)
		}
	})
}

// raise makes n the largest.
func raise(most *atomic.Int64, n int64) {
	for m := most.Load(); m < n && !most.CompareAndSwap(m, n); m = most.Load() {
	}
}
