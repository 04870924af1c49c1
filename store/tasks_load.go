package store

import (
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// loadTasks reads tasks in the order of their ids, in which every process locks
// them, after everything else that is locked.
func (b *batch) loadTasks() error {
	t := &b.tasks
	if err := b.lockKeys(); err != nil {
		return err
	}
	err := b.tx.queryAll(b.ctx, &b.sql.tasks, anys(slices.Sorted(maps.Keys(t.wanted))), func(rows *sql.Rows) error {
		r, err := scanTask(rows)
		if err == nil {
			t.known[r.ID] = r
		}
		return err
	})
	if err != nil {
		return err
	}
	err = b.tx.queryAll(b.ctx, &b.sql.taskOf, anys(slices.Sorted(maps.Keys(t.requests))), func(rows *sql.Rows) error {
		r, err := b.scanKnownTask(rows)
		if err == nil {
			t.of[r.RequestID] = r
		}
		return err
	})
	if err != nil || len(t.news) == 0 {
		return err
	}
	return b.loadRivals()
}

// scanKnownTask reads a task that the batch may know.
func (b *batch) scanKnownTask(rows *sql.Rows) (*taskRow, error) {
	r, err := scanTask(rows)
	if err != nil {
		return nil, err
	}
	if known := b.tasks.known[r.ID]; known != nil {
		return known, nil
	}
	return r, nil
}

// lockKeys makes the processes admit the tasks of a key one after the other.
func (b *batch) lockKeys() error {
	if !b.db.dialect.Shared || len(b.tasks.news) == 0 {
		return nil
	}
	locks := map[int64]bool{}
	for _, n := range b.tasks.news {
		sum := sha256.Sum256(fmt.Appendf(nil, "tasks %q %q", n.Task.Account, n.Task.Key))
		locks[int64(binary.BigEndian.Uint64(sum[:]))] = true
	}
	for _, lock := range slices.Sorted(maps.Keys(locks)) {
		if _, err := b.tx.exec(b.ctx, "SELECT pg_advisory_xact_lock(CAST(? AS bigint) # hashtext(current_schema()))", lock); err != nil {
			return err
		}
	}
	return nil
}

// loadRivals reads what may refuse new tasks.
func (b *batch) loadRivals() error {
	t := &b.tasks
	var keys, recent, same []any
	asked := map[ownKey]bool{}
	for _, n := range t.news {
		if k := (ownKey{n.Task.Account, n.Task.Key}); n.Most > 0 && !asked[k] {
			asked[k] = true
			t.open[k] = 0
			keys = append(keys, k.account, k.key)
		}
		if n.Window <= 0 || n.Retried {
			continue
		}
		mark := hex.EncodeToString(n.Task.Fingerprint[:])
		recent, same = append(recent, mark, b.now-int64(n.Window)), append(same, mark)
	}
	err := b.tx.queryAll(b.ctx, &b.sql.openTasks, keys, func(rows *sql.Rows) error {
		var k ownKey
		var n int64
		err := rows.Scan(&k.account, &k.key, &n)
		t.open[k] = n
		return err
	})
	note := func(rows *sql.Rows) error {
		r, err := b.scanKnownTask(rows)
		if err == nil {
			mark := hex.EncodeToString(r.Fingerprint[:])
			t.similar[mark] = append(t.similar[mark], r)
		}
		return err
	}
	if err == nil {
		err = b.tx.queryAll(b.ctx, &b.sql.recentTasks, recent, note)
	}
	if err == nil {
		err = b.tx.queryAll(b.ctx, &b.sql.submittedTasks, same, note)
	}
	return err
}
