package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	auth.KeyNames
	// Replace replaces all keys of earlier Replace calls by owned, in one step. It keeps the
	// keys that were added at run time. A key that was turned off or on at run time stays so. A
	// key that was turned off and is not among owned stays too, disabled, under the id of
	// [auth.IDOf]: it must not become valid again when an older or another file comes and goes.
	// Replace fails as Add does, and then nothing has changed. Processes that share a database
	// share the keys of their files: the last Replace counts.
	Replace(ctx context.Context, owned []auth.Key) error
}

// Keys are the API keys in the database.
func (db *DB) Keys() Keys { return db.keys }

// dbKeys are the [Keys] of a database.
type dbKeys struct {
	*DB
	replacing  sync.Mutex
	owned      []auth.Key // what Replace brought last; nil if that is not certain
	unreadable sync.Map   // the ids of keys whose rows could not be read
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
	damaged  bool // the row is not as it was written
}

// Find implements [auth.KeyStore]. Each call asks the database: put an
// [auth.Cached] before it.
//
// A key whose row is damaged fails with fault.InternalError.
func (db *dbKeys) Find(ctx context.Context, hash [32]byte) (*auth.Key, error) {
	found, err := list(ctx, db.DB, scanKey, "SELECT "+keyColumns+" FROM key WHERE hash = ?", hex.EncodeToString(hash[:]))
	if damaged, is := errors.AsType[*damagedKey](err); is {
		db.noteDamaged(damaged)
		return nil, fault.Wrap(fault.InternalError, "The record of this key is damaged: delete the key and create another one.", damaged)
	}
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fault.New(fault.NotFound, "No key has this hash.")
	}
	return &found[0], nil
}

// List implements [auth.KeyAdmin]. A key whose row is damaged is disabled: it is good for nothing
// but to be deleted.
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
	keys, err := collect(ctx, db.readers(), func(rows Row) (auth.Key, error) {
		k, err := scanKey(rows)
		if damaged, is := errors.AsType[*damagedKey](err); is {
			db.noteDamaged(damaged)
			k.Disabled, err = true, nil
		}
		return k, err
	}, "SELECT "+keyColumns+" FROM key WHERE "+strings.Join(conditions, " AND ")+" ORDER BY created_at, id LIMIT ?", append(args, limit)...)
	return keys, db.unavailableOrCanceled(ctx, err)
}

// Add implements [auth.KeyAdmin].
func (db *dbKeys) Add(ctx context.Context, k auth.Key) error {
	return db.changeKey(ctx, func(ctx context.Context, t session) error {
		row := []keyRow{{Key: k, source: fromAdmin}}
		stored, err := t.likeKeys(ctx, row, fromAdmin, fromFile, fromPast)
		if err == nil {
			err = stored.add(row[0])
		}
		if err != nil {
			return err
		}
		return t.insertKeys(ctx, row)
	})
}

// SetDisabled implements [auth.KeyAdmin]. What it sets for a key of the config file stays when
// the file is loaded again, so that a reload never re-enables a leaked key. A key that the
// file no longer has cannot be turned on (fault.InvalidRequest).
func (db *dbKeys) SetDisabled(ctx context.Context, id string, disabled bool) error {
	return db.changeKey(ctx, func(ctx context.Context, t session) error {
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

// Delete implements [auth.KeyAdmin]. A key that the config file owns cannot be deleted
// (fault.InvalidRequest), since the next reload would bring it back. A key that was turned off
// and is no longer in the file can be deleted. With it goes the memory that it was turned off.
func (db *dbKeys) Delete(ctx context.Context, id string) error {
	return db.changeKey(ctx, func(ctx context.Context, t session) error {
		n, err := t.exec(ctx, "DELETE FROM key WHERE id = ? AND source <> ?", id, fromFile)
		if err != nil || n > 0 {
			db.unreadable.Delete(id)
			return err
		}
		return t.refuse(ctx, id, "The key "+id+" is written in the config file: take it out there and reload, or disable it.")
	})
}

// refuse returns why a key cannot be changed, or that it does not exist.
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
		return nil // no other caller brings any
	}
	db.owned = nil
	err := db.changeKeys(ctx, func(ctx context.Context, t session) error { return db.replaceKeys(ctx, t, owned) })
	if err == nil {
		db.owned = append([]auth.Key{}, owned...)
	}
	return err
}

// replaceKeys writes only what differs from the keys that are stored: most starts and
// reloads change few of them, or none.
func (db *dbKeys) replaceKeys(ctx context.Context, s session, owned []auth.Key) error {
	before, hashless, err := db.fileKeys(ctx, s)
	if err != nil {
		return err
	}
	wanted := wantedKeys(owned, before, hashless)
	stored, err := s.likeKeys(ctx, wanted, fromAdmin)
	if err != nil {
		return err
	}
	var added []keyRow
	for _, k := range wanted {
		if err := stored.add(k); err != nil {
			return err
		}
		if reflect.DeepEqual(before[k.Hash], k) {
			delete(before, k.Hash)
			continue
		}
		added = append(added, k)
	}
	gone := make([]any, 0, len(before)+len(hashless))
	for _, k := range before {
		gone = append(gone, k.ID)
	}
	for id := range hashless {
		gone = append(gone, id)
	}
	if err := s.writeBulk(ctx, "DELETE FROM key WHERE id IN (ROWS[t])", gone); err != nil {
		return err
	}
	return s.insertKeys(ctx, added)
}

// wantedKeys are the keys of a file as they will be stored, given those before. A key that was
// turned off or on stays so, and a key that was turned off stays without a file. A key whose
// hash is damaged is known by its id alone.
func wantedKeys(owned []auth.Key, before map[[32]byte]keyRow, hashless map[string]keyRow) []keyRow {
	rows, inFile := make([]keyRow, 0, len(owned)), make(map[[32]byte]bool, len(owned))
	for _, k := range owned {
		row := keyRow{Key: k, source: fromFile}
		old, known := before[k.Hash]
		if !known {
			old = hashless[k.ID]
		}
		if old.switched && !inFile[k.Hash] {
			row.Disabled, row.switched = old.Disabled, true
		}
		rows, inFile[k.Hash] = append(rows, row), true
	}
	for hash, old := range before {
		if old.switched && old.Disabled && !inFile[hash] {
			old.ID = auth.IDOf(hash) // the file may have given its id to another secret
			old.source, old.damaged = fromPast, false
			rows = append(rows, old)
		}
	}
	return rows
}

func sameKey(a, b auth.Key) bool { return reflect.DeepEqual(a, b) }

// changeKeys runs change in a serial transaction, so that what it reads of the keys
// stays true until it ends.
func (db *DB) changeKeys(ctx context.Context, change func(context.Context, session) error) error {
	return db.unavailableOrCanceled(ctx, db.inSerialTx(ctx, change))
}

// changeKey is changeKeys for one key, whose caller waits at most Options.WaitTimeout.
func (db *DB) changeKey(ctx context.Context, change func(context.Context, session) error) error {
	bounded, cancel := context.WithTimeout(ctx, db.options.WaitTimeout)
	defer cancel()
	err := db.inSerialTx(bounded, change)
	if !isFinal(err) && bounded.Err() != nil && ctx.Err() == nil {
		return errLater("The database has not answered, so it is not known whether the key was changed. Look at the list of keys before you repeat it.", err)
	}
	return db.unavailableOrCanceled(ctx, err)
}

// fileKeys returns the stored keys that a config file owns or owned: by their hash, and by
// their id if the hash is damaged. Whatever is readable of a damaged row counts, since a key
// that was turned off must not become valid again.
func (db *dbKeys) fileKeys(ctx context.Context, s session) (keys map[[32]byte]keyRow, hashless map[string]keyRow, err error) {
	keys, hashless = make(map[[32]byte]keyRow), map[string]keyRow{}
	err = forEach(ctx, s, func(row Row) error {
		var k keyRow
		var err error
		k.Key, err = scanKeyAnd(row, &k.source, &k.switched)
		if damaged, is := errors.AsType[*damagedKey](err); is {
			db.noteDamaged(damaged)
			k.damaged, err = true, nil
		}
		if k.Hash == ([32]byte{}) {
			hashless[k.ID] = k
		} else {
			keys[k.Hash] = k
		}
		return err
	}, "SELECT "+keyColumns+", source, switched FROM key WHERE source IN (?, ?)", fromFile, fromPast)
	return keys, hashless, err
}

// insertKeys stores keys, however many, in a few statements, and their names for good.
func (s session) insertKeys(ctx context.Context, keys []keyRow) error {
	args := make([]any, 0, len(keys)*14)
	var names []any
	for _, k := range keys {
		if k.source != fromPast { // its id is another one than when it was used
			names = append(names, k.ID, k.Account, k.Name)
		}
		models, err := json.Marshal(k.Models)
		if err != nil {
			return err
		}
		args = append(args, k.ID, k.Account, k.Name, hex.EncodeToString(k.Hash[:]), string(models),
			k.Limits.RPM, k.Limits.TPM, k.Limits.MaxConcurrent, k.Limits.MaxConcurrentVideos,
			nanos(k.Created), nanos(k.Expires), k.Disabled, k.source, k.switched)
	}
	if err := s.writeBulk(ctx, "INSERT INTO key ("+keyColumns+", source, switched) ROWS[tttttnnnnnnbtb]", args); err != nil {
		return err
	}
	return s.writeBulk(ctx, "INSERT INTO key_name (id, account, name) ROWS[ttt] ON CONFLICT (id) DO UPDATE SET account = EXCLUDED.account, name = EXCLUDED.name", names)
}

// Names implements [auth.KeyNames]. A key that an older program added has its name as long as it
// is there.
func (db *dbKeys) Names(ctx context.Context, ids []string) (map[string]string, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	names := make(map[string]string, len(ids))
	for _, table := range [...]string{"key_name", "key"} {
		err := queryAll(ctx, db.readers(), db.bulk("SELECT id, name FROM "+table+" WHERE id IN[t]"), anys(ids), func(rows Row) error {
			var id, name string
			err := rows.Scan(&id, &name)
			names[id] = name
			return err
		})
		if err != nil {
			return nil, db.unavailableOrCanceled(ctx, err)
		}
	}
	return names, nil
}

// storedKeys are keys that are stored already, by what no two keys share.
type storedKeys struct {
	ids    map[string]bool
	hashes map[string]string // to ids
}

// likeKeys are the stored keys of these sources that have an id or a hash of keys.
func (s session) likeKeys(ctx context.Context, keys []keyRow, sources ...string) (storedKeys, error) {
	stored := storedKeys{make(map[string]bool, len(keys)), make(map[string]string, len(keys))}
	ids, hashes := make([]any, len(keys)), make([]any, len(keys))
	for i, k := range keys {
		ids[i], hashes[i] = k.ID, hex.EncodeToString(k.Hash[:])
	}
	found := func(row Row) error {
		var id, hash, source string
		if err := row.Scan(&id, &hash, &source); err != nil || !slices.Contains(sources, source) {
			return err
		}
		stored.ids[id], stored.hashes[hash] = true, id
		return nil
	}
	if err := queryAll(ctx, s, s.db.bulk("SELECT id, hash, source FROM key WHERE id IN[t]"), ids, found); err != nil {
		return stored, err
	}
	return stored, queryAll(ctx, s, s.db.bulk("SELECT id, hash, source FROM key WHERE hash IN[t]"), hashes, found)
}

// add refuses a key that cannot be stored beside the others.
func (s storedKeys) add(k keyRow) error {
	hash := hex.EncodeToString(k.Hash[:])
	other, same := s.hashes[hash]
	switch {
	case k.ID == "" || k.Account == "" || k.Hash == [32]byte{}:
		return fault.New(fault.InvalidRequest, "A key needs an id, an account and a hash.")
	case s.ids[k.ID]:
		return fault.Invalid("id", "There is already a key with the id "+k.ID+".")
	case same:
		return fault.Invalid("hash", "The keys "+other+" and "+k.ID+" have the same secret; each key needs its own.")
	}
	s.ids[k.ID], s.hashes[hash] = true, k.ID
	return nil
}

// keyWith is the id of the key that has a value in a column, empty if none has.
func (s session) keyWith(ctx context.Context, column, value string) (id string, err error) {
	return s.text(ctx, "SELECT id FROM key WHERE "+column+" = ?", value)
}

func errNoKey(id string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no key with the id %.64s.", id))
}

// scanKey reads one row of keyColumns. Its error is a damagedKey if a part of it is not as it was
// written; the key then has the other parts.
func scanKey(row Row) (auth.Key, error) { return scanKeyAnd(row) }

// scanKeyAnd is scanKey with more columns behind those.
func scanKeyAnd(row Row, more ...any) (auth.Key, error) {
	var (
		k                auth.Key
		hash, models     string
		created, expires int64
	)
	l := &k.Limits
	if err := row.Scan(append([]any{&k.ID, &k.Account, &k.Name, &hash, &models,
		&l.RPM, &l.TPM, &l.MaxConcurrent, &l.MaxConcurrentVideos, &created, &expires, &k.Disabled}, more...)...); err != nil {
		return auth.Key{}, err
	}
	k.Created, k.Expires = timeOrZero(created), timeOrZero(expires)
	digest, err := hex.DecodeString(hash)
	if err != nil || copy(k.Hash[:], digest) != len(k.Hash) {
		k.Hash = [32]byte{}
		return k, &damagedKey{k.ID, "its hash is none"}
	}
	if err := json.Unmarshal([]byte(models), &k.Models); err != nil {
		k.Models = nil
		return k, &damagedKey{k.ID, "its models are no list: " + err.Error()}
	}
	return k, nil
}

// damagedKey is the error of a row that is not as it was written. The rest of it was read.
type damagedKey struct{ id, why string }

func (e *damagedKey) Error() string { return "the row of the key " + e.id + " is damaged: " + e.why }

// noteDamaged logs a damaged row, once.
func (db *dbKeys) noteDamaged(e *damagedKey) {
	if _, known := db.unreadable.LoadOrStore(e.id, true); !known {
		db.options.Logger.Error("a key is damaged and cannot be used: delete it", "key", e.id, "error", e)
	}
}

// DamagedKeys fails with fault.InternalError if rows of keys were found that could not be read.
func (db *DB) DamagedKeys(context.Context) error {
	n := 0
	db.keys.unreadable.Range(func(any, any) bool { n++; return true })
	if n > 0 {
		return fault.New(fault.InternalError, fmt.Sprintf("The rows of %d keys are damaged. The log names them.", n))
	}
	return nil
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
