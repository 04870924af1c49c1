package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tollhouse-ai/gateway/fault"
)

// The settings that a database keeps of the books in it.
const (
	settingCurrency = "currency"
	settingBilling  = "billing"
)

// The values of settingBilling.
const (
	billingPrepaid = "prepaid"
	billingCount   = "count"
)

// adoptSettings makes the options and the database agree on what the books are in.
func (db *DB) adoptSettings(ctx context.Context) error {
	t, err := db.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }() // does nothing after the commit
	if db.dialect.Serialise != "" {
		if _, err := t.ExecContext(ctx, db.dialect.Serialise); err != nil {
			return err
		}
	}
	if err := db.adoptBilling(ctx, t); err != nil {
		return err
	}
	if err := db.adoptCurrency(ctx, t); err != nil {
		return err
	}
	return t.Commit()
}

func (db *DB) adoptBilling(ctx context.Context, t *sql.Tx) error {
	if db.options.AsStored {
		stored, err := db.setting(ctx, t, settingBilling)
		db.options.Count = stored == billingCount || (stored == "" && db.options.Count)
		return err
	}
	now := billingPrepaid
	if db.options.Count {
		now = billingCount
	}
	if err := db.agreeOnBilling(ctx, t, now); err != nil {
		return err
	}
	return db.set(ctx, t, settingBilling, now)
}

// agreeOnBilling refuses to bill in another way than a server that runs on the
// same database: its customers would find money off, or on.
func (db *DB) agreeOnBilling(ctx context.Context, t *sql.Tx, now string) error {
	stored, err := db.setting(ctx, t, settingBilling)
	if err != nil || !db.dialect.Shared || stored == "" || stored == now {
		return err
	}
	var alive int
	if err := t.QueryRowContext(ctx, "SELECT COUNT(*) FROM node WHERE NOT dead AND lease_until > "+db.dialect.Clock).Scan(&alive); err != nil {
		return err
	}
	if alive > 0 {
		return fault.Invalid("billing", fmt.Sprintf(
			"Another server runs on this database with `billing: %s`. Stop it before this one starts with `billing: %s`; one that was killed counts for %s.",
			stored, now, db.options.Lease))
	}
	return nil
}

// adoptCurrency refuses another currency as soon as there is money in the books.
func (db *DB) adoptCurrency(ctx context.Context, t *sql.Tx) error {
	stored, err := db.setting(ctx, t, settingCurrency)
	switch {
	case err != nil || stored == db.options.Currency:
		return err
	case stored != "" && db.options.AsStored:
		db.options.Currency = stored
		return nil
	case stored != "":
		var entries int
		if err := t.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM entry LIMIT 1) AS first").Scan(&entries); err != nil {
			return err
		}
		if entries > 0 {
			return fault.Invalid("currency", fmt.Sprintf(
				"The database keeps its books in %s, and amounts cannot become %s: write `currency: %s`, or use another database.",
				stored, db.options.Currency, stored))
		}
	}
	return db.set(ctx, t, settingCurrency, db.options.Currency)
}

// setting is a value; empty if there is none.
func (db *DB) setting(ctx context.Context, t *sql.Tx, name string) (value string, err error) {
	err = t.QueryRowContext(ctx, db.text("SELECT value FROM setting WHERE name = ?"), name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (db *DB) set(ctx context.Context, t *sql.Tx, name, value string) error {
	_, err := t.ExecContext(ctx, db.text("INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"), name, value)
	return err
}
