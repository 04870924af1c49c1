package admission

import (
	"testing"
	"testing/synctest"
)

func TestALargeEventThatHasComeWholeIsNotTheOldestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := &Budget{available: func() int64 { return 10 << 20 }}
		first, second, third := budget.Event(t.Context()), budget.Event(t.Context()), budget.Event(t.Context())
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(first.Reserve(8 << 20))
		first.Keep() // its client reads it as slowly as it likes
		must(second.Reserve(20 << 20))
		waited := make(chan error)
		go func() { waited <- third.Reserve(4 << 20) }()
		synctest.Wait()
		if budget.total() != 28<<20 {
			t.Errorf("%d bytes are taken", budget.total())
		}
		must(second.Reserve(0))
		must(<-waited)
		must(third.Reserve(0))
		must(first.Reserve(9 << 20)) // another event in the same buffer
		must(first.Reserve(0))
		if budget.total() != 0 {
			t.Errorf("%d bytes are taken in the end", budget.total())
		}
	})
}
