package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestASettlementOutlivesItsCallForAWhileOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		call, hangUp := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		g := newSettleContext(call, 5*time.Second)
		defer g.end()
		hangUp()
		if g.Err() != nil || g.Value(key{}) != "trace" {
			t.Fatalf("the call's end reached the settlement: %v, value %v", g.Err(), g.Value(key{}))
		}
		began := time.Now()
		<-g.Done()
		if after := time.Since(began); after != 5*time.Second || !errors.Is(g.Err(), context.DeadlineExceeded) {
			t.Errorf("it ended after %s with %v", after, g.Err())
		}
	})
}

func TestAnEndedSettlementSaysSo(t *testing.T) {
	for name, asked := range map[string]bool{"asked before": true, "nobody asked before": false} {
		g := newSettleContext(t.Context(), time.Hour)
		if asked && g.Err() != nil {
			t.Errorf("%s: %v at the start", name, g.Err())
		}
		g.end()
		<-g.Done()
		if !errors.Is(g.Err(), context.Canceled) {
			t.Errorf("%s: %v", name, g.Err())
		}
	}
}
