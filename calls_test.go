package gateway

import (
	"context"
	"testing"
)

// ending is a context that has ended when somebody asks, and with it a call.
type ending struct {
	context.Context
	end func()
}

func (e ending) Done() <-chan struct{} {
	e.end()
	return e.Context.Done()
}

func TestAShutdownWhoseTimeEndsWithTheLastCallHasCutNothingShort(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // which of the two is seen first is chance
		var c calls
		x := new(Exchange)
		if err := c.add(x, func(error) { t.Error("the call was cut short") }); err != nil {
			t.Fatal(err)
		}
		if err := c.shutdown(ending{over, func() { c.remove(x) }}); err != nil {
			t.Fatal(err)
		}
	}
}
