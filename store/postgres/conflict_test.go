package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func TestASettlementThatMeetsOnlyConflictsMayBeTriedAgain(t *testing.T) {
	faults, conflicts := &storetest.Faults{}, atomic.Bool{}
	db, err := place(t).Open(t.Context(), store.Options{Wrap: faults.Wrap, Now: func() time.Time {
		if conflicts.Load() { // every transaction asks for the time, and then writes
			faults.FailAt(1, false, &pgconn.PgError{Code: "40001"})
		}
		return time.Unix(1_800_000_000, 0)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	l := &load{DB: db, t: t}
	if l.price, err = billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"}); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateAccount(t.Context(), "acme", 1_000_000*billing.One); err != nil {
		t.Fatal(err)
	}
	h, err := l.reserve()
	if err != nil {
		t.Fatal(err)
	}
	conflicts.Store(true)
	_, err = db.Settle(t.Context(), h, billing.Usage{Images: 1})
	if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 {
		t.Errorf("got %v", err)
	}
	conflicts.Store(false)
	faults.FailAt(0, false, nil)
	if _, err := db.Settle(context.Background(), h, billing.Usage{Images: 1}); err != nil {
		t.Fatal(err)
	}
	l.captured.Add(1)
	l.check()
}
