package store

import (
	"bufio"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// archiveAge is how old a receipt is at least that is archived: the answer of an
// idempotency key names it for a day, and a video of which nothing is known is open
// for two.
const archiveAge = 72 * time.Hour

// How many receipts one query reads, and one transaction deletes.
const (
	archivePage  = 1000
	archiveBatch = 200
)

// settingArchived is the end of the last day of which receipts were deleted, in
// nanoseconds since 1970.
const settingArchived = "archived"

// ArchiveFile is a file of one day's receipts: JSON lines ([ArchivedReceipt]),
// compressed by gzip.
type ArchiveFile struct {
	Path     string
	Receipts int64
	Charge   *big.Int // the sum, in nano-units
}

// ArchivedReceipt is a line of a file.
type ArchivedReceipt struct {
	ID           string                 `json:"id"`
	CreatedAt    time.Time              `json:"created_at"`
	SettledAt    time.Time              `json:"settled_at"`
	Account      string                 `json:"account"`
	Key          string                 `json:"key,omitempty"`
	Operation    string                 `json:"operation"`
	Model        string                 `json:"model"`
	Status       string                 `json:"status"`
	Units        map[billing.Unit]int64 `json:"units"`
	Variant      string                 `json:"variant,omitempty"`
	Estimated    bool                   `json:"estimated,omitempty"`
	Zero         bool                   `json:"usage_zero,omitempty"`
	Anomaly      bool                   `json:"usage_anomaly,omitempty"`
	PriceVersion string                 `json:"price_version,omitempty"`
	Hold         billing.Money          `json:"hold"`
	Charge       billing.Money          `json:"charge"`
	Overrun      billing.Money          `json:"overrun"`
	Available    billing.Money          `json:"available"` // beside the hold, where more than that was charged
	Currency     string                 `json:"currency"`
	Counted      bool                   `json:"counted,omitempty"` // no money moved
	Reason       string                 `json:"reason"`
	Channel      string                 `json:"channel,omitempty"`
	Attempts     []ArchivedAttempt      `json:"failed_attempts,omitempty"`
}

// ArchivedAttempt is a failed attempt of a request.
type ArchivedAttempt struct {
	Channel   string                 `json:"channel"`
	Model     string                 `json:"model"`
	StartedAt time.Time              `json:"started_at"`
	Duration  time.Duration          `json:"duration_ns"`
	Code      string                 `json:"code"`
	Status    int                    `json:"status,omitempty"`
	Billable  bool                   `json:"billable"`
	Units     map[billing.Unit]int64 `json:"units,omitempty"`
	Waste     billing.Money          `json:"waste"`
}

// Archive moves the receipts that were settled before a day of UTC, with their failed
// attempts, out of the database into a file for each day in dir, and calls done for
// each file. Sums of usage and all prices stay.
//
// A file is durable, and was read back and compared with the sums of usage, before the
// first of its receipts is deleted. Archive may end at any moment, however it ends, and
// be repeated with the same dir: no receipt is lost, and none is in two files. It fails
// with fault.InvalidRequest where before is less than three days ago or a video that
// has not ended needs such a receipt.
func (db *DB) Archive(ctx context.Context, before time.Time, dir string, done func(ArchiveFile)) error {
	now, err := db.now(ctx, db.readers())
	if err != nil {
		return db.unavailableOrCanceled(ctx, err)
	}
	end := startOfDay(before.UnixNano())
	if latest := startOfDay(now - archiveAge.Nanoseconds()); end > latest {
		return fault.Invalid("before", "before may be at most "+timeAt(latest).Format(time.DateOnly)+": receipts are needed for three days.")
	}
	var open string
	found, err := db.find(ctx, "SELECT task.id FROM task JOIN receipt ON receipt.id = task.request_id WHERE NOT ended AND settled_at < ? LIMIT 1", []any{end}, &open)
	switch {
	case err != nil:
		return err
	case found:
		return fault.Invalid("before", fmt.Sprintf("before is too late: the video %q has not ended, and the receipt of its submission is older.", open))
	}
	for last := int64(math.MinInt64); ; {
		var first sql.NullInt64
		if _, err := db.find(ctx, "SELECT MIN(settled_at) FROM receipt", nil, &first); err != nil || !first.Valid || first.Int64 >= end {
			return err
		}
		day := startOfDay(first.Int64)
		file, err := db.archiveDay(ctx, day, dir)
		if err != nil {
			return err
		}
		done(file)
		if day == last {
			return fault.New(fault.InternalError, fmt.Sprintf("The database has receipts of the day of %s that this file does not have, and that are no part of the day's usage.", file.Path))
		}
		last = day
	}
}

func startOfDay(nanos int64) int64 { return timeAt(nanos).Truncate(24 * time.Hour).UnixNano() }

// archiveDay moves the receipts of a day, which has some.
func (db *DB) archiveDay(ctx context.Context, day int64, dir string) (ArchiveFile, error) {
	end := day + (24 * time.Hour).Nanoseconds()
	name := "receipts-" + timeAt(day).Format(time.DateOnly) + ".jsonl.gz"
	file := ArchiveFile{Path: filepath.Join(dir, name)}
	archived, err := db.readers().archivedUntil(ctx)
	if err != nil {
		return file, db.unavailableOrCanceled(ctx, err)
	}
	want, err := db.usageOf(ctx, day, end)
	if err != nil {
		return file, err
	}
	if archived < end { // nothing of the day was deleted yet: a file of before may be only half of it
		if err := db.writeArchive(ctx, day, end, file.Path, want); err != nil {
			return file, archiveError(err)
		}
	}
	if err := file.read(nil); err != nil {
		return file, archiveError(err)
	}
	if err := file.check(want); err != nil {
		return file, err
	}
	// Only what the file has is deleted, whatever else the database has.
	var ids []any
	remove := func() error {
		err := db.removeArchived(ctx, ids, end)
		ids = ids[:0]
		return err
	}
	err = file.read(func(r *ArchivedReceipt) error {
		if ids = append(ids, r.ID); len(ids) == archiveBatch {
			return remove()
		}
		return nil
	})
	if err == nil {
		err = remove()
	}
	return file, archiveError(err)
}

// usageOf is what a file should have by the sums of usage.
func (db *DB) usageOf(ctx context.Context, day, end int64) (want ArchiveFile, err error) {
	charge := make(totals, 1)
	err = db.sumAll(ctx, "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT), "+sums("charge")+" FROM usage_hour WHERE hour >= ? AND hour < ?", []any{day, end},
		append([]any{&want.Receipts}, charge.scan()...)...)
	want.Charge = charge.of(0)
	return want, err
}

// archiveError is what callers get for an error of a file.
func archiveError(err error) error {
	if isFinal(err) {
		return err
	}
	return fault.Wrap(fault.InternalError, "The archive failed. Mend the cause and repeat it with the same directory.", err)
}

// archivedUntil is the end of the last day of which receipts may have been moved out,
// before all times if there is none.
func (s session) archivedUntil(ctx context.Context) (int64, error) {
	value, err := s.setting(ctx, settingArchived)
	if err != nil || value == "" {
		return math.MinInt64, err
	}
	return strconv.ParseInt(value, 10, 64)
}

// removeArchived deletes receipts of a day that ends at end, and notes that it did.
func (db *DB) removeArchived(ctx context.Context, ids []any, end int64) error {
	ids = append([]any(nil), ids...) // after an error the committer may come back to it
	return db.committer.run(ctx, newOp(nil, func(b *batch) error {
		err := b.tx.write(b.ctx, putSetting, settingArchived, strconv.FormatInt(end, 10))
		for _, table := range [...]string{"receipt WHERE id", "attempt WHERE receipt"} {
			if err == nil {
				err = b.tx.writeBulk(b.ctx, "DELETE FROM "+table+" IN[t]", ids, false)
			}
		}
		return err
	}), 0)
}

// writeArchive writes what was settled from day to end into a file beside the one at
// path, which takes that name when it is complete.
func (db *DB) writeArchive(ctx context.Context, day, end int64, path string, want ArchiveFile) (err error) {
	left, err := filepath.Glob(path + ".*.part") // of an archive that was killed
	for _, part := range left {
		err = errors.Join(err, os.Remove(part))
	}
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(part.Name()) // the first error says more
		}
	}()
	err = db.writeReceipts(ctx, part, day, end)
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	written := ArchiveFile{Path: part.Name()}
	if err = written.read(nil); err == nil {
		err = written.check(want)
	}
	if err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// writeReceipts writes receipts as lines, durable when it returns.
func (db *DB) writeReceipts(ctx context.Context, f *os.File, day, end int64) error {
	packed := gzip.NewWriter(f)
	lines := json.NewEncoder(packed)
	lines.SetEscapeHTML(false)
	for at, id := day, ""; ; {
		page, err := db.archivePage(ctx, at, id, end)
		if err != nil {
			return err
		}
		for i := range page {
			if err := lines.Encode(&page[i]); err != nil {
				return err
			}
		}
		if len(page) < archivePage {
			break
		}
		last := &page[len(page)-1]
		at, id = last.SettledAt.UnixNano(), last.ID
	}
	return errors.Join(packed.Close(), f.Sync())
}

// archivePage are the receipts that follow the one with an id, which was settled at a
// moment, in the order of time.
func (db *DB) archivePage(ctx context.Context, at int64, id string, end int64) ([]ArchivedReceipt, error) {
	page, err := list(ctx, db, func(rows Row) (a ArchivedReceipt, err error) {
		r, err := scanReceipt(rows, &a.Counted, &a.Available)
		a.ID, a.CreatedAt, a.SettledAt, a.Account, a.Key, a.Operation, a.Model = r.ID, r.CreatedAt, r.SettledAt, r.Account, r.Key, r.Operation, r.Model
		a.Status, a.Units, a.Variant, a.Estimated, a.Zero, a.Anomaly = r.Status, maps.Collect(r.Usage.Units), r.Usage.Variant, r.Usage.Estimated, r.Usage.Zero, r.Usage.Anomaly
		a.PriceVersion, a.Hold, a.Charge, a.Overrun, a.Reason, a.Channel = r.PriceVersion, r.Hold, r.Charge, r.Overrun, r.Reason, r.Channel
		a.Currency = db.options.Currency
		return a, err
	}, "SELECT "+receiptColumns+", counted, COALESCE(available, 0) FROM receipt WHERE settled_at >= ? AND settled_at < ? AND NOT (settled_at = ? AND id <= ?)"+
		fmt.Sprintf(" ORDER BY settled_at, id LIMIT %d", archivePage), at, end, at, id)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	of := make(map[string]*ArchivedReceipt, len(page))
	for i := range page {
		of[page[i].ID] = &page[i]
	}
	_, err = list(ctx, db, func(rows Row) (none struct{}, err error) {
		var id string
		a, err := scanAttempt(rows, &id)
		if r := of[id]; r != nil {
			r.Attempts = append(r.Attempts, ArchivedAttempt{
				Channel: a.Channel, Model: a.Model, StartedAt: a.StartedAt, Duration: a.Duration, Code: a.Code, Status: a.Status,
				Billable: a.Billable, Units: maps.Collect(a.Used.Units), Waste: a.Waste,
			})
		}
		return none, err
	}, "SELECT "+attemptFields+", receipt FROM attempt WHERE settled_at >= ? AND settled_at <= ? ORDER BY receipt, number", at, page[len(page)-1].SettledAt.UnixNano())
	return page, err
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// read reads the file to its end, counts what is in it, and calls each, if that is
// not nil, for each receipt.
func (a *ArchiveFile) read(each func(*ArchivedReceipt) error) error {
	f, err := os.Open(a.Path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	packed, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return fmt.Errorf("%s: %w", a.Path, err)
	}
	a.Receipts, a.Charge = 0, new(big.Int)
	for lines := json.NewDecoder(packed); ; {
		var r ArchivedReceipt
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return nil // after the checksum
		} else if err != nil {
			return fmt.Errorf("%s: %w", a.Path, err)
		}
		a.Receipts++
		a.Charge.Add(a.Charge, big.NewInt(int64(r.Charge)))
		if each != nil {
			if err := each(&r); err != nil {
				return err
			}
		}
	}
}

// check compares the file with what the sums of usage have of its day.
func (a *ArchiveFile) check(want ArchiveFile) error {
	if a.Receipts == want.Receipts && a.Charge.Cmp(want.Charge) == 0 {
		return nil
	}
	return fault.New(fault.InternalError, fmt.Sprintf("%s has %d receipts for %s, and the day's usage is %d for %s. No receipt was deleted. `tollhouse ledger verify` finds what is wrong with the database.",
		a.Path, a.Receipts, ledger.FormatSum(a.Charge), want.Receipts, ledger.FormatSum(want.Charge)))
}
