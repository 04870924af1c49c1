package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestThoseWhoAskWhetherTheServerIsReadyShareOneQueryASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queries atomic.Int32
		answer := make(chan error)
		ready := cacheCheck(func(context.Context) error {
			queries.Add(1)
			return <-answer
		})
		ask := func(n int, result error) {
			t.Helper()
			var asking sync.WaitGroup
			for range n {
				asking.Go(func() {
					if err := ready(); (err == nil) != (result == nil) || err != nil && strings.Contains(err.Error(), "secret") {
						t.Errorf("got %v, want %v", err, result)
					}
				})
			}
			answer <- result
			asking.Wait()
		}
		ask(100, nil)
		if err := ready(); err != nil || queries.Load() != 1 {
			t.Errorf("within the second: %v after %d queries", err, queries.Load())
		}
		time.Sleep(checkMaxAge)
		ask(100, errors.New("secret"))
		if got := queries.Load(); got != 2 {
			t.Errorf("%d queries, want 2", got)
		}
	})
}
