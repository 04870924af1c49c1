package quota

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
)

func TestNoMoreIsTakenThanThereIs(t *testing.T) {
	var c Count
	if !c.Take(6, 10) || c.Take(5, 10) || !c.Take(4, 10) || c.Take(1, 10) || c.Used() != 10 {
		t.Errorf("%d of 10 are in use", c.Used())
	}
	c.Give(4)
	if c.Take(5, 10) || c.Take(math.MaxInt64, 10) || c.Take(1, 0) || !c.Take(4, 10) {
		t.Errorf("after 4 were given back %d are in use", c.Used())
	}
}

func TestWhatIsRefusedTakesNothingFromWhatFits(t *testing.T) {
	const most, runs = 100, 20_000
	var c Count
	var refused atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for range runs {
			if c.Take(most+1, most) {
				t.Error("there is not so much")
			}
		}
	})
	all.Go(func() {
		for range runs {
			if !c.Take(most, most) {
				refused.Add(1)
				continue
			}
			c.Give(most)
		}
	})
	all.Wait()
	if n := refused.Load(); n != 0 || c.Used() != 0 {
		t.Errorf("%d of %d that fit were refused; %d are in use", n, runs, c.Used())
	}
}

func TestOneOwnerLeavesSomethingForTheNext(t *testing.T) {
	type take struct {
		owner string
		n     int64
		ok    bool
	}
	tests := []struct {
		name  string
		takes []take // of 1,000
	}{
		{"one owner gets three quarters", []take{{"a", 751, false}, {"a", 750, true}, {"a", 1, false}}},
		{"in pieces too", []take{{"a", 400, true}, {"a", 350, true}, {"a", 1, false}}},
		{"the second owner gets of the rest", []take{{"a", 750, true}, {"b", 188, false}, {"b", 187, true}, {"b", 1, false}}},
		{"and the third", []take{{"a", 750, true}, {"b", 187, true}, {"c", 47, true}, {"d", 12, true}}},
		{"several owners share", []take{{"a", 300, true}, {"b", 300, true}, {"c", 300, true}, {"a", 1, false}, {"d", 75, true}}},
		{"more than there is", []take{{"a", 1001, false}, {"a", math.MaxInt64, false}, {"a", 750, true}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var f Fair
			taken := make(map[string]int64)
			for i, next := range test.takes {
				if fits := f.Fits(next.owner, next.n, 1000); fits != next.ok {
					t.Errorf("take %d: Fits says %t", i, fits)
				}
				if got := f.Take(next.owner, next.n, 1000); got != next.ok {
					t.Errorf("take %d: got %t, want %t", i, got, next.ok)
				} else if got {
					taken[next.owner] += next.n
				}
			}
			for owner, n := range taken {
				f.Give(owner, n)
			}
			if f.Used() != 0 || len(f.owners) != 0 {
				t.Errorf("%d are in use by %d owners after all were given back", f.Used(), len(f.owners))
			}
		})
	}
}
