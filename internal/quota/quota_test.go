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
