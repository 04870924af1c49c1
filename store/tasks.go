package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// Add implements [video.Store], for a task whose hold is not in this ledger.
func (db *dbLedger) Add(ctx context.Context, n video.CreateTask) error {
	made := false // unless that was rolled back
	o := newOp(func(b *batch) { b.wantNewTask(&n) }, func(b *batch) error {
		if b.again && made && b.tasks.known[n.Task.ID] != nil {
			return nil
		}
		if err := b.checkNewTask(&n); err != nil {
			return err
		}
		b.addTask(&n, false)
		made = true
		return nil
	})
	o.undo = func() *op { return newDropTaskOp(n.Task.ID) } // its caller was told that there is none
	return db.committer.run(ctx, o, db.options.WaitTimeout)
}

// Change implements [video.Store]. It also makes the webhook delivery of the step. The answer
// ends the claim of the submission's key for good. Its receipt says what is known while the
// hold is open.
func (db *dbLedger) Change(ctx context.Context, step video.Step, record *idempotency.Record) (bool, error) {
	made := false // the committer's until run has returned nil
	o := newOp(func(b *batch) { b.tasks.wanted[step.Task.ID] = true }, func(b *batch) error {
		r := b.tasks.known[step.Task.ID]
		if b.again && made && r != nil && r.Version == step.Task.Version && r.State == step.Task.State && r.UpdatedAt.Equal(step.Task.UpdatedAt) {
			return nil // it is this step
		}
		if made = r.follows(&step); !made {
			return nil
		}
		if record != nil {
			b.answers = append(b.answers, answer{record: *record, receipt: r.unsettled()})
		}
		b.applyStep(r, &step)
		return nil
	})
	if record != nil {
		o.bytes = record.Bytes()
	}
	if err := db.committer.run(ctx, o, db.options.WaitTimeout); err != nil {
		return false, err
	}
	return made, nil
}

// Drop implements [video.Store]. It does not end the task's hold.
func (db *dbLedger) Drop(ctx context.Context, id string) error {
	return db.committer.run(ctx, newDropTaskOp(id), db.options.WaitTimeout)
}

// Find implements [video.Store]. Of two tasks that an upstream gave the same id
// it is the younger.
func (db *dbLedger) Find(ctx context.Context, account, id string) (*video.Task, error) {
	if id == "" {
		return nil, nil
	}
	for _, where := range [...]string{
		"account = ? AND id = ?",
		"account = ? AND upstream_id = ? AND upstream_id <> '' ORDER BY noted_at DESC, id DESC LIMIT 1",
	} {
		found, err := list(ctx, db.DB, scanVideo, "SELECT "+taskColumns+" FROM task WHERE "+where, account, id)
		if err != nil || len(found) > 0 {
			return first(found), err
		}
	}
	return nil, nil
}

// scanVideo reads a row of taskColumns beside the committer.
func scanVideo(rows Row) (*video.Task, error) {
	r, err := scanTask(rows)
	if err != nil {
		return nil, err
	}
	return &r.Task, nil
}

// Claim implements [video.Store]. If several processes share the database, its clock measures
// leases; until is the caller's. A lease with more than half of its time left is not renewed,
// so that most calls write nothing.
func (db *dbLedger) Claim(ctx context.Context, owner string, until time.Time, n int) ([]*video.Task, error) {
	err := db.update(ctx, func(b *batch) error { return b.leaseTasks(owner, until, n) })
	if err != nil {
		return nil, err
	}
	// With a reader: the committer need not read what it wrote.
	return list(ctx, db.DB, scanVideo, "SELECT "+taskColumns+" FROM task WHERE NOT ended AND owner = ? ORDER BY polled_at, id", owner)
}

// leaseTasks leases free tasks and renews leases.
func (b *batch) leaseTasks(owner string, until time.Time, n int) error {
	if b.writeTasks(); b.err != nil { // what the batch has changed so far
		return b.err
	}
	end := b.db.ledgerTime(until, b.now)
	var rows []any
	lease := func(where string, args ...any) error {
		ids, err := collect(b.ctx, b.tx, scanOne[string], "SELECT id FROM task WHERE NOT ended AND "+where+b.db.skipLocked(), args...)
		for _, id := range ids {
			rows = append(rows, id, owner, end)
		}
		return err
	}
	if err := lease("owner <> ? AND lease_until <= ? ORDER BY polled_at, id LIMIT ?", owner, b.now, max(n, 0)); err != nil {
		return err
	}
	if err := lease("owner = ? AND lease_until <= ?", owner, b.now+(end-b.now)/2); err != nil {
		return err
	}
	return b.tx.writeBulk(b.ctx, "UPDATE task SET owner = c.column2, lease_until = c.column3 FROM (ROWS[ttn]) AS c WHERE id = c.column1", rows, true)
}

// Now implements [video.Clock]: it is the database's time where several processes
// share it.
func (db *dbLedger) Now(ctx context.Context) (time.Time, error) {
	now, err := db.now(ctx, db.readers())
	if err != nil {
		return time.Time{}, db.unavailableOrCanceled(ctx, err)
	}
	return timeAt(now), nil
}

// Purge implements [video.Store].
func (db *dbLedger) Purge(ctx context.Context, now time.Time) (int, error) {
	total := 0
	for {
		var dropped int64 // the committer's until run has returned nil
		err := db.update(ctx, func(b *batch) (err error) {
			dropped, err = b.tx.exec(b.ctx, "DELETE FROM task WHERE id IN (SELECT id FROM task WHERE purge_at > 0 AND purge_at <= ? LIMIT ?"+
				b.db.skipLocked()+")", nanos(now), sweptTasks)
			return err
		})
		if err != nil {
			return total, err
		}
		total += int(dropped)
		if dropped < sweptTasks {
			return total, nil
		}
	}
}

// sweptTasks are dropped in one transaction: holds wait meanwhile.
const sweptTasks = 256

// skipLocked is what a SELECT ends in that leaves out the rows which another process
// has locked.
func (db *DB) skipLocked() string {
	if db.dialect.Shared {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// ledgerTime is a time of this process's clock on the ledger's, where it is now. They
// differ where the ledger's is the database's.
func (db *DB) ledgerTime(t time.Time, now int64) int64 {
	if t.IsZero() || db.dialect.Clock == "" || db.options.Now != nil {
		return nanos(t)
	}
	const far = 100 * 365 * 24 * time.Hour
	return now + int64(min(max(time.Until(t), -far), far))
}

func newDropTaskOp(id string) *op {
	return newOp(
		func(b *batch) { b.tasks.wanted[id] = true },
		func(b *batch) error { b.dropTask(b.tasks.known[id]); return nil },
	)
}

func (b *batch) wantNewTask(n *video.CreateTask) {
	b.wantAccount(n.Task.Account) // whose tasks are admitted one after the other
	b.tasks.wanted[n.Task.ID] = true
	b.tasks.news = append(b.tasks.news, n)
}

// unsettled is the receipt of a submission whose hold is open.
func (r *taskRow) unsettled() billing.Receipt {
	return billing.Receipt{
		ID: r.RequestID, CreatedAt: r.CreatedAt, Account: r.Account, Key: r.Key, Model: r.Model, Status: stillHeld, Channel: r.Channel,
	}
}

// stillHeld is the status of a receipt that is not final yet.
const stillHeld = "held"

// wantTasks names the tasks that a settlement changes.
func (k *settlementRecords) wantTasks(b *batch) {
	for i := range k.steps {
		b.tasks.wanted[k.steps[i].Task.ID] = true
	}
	for _, d := range k.drops {
		b.tasks.wanted[d.ID] = true
	}
}

// checkSteps refuses the end of a hold whose task another process has changed or has not made:
// its money must not move without the task. It changes nothing.
func (k *settlementRecords) checkSteps(b *batch, request string) error {
	for i := range k.steps {
		s := &k.steps[i]
		if r := b.tasks.known[s.Task.ID]; !r.follows(s) || r.RequestID != request {
			return &fault.Error{
				Code: fault.ServiceUnavailable, RetryAfter: time.Second,
				Message: "The video was changed at the same time by another process. Look at it again.",
			}
		}
	}
	return nil
}

// applySteps changes the tasks of a hold that has just ended. late says that the hold had
// ended before this settlement; a task that had ended with it is not written again.
func (k *settlementRecords) applySteps(b *batch, late bool) {
	for i := range k.steps {
		if r := b.tasks.known[k.steps[i].Task.ID]; !late || r.follows(&k.steps[i]) && !r.held {
			b.applyStep(r, &k.steps[i])
		}
	}
	for _, d := range k.drops {
		if r := b.tasks.known[d.ID]; r != nil && !(late && r.held) {
			b.dropTask(r)
		}
	}
}

// The columns of a task: those that stay as submitted, and those that change. The lease is not
// read here.
const (
	submittedColumns = "id, account, key_id, request_id, model, price, family, bound, tokens, chosen, seed, webhook_url, fingerprint, created_at"
	livingColumns    = "channel, upstream_id, state, version, accepted_at, updated_at, expires_at, purge_at, polled_at, answer, failure, noted_at, held, ended"
	taskColumns      = submittedColumns + ", " + livingColumns

	submittedKinds = "ttttttttbbtttn"
	livingKinds    = "tttnnnnnnttnbb"
)

// taskRow is the row of a task in the hands of a batch.
type taskRow struct {
	video.Task
	noted int64 // when the ledger's clock saw it submitted, then accepted
	held  bool  // by a hold of this ledger that has not expired

	before  int64 // the version that the database has
	fresh   bool  // it has no row yet
	listed  bool  // among what the batch writes
	dropped bool
}

// scanTask reads a row of taskColumns.
func scanTask(rows Row) (*taskRow, error) {
	var (
		r                                                  taskRow
		bound, seed, fingerprint, state, answer, failure   string
		created, accepted, updated, expires, purge, polled int64
		ended                                              bool // the state tells it
	)
	t := &r.Task
	err := rows.Scan(&t.ID, &t.Account, &t.Key, &t.RequestID, &t.Model, &t.PriceVersion, &t.Family, &bound, &t.Tokens, &t.Open,
		&seed, &t.WebhookURL, &fingerprint, &created,
		&t.Channel, &t.UpstreamID, &state, &t.Version, &accepted, &updated, &expires, &purge, &polled, &answer, &failure, &r.noted, &r.held, &ended)
	if err != nil {
		return nil, err
	}
	t.CreatedAt, t.AcceptedAt, t.UpdatedAt = timeOrZero(created), timeOrZero(accepted), timeOrZero(updated)
	t.ExpiresAt, t.PurgeAt, t.PolledAt = timeOrZero(expires), timeOrZero(purge), timeOrZero(polled)
	t.State, t.Seed, t.Answer = video.State(state), valueOf(seed), valueOf(answer)
	r.before = t.Version
	var bad error
	if failure != "" {
		bad = json.Unmarshal([]byte(failure), &t.Failure)
	}
	_, notHex := hex.Decode(t.Fingerprint[:], []byte(fingerprint))
	t.Bound, err = parseUsage(bound)
	if err := errors.Join(err, bad, notHex); err != nil {
		return nil, fmt.Errorf("the task %s is damaged: %w", t.ID, err)
	}
	return &r, nil
}

func valueOf(text string) jsontext.Value {
	if text == "" {
		return nil
	}
	return jsontext.Value(text)
}

// submitted are the arguments of submittedColumns.
func (r *taskRow) submitted() ([]any, error) {
	t := &r.Task
	bound, err := formatUsage(t.Bound)
	return []any{
		t.ID, t.Account, t.Key, t.RequestID, t.Model, t.PriceVersion, t.Family, bound, t.Tokens, t.Open,
		string(t.Seed), t.WebhookURL, hex.EncodeToString(t.Fingerprint[:]), nanos(t.CreatedAt),
	}, err
}

// living are the arguments of livingColumns.
func (r *taskRow) living() ([]any, error) {
	t := &r.Task
	var failure []byte
	if t.Failure != nil {
		var err error
		if failure, err = json.Marshal(t.Failure); err != nil {
			return nil, err
		}
	}
	return []any{
		t.Channel, t.UpstreamID, string(t.State), t.Version, nanos(t.AcceptedAt), nanos(t.UpdatedAt), nanos(t.ExpiresAt),
		nanos(t.PurgeAt), nanos(t.PolledAt), string(t.Answer), string(failure), r.noted, r.held, t.State.Terminal(),
	}, nil
}

// follows reports whether a step is the next one of the task.
func (r *taskRow) follows(s *video.Step) bool {
	return r != nil && !r.dropped && r.Version == s.Task.Version-1 && !r.State.Terminal()
}

// repeats reports whether the same submission is taken for a mistake, by the
// ledger's clock.
func (r *taskRow) repeats(n *video.CreateTask, now int64) bool {
	t := video.Task{State: r.State, CreatedAt: timeAt(r.noted)}
	return !r.dropped && t.Repeats(timeAt(now), n.Window)
}

// loadTasks reads tasks in the order of their ids, in which every process locks them, after
// all other locks.
func (b *batch) loadTasks() error {
	t := &b.tasks
	if err := b.lockNamesOfTasks(); err != nil {
		return err
	}
	err := b.each("SELECT "+taskColumns+" FROM task WHERE id IN[t] ORDER BY id FOR UPDATE", sortedKeys(t.wanted), func(rows Row) error {
		r, err := scanTask(rows)
		if err == nil {
			t.known[r.ID] = r
		}
		return err
	})
	if err != nil {
		return err
	}
	err = b.each("SELECT "+taskColumns+" FROM task WHERE NOT ended AND request_id IN[t] ORDER BY id FOR UPDATE", sortedKeys(t.requests), func(rows Row) error {
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
func (b *batch) scanKnownTask(rows Row) (*taskRow, error) {
	r, err := scanTask(rows)
	if err != nil {
		return nil, err
	}
	if known := b.tasks.known[r.ID]; known != nil {
		return known, nil
	}
	return r, nil
}

// lockNamesOfTasks makes the processes admit the tasks of an account one after the
// other where the account has no row to lock: that of a meter elsewhere.
func (b *batch) lockNamesOfTasks() error {
	if !b.db.dialect.Shared {
		return nil
	}
	names := map[string]bool{}
	for _, n := range b.tasks.news {
		if b.accounts[n.Task.Account] == nil {
			names[n.Task.Account] = true
		}
	}
	for _, name := range sortedKeys(names) {
		if err := b.tx.read(b.ctx, func(Row) error { return nil }, "SELECT pg_advisory_xact_lock(hashtextextended('tasks ' || CAST(? AS text), 0) # hashtext(current_schema()))", name); err != nil {
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
	err := b.each("SELECT account, key_id, COUNT(*) FROM task WHERE NOT ended AND (account, key_id) IN (ROWS[tt]) GROUP BY account, key_id", keys, func(rows Row) error {
		var k ownKey
		var n int64
		err := rows.Scan(&k.account, &k.key, &n)
		t.open[k] = n
		return err
	})
	note := func(rows Row) error {
		r, err := b.scanKnownTask(rows)
		if err == nil {
			t.similar[r.Fingerprint] = append(t.similar[r.Fingerprint], r)
		}
		return err
	}
	if err == nil {
		err = b.each("SELECT "+taskColumns+" FROM (ROWS[tn]) AS c JOIN task ON fingerprint = c.column1 AND noted_at > c.column2", recent, note)
	}
	if err == nil {
		err = b.each("SELECT "+taskColumns+" FROM task WHERE state = 'submitting' AND fingerprint IN[t]", same, note)
	}
	return err
}

// tasks are the tasks of a batch.
type tasks struct {
	known   map[string]*taskRow     // by id
	of      map[string]*taskRow     // open, by the id of their request
	open    map[ownKey]int64        // how many a key has, where that was asked for
	similar map[[32]byte][]*taskRow // that may stand in the way of the same submission, by fingerprint

	wanted   map[string]bool
	requests map[string]bool
	news     []*video.CreateTask

	touched []*taskRow
	notices []webhook.Delivery
}

func newTasks() tasks {
	return tasks{
		known: map[string]*taskRow{}, of: map[string]*taskRow{}, open: map[ownKey]int64{}, similar: map[[32]byte][]*taskRow{},
		wanted: map[string]bool{}, requests: map[string]bool{},
	}
}

// checkNewTask refuses a task that must not be made. It changes nothing.
func (b *batch) checkNewTask(n *video.CreateTask) error {
	if b.tasks.known[n.Task.ID] != nil || n.Task.ID == "" {
		return fault.New(fault.InternalError, "The gateway used the id of a task twice. Nothing was charged; send the request again.")
	}
	if !n.Retried {
		for _, r := range b.tasks.similar[n.Task.Fingerprint] {
			if r.repeats(n, b.now) {
				return video.ErrDuplicate(&r.Task)
			}
		}
	}
	if n.Most > 0 && b.tasks.open[ownKey{n.Task.Account, n.Task.Key}] >= n.Most {
		return video.ErrTooManyTasks(n.Most)
	}
	return nil
}

// addTask makes a task that was admitted.
func (b *batch) addTask(n *video.CreateTask, held bool) {
	r := &taskRow{Task: n.Task, noted: b.now, held: held, fresh: true}
	b.tasks.known[r.ID] = r
	b.tasks.similar[r.Fingerprint] = append(b.tasks.similar[r.Fingerprint], r)
	b.tasks.open[ownKey{r.Account, r.Key}]++
	b.touchTask(r)
}

// applyStep makes a step that follows.
func (b *batch) applyStep(r *taskRow, s *video.Step) {
	t, n := &r.Task, &s.Task
	if t.AcceptedAt.IsZero() && !n.AcceptedAt.IsZero() {
		r.noted = b.now
	}
	t.Channel, t.UpstreamID, t.State, t.Version = n.Channel, n.UpstreamID, n.State, n.Version
	t.AcceptedAt, t.UpdatedAt, t.ExpiresAt, t.PurgeAt, t.PolledAt = n.AcceptedAt, n.UpdatedAt, n.ExpiresAt, n.PurgeAt, n.PolledAt
	t.Answer, t.Failure = n.Answer, n.Failure
	if s.Delivery != nil {
		b.tasks.notices = append(b.tasks.notices, *s.Delivery)
	}
	if t.State.Terminal() {
		b.endTask(r)
	}
	b.touchTask(r)
}

// dropTask deletes a task. r may be nil.
func (b *batch) dropTask(r *taskRow) {
	if r == nil || r.dropped {
		return
	}
	r.dropped = true
	if !r.State.Terminal() {
		b.endTask(r)
	}
	b.touchTask(r)
}

// endTask ends what an open task has: its place among its key's, and the claim that
// an answer did not end.
func (b *batch) endTask(r *taskRow) {
	b.tasks.open[ownKey{r.Account, r.Key}]--
	b.claims.freed = append(b.claims.freed, r.RequestID)
}

func (b *batch) touchTask(r *taskRow) {
	if !r.listed {
		r.listed = true
		b.tasks.touched = append(b.tasks.touched, r)
	}
}

// writeTasks writes what the operations decided on tasks.
func (b *batch) writeTasks() {
	if len(b.tasks.touched) == 0 {
		return
	}
	var fresh, changed, dropped []any
	for _, r := range b.tasks.touched {
		living, err := r.living()
		submitted, bad := r.submitted()
		if b.err = errors.Join(b.err, err, bad); b.err != nil {
			return
		}
		switch {
		case r.fresh && r.dropped:
		case r.dropped:
			dropped = append(dropped, r.ID)
		case r.fresh:
			fresh = append(append(append(fresh, submitted...), living...), "", int64(0))
		default:
			changed = append(append(changed, r.ID, r.before), living...)
		}
		r.fresh, r.listed, r.before = false, false, r.Version
	}
	b.tasks.touched = nil
	b.write("INSERT INTO task ("+taskColumns+", owner, lease_until) ROWS["+submittedKinds+livingKinds+"tn]", fresh)
	// The version is a guard as those of the balances are.
	b.write("UPDATE task SET "+assigned(livingColumns, 3)+" FROM (ROWS[tn"+livingKinds+"]) AS c WHERE id = c.column1 AND version = c.column2 AND NOT ended", changed)
	b.write("DELETE FROM task WHERE id IN[t]", dropped)
}

// writeNotices writes the notices of the steps, due at once.
func (b *batch) writeNotices() {
	var args []any
	for i := range b.tasks.notices {
		n := &b.tasks.notices[i]
		args = append(args, n.ID, n.Account, n.TaskID, n.URL, string(n.Body), nanos(n.CreatedAt), string(webhook.Waiting), int64(0), "", b.now, int64(0), "", int64(0))
	}
	b.write("INSERT INTO notice ("+noticeColumns+", owner, lease_until) ROWS["+noticeKinds+"tn]", args)
}
