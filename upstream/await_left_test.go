package upstream_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// TestACallerWhoLeavesTheLineHasSentNothing: who is charged for a request that
// was sent must not be charged for one that waited.
func TestACallerWhoLeavesTheLineHasSentNothing(t *testing.T) {
	for name, limits := range map[string]upstream.Channel{
		"for a place": {MaxConcurrent: 1},
		"for a turn":  {RPM: 119},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				c := limits
				c.Name, c.Models = "busy", map[string]string{"m": "m"}
				c.Upstream = upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
					asked++
					<-ctx.Done()
					return nil, ctx.Err()
				})
				r, err := upstream.NewRouter([]upstream.Channel{c}, upstream.RouterOptions{})
				if err != nil {
					t.Fatal(err)
				}
				first, end := context.WithCancel(t.Context())
				defer end()
				go func() { _, _ = r.Do(first, &upstream.Call{Op: upstream.ChatCompletion, Model: "m"}) }()
				synctest.Wait()
				second, leave := context.WithCancel(t.Context())
				left := make(chan error)
				go func() {
					_, err := r.Do(second, &upstream.Call{Op: upstream.ChatCompletion, Model: "m"})
					left <- err
				}()
				synctest.Wait()
				leave()
				err = <-left
				var f *upstream.Failure
				if !fault.Is(err, fault.ClientGone) || !errors.As(err, &f) || f.Sent || asked != 1 {
					t.Errorf("error %v with %+v after %d calls of the upstream", err, f, asked)
				}
			})
		})
	}
}

// TestACallerWhoLeavesBetweenTwoTriesOwesNothingForTheFirst: tries that failed
// are the operator's.
func TestACallerWhoLeavesBetweenTwoTriesOwesNothingForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
			return nil, (&upstream.Failure{Status: 502, Sent: true}).Fault()
		})
		busy := upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		models := map[string]string{"m": "m"}
		r, err := upstream.NewRouter([]upstream.Channel{
			{Name: "failing", Upstream: failing, Models: models},
			{Name: "busy", Upstream: busy, Models: models, Priority: 1, MaxConcurrent: 1},
		}, upstream.RouterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first, end := context.WithCancel(t.Context())
		defer end()
		call := func(ctx context.Context, answered chan<- error) {
			_, err := r.Do(ctx, &upstream.Call{Op: upstream.ChatCompletion, Model: "m"})
			answered <- err
		}
		go call(first, make(chan error, 1))
		synctest.Wait()
		second, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go call(second, left)
		synctest.Wait()
		leave()
		err = <-left
		var f *upstream.Failure
		if !fault.Is(err, fault.ClientGone) || !errors.As(err, &f) || f.Sent {
			t.Errorf("error %v with %+v", err, f)
		}
	})
}

// TestACallerWhoHasLeftHasNobodyAsked: an upstream that is asked all the same may
// say that it was sent something, which has to be paid for.
func TestACallerWhoHasLeftHasNobodyAsked(t *testing.T) {
	for name, limits := range map[string]upstream.Channel{
		"free":      {},
		"few calls": {MaxConcurrent: 1},
		"slow":      {RPM: 1},
	} {
		c := limits
		c.Name, c.Models = "only", map[string]string{"m": "m"}
		asked := 0
		c.Upstream = upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
			asked++
			return nil, ctx.Err()
		})
		r, err := upstream.NewRouter([]upstream.Channel{c}, upstream.RouterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		_, err = r.Do(ctx, &upstream.Call{Op: upstream.ChatCompletion, Model: "m"})
		var f *upstream.Failure
		if !fault.Is(err, fault.ClientGone) || !errors.As(err, &f) || f.Sent || asked != 0 {
			t.Errorf("%s: error %v with %+v after %d calls of the upstream", name, err, f, asked)
		}
		if now := r.Channels()[0]; now.InFlight != 0 || now.Requests != 0 {
			t.Errorf("%s: %+v", name, now)
		}
	}
}

// turning is a context that ends at the moment at which a call's turn comes: when
// it is asked whether it has ended, it lets the first call go.
type turning struct {
	context.Context
	end func()
}

func (c *turning) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

func TestACallerWhoLeavesAsItsTurnComesHasNobodyAsked(t *testing.T) {
	for range 50 { // which of the two is seen first is chance
		synctest.Test(t, func(t *testing.T) {
			asked, free := 0, make(chan struct{})
			r, err := upstream.NewRouter([]upstream.Channel{{
				Name: "busy", Models: map[string]string{"m": "m"}, MaxConcurrent: 1,
				Upstream: upstream.Func(func(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
					asked++
					<-free
					return nil, ctx.Err()
				}),
			}}, upstream.RouterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = r.Do(t.Context(), &upstream.Call{Op: upstream.ChatCompletion, Model: "m"}) }()
			synctest.Wait()
			own, leave := context.WithCancel(t.Context())
			var once sync.Once
			ctx := &turning{own, func() {
				once.Do(func() {
					close(free)
					for r.Channels()[0].InFlight != 0 {
						runtime.Gosched()
					}
					leave()
				})
			}}
			_, err = r.Do(ctx, &upstream.Call{Op: upstream.ChatCompletion, Model: "m"})
			var f *upstream.Failure
			if !fault.Is(err, fault.ClientGone) || !errors.As(err, &f) || f.Sent || asked != 1 {
				t.Errorf("error %v with %+v after %d calls of the upstream", err, f, asked)
			}
		})
	}
}
