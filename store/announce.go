package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// PublishPrices stores the price rows of a list that is loaded, and tells the
// processes that share the database which list this one charges by
// (server.md, Config file). It is durable when it returns.
func (db *DB) PublishPrices(ctx context.Context, list *billing.PriceList) error {
	if !db.dialect.Shared && db.hasPrices(list) { // and there is nobody to be told
		return nil
	}
	hash := listHash(list)
	err := db.update(ctx, func(ctx context.Context, t *tx) error {
		for _, model := range list.Models() {
			if err := db.storePrice(ctx, t, list.Price(model)); err != nil {
				return err
			}
		}
		return writePriceHash(ctx, t, hash)
	})
	if err == nil {
		db.publishedPrices.Store(&hash)
	}
	return err
}

// hasPrices reports whether every price row of the list is in the database.
func (db *DB) hasPrices(list *billing.PriceList) bool {
	return !slices.ContainsFunc(list.Models(), func(model string) bool {
		version := list.Price(model).Version()
		return version != "" && db.prices.find(version) == nil
	})
}

// republishPrices is for a process whose row others have buried: the one that it
// has now does not know the list yet.
func (db *DB) republishPrices(ctx context.Context) error {
	hash := db.publishedPrices.Load()
	if hash == nil || !db.dialect.Shared {
		return nil
	}
	return db.update(ctx, func(ctx context.Context, t *tx) error { return writePriceHash(ctx, t, *hash) })
}

func writePriceHash(ctx context.Context, t *tx, hash string) error {
	_, err := t.exec(ctx, "UPDATE node SET prices = ? WHERE id = ?", hash, t.db.committer.node.id)
	return err
}

// PricesAgree fails with fault.InvalidRequest when processes that are alive
// charge by different price lists, as for a moment while a new one is rolled
// out. Each request is charged by the list of the process that took it.
func (db *DB) PricesAgree(ctx context.Context) error {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	if !db.dialect.Shared {
		return nil
	}
	var lists int
	err := db.readers().queryRow(ctx,
		"SELECT COUNT(DISTINCT prices) FROM node WHERE prices <> '' AND NOT dead AND lease_until > "+db.dialect.Clock).Scan(&lists)
	if err != nil {
		return db.unavailable(err)
	}
	if lists > 1 {
		return fault.New(fault.InvalidRequest, fmt.Sprintf("The processes that share the database charge by %d different price lists: give all of them the same file.", lists))
	}
	return nil
}

// listHash is the same for lists with the same prices for the same models.
func listHash(list *billing.PriceList) string {
	hash := sha256.New()
	for _, model := range list.Models() {
		_, _ = io.WriteString(hash, fmt.Sprintf("%q %s\n", model, list.Price(model).Version())) // a hash takes everything
	}
	return hex.EncodeToString(hash.Sum(nil))
}
