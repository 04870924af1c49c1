package store

import (
	"database/sql"
	"maps"
	"slices"
	"time"
)

// How operations on rows are retried that another session has locked.
const (
	lockedRetryEvery = 25 * time.Millisecond // between two tries, at least
	lockedBatch      = batchLimit / 2        // in one of them
	lockedLimit      = queueLimit / 4        // that wait; new holds on locked accounts are refused above it
	bisectLimit      = time.Second           // how long one batch is taken apart
)

// lockedQueue are the operations that wait for rows which another session has
// locked. They are kept apart so that no other operation waits with them. They
// belong to the committer's goroutine.
type lockedQueue struct {
	ops    []*op
	trying bool      // some of them are being tried
	next   time.Time // when they may be tried again
}

// putOff keeps ops for a later try. Of requests that begin it keeps only so many.
func (c *committer) putOff(ops []*op) {
	for _, o := range ops {
		if o.begins && len(c.delayed.ops) >= lockedLimit {
			o.err = c.db.unavailable(errLocked)
			o.finish()
			continue
		}
		c.delayed.ops = append(c.delayed.ops, o)
	}
}

// endPutOff ends the operations that still wait when the store closes, after
// a last try.
func (c *committer) endPutOff() {
	ops := c.delayed.ops
	c.delayed.ops = nil
	for len(ops) > 0 {
		n := min(len(ops), batchLimit)
		c.commit(c.stillWaited(ops[:n]), commitMode{hurried: true})
		ops = ops[n:]
	}
	for _, o := range c.delayed.ops {
		o.err = c.db.unavailable(errClosed)
		o.finish()
	}
}

// bisect commits the halves of ops by themselves, to find which of them wait for
// a row that another session has locked, and puts those off. Where that takes too
// long it puts off all that are left.
func (c *committer) bisect(ops []*op, how commitMode) {
	if how.bisecting.IsZero() {
		how.bisecting = time.Now()
	}
	if len(ops) <= 1 || time.Since(how.bisecting) > bisectLimit {
		c.putOff(ops)
		return
	}
	how.careful = true
	c.commit(ops[:len(ops)/2], how)
	c.commit(c.stillWaited(ops[len(ops)/2:]), how)
}

// due takes some operations, if it is time to try them again.
func (d *lockedQueue) due() []*op {
	d.trying = len(d.ops) > 0 && !time.Now().Before(d.next)
	if !d.trying {
		return nil
	}
	n := min(len(d.ops), lockedBatch)
	ops := slices.Clone(d.ops[:n])
	d.ops = dropFirst(d.ops, n)
	return ops
}

// tried puts the next try off, the longer the more the last one took: others wait
// for it.
func (d *lockedQueue) tried(took time.Duration) {
	if d.trying {
		d.next = time.Now().Add(max(lockedRetryEvery, 4*took))
	}
}

// hurried reports whether a batch has to leave out what others have locked.
func (d *lockedQueue) hurried() bool { return d.trying || len(d.ops) > 0 }

// ofLocks are the statements that tell which rows others have locked.
func (s *statements) ofLocks(d Dialect) {
	s.accountsOfHolds = newLookup(d, "SELECT id, account FROM hold WHERE id", 't', "")
	s.unlockedHolds = newLookup(d, "SELECT id FROM hold WHERE id", 't', " ORDER BY id"+d.Lock+" SKIP LOCKED")
	s.unlockedAccounts = newLookup(d, "SELECT id FROM account WHERE id", 't', " ORDER BY id"+d.Lock+" SKIP LOCKED")
	s.accountNames = newLookup(d, "SELECT id FROM account WHERE id", 't', "")
}

// leaveOutLocked removes the operations from the batch whose holds or accounts
// another session has locked, and locks those of the others. It never waits for
// a lock: one locked row would otherwise delay the operations of all accounts.
func (b *batch) leaveOutLocked() error {
	needed := make([]wanted, len(b.ops))
	holds, accounts := map[string]bool{}, map[string]bool{}
	for i, o := range b.ops {
		probe := newBatch(b.committer, nil, true)
		o.needs(probe)
		needed[i] = probe.wanted
		maps.Copy(holds, probe.wanted.holds)
		maps.Copy(accounts, probe.wanted.accounts)
	}
	of := map[string]string{} // the accounts of the holds that are there
	err := b.tx.queryAll(b.ctx, &b.sql.accountsOfHolds, sortedKeys(holds), func(rows *sql.Rows) error {
		var id, account string
		err := rows.Scan(&id, &account)
		of[id], accounts[account] = account, true
		return err
	})
	if err != nil {
		return err
	}
	lockedHolds, err := b.locked(&b.sql.unlockedHolds, nil, sortedKeys(of))
	if err != nil {
		return err
	}
	lockedAccounts, err := b.locked(&b.sql.unlockedAccounts, &b.sql.accountNames, sortedKeys(accounts))
	if err != nil {
		return err
	}
	isLocked := func(n *wanted) bool {
		for id := range n.holds {
			if lockedHolds[id] || lockedAccounts[of[id]] {
				return true
			}
		}
		for name := range n.accounts {
			if lockedAccounts[name] {
				return true
			}
		}
		return false
	}
	var rest []*op
	for i, o := range b.ops {
		if isLocked(&needed[i]) {
			b.skipped = append(b.skipped, o)
		} else {
			rest = append(rest, o)
		}
	}
	b.ops = rest
	return nil
}

// locked are those of ids whose rows unlocked did not return although they are
// there, which exists tells; nil where all were there a moment ago.
func (b *batch) locked(unlocked, exists *bulk, ids []any) (map[string]bool, error) {
	missing := map[string]bool{}
	for _, id := range ids {
		missing[id.(string)] = true
	}
	scan := func(note func(id string)) func(*sql.Rows) error {
		return func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id)
			note(id)
			return err
		}
	}
	if err := b.tx.queryAll(b.ctx, unlocked, ids, scan(func(id string) { delete(missing, id) })); err != nil || exists == nil || len(missing) == 0 {
		return missing, err
	}
	there := map[string]bool{}
	err := b.tx.queryAll(b.ctx, exists, sortedKeys(missing), scan(func(id string) { there[id] = true }))
	return there, err
}

func sortedKeys[V any](m map[string]V) []any { return anys(slices.Sorted(maps.Keys(m))) }
