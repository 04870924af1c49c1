package postgres_test

import (
	"context"
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

func TestADatabaseThatFallsSilentIsServiceUnavailableForWhoeverReads(t *testing.T) {
	t.Parallel()
	n := new(pgtest.Network)
	db, err := postgres.Open(t.Context(), n.Through(t, pgtest.Schema(t)), store.Options{WaitTimeout: time.Second})
	must(t, err)
	defer func() { _ = db.Close() }()
	key := idempotency.Key{Account: "acme", Operation: "chat", Key: "k"}
	n.Silent.Store(true)
	var all sync.WaitGroup
	for name, read := range map[string]func(context.Context) error{
		"Lookup": func(ctx context.Context) error {
			_, err := db.Ledger().Lookup(ctx, key, idempotency.Content{})
			return err
		},
		"Balance": func(ctx context.Context) error { _, err := db.Ledger().Balance(ctx, "acme"); return err },
		"Receipt": func(ctx context.Context) error { _, err := db.Ledger().Receipt(ctx, "acme", "r1"); return err },
		"Request": func(ctx context.Context) error { _, _, err := db.Ledger().Request(ctx, "r1"); return err },
		"Usage": func(ctx context.Context) error {
			_, err := db.Ledger().Usage(ctx, billing.Query{Account: "acme"})
			return err
		},
		"task":    func(ctx context.Context) error { _, err := db.Ledger().Find(ctx, "acme", "vid_1"); return err },
		"key":     func(ctx context.Context) error { _, err := db.Keys().Find(ctx, [32]byte{}); return err },
		"Notices": func(ctx context.Context) error { _, err := db.Ledger().Deliveries(ctx, "acme", 0); return err },
		"Secrets": func(ctx context.Context) error { _, err := db.Ledger().Secrets(ctx, "acme"); return err },
		"Price":   func(ctx context.Context) error { _, err := db.Ledger().Price(ctx, "p_1"); return err },
		"Prices":  db.PricesAgree,
		"Ping":    db.Ping,
	} {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			err := read(ctx)
			if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 || ctx.Err() != nil {
				t.Errorf("%s: %v, want %s with a RetryAfter before its caller gives up", name, err, fault.ServiceUnavailable)
			}
		})
	}
	all.Wait()
	n.Silent.Store(false)
}
