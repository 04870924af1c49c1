package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	amounts "github.com/tollhouse-ai/gateway/internal/ledger"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// usageReport is the server's answer about usage, all pages of it together.
type usageReport struct {
	Object string     `json:"object"`
	By     string     `json:"by"`
	Data   []usageRow `json:"data"`
	Next   string     `json:"next,omitempty"` // never printed: there is none after the last page
}

// usageRow is one group. Of Model, Key and Day only the one that By names is set. Account is also
// that of a key, and Name the key's, if it has or had one.
type usageRow struct {
	Model    string           `json:"model,omitempty"`
	Key      string           `json:"key,omitempty"`
	Day      string           `json:"day,omitempty"`
	Account  string           `json:"account,omitempty"`
	Name     string           `json:"name,omitempty"`
	Requests int64            `json:"requests"`
	Units    map[string]int64 `json:"units"`
	Charge   string           `json:"charge"`
}

// period are the flags of a report: of one account, from when and until when.
type period struct {
	p            *program
	account      *string
	since, until string
}

func newPeriod(p *program, c *command) *period {
	r := &period{p: p, account: c.flags.String("account", "", "only of the account `NAME`")}
	c.flags.StringVar(&r.since, "since", "", "start of the period, a `TIME`: 24h or 30d back from now, or a time such as 2026-10-01 or 2026-10-01T12:00:00Z; default everything")
	c.flags.StringVar(&r.until, "until", "", "end of the period, a `TIME` written like --since and not included; default now")
	return r
}

// query is the URL query of a request for the report.
func (r *period) query() (url.Values, error) {
	q := url.Values{"account": {*r.account}}
	for name, text := range map[string]string{"since": r.since, "until": r.until} {
		if text == "" {
			continue
		}
		at, err := r.p.moment(text)
		if err != nil {
			return nil, usagef("--%s must be a time back such as 24h or 30d, a day such as 2026-10-01, or a moment such as 2026-10-01T12:00:00Z, not %q", name, text)
		}
		q.Set(name, strconv.FormatInt(at.Unix(), 10))
	}
	return q, nil
}

// moment reads a moment: a time before now, the start of a day of UTC, or one in RFC 3339.
func (p *program) moment(text string) (time.Time, error) {
	if back, err := config.ParseDuration(text); err == nil {
		return p.currentTime().Add(-back), nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	return time.Parse(time.RFC3339, text)
}

func usageCommand(p *program) *command {
	c := newCommand("usage", "show usage and charges")
	c.details = "Usage is summed by the hour of UTC: --since is rounded down to a whole hour, --until up."
	c.examples = []string{"tollhouse usage", "tollhouse usage --account acme --since 24h --by key", "tollhouse usage --since 2026-10-01 --until 2026-11-01 --by account"}
	of := newPeriod(p, c)
	by := c.flags.String("by", "model", "sum by this `WORD`: model, key, day or account")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		if !slices.Contains([]string{"model", "key", "day", "account"}, *by) {
			return usagef("--by must be model, key, day or account, not %q", *by)
		}
		q, err := of.query()
		if err != nil {
			return err
		}
		q.Set("by", *by)
		if *by == "model" || *by == "day" { // of which there are few
			return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/usage?"+q.Encode(), nil, usageTable)
		}
		all := usageReport{Data: []usageRow{}}
		err = eachPage(ctx, cl, "/admin/v1/usage", q, func(page *usageReport) string {
			all.Object, all.By, all.Data = page.Object, page.By, append(all.Data, page.Data...)
			return page.Next
		})
		if err != nil {
			return err
		}
		return cl.show(all, usageTable(all))
	}
	return c
}

// usageTable has a column for each unit that occurs.
func usageTable(r usageReport) *table {
	occurring := map[string]bool{}
	for _, row := range r.Data {
		for unit := range row.Units {
			occurring[unit] = true
		}
	}
	units := slices.Sorted(maps.Keys(occurring))
	t := &table{head: []string{strings.ToUpper(r.By), "REQUESTS"}}
	for _, unit := range units {
		t.head = append(t.head, strings.ToUpper(unit))
	}
	t.head = append(t.head, "CHARGE")
	if r.By == "key" {
		t.head = append(t.head, "ACCOUNT", "NAME")
	}
	for _, row := range r.Data {
		cells := []any{cmp.Or(row.Model, row.Key, row.Day, row.Account), row.Requests}
		for _, unit := range units {
			cells = append(cells, row.Units[unit])
		}
		cells = append(cells, row.Charge)
		if r.By == "key" {
			cells = append(cells, row.Account, row.Name)
		}
		t.add(cells...)
	}
	return t
}

func requestCommand(p *program) *command {
	c := newCommand("request", "show a request and its failed attempts", "ID")
	c.details = "ID is the X-Request-Id of the answer. A request is shown once it has ended."
	c.examples = []string{"tollhouse request req_06DJ4Q0V5XW2B3C4D5E6F7G8H9"}
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/requests/"+url.PathEscape(args[0]), nil, requestTable)
	}
	return c
}

// requestTable has a row for each field, then one for each failed attempt.
func requestTable(r adminapi.Request) *table {
	t := &table{head: []string{"REQUEST", r.ID}}
	t.add("created", time.Unix(r.CreatedAt, 0).UTC().Format(time.RFC3339))
	t.add("account", r.Account)
	t.add("key", r.Key)
	t.add("operation", r.Operation)
	t.add("model", r.Model)
	t.add("channel", r.Channel)
	t.add("status", r.Status)
	t.add("reason", r.Reason)
	for _, unit := range slices.Sorted(maps.Keys(r.Units)) {
		t.add(unit, r.Units[unit])
	}
	t.add("hold", r.Hold)
	t.add("charge", r.Charge.String()+" "+r.Currency)
	for _, a := range r.Attempts {
		status := a.Code
		if a.Status != 0 {
			status += " (upstream status " + strconv.Itoa(a.Status) + ")"
		}
		t.add("failed try", a.Channel+": "+status+" after "+(time.Duration(a.DurationMS)*time.Millisecond).String()+", waste "+a.Waste.String())
	}
	return t
}

func wasteCommand(p *program) *command {
	c := newCommand("waste", "show what failed attempts may have cost you")
	c.details = "A customer never pays for a failed attempt. BILLABLE counts those that the vendor may bill anyway, because\n" +
		"it got the request and did not refuse it. WASTE is the least that they cost, at your own prices."
	c.examples = []string{"tollhouse waste", "tollhouse waste --account acme --since 24h"}
	of := newPeriod(p, c)
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		q, err := of.query()
		if err != nil {
			return err
		}
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/waste?"+q.Encode(), nil, wasteTable)
	}
	return c
}

func wasteTable(list adminapi.List[adminapi.Waste]) *table {
	t := &table{head: []string{"CHANNEL", "UPSTREAM MODEL", "FAILED", "BILLABLE", "WASTE"}}
	for _, w := range list.Data {
		t.add(w.Channel, w.Model, w.Failed, w.Billable, w.Waste)
	}
	return t
}

// ledgerVerify is `ledger verify`. What does not balance is the error of the admin API.
func ledgerVerify(p *program) *command {
	c := newCommand("ledger verify", "check that every entry of the ledger balances")
	c.details = "With --archive, the files in DIR are also compared with the store's record of what `tollhouse archive` wrote."
	c.examples = []string{"tollhouse ledger verify", "tollhouse ledger verify --archive /backup/receipts"}
	dir := c.flags.String("archive", "", "also compare the archive files in the directory `DIR`")
	cl := newAdminCommand(p, c)
	cl.noLimit = true // it reads the whole ledger
	c.run = func(ctx context.Context, _ []string) error {
		var totals adminapi.Ledger
		path := "/admin/v1/ledger/verify"
		if *dir != "" {
			path += "?archives=true"
		}
		if err := cl.do(ctx, http.MethodGet, path, nil, &totals); err != nil {
			return err
		}
		err := cl.say(totals, "The ledger is sound: every entry balances, and every hold and receipt agrees with it.\n")
		if err == nil && !cl.json && totals.Posted != "" { // an older server gives no totals
			t := &table{head: []string{"ACCOUNTS", "POSTED", "HELD", "CREDITED", "REVENUE", "OVERRUN", "CURRENCY"}}
			t.add(totals.Accounts, totals.Posted, totals.Held, totals.Credited, totals.Revenue, totals.Overrun, totals.Currency)
			err = t.write(p.stdout)
		}
		if err != nil || *dir == "" {
			return err
		}
		if err := compareArchives(*dir, totals.Archives); err != nil || cl.json {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "Of the files that receipts were moved into, all %d are in %s as they were written.\n", len(totals.Archives), *dir)
		return err
	}
	return c
}

// compareArchives fails unless each file is in dir as it was written; the error names those
// that are not.
func compareArchives(dir string, files []adminapi.Archive) error {
	var broken []error
	for _, f := range files {
		path := filepath.Join(dir, filepath.Base(f.File))
		sum, err := fileSHA256(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			broken = append(broken, fmt.Errorf("%s is not there: it has %d receipts for %s", path, f.Receipts, f.Charge))
		case err != nil:
			broken = append(broken, err)
		case sum != f.SHA256:
			broken = append(broken, fmt.Errorf("%s is not the file that was written: its SHA-256 is %s, and was %s", path, sum, f.SHA256))
		}
	}
	return errors.Join(broken...)
}

func fileSHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// archivedFile is what `archive --json` says of a file.
type archivedFile struct {
	File     string `json:"file"`
	Receipts int64  `json:"receipts"`
	Charge   string `json:"charge"`
	Currency string `json:"currency"`
}

func archiveCommand(p *program) *command {
	c := newCommand("archive", "move old receipts out of the store into files")
	c.details = "Receipts settled before DATE are moved to DIR, which must exist, as compressed JSON lines, one file for each\n" +
		"UTC day. Receipts are deleted only after their file was written to disk and read back. Totals of usage stay.\n" +
		"archive opens the store itself: servers may run on Postgres meanwhile, but not on SQLite. If it is interrupted,\n" +
		"repeat it with the same DIR."
	c.examples = []string{"tollhouse archive --before 2026-10-01 --out /backup/receipts", "tollhouse archive --before 2026-10-01 --out . --config tollhouse.yaml"}
	before := c.flags.String("before", "", "the first day whose receipts stay, a `DATE` such as 2026-10-01 (required)")
	out := c.flags.String("out", "", "the directory `DIR` for the files (required)")
	cl := &adminCommand{p: p} // no server is asked: there is no --admin
	c.flags.BoolVar(&cl.json, "json", false, "print one JSON document")
	addConfigFlag(c.flags, &cl.flags.config)
	c.flags.StringVar(&cl.flags.data, "data", "", "the data directory `DIR`, where the store is unless the configuration says otherwise; default "+defaultData)
	c.bindEnv("config", "data")
	c.run = func(ctx context.Context, _ []string) error {
		switch {
		case *before == "" && *out == "":
			return usagef("--before and --out are missing: the first day whose receipts stay, and the directory for the files")
		case *before == "":
			return usagef("--before is missing: it says which is the first day whose receipts stay")
		case *out == "":
			return usagef("--out is missing: it says where the files go")
		}
		day, err := time.Parse(time.DateOnly, *before)
		if err != nil {
			return usagef("--before must be a day such as 2026-10-01, not %q", *before)
		}
		if dir, err := os.Stat(*out); errors.Is(err, fs.ErrNotExist) || err == nil && !dir.IsDir() {
			return usagef("there is no directory %s", *out)
		}
		return cl.archive(ctx, day, *out)
	}
	return c
}

// archive archives by itself, whether or not a server runs: the files belong to who
// calls the command.
func (c *adminCommand) archive(ctx context.Context, before time.Time, dir string) error {
	at, err := c.flags.find(ctx, c.p)
	if err != nil {
		return err
	}
	if path, missing := at.missingFile(); missing {
		return fmt.Errorf("there is no database at %s", path)
	}
	s, err := c.p.openStored(ctx, at)
	switch {
	case errors.Is(err, sqlite.ErrLocked):
		return fmt.Errorf("a server has %s open: stop it first, since no other process can open a SQLite file meanwhile", storeName(at.store))
	case err != nil:
		return err
	case s.db == nil:
		return errors.New("a store in memory has no files")
	}
	files := []archivedFile{}
	err = s.db.Archive(ctx, before, dir, func(f store.ArchiveFile) {
		files = append(files, archivedFile{f.Path, f.Receipts, amounts.FormatSum(f.Charge), s.ledger.Currency()})
	})
	err = errors.Join(archiveRefusal(err), s.close())
	switch {
	case len(files) > 0: // also those before an error
	case err != nil:
		return err
	default:
		return c.say(files, "No receipts before %s.\n", before.Format(time.DateOnly))
	}
	t := &table{head: []string{"FILE", "RECEIPTS", "CHARGE", "CURRENCY"}}
	for _, f := range files {
		t.add(f.File, f.Receipts, f.Charge, f.Currency)
	}
	return errors.Join(c.show(files, t), err)
}

// archiveRefusal is an error of the store in the words of the command line.
func archiveRefusal(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	switch {
	case !ok:
		return err
	case f.Param == "before":
		return usagef("--%s", strings.TrimSuffix(f.Message, "."))
	}
	return errors.New(strings.TrimPrefix(err.Error(), string(f.Code)+": "))
}
