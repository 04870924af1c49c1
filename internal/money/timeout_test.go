package money

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestATimeoutBeginsWhenTheEndIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		request, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		c := &timeoutContext{Context: request, timeout: 5 * time.Second, lasting: true}
		defer c.end()
		leave()
		time.Sleep(time.Minute)
		if c.Err() != nil || c.Value(key{}) != "trace" {
			t.Fatalf("the request's end reached the settlement: %v, value %v", c.Err(), c.Value(key{}))
		}
		began := time.Now()
		<-c.Done()
		if after := time.Since(began); after != 5*time.Second || !errors.Is(c.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(c), context.DeadlineExceeded) {
			t.Errorf("it ended after %s with %v, cause %v", after, c.Err(), context.Cause(c))
		}
	})
}

func TestAnEndedTimeoutContextSaysSo(t *testing.T) {
	for name, asked := range map[string]bool{"asked before": true, "nobody asked before": false} {
		c := &timeoutContext{Context: t.Context(), timeout: time.Hour}
		if asked && c.Err() != nil {
			t.Errorf("%s: %v at the start", name, c.Err())
		}
		c.end()
		<-c.Done()
		if !errors.Is(c.Err(), context.Canceled) {
			t.Errorf("%s: %v", name, c.Err())
		}
	}
}
