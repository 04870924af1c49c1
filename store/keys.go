package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// Keys are the API keys of a database.
type Keys interface {
	auth.KeyStore
	auth.KeyAdmin
	// Replace puts owned in the place of all keys that an earlier Replace brought,
	// in one step, and keeps the keys that were added at run time. A key that was
	// turned off or on at run time stays so. One that was turned off and is not
	// among owned stays too, disabled and under the id that [auth.IDOf] gives: it
	// must not wake when an older or another file comes and goes. Replace fails as
	// Add does, and then nothing has changed. Processes that share a database share
	// the keys of their files: the last Replace counts.
	Replace(ctx context.Context, owned []auth.Key) error
}

// Keys are the API keys in the database.
func (db *DB) Keys() Keys { return db.keys }

// dbKeys are the [Keys] of a database.
type dbKeys struct {
	*DB
	replacing sync.Mutex
	owned     []auth.Key // what Replace brought last; nil if that is not certain
}

// The sources of a key.
const (
	fromAdmin = "admin" // added at run time
	fromFile  = "file"  // owned by the config file
	fromPast  = "past"  // the config file had it, and it was turned off then
)

const keyColumns = "id, account, name, hash, models, rpm, tpm, max_concurrent, max_concurrent_videos, created_at, expires_at, disabled"

// keyRow is a key with what the database knows besides.
type keyRow struct {
	auth.Key
	source   string
	switched bool // Disabled was set at run time and outlives a reload
}

// Find implements [auth.KeyStore]. Each call asks the database: put an
// [auth.Cached] before it.
func (db *dbKeys) Find(ctx context.Context, hash [32]byte) (*auth.Key, error) {
	found, err := list(ctx, db.DB, scanKey, "SELECT "+keyColumns+" FROM key WHERE hash = ?", hex.EncodeToString(hash[:]))
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fault.New(fault.NotFound, "No key has this hash.")
	}
	return &found[0], nil
}

// List implements [auth.KeyAdmin].
func (db *dbKeys) List(ctx context.Context, account string) ([]auth.Key, error) {
	return db.Page(ctx, account, "", math.MaxInt)
}

// Page implements [auth.KeyAdmin].
func (db *dbKeys) Page(ctx context.Context, account, after string, limit int) ([]auth.Key, error) {
	var conditions []string
	var args []any
	if account != "" {
		conditions, args = append(conditions, "account = ?"), append(args, account)
	}
	if after != "" {
		var created int64
		switch found, err := db.find(ctx, "SELECT created_at FROM key WHERE id = ?", []any{after}, &created); {
		case err != nil:
			return nil, err
		case !found:
			return nil, ledger.ErrNoKeyAfter(after)
		}
		conditions, args = append(conditions, "(created_at, id) > (?, ?)"), append(args, created, after)
	}
	if conditions == nil {
		conditions = []string{"TRUE"}
	}
	keys, err := collect(ctx, db.readers(), scanKey, "SELECT "+keyColumns+" FROM key WHERE "+strings.Join(conditions, " AND ")+" ORDER BY created_at, id LIMIT ?", append(args, limit)...)
	return keys, db.unavailableOrCanceled(ctx, err)
}

// Add implements [auth.KeyAdmin].
func (db *dbKeys) Add(ctx context.Context, k auth.Key) error {
	return db.changeKeys(ctx, func(ctx context.Context, t session) error {
		return t.addKey(ctx, keyRow{Key: k, source: fromAdmin})
	})
}

// SetDisabled implements [auth.KeyAdmin]. What it sets for a key of the config
// file stays when the file is loaded again: a reload must not wake a leaked key.
// One that the file does not have any more cannot be turned on
// (fault.InvalidRequest).
func (db *dbKeys) SetDisabled(ctx context.Context, id string, disabled bool) error {
	return db.changeKeys(ctx, func(ctx context.Context, t session) error {
		sources := []any{fromAdmin, fromFile, fromPast}
		if !disabled {
			sources[2] = fromFile
		}
		n, err := t.exec(ctx, "UPDATE key SET disabled = ?, switched = ? WHERE id = ? AND source IN (?, ?, ?)", append([]any{disabled, true, id}, sources...)...)
		if err != nil || n > 0 {
			return err
		}
		return t.refuse(ctx, id, "The key "+id+" was turned off and then taken out of the config file: write it there again before you turn it on, or delete it.")
	})
}

// Delete implements [auth.KeyAdmin]. A key that the config file owns cannot be
// deleted (fault.InvalidRequest), since the next reload would bring it back. One
// that was turned off and is not in the file any more can be: with it goes the
// memory that it was turned off.
func (db *dbKeys) Delete(ctx context.Context, id string) error {
	return db.changeKeys(ctx, func(ctx context.Context, t session) error {
		n, err := t.exec(ctx, "DELETE FROM key WHERE id = ? AND source <> ?", id, fromFile)
		if err != nil || n > 0 {
			return err
		}
		return t.refuse(ctx, id, "The key "+id+" is written in the config file: take it out there and reload, or disable it.")
	})
}

// refuse says why a key cannot be changed, or that there is none.
func (s session) refuse(ctx context.Context, id, why string) error {
	taken, err := s.keyWith(ctx, "id", id)
	switch {
	case err != nil:
		return err
	case taken == "":
		return errNoKey(id)
	}
	return fault.Invalid("id", why)
}

// Replace implements [Keys].
func (db *dbKeys) Replace(ctx context.Context, owned []auth.Key) error {
	db.replacing.Lock()
	defer db.replacing.Unlock()
	if db.owned != nil && !db.dialect.Shared && slices.EqualFunc(db.owned, owned, sameKey) {
		return nil // nobody else brings any
	}
	db.owned = nil
	err := db.changeKeys(ctx, func(ctx context.Context, t session) error {
		switched, err := t.switchedKeys(ctx)
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, "DELETE FROM key WHERE source IN (?, ?)", fromFile, fromPast); err != nil {
			return err
		}
		for _, k := range owned {
			row := keyRow{Key: k, source: fromFile}
			if before, ok := switched[k.Hash]; ok {
				row.Disabled, row.switched = before.Disabled, true
				delete(switched, k.Hash)
			}
			if err := t.addKey(ctx, row); err != nil {
				return err
			}
		}
		return t.keepDisabled(ctx, switched)
	})
	if err == nil {
		db.owned = append([]auth.Key{}, owned...)
	}
	return err
}

func sameKey(a, b auth.Key) bool { return reflect.DeepEqual(a, b) }

// keepDisabled keeps those of the switched keys that are off.
func (s session) keepDisabled(ctx context.Context, switched map[[32]byte]auth.Key) error {
	for hash, k := range switched {
		if !k.Disabled {
			continue
		}
		k.ID = auth.IDOf(hash) // the file may have given its id to another secret
		if err := s.addKey(ctx, keyRow{Key: k, source: fromPast, switched: true}); err != nil {
			return err
		}
	}
	return nil
}

// changeKeys runs change in a serial transaction, so that what it reads of the keys
// stays true until it ends.
func (db *DB) changeKeys(ctx context.Context, change func(context.Context, session) error) error {
	return db.unavailableOrCanceled(ctx, db.inSerialTx(ctx, change))
}

// switchedKeys are the keys of the config file that were turned off or on at
// run time, also those that it does not have any more.
func (s session) switchedKeys(ctx context.Context) (map[[32]byte]auth.Key, error) {
	switched := make(map[[32]byte]auth.Key)
	err := forEach(ctx, s, func(rows Row) error {
		k, err := scanKey(rows)
		switched[k.Hash] = k
		return err
	}, "SELECT "+keyColumns+" FROM key WHERE source IN (?, ?) AND switched = ?", fromFile, fromPast, true)
	return switched, err
}

// addKey refuses a key that cannot be stored.
func (s session) addKey(ctx context.Context, k keyRow) error {
	if k.ID == "" || k.Account == "" || k.Hash == [32]byte{} {
		return fault.New(fault.InvalidRequest, "A key needs an id, an account and a hash.")
	}
	hash := hex.EncodeToString(k.Hash[:])
	same, err := s.keyWith(ctx, "id", k.ID)
	if err != nil {
		return err
	}
	if same != "" {
		return fault.Invalid("id", "There is already a key with the id "+k.ID+".")
	}
	other, err := s.keyWith(ctx, "hash", hash)
	if err != nil {
		return err
	}
	if other != "" {
		return fault.Invalid("hash", "The keys "+other+" and "+k.ID+" have the same secret; each key needs its own.")
	}
	models, err := json.Marshal(k.Models)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, "INSERT INTO key ("+keyColumns+", source, switched) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		k.ID, k.Account, k.Name, hash, string(models),
		k.Limits.RPM, k.Limits.TPM, k.Limits.MaxConcurrent, k.Limits.MaxConcurrentVideos,
		nanos(k.Created), nanos(k.Expires), k.Disabled, k.source, k.switched)
	return err
}

// keyWith is the id of the key that has a value in a column, empty if none has.
func (s session) keyWith(ctx context.Context, column, value string) (id string, err error) {
	return s.text(ctx, "SELECT id FROM key WHERE "+column+" = ?", value)
}

func errNoKey(id string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no key with the id %.64s.", id))
}

// scanKey reads one row of keyColumns.
func scanKey(row Row) (auth.Key, error) {
	var (
		k                auth.Key
		hash, models     string
		created, expires int64
	)
	l := &k.Limits
	if err := row.Scan(&k.ID, &k.Account, &k.Name, &hash, &models,
		&l.RPM, &l.TPM, &l.MaxConcurrent, &l.MaxConcurrentVideos, &created, &expires, &k.Disabled); err != nil {
		return auth.Key{}, err
	}
	k.Created, k.Expires = timeOrZero(created), timeOrZero(expires)
	if _, err := hex.Decode(k.Hash[:], []byte(hash)); err != nil {
		return auth.Key{}, err
	}
	return k, json.Unmarshal([]byte(models), &k.Models)
}

// nanos is a time as the database keeps it: nanoseconds since 1970, 0 for the
// zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return ledger.Nanos(t)
}

// timeOrZero is the time that nanos has kept, in UTC.
func timeOrZero(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}
