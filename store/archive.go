package store

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// archiveAge is the minimum age of an archived receipt. The answer of an idempotency key
// refers to its receipt for a day, and a video in an unknown state is open for two days.
const archiveAge = 72 * time.Hour

// How many receipts one query reads, and one transaction deletes.
const (
	archivePage  = 1000
	archiveBatch = 200
)

// settingArchived is the end of the last day of which receipts were deleted, in
// nanoseconds since 1970; settingUnlisted is the same of what was deleted before
// files were listed in the database.
const (
	settingArchived = "archived"
	settingUnlisted = "unlisted"
)

// ArchiveFile is a file of one day's receipts: JSON lines ([ArchivedReceipt]),
// compressed by gzip.
type ArchiveFile struct {
	Path     string
	Receipts int64
	Charge   *big.Int // the sum, in nano-units
	SHA256   string   // of the file, in hexadecimal digits
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
	Available    billing.Money          `json:"available"` // beside the hold, if more than the hold was charged
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

// Archive moves the receipts that were settled before a day of UTC out of the database, with
// their failed attempts. They go into a file for each day in dir; done is called for each
// file. Sums of usage and all prices stay in the database, and so do the hash and the sums of
// each file. If a day was archived before and has new receipts, because a clock was set back,
// it gets a second file.
//
// A file is durable, read back and compared with the sums of usage before the first of its
// receipts is deleted. Archive may end at any moment and be repeated with the same dir: no
// receipt is lost, and none is in two files. It fails with fault.InvalidRequest if before is
// less than three days ago, or if an unfinished video needs such a receipt.
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
	for from := int64(math.MinInt64); ; {
		var first sql.NullInt64
		if _, err := db.find(ctx, "SELECT MIN(settled_at) FROM receipt WHERE settled_at >= ?", []any{from}, &first); err != nil || !first.Valid || first.Int64 >= end {
			return err
		}
		day := archivedDay{DB: db, first: startOfDay(first.Int64), dir: dir}
		file, complete, err := day.archive(ctx)
		if err != nil {
			return archiveError(err)
		}
		done(file)
		if from = day.first; complete {
			from = day.end() // and not what is settled into the day meanwhile
		}
	}
}

func startOfDay(nanos int64) int64 { return timeAt(nanos).Truncate(24 * time.Hour).UnixNano() }

// archivedDay is the work on one day, which has receipts in the database.
type archivedDay struct {
	*DB
	first int64 // nanosecond
	dir   string
}

func (d *archivedDay) end() int64 { return d.first + (24 * time.Hour).Nanoseconds() }

// file is the nth file of the day, not read yet.
func (d *archivedDay) file(n int) ArchiveFile {
	number := ""
	if n > 1 {
		number = "." + strconv.Itoa(n)
	}
	return ArchiveFile{Path: filepath.Join(d.dir, "receipts-"+timeAt(d.first).Format(time.DateOnly)+number+".jsonl.gz")}
}

// archive completes one file of the day. complete says that the day has no receipts left,
// except those that were settled since.
func (d *archivedDay) archive(ctx context.Context) (file ArchiveFile, complete bool, err error) {
	listed, err := d.listArchive(ctx, d.readers(), "day = ?", d.first)
	if err != nil {
		return file, false, err
	}
	for i := range listed {
		if !listed[i].finished {
			file, err = d.resume(ctx, listed[i])
			return file, false, err
		}
	}
	want, err := d.usageOf(ctx, d.first, d.end())
	if err != nil {
		return file, false, err
	}
	for _, f := range listed {
		want.Receipts -= f.Receipts
		want.Charge.Sub(want.Charge, f.Charge)
	}
	file = d.file(len(listed) + 1)
	unlisted, err := d.isUnlisted(ctx, file)
	switch {
	case err != nil:
	case unlisted:
		want, err = d.withoutFile(ctx, file, want)
	default: // nothing of the file was deleted yet: one of before may be only half of it
		err = d.writeArchive(ctx, d.first, d.end(), file.Path, want)
	}
	if err == nil {
		err = file.read(nil)
	}
	if err == nil {
		err = file.check(want)
	}
	if err != nil {
		return file, false, err
	}
	if err = d.enlist(ctx, file); err == nil {
		err = d.remove(ctx, file)
	}
	return file, !unlisted, err
}

// isUnlisted reports whether the file was made before files were listed. Some of its receipts
// may then be deleted already.
func (d *archivedDay) isUnlisted(ctx context.Context, file ArchiveFile) (bool, error) {
	until, err := d.readers().settingNumber(ctx, settingUnlisted)
	if err != nil || until < d.end() {
		return false, d.unavailableOrCanceled(ctx, err)
	}
	_, err = os.Stat(file.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// resume deletes what is left of a file's receipts.
func (d *archivedDay) resume(ctx context.Context, l listedFile) (ArchiveFile, error) {
	file := ArchiveFile{Path: filepath.Join(d.dir, l.Path)}
	if err := file.read(nil); err != nil {
		return file, err
	}
	if file.SHA256 != l.SHA256 {
		return file, fault.New(fault.InternalError, fmt.Sprintf("%s is not the file that was written: its SHA-256 is %s, and was %s. Nothing more was deleted.", file.Path, file.SHA256, l.SHA256))
	}
	return file, d.remove(ctx, file)
}

// withoutFile takes off a day's usage what the database still has of it and a file lacks.
func (d *archivedDay) withoutFile(ctx context.Context, file ArchiveFile, want ArchiveFile) (ArchiveFile, error) {
	has := map[string]bool{}
	err := file.read(func(r *ArchivedReceipt) error {
		has[r.ID] = true
		return nil
	})
	if err != nil {
		return want, err
	}
	err = d.eachReceipt(ctx, d.first, d.end(), func(r *ArchivedReceipt) error {
		if !has[r.ID] {
			want.Receipts--
			want.Charge.Sub(want.Charge, big.NewInt(int64(r.Charge)))
		}
		return nil
	})
	return want, err
}

// enlist notes a file, from which moment on its receipts may be deleted.
func (d *archivedDay) enlist(ctx context.Context, file ArchiveFile) error {
	return d.update(ctx, func(b *batch) error {
		var archived string
		_, err := b.tx.find(b.ctx, "SELECT value FROM setting WHERE name = ?", []any{settingArchived}, &archived)
		if err != nil {
			return err
		}
		if at, err := strconv.ParseInt(archived, 10, 64); err != nil || at < d.end() {
			if err := b.tx.write(b.ctx, putSetting, settingArchived, strconv.FormatInt(d.end(), 10)); err != nil {
				return err
			}
		}
		return b.tx.write(b.ctx, "INSERT INTO archive_file (name, day, receipts, charge, sha256, finished, created_at) VALUES (?, ?, ?, ?, ?, FALSE, ?) ON CONFLICT (name) DO NOTHING",
			filepath.Base(file.Path), d.first, file.Receipts, file.Charge.String(), file.SHA256, b.now)
	})
}

// remove deletes the receipts that a file has, and no others.
func (d *archivedDay) remove(ctx context.Context, file ArchiveFile) error {
	var ids []any
	remove := func(finished bool) error {
		some := append([]any(nil), ids...) // after an error the committer may come back to it
		ids = ids[:0]
		return d.committer.run(ctx, newOp(nil, func(b *batch) error { return b.removeArchived(some, file, finished) }), 0)
	}
	err := file.read(func(r *ArchivedReceipt) error {
		if ids = append(ids, r.ID); len(ids) == archiveBatch {
			return remove(false)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return remove(true)
}

// removeArchived deletes some receipts of a file. finished says that they are the last.
func (b *batch) removeArchived(ids []any, file ArchiveFile, finished bool) error {
	for _, table := range [...]string{"receipt WHERE id", "attempt WHERE receipt"} {
		if err := b.tx.writeBulk(b.ctx, "DELETE FROM "+table+" IN[t]", ids, false); err != nil {
			return err
		}
	}
	if !finished {
		return nil
	}
	return b.tx.write(b.ctx, "UPDATE archive_file SET finished = TRUE WHERE name = ?", filepath.Base(file.Path))
}

// listedFile is a row of archive_file. Its Path is the name alone.
type listedFile struct {
	ArchiveFile
	day      int64
	finished bool
}

// listArchive reads the files that are listed for which a condition is true, by their names.
func (db *DB) listArchive(ctx context.Context, q session, condition string, args ...any) ([]listedFile, error) {
	all, err := collect(ctx, q, func(rows Row) (f listedFile, err error) {
		var charge string
		err = rows.Scan(&f.Path, &f.day, &f.Receipts, &charge, &f.SHA256, &f.finished)
		f.Charge, _ = new(big.Int).SetString(charge, 10)
		if err == nil && f.Charge == nil {
			err = fmt.Errorf("the charge of the archive file %s is no number", f.Path)
		}
		return f, err
	}, "SELECT name, day, receipts, charge, sha256, finished FROM archive_file WHERE "+condition+" ORDER BY name", args...)
	return all, db.unavailableOrCanceled(ctx, err)
}

// Archived implements [billing.Archives]. The files of a program that did not list them yet are
// not among them.
func (db *DB) Archived(ctx context.Context) ([]billing.Archived, error) {
	listed, err := db.listArchive(ctx, db.readers(), "TRUE")
	files := make([]billing.Archived, len(listed))
	for i, f := range listed {
		files[i] = billing.Archived{Name: f.Path, Receipts: f.Receipts, Charge: f.Charge, SHA256: f.SHA256}
	}
	return files, err
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

// settingNumber returns a setting that is a time in nanoseconds since 1970; a time before all
// others if it is not set.
func (s session) settingNumber(ctx context.Context, name string) (int64, error) {
	value, err := s.setting(ctx, name)
	if err != nil || value == "" {
		return math.MinInt64, err
	}
	return strconv.ParseInt(value, 10, 64)
}

// writeArchive writes what was settled from day to end into a new file. The file takes the
// name path when it is complete.
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
	if err := db.eachReceipt(ctx, day, end, func(r *ArchivedReceipt) error { return lines.Encode(r) }); err != nil {
		return err
	}
	return errors.Join(packed.Close(), f.Sync())
}

// eachReceipt calls do for each receipt that was settled from day to end, in the order of time.
func (db *DB) eachReceipt(ctx context.Context, day, end int64, do func(*ArchivedReceipt) error) error {
	for at, id := day, ""; ; {
		page, err := db.archivePage(ctx, at, id, end)
		if err != nil {
			return err
		}
		for i := range page {
			if err := do(&page[i]); err != nil {
				return err
			}
		}
		if len(page) < archivePage {
			return nil
		}
		last := &page[len(page)-1]
		at, id = last.SettledAt.UnixNano(), last.ID
	}
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

// read reads the file to its end, counts what is in it, hashes it, and calls each, if
// that is not nil, for each receipt.
func (a *ArchiveFile) read(each func(*ArchivedReceipt) error) error {
	f, err := os.Open(a.Path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	all := io.TeeReader(bufio.NewReader(f), hash)
	packed, err := gzip.NewReader(all)
	if err != nil {
		return fmt.Errorf("%s: %w", a.Path, err)
	}
	a.Receipts, a.Charge = 0, new(big.Int)
	for lines := json.NewDecoder(packed); ; {
		var r ArchivedReceipt
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) { // after the checksum
			_, err = io.Copy(io.Discard, all) // of what is behind it
			a.SHA256 = hex.EncodeToString(hash.Sum(nil))
			return err
		}
		if err != nil {
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
