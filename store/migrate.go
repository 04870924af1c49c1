package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
)

// migrations only ever grow: a file that was released does not change. They are
// written for Postgres; Dialect.Schema spells them for SQLite. A statement
// ends in a semicolon at the end of a line. A line that starts with
// "--postgres " is for Postgres alone, one that starts with "--sqlite " for SQLite;
// other lines that start with "--" are comments.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migration is one step of the schema.
type migration struct {
	version int
	text    string
}

// steps are the migrations in order; file 0007_x.sql leads to version 7.
func steps() ([]migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s has no number that follows %d", name, i)
		}
		all = append(all, migration{version, string(text)})
	}
	return all, nil
}

// outdated reports whether the schema has another version than this program
// knows. It asks without a lock, which another process may have that migrates.
func (db *DB) outdated(ctx context.Context) (bool, error) {
	all, err := steps()
	if err != nil {
		return false, err
	}
	var version int
	err = db.readers().queryRow(ctx, "SELECT COALESCE(MAX(version), 0) FROM schema_version").Scan(&version)
	if err != nil && db.failure(err) == sqldb.Broken { // there is no such table yet
		return true, nil
	}
	return version != len(all), err
}

// How long a migration waits for a table that others have locked: all who write
// to it queue behind a migration that waits.
const tableLock = "60s"

// migrate brings the schema up to date in one transaction. Processes that start at the same
// time do so one after the other. It takes longer with larger tables; only ctx bounds it.
//
// Processes of the previous version may use the database during and after it, until they are
// replaced. If a migration does more than add, as 0010 does, docs/guides/operations.md says to
// stop them first: their statements fail and write nothing.
func (db *DB) migrate(ctx context.Context) error {
	all, err := steps()
	if err != nil {
		return fault.Wrap(fault.InternalError, "The program's own migrations cannot be read.", err)
	}
	t, err := db.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }() // does nothing after the commit
	if err := db.migrating(ctx, t, "0"); err != nil {
		return err
	}
	version, err := db.version(ctx, t)
	if err != nil {
		return err
	}
	if err := db.migrating(ctx, t, tableLock); err != nil {
		return err
	}
	if version > len(all) {
		return fault.New(fault.InvalidRequest, fmt.Sprintf(
			"The database has schema version %d, and this program knows versions up to %d. Use the newer program that made it.", version, len(all)))
	}
	if db.options.AsStored && version > 0 && version < len(all) {
		return fault.New(fault.InvalidRequest, fmt.Sprintf(
			"The database has schema version %d, which the older program that serves it needs, and this program needs version %d. Start `serve` with this version first; it brings the schema up to date.", version, len(all)))
	}
	if version > 0 && version < len(all) {
		db.options.Logger.Info("the schema is brought up to date", "from", version, "to", len(all))
	}
	for _, m := range all[version:] {
		if err := db.apply(ctx, t, m); err != nil {
			return fmt.Errorf("migration %d: %w", m.version, err)
		}
	}
	return t.Commit()
}

// migrating lets the transaction take any time, and wait for locks as long as wait
// says.
func (db *DB) migrating(ctx context.Context, t *sql.Tx, wait string) error {
	if db.dialect.Migrating == "" {
		return nil
	}
	_, err := t.ExecContext(ctx, db.text(db.dialect.Migrating), wait)
	return err
}

// version is the schema's, 0 for an empty database. It holds off the others
// that ask until the transaction ends.
func (db *DB) version(ctx context.Context, t *sql.Tx) (version int, err error) {
	if db.dialect.Serialise != "" {
		if _, err := t.ExecContext(ctx, db.dialect.Serialise); err != nil {
			return 0, err
		}
	}
	if _, err := t.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"); err != nil {
		return 0, err
	}
	err = t.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM schema_version").Scan(&version)
	return version, err
}

func (db *DB) apply(ctx context.Context, t *sql.Tx, m migration) error {
	for _, statement := range m.statements(db.dialect) {
		if _, err := t.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	_, err := t.ExecContext(ctx, db.text("INSERT INTO schema_version (version) VALUES (?)"), m.version)
	return err
}

// statements are those of the migration, as a dialect spells them.
func (m migration) statements(d sqldb.Dialect) (all []string) {
	var text strings.Builder
	for line := range strings.Lines(d.Schema(m.text)) {
		if !strings.HasPrefix(line, "--") {
			text.WriteString(line)
		}
	}
	for statement := range strings.SplitSeq(text.String(), ";\n") {
		if strings.TrimSpace(statement) != "" {
			all = append(all, statement)
		}
	}
	return all
}

// The names of the settings that a database keeps.
const (
	settingCurrency = "currency"
	settingBilling  = "billing"
	settingSecret   = "secret"
)

// The values of settingBilling.
const (
	billingPrepaid = "prepaid"
	billingCount   = "count"
)

// adoptSettings makes the options and the database agree on the currency and the kind of
// billing. It makes the deployment's secret if there is none.
func (db *DB) adoptSettings(ctx context.Context) error {
	return db.inSerialTx(ctx, func(ctx context.Context, t session) error {
		if err := db.adoptBilling(ctx, t); err != nil {
			return err
		}
		if err := db.adoptCurrency(ctx, t); err != nil {
			return err
		}
		return db.adoptSecret(ctx, t)
	})
}

// adoptSecret reads the deployment's secret, which the first server makes.
func (db *DB) adoptSecret(ctx context.Context, t session) error {
	text, err := t.setting(ctx, settingSecret)
	if err == nil && text == "" {
		text = rand.Text()
		err = t.setSetting(ctx, settingSecret, text)
	}
	db.secret = secret.New(text)
	return err
}

// Secret is a random text that all servers on the database share, made at the first start:
// the secret of a deployment that was given none, see gateway.Options.Secrets.
func (db *DB) Secret() secret.String { return db.secret }

// adoptBilling refuses to bill in another way than a server that runs on the same
// database: its customers would find money off, or on.
func (db *DB) adoptBilling(ctx context.Context, t session) error {
	stored, err := t.setting(ctx, settingBilling)
	if err != nil {
		return err
	}
	if db.options.AsStored {
		db.options.Count = stored == billingCount || (stored == "" && db.options.Count)
		return nil
	}
	now := billingPrepaid
	if db.options.Count {
		now = billingCount
	}
	if db.dialect.Shared && stored != "" && stored != now {
		var alive int
		if err := t.queryRow(ctx, "SELECT COUNT(*) FROM node WHERE NOT dead AND lease_until > "+db.dialect.Clock).Scan(&alive); err != nil {
			return err
		}
		if alive > 0 {
			return fault.Invalid("billing", fmt.Sprintf(
				"Another server runs on this database with `billing: %s`. Stop it before this one starts with `billing: %s`; one that was killed counts for %s.",
				stored, now, db.options.Lease))
		}
	}
	return t.setSetting(ctx, settingBilling, now)
}

// adoptCurrency refuses another currency as soon as there is an entry in the journal.
func (db *DB) adoptCurrency(ctx context.Context, t session) error {
	stored, err := t.setting(ctx, settingCurrency)
	switch {
	case err != nil || stored == db.options.Currency:
		return err
	case stored != "" && db.options.AsStored:
		db.options.Currency = stored
		return nil
	case stored != "":
		var entries int
		if err := t.queryRow(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM entry LIMIT 1) AS first").Scan(&entries); err != nil {
			return err
		}
		if entries > 0 {
			return fault.Invalid("currency", fmt.Sprintf(
				"The database keeps its books in %s, and amounts cannot become %s: write `currency: %s`, or use another database.",
				stored, db.options.Currency, stored))
		}
	}
	return t.setSetting(ctx, settingCurrency, db.options.Currency)
}

// setting is a value; empty if there is none.
func (s session) setting(ctx context.Context, name string) (string, error) {
	return s.text(ctx, "SELECT value FROM setting WHERE name = ?", name)
}

// putSetting is a statement that gives a setting another value.
const putSetting = "INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

func (s session) setSetting(ctx context.Context, name, value string) error {
	_, err := s.exec(ctx, putSetting, name, value)
	return err
}
