package postgres_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
)

// trips counts how often a database has said that it waits for the next request
// (ReadyForQuery): each time its client had to wait for an answer.
type trips struct{ atomic.Int64 }

func (n *trips) carry(to, from net.Conn, answers bool) {
	if !answers {
		_, _ = io.Copy(to, from)
		return
	}
	in := bufio.NewReader(from)
	for {
		head, err := in.Peek(5) // a letter, and the length of the rest with its own
		if err != nil {
			return
		}
		if head[0] == 'Z' {
			n.Add(1)
		}
		if _, err := io.CopyN(to, in, 1+int64(binary.BigEndian.Uint32(head[1:]))); err != nil {
			return
		}
	}
}

// A trip to a database far away is what a caller waits for: 3 ms between the zones of a
// region.
func TestAHoldAndASettlementWaitForFewAnswersOfTheDatabase(t *testing.T) {
	t.Parallel()
	var count trips
	dsn := pgtest.Through(t, pgtest.Schema(t), count.carry)
	l := newFixture(t, dsn, store.Options{Lease: time.Hour}, 1_000, "acme", "bounded") // no heartbeat comes between
	l.boundKey("bounded")
	within := func(what string, most int64, do func() error) {
		t.Helper()
		before := count.Load()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := count.Load() - before; n > most && most > 0 {
			t.Errorf("%s took %d trips to the database, at most %d are right", what, n, most)
		}
	}
	for _, c := range []struct {
		name, account string
		keyed         bool
	}{{"plain", "acme", false}, {"with a key", "acme", true}, {"with a budget", "bounded", false}} {
		for n := range 3 {
			most := int64(2)
			if n == 0 { // statements are prepared, and it is learned that there are budgets
				most = 0
			}
			id := fmt.Sprint(c.name, n)
			request := l.request(c.account, id)
			key := idempotency.Key{Account: c.account, Operation: "image", Key: id}
			var with []billing.Record
			if c.keyed {
				request.With = []billing.Record{idempotency.Claim{Key: key}}
				with = []billing.Record{idempotency.Record{Key: key, Body: []byte("{}")}}
			}
			var h billing.Hold
			within("a hold "+c.name, most, func() (err error) { h, err = l.Reserve(context.Background(), request); return err })
			within("a checkpoint "+c.name, most, func() error {
				return l.Extend(context.Background(), h, billing.Usage{Images: 1}, 0)
			})
			within("a settlement "+c.name, most, func() error {
				_, err := l.Settle(context.Background(), h, billing.Usage{Images: 1}, with...)
				return err
			})
			within("the same settlement again", 3*min(most, 1), func() error {
				_, err := l.Settle(context.Background(), h, billing.Usage{Images: 1}, with...)
				return err
			})
		}
	}
}
