//go:build unix

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
)

// What the rounds have found with several processes on one Postgres, without
// the dice.

// alive is a process's store whose lease does not end by itself.
func alive(t *testing.T, dsn string) *store.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), dsn, store.Options{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Others free the key of a process that they take for dead. It may be a
// duplicate's by the time at which the process comes to its hold: one of the two
// is charged.
func TestARequestWhoseKeyOthersFreedGetsNoHold(t *testing.T) {
	dsn := pgtest.Schema(t)
	slow, other := alive(t, dsn), alive(t, dsn)
	ctx := context.Background()
	r, duplicate := request{"r1", "acme"}, request{"r2", "acme"}
	charge := func(id string) billing.Charge {
		return billing.Charge{Account: r.Account, Key: "k1", RequestID: id, Operation: "image", Model: "painter", Bound: images(1), Claimed: true}
	}
	if answer, err := slow.Open(ctx, keyOf(r), idempotency.Content{1}, r.ID); answer != nil || err != nil {
		t.Fatalf("%+v, %v", answer, err)
	}
	raw, err := place{true, dsn}.raw()
	if err != nil {
		t.Fatal(err)
	}
	_, err = raw.ExecContext(ctx, "UPDATE node SET lease_until = 0 WHERE id = (SELECT MIN(id) FROM node)")
	if err = errors.Join(err, raw.Close(), other.Sweep(ctx), slow.CreateAccount(ctx, r.Account, units(9))); err != nil {
		t.Fatal(err)
	}
	if answer, err := other.Open(ctx, keyOf(r), idempotency.Content{1}, duplicate.ID); answer != nil || err != nil {
		t.Fatalf("%+v, %v", answer, err)
	}
	if _, err := slow.Reserve(ctx, charge(r.ID)); !fault.Is(err, fault.IdempotencyConflict) {
		t.Errorf("the first request's hold ended with %v", err)
	}
	h, err := other.Reserve(ctx, charge(duplicate.ID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Settle(ctx, h, images(1), idempotency.Record{Key: keyOf(r), Content: idempotency.Content{1}, Body: answerOf(duplicate.ID)}); err != nil {
		t.Fatal(err)
	}
	if b, err := other.Balance(ctx, r.Account); err != nil || b.Held != 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// A claim moves with its request: a process that lost its lease and comes back
// under another makes the hold and the claim its own again.
func TestAHoldTakesItsKeyOverToTheProcessThatMakesIt(t *testing.T) {
	dsn := pgtest.Schema(t)
	slow, other := alive(t, dsn), alive(t, dsn)
	ctx := context.Background()
	r := request{"r1", "acme"}
	if err := slow.CreateAccount(ctx, r.Account, units(9)); err != nil {
		t.Fatal(err)
	}
	if answer, err := slow.Open(ctx, keyOf(r), idempotency.Content{1}, r.ID); answer != nil || err != nil {
		t.Fatalf("%+v, %v", answer, err)
	}
	raw, err := place{true, dsn}.raw()
	if err != nil {
		t.Fatal(err)
	}
	// Buried, but not yet swept: the next transaction of the process begins a new life.
	if _, err = raw.ExecContext(ctx, "UPDATE node SET dead = TRUE WHERE id = (SELECT MIN(id) FROM node)"); err != nil {
		t.Fatal(err)
	}
	h, err := slow.Reserve(ctx, billing.Charge{Account: r.Account, Key: "k1", RequestID: r.ID, Operation: "image", Model: "painter", Bound: images(1), Claimed: true})
	if err = errors.Join(err, raw.Close(), other.Sweep(ctx)); err != nil {
		t.Fatal(err)
	}
	receipt, err := slow.Settle(ctx, h, images(1), idempotency.Record{Key: keyOf(r), Content: idempotency.Content{1}, Body: answerOf(r.ID)})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := other.Open(ctx, keyOf(r), idempotency.Content{1}, "a duplicate")
	if err != nil || answer == nil || answer.Receipt != receipt {
		t.Errorf("a duplicate is answered with %+v, %v", answer, err)
	}
}

func TestOfTwoProcessesThatMakeAnAccountOneIsToldThatItIsThere(t *testing.T) {
	dsn := pgtest.Schema(t)
	both := []*store.DB{alive(t, dsn), alive(t, dsn)}
	for i := range 30 {
		name := fmt.Sprintf("a%d", i)
		errs := make([]error, len(both))
		var all sync.WaitGroup
		for i, db := range both {
			all.Go(func() { errs[i] = db.CreateAccount(context.Background(), name, units(1)) })
		}
		all.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !fault.Is(errors.Join(errs...), fault.InvalidRequest) {
			t.Fatalf("%s: %v", name, errs)
		}
	}
}
