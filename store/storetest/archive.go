package storetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
)

const archiveDay = 24 * time.Hour

// archiveTests are the rules of Archive.
var archiveTests = map[string]func(dbTest){
	"AnArchiveThatFailsAtAnyStepLosesAndDoublesNothing": func(b dbTest) {
		b.account("acme", 1_000_000)
		for _, after := range []bool{false, true} {
			for n := 1; ; n++ {
				dir := b.t.TempDir()
				first := b.clock.Now()
				var ids []string
				for day := range 2 {
					for i := range 3 {
						ids = append(ids, fmt.Sprintf("%t-%d-%d-%d", after, n, day, i))
						b.settle(b.reserve(ids[len(ids)-1], 2), 1)
					}
					b.advance(archiveDay)
				}
				before := b.clock.Now()
				b.advance(4 * archiveDay)
				_ = os.WriteFile(filepath.Join(dir, "receipts-"+first.UTC().Format(time.DateOnly)+".jsonl.gz.1.part"), []byte("of one that was killed"), 0o600)
				b.faults.FailAt(n, after, sqlhook.ErrFault)
				failed := b.archive(before, dir)
				steps := b.faults.Steps()
				b.faults.FailAt(0, false, nil)
				in := b.idsIn(dir)
				for name, times := range in {
					if times != 1 {
						b.t.Fatalf("%s is %d times in the files", name, times)
					}
				}
				for _, id := range ids {
					if _, err := b.Receipt(b.t.Context(), "acme", id); err != nil && in[id] != 1 {
						b.t.Fatalf("after the failure of step %d the receipt %s is nowhere: %v", n, id, err)
					}
				}
				if n%4 == 1 { // it reads every receipt and every file that there is
					b.ok(b.Verify(b.t.Context()))
				}
				if failed != nil && n%4 == 0 {
					b = b.crash()
				}
				b.ok(b.archive(before, dir))
				if in = b.idsIn(dir); len(in) != len(ids) {
					b.t.Fatalf("%d receipts are in the files, want %d", len(in), len(ids))
				}
				for _, id := range ids {
					_, err := b.Receipt(b.t.Context(), "acme", id)
					b.wantCode(err, fault.NotFound)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, "*.part")); len(left) > 0 {
					b.t.Fatalf("%q are left", left)
				}
				rows, err := b.Usage(b.t.Context(), billing.Query{Since: first})
				b.ok(err)
				if len(rows) != 1 || rows[0].Requests != 6 || rows[0].Charge != 6*billing.One {
					b.t.Fatalf("usage is %+v", rows)
				}
				if steps < n {
					b.ok(b.Verify(b.t.Context()))
					if n < 6 {
						b.t.Errorf("an archive has only %d steps", n)
					}
					break
				}
			}
		}
	},
	"AnArchiveHasAllThatAReceiptSaid": func(b dbTest) {
		b.account("acme", 10)
		u := billing.Usage{Input: 1, CachedInput: 2, CacheWrite: 3, Output: 4, Reasoning: 5, Images: 11, Variant: "720p", Estimated: true, Anomaly: true}
		r, err := b.Settle(b.t.Context(), b.reserve("r1", 3), u, billing.Outcome{Reason: billing.ReasonComplete, Channel: "main", Failed: []billing.Attempt{{
			Channel: "other", Model: "painter-2", Code: "upstream_failed", Status: 500, Billable: true, Used: images(2), StartedAt: b.clock.Now(), Duration: 5,
		}}})
		b.ok(err)
		dir, before := b.t.TempDir(), b.clock.Now().Add(archiveDay)
		b.advance(5 * archiveDay)
		b.ok(b.archive(before, dir))
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		b.ok(err)
		if len(files) != 1 || filepath.Base(files[0]) != "receipts-2026-03-01.jsonl.gz" {
			b.t.Fatalf("the files are %q", files)
		}
		want := []store.ArchivedReceipt{{
			ID: "r1", CreatedAt: r.CreatedAt, SettledAt: r.SettledAt, Account: "acme", Key: "k1", Operation: "image", Model: "painter", Status: billing.Captured,
			Units:   map[billing.Unit]int64{billing.Input: 1, billing.CachedInput: 2, billing.CacheWrite: 3, billing.Output: 4, billing.Reasoning: 5, billing.Image: 11},
			Variant: "720p", Estimated: true, Anomaly: true, PriceVersion: b.price.Version(), Hold: 3 * billing.One, Charge: 10 * billing.One, Overrun: billing.One,
			Available: 7 * billing.One, Currency: "USD", Reason: billing.ReasonComplete, Channel: "main",
			Attempts: []store.ArchivedAttempt{{
				Channel: "other", Model: "painter-2", StartedAt: b.clock.Now().Add(-5 * archiveDay).UTC(), Duration: 5, Code: "upstream_failed", Status: 500, Billable: true,
				Units: map[billing.Unit]int64{billing.Image: 2}, Waste: 2 * billing.One,
			}},
		}}
		b.same("the lines of the file", want, b.linesOf(files[0]))
		if p, err := b.Price(b.t.Context(), b.price.Version()); err != nil || p.Version() != b.price.Version() {
			b.t.Errorf("the price is gone: %v", err)
		}
	},
	"AnArchiveOfManyReceiptsOfOneMomentHasEachOnce": func(b dbTest) {
		b.makeLarge()
		b.ok(b.place.Exec(b.t.Context(), "UPDATE receipt SET settled_at = settled_at - settled_at % 3600000000000"))
		b.clock.Set(b.clock.Now().Add(5 * archiveDay))
		dir := b.t.TempDir()
		b.ok(b.archive(b.clock.Now().Add(-4*archiveDay), dir))
		in := b.idsIn(dir)
		for i := range largeLedger {
			if id := fmt.Sprintf("req_%d", i+1); in[id] != 1 {
				b.t.Fatalf("%s is %d times in the file", id, in[id])
			}
		}
		b.ok(b.Verify(b.t.Context()))
		until := b.clock.Now().UTC().Add(-4 * archiveDay).Truncate(archiveDay).UnixNano()
		for _, c := range []corruption{
			{"a charge that was moved out", "I10", "UPDATE usage_hour SET charge = charge + 1", "UPDATE usage_hour SET charge = charge - 1"},
			{"receipts that are gone", "I10", "UPDATE setting SET value = '0' WHERE name = 'archived'", fmt.Sprintf("UPDATE setting SET value = '%d' WHERE name = 'archived'", until)},
			{"a file of which nothing is known", "I10", "UPDATE archive_file SET day = day + 1", "UPDATE archive_file SET day = day - 1"},
			{"a file of other receipts", "I10", "UPDATE archive_file SET receipts = receipts - 1", "UPDATE archive_file SET receipts = receipts + 1"},
			{"a file of another charge", "I10", "UPDATE archive_file SET charge = charge || '0'", "UPDATE archive_file SET charge = substr(charge, 1, length(charge) - 1)"},
		} {
			b.wantBroken(c)
		}
	},
	"AnArchiveDeletesNothingThatItsFileLacks": func(b dbTest) {
		b.account("acme", 10)
		b.settle(b.reserve("r1", 1), 1)
		b.settle(b.reserve("r2", 1), 1)
		dir, before := b.t.TempDir(), b.clock.Now().Add(archiveDay)
		b.advance(5 * archiveDay)
		b.ok(b.place.Exec(b.t.Context(), "UPDATE usage_hour SET charge = charge + 1"))
		b.wantCode(b.archive(before, dir), fault.InternalError)
		b.ok(b.place.Exec(b.t.Context(), "UPDATE usage_hour SET charge = charge - 1"))
		err := b.archive(before, filepath.Join(dir, "is not there"))
		if b.wantCode(err, fault.InternalError); strings.Count(err.Error(), "no such file") > 1 {
			b.t.Errorf("it says the cause twice: %v", err)
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "*")); len(found) > 0 {
			b.t.Errorf("there are %q", found)
		}
		for _, id := range []string{"r1", "r2"} {
			_, err := b.Receipt(b.t.Context(), "acme", id)
			b.ok(err)
		}
		// A day that is half deleted is not written again, and its file has to be there.
		b.ok(b.place.Exec(b.t.Context(), "UPDATE receipt SET settled_at = settled_at + 864000000000000 WHERE id = 'r1'"))
		b.wantCode(b.archive(before, dir), fault.InternalError)
		b.ok(b.place.Exec(b.t.Context(), "UPDATE receipt SET settled_at = settled_at - 864000000000000 WHERE id = 'r1'"))
		b.ok(b.archive(before, dir))
	},
	"WhatIsSettledIntoAnArchivedDayGetsAFileOfItsOwn": func(b dbTest) {
		b.account("acme", 10)
		b.settle(b.reserve("r1", 1), 1)
		first, dir := b.clock.Now(), b.t.TempDir()
		for i := range 3 { // each time the clock is set back to the archived day
			b.clock.Set(first.Add(6 * archiveDay))
			b.settle(b.reserve(fmt.Sprintf("later %d", i), 1), 1)
			b.ok(b.archive(first.Add(archiveDay), dir))
			b.ok(b.Verify(b.t.Context()))
			b.clock.Set(first)
			b.settle(b.reserve(fmt.Sprintf("late %d", i), 1), 1)
		}
		b.clock.Set(first.Add(6 * archiveDay))
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		b.ok(err)
		var names []string
		for _, f := range files {
			names = append(names, filepath.Base(f))
		}
		b.same("the files", []string{"receipts-2026-03-01.2.jsonl.gz", "receipts-2026-03-01.3.jsonl.gz", "receipts-2026-03-01.jsonl.gz"}, names)
		b.same("what the files have", map[string]int{"r1": 1, "late 0": 1, "late 1": 1}, b.idsIn(dir))
		listed, err := b.Archived(b.t.Context())
		b.ok(err)
		for i, f := range listed {
			data, err := os.ReadFile(files[i])
			b.ok(err)
			if sum := sha256.Sum256(data); f.Name != names[i] || f.SHA256 != hex.EncodeToString(sum[:]) || f.Receipts != 1 || f.Charge.Int64() != int64(billing.One) {
				b.t.Errorf("%+v is listed for %s, whose hash is %x", f, names[i], sum)
			}
		}
	},
	"AFileThatWasChangedDeletesNothing": func(b dbTest) {
		b.account("acme", 10)
		b.settle(b.reserve("r1", 1), 1)
		before, dir := b.clock.Now().Add(archiveDay), b.t.TempDir()
		b.advance(5 * archiveDay)
		// As an archive leaves it that ends before it deletes anything.
		b.ok(b.place.Exec(b.t.Context(), "INSERT INTO archive_file (name, day, receipts, charge, sha256, finished, created_at) VALUES ('receipts-2026-03-01.jsonl.gz', 1772323200000000000, 1, '1000000000', 'f00d', FALSE, 0)"))
		b.ok(b.place.Exec(b.t.Context(), "INSERT INTO setting (name, value) VALUES ('archived', '1772409600000000000')"))
		b.ok(b.Verify(b.t.Context()))
		b.wantCode(b.archive(before, dir), fault.InternalError) // it is not there
		var changed bytes.Buffer
		packed := gzip.NewWriter(&changed)
		_, _ = packed.Write([]byte(`{"id":"r1"}`)) // a buffer takes everything
		b.ok(packed.Close())
		b.ok(os.WriteFile(filepath.Join(dir, "receipts-2026-03-01.jsonl.gz"), changed.Bytes(), 0o600))
		if err := b.archive(before, dir); !fault.Is(err, fault.InternalError) || !strings.Contains(err.Error(), "SHA-256") {
			b.t.Errorf("got %v, want that the file is another one", err)
		}
		_, err := b.Receipt(b.t.Context(), "acme", "r1")
		b.ok(err)
		b.ok(b.place.Exec(b.t.Context(), fmt.Sprintf("UPDATE archive_file SET sha256 = '%x'", sha256.Sum256(changed.Bytes()))))
		b.ok(b.archive(before, dir))
		_, err = b.Receipt(b.t.Context(), "acme", "r1")
		b.wantCode(err, fault.NotFound)
	},
	"ADayThatWasArchivedBeforeFilesWereListedIsFinishedByItsFile": func(b dbTest) {
		b.account("acme", 10)
		b.settle(b.reserve("r1", 1), 1)
		first, dir := b.clock.Now(), b.t.TempDir()
		b.clock.Set(first.Add(6 * archiveDay))
		b.ok(b.archive(first.Add(archiveDay), dir))
		b.ok(b.place.Exec(b.t.Context(), "DELETE FROM archive_file"))
		b.ok(b.place.Exec(b.t.Context(), "INSERT INTO setting (name, value) SELECT 'unlisted', value FROM setting WHERE name = 'archived'"))
		b.ok(b.Verify(b.t.Context()))
		b.clock.Set(first)
		b.settle(b.reserve("late", 1), 1)
		b.clock.Set(first.Add(6 * archiveDay))
		b.wantCode(b.archive(first.Add(archiveDay), b.t.TempDir()), fault.InternalError) // without the file
		b.ok(b.archive(first.Add(archiveDay), dir))
		b.same("what the files have", map[string]int{"r1": 1, "late": 1}, b.idsIn(dir))
		if n := b.listed(); n != 2 {
			b.t.Errorf("%d files are listed", n)
		}
	},
	"WhatIsStillNeededIsNotArchived": func(b dbTest) {
		b.account("acme", 10)
		b.settle(b.reserve("r1", 1), 1)
		at, dir := b.clock.Now().UTC().Truncate(archiveDay), b.t.TempDir()
		b.clock.Set(at.Add(4*archiveDay - 1))
		b.wantCode(b.archive(at.Add(archiveDay), dir), fault.InvalidRequest)
		b.ok(b.archive(at, dir)) // nothing is as old
		b.clock.Set(at.Add(4 * archiveDay))
		b.submittedTask("a", 0)
		b.ok(b.place.Exec(b.t.Context(), "UPDATE receipt SET id = 'req_a' WHERE id = 'r1'"))
		b.ok(b.place.Exec(b.t.Context(), "UPDATE hold SET expires_at = 4102444800000000000"))
		b.wantCode(b.archive(at.Add(archiveDay), dir), fault.InvalidRequest)
		b.ok(b.place.Exec(b.t.Context(), "UPDATE receipt SET id = 'r1' WHERE id = 'req_a'"))
		b.ok(b.archive(at.Add(archiveDay), dir))
	},
	"AnArchiveThatIsCanceledGoesOnWithTheNextDay": func(b dbTest) {
		b.account("acme", 10)
		for i := range 3 {
			b.settle(b.reserve(id(i), 1), 1)
			b.advance(archiveDay)
		}
		before, dir := b.clock.Now(), b.t.TempDir()
		b.advance(5 * archiveDay)
		ctx, cancel := context.WithCancel(b.t.Context())
		b.wantCode(b.DB.Archive(ctx, before, dir, func(store.ArchiveFile) { cancel() }), fault.From(context.Canceled).Code)
		if in := b.idsIn(dir); len(in) != 1 {
			b.t.Fatalf("%d receipts are in the files, want 1", len(in))
		}
		b.ok(b.archive(before, dir))
		if in := b.idsIn(dir); len(in) != 3 {
			b.t.Fatalf("%d receipts are in the files, want 3", len(in))
		}
	},
}

func (b dbTest) archive(before time.Time, dir string) error {
	return b.DB.Archive(b.t.Context(), before, dir, func(store.ArchiveFile) {})
}

// listed is how many files the database knows.
func (b dbTest) listed() int {
	b.t.Helper()
	files, err := b.Archived(b.t.Context())
	b.ok(err)
	return len(files)
}

// idsIn counts how often each id is in the files of a directory.
func (b dbTest) idsIn(dir string) map[string]int {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl.gz"))
	b.ok(err)
	in := map[string]int{}
	for _, file := range files {
		for _, r := range b.linesOf(file) {
			in[r.ID]++
		}
	}
	return in
}

func (b dbTest) linesOf(path string) (all []store.ArchivedReceipt) {
	b.t.Helper()
	data, err := os.ReadFile(path)
	b.ok(err)
	packed, err := gzip.NewReader(bytes.NewReader(data))
	b.ok(err)
	for lines := json.NewDecoder(packed); ; {
		var r store.ArchivedReceipt
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) {
			return all
		}
		b.ok(err)
		all = append(all, r)
	}
}
