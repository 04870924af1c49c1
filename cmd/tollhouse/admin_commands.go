package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	amounts "github.com/tollhouse-ai/gateway/internal/ledger"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// showing completes a command that makes one request, which ask says, and prints the
// answer as a table.
func showing[T any](p *program, c *command, ask func(args []string) (method, path string, in any, err error), toTable func(T) *table) *command {
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		method, path, in, err := ask(args)
		if err != nil {
			return err
		}
		return showAnswer(ctx, cl, method, path, in, toTable)
	}
	return c
}

// getting is the ask of a command that reads what is at a path, to which its first
// argument is added if it has one.
func getting(path string) func(args []string) (method, at string, in any, err error) {
	return func(args []string) (string, string, any, error) {
		if len(args) > 0 {
			return http.MethodGet, path + url.PathEscape(args[0]), nil, nil
		}
		return http.MethodGet, path, nil, nil
	}
}

// changing completes a command that changes what its argument names, and says what was
// done. The path of the request is before, the argument, after.
func changing(p *program, c *command, method, before, after, said string) *command {
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		var answer map[string]any
		if err := cl.do(ctx, method, before+url.PathEscape(args[0])+after, nil, &answer); err != nil {
			return err
		}
		return cl.say(answer, said, args[0])
	}
	return c
}

// accountTable shows accounts with their balances.
func accountTable(accounts []adminapi.Balance) *table {
	t := &table{head: []string{"ACCOUNT", "POSTED", "HELD", "AVAILABLE", "CURRENCY"}}
	for _, a := range accounts {
		if a.Posted == nil || a.Held == nil || a.Available == nil { // only counted
			t.add(a.Account, "", "", "", "")
			continue
		}
		t.add(a.Account, a.Posted, a.Held, a.Available, a.Currency)
	}
	return t
}

func oneAccount(a adminapi.Balance) *table { return accountTable([]adminapi.Balance{a}) }

func accountCreate(p *program) *command {
	c := newCommand("account create", "create an account", "NAME")
	c.examples = []string{"tollhouse account create acme --credit 25.00"}
	credit := c.flags.String("credit", "", "opening credit, a decimal such as 25.00")
	return showing(p, c, func(args []string) (string, string, any, error) {
		return http.MethodPost, "/admin/v1/accounts", map[string]string{"name": args[0], "credit": *credit}, nil
	}, oneAccount)
}

func accountCredit(p *program) *command {
	c := newCommand("account credit", "add money to an account", "NAME", "AMOUNT")
	c.details = "A negative AMOUNT takes money back, after `--`. The same --reference again changes nothing, so that a command\nwhich failed can be repeated; without --reference, the error of a command names the one to repeat it with."
	c.examples = []string{
		"tollhouse account credit acme 10.00 --reference invoice-117",
		"tollhouse account credit --reference refund-3 -- acme -2.50",
	}
	reference := c.flags.String("reference", "", "the credit's unique name; random if not given")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		minted := *reference == ""
		if minted {
			*reference = "cli-" + rand.Text()
		}
		err := showAnswer(ctx, cl, http.MethodPost, "/admin/v1/accounts/"+url.PathEscape(args[0])+"/credit",
			map[string]string{"amount": args[1], "reference": *reference}, oneAccount)
		if err != nil && minted { // repeated with another one, it could count twice
			err = fmt.Errorf("%w (to try again: --reference %s)", err, *reference)
		}
		return err
	}
	return c
}

func accountList(p *program) *command {
	c := newCommand("account list", "list accounts with their balances")
	c.examples = []string{"tollhouse account list", "tollhouse account list --json"}
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		return showList(ctx, cl, "/admin/v1/accounts", nil, func(a adminapi.Balance) string { return a.Account }, accountTable)
	}
	return c
}

func accountShow(p *program) *command {
	c := newCommand("account show", "show an account with its balance", "NAME")
	c.examples = []string{"tollhouse account show acme"}
	return showing(p, c, getting("/admin/v1/accounts/"), oneAccount)
}

func keyCreate(p *program) *command {
	c := newCommand("key create", "make an API key; it is shown only now")
	c.examples = []string{
		"tollhouse key create --account acme",
		"tollhouse key create --account acme --name ci --models delta-k3 --expires 30d --rpm 60 --budget 5.00",
	}
	var k adminapi.KeyRequest
	var limits struct{ rpm, tpm, concurrent, videos uint32 }
	var expires time.Duration
	f := c.flags
	f.StringVar(&k.Account, "account", "", "the account that pays (required)")
	f.StringVar(&k.Name, "name", "", "a label")
	f.StringSliceVar(&k.Models, "models", nil, "the models that it may use; default all")
	f.Var(durationValue{&expires}, "expires", "when it expires, such as 24h or 30d from now; default never")
	f.Uint32Var(&limits.rpm, "rpm", 0, "requests per minute; 0 is the server's default")
	f.Uint32Var(&limits.tpm, "tpm", 0, "tokens per minute; 0 is the server's default")
	f.Uint32Var(&limits.concurrent, "max-concurrent", 0, "requests at once; 0 is the server's default")
	f.Uint32Var(&limits.videos, "max-concurrent-videos", 0, "video tasks at once; 0 is the server's default")
	f.StringVar(&k.Budget, "budget", "", "the most that it may spend, a decimal such as 5.00; default no limit")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		if k.Account == "" {
			return usagef("--account is missing: it says whose balance pays")
		}
		if f.Changed("expires") {
			k.Expires = p.currentTime().Add(expires).UTC().Truncate(time.Second)
		}
		k.Limits = auth.Limits{
			RPM: int64(limits.rpm), TPM: int64(limits.tpm), MaxConcurrent: int64(limits.concurrent), MaxConcurrentVideos: int64(limits.videos),
		}
		var made adminapi.NewKey
		if err := cl.do(ctx, http.MethodPost, "/admin/v1/keys", k, &made); err != nil {
			return err
		}
		return cl.say(made, "%s\n\nThis is key %s of account %s. It is shown only now: the server keeps its hash.\n", made.Key, made.ID, made.Account)
	}
	return c
}

func keyList(p *program) *command {
	c := newCommand("key list", "list the API keys; never the keys themselves")
	c.examples = []string{"tollhouse key list", "tollhouse key list --account acme --json"}
	account := c.flags.String("account", "", "of one account only")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		return showList(ctx, cl, "/admin/v1/keys", url.Values{"account": {*account}}, func(k adminapi.Key) string { return k.ID }, keyTable)
	}
	return c
}

func keyTable(keys []adminapi.Key) *table {
	t := &table{head: []string{"ID", "ACCOUNT", "NAME", "STATE", "MODELS", "RPM", "TPM", "CONCURRENT", "BUDGET LEFT", "EXPIRES"}}
	for _, k := range keys {
		state, models, left := "enabled", "all", ""
		if k.Disabled {
			state = "disabled"
		}
		if len(k.Models) > 0 {
			models = strings.Join(k.Models, ",")
		}
		if k.BudgetLeft != nil {
			left = k.BudgetLeft.String()
		}
		// A key without its own limit has the server's default.
		t.add(k.ID, k.Account, k.Name, state, models, nonZero(k.RPM), nonZero(k.TPM), nonZero(k.MaxConcurrent), left, timeText(k.Expires))
	}
	return t
}

// keyChange is a command that makes one request for one key; done says what the key
// then is.
func keyChange(p *program, verb, about, method, path, done string) *command {
	c := newCommand("key "+verb, about, "ID")
	c.examples = []string{"tollhouse key " + verb + " key_bmjvbxwnkhvqthsr"}
	return changing(p, c, method, "/admin/v1/keys/", path, "Key %s is "+done+".\n")
}

func keyDisable(p *program) *command {
	return keyChange(p, "disable", "refuse an API key until it is enabled", http.MethodPost, "/disable", "disabled")
}

func keyEnable(p *program) *command {
	return keyChange(p, "enable", "enable a disabled API key", http.MethodPost, "/enable", "enabled")
}

func keyDelete(p *program) *command {
	return keyChange(p, "delete", "delete an API key for good", http.MethodDelete, "", "deleted")
}

// usageReport is the server's answer about usage.
type usageReport struct {
	Object string     `json:"object"`
	By     string     `json:"by"`
	Data   []usageRow `json:"data"`
}

// usageRow is one group. Of Model, Key and Day only the one that By names is set.
type usageRow struct {
	Model    string           `json:"model,omitempty"`
	Key      string           `json:"key,omitempty"`
	Day      string           `json:"day,omitempty"`
	Requests int64            `json:"requests"`
	Units    map[string]int64 `json:"units"`
	Charge   string           `json:"charge"`
}

func usageCommand(p *program) *command {
	c := newCommand("usage", "show what was used and charged")
	c.examples = []string{"tollhouse usage", "tollhouse usage --account acme --since 24h --by key"}
	of := newPeriod(p, c)
	by := c.flags.String("by", "model", "model, key or day")
	return showing(p, c, func([]string) (string, string, any, error) {
		if !slices.Contains([]string{"model", "key", "day"}, *by) {
			return "", "", nil, usagef("--by must be model, key or day, not %q", *by)
		}
		q := of.query()
		q.Set("by", *by)
		return http.MethodGet, "/admin/v1/usage?" + q.Encode(), nil, nil
	}, usageTable)
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
	for _, row := range r.Data {
		cells := []any{row.Model + row.Key + row.Day, row.Requests}
		for _, unit := range units {
			cells = append(cells, row.Units[unit])
		}
		t.add(append(cells, row.Charge)...)
	}
	return t
}

func requestCommand(p *program) *command {
	c := newCommand("request", "show a request and its failed attempts", "ID")
	c.details = "ID is the X-Request-Id of the answer. A request is shown once it has ended."
	c.examples = []string{"tollhouse request req_06DJ4Q0V5XW2B3C4D5E6F7G8H9"}
	return showing(p, c, getting("/admin/v1/requests/"), requestTable)
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
	c.details = "A customer never pays for a failed attempt. BILLABLE are those that the vendor may bill all the same:\n" +
		"it got the request and did not refuse it. WASTE is the least that they cost, at your own prices."
	c.examples = []string{"tollhouse waste", "tollhouse waste --account acme --since 24h"}
	of := newPeriod(p, c)
	return showing(p, c, func([]string) (string, string, any, error) {
		return http.MethodGet, "/admin/v1/waste?" + of.query().Encode(), nil, nil
	}, wasteTable)
}

func wasteTable(list adminapi.List[adminapi.Waste]) *table {
	t := &table{head: []string{"CHANNEL", "UPSTREAM MODEL", "FAILED", "BILLABLE", "WASTE"}}
	for _, w := range list.Data {
		t.add(w.Channel, w.Model, w.Failed, w.Billable, w.Waste)
	}
	return t
}

func ledgerVerify(p *program) *command {
	c := newCommand("ledger verify", "check that every entry of the ledger balances")
	c.examples = []string{"tollhouse ledger verify"}
	cl := newAdminCommand(p, c)
	cl.noLimit = true // it reads the whole ledger
	c.run = func(ctx context.Context, _ []string) error {
		var totals adminapi.Ledger
		if err := cl.do(ctx, http.MethodGet, "/admin/v1/ledger/verify", nil, &totals); err != nil {
			return err
		}
		err := cl.say(totals, "The ledger is sound: every entry balances, and every hold and receipt agrees with it.\n")
		if err != nil || cl.json || totals.Posted == "" { // an older server gives no totals
			return err
		}
		t := &table{head: []string{"ACCOUNTS", "POSTED", "HELD", "CREDITED", "REVENUE", "OVERRUN", "CURRENCY"}}
		t.add(totals.Accounts, totals.Posted, totals.Held, totals.Credited, totals.Revenue, totals.Overrun, totals.Currency)
		return t.write(p.stdout)
	}
	return c
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
	c.details = "The receipts that were settled before DATE go into DIR, which has to be there, as compressed JSON\n" +
		"lines, a file for each day of UTC. A file is on the disk and was read back before its receipts are\n" +
		"deleted. Sums of usage stay. It opens the store itself: with Postgres while servers run, with SQLite\n" +
		"while none does. One that was interrupted is repeated with the same DIR."
	c.examples = []string{"tollhouse archive --before 2026-10-01 --out /backup/receipts", "tollhouse archive --before 2026-10-01 --out . --config tollhouse.yaml"}
	before := c.flags.String("before", "", "the first day whose receipts stay, a `DATE` such as 2026-10-01 (required)")
	out := c.flags.String("out", "", "the directory `DIR` for the files (required)")
	cl := &adminCommand{p: p} // no server is asked: there is no --admin
	c.flags.BoolVar(&cl.json, "json", false, "print one JSON document")
	addConfigFlag(c.flags, &cl.flags.config)
	c.flags.StringVar(&cl.flags.data, "data", "", "the data directory, where the store is unless the configuration says otherwise; default "+defaultData)
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
	at, err := c.flags.target(c.p)
	if err != nil {
		return err
	}
	if path, missing := at.missingFile(); missing {
		return fmt.Errorf("there is no database at %s", path)
	}
	s, err := openStored(ctx, at)
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
	var f *fault.Error
	switch {
	case !errors.As(err, &f):
		return err
	case f.Param == "before":
		return usagef("--%s", strings.TrimSuffix(f.Message, "."))
	}
	return errors.New(strings.TrimPrefix(err.Error(), string(f.Code)+": "))
}

func webhookSecret(p *program) *command {
	c := newCommand("webhook secret", "show the secret that signs an account's webhooks, making one if there is none")
	c.details = "After --rotate the previous secret signs too for 24 hours, in which the receivers can be given the new one."
	c.examples = []string{
		"tollhouse webhook secret --account acme",
		"tollhouse webhook secret --account acme --rotate --json",
	}
	account := c.flags.String("account", "", "the account (required)")
	rotate := c.flags.Bool("rotate", false, "make a new one")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		if *account == "" {
			return usagef("--account is missing: it says whose webhooks the secret signs")
		}
		method, path := http.MethodGet, "/admin/v1/accounts/"+url.PathEscape(*account)+"/webhook-secret"
		if *rotate {
			method, path = http.MethodPost, path+"/rotate"
		}
		var v adminapi.WebhookSecret
		if err := cl.do(ctx, method, path, nil, &v); err != nil {
			return err
		}
		text := "It signs the webhooks of account %s: give it only to their receivers."
		if *rotate {
			text += " The previous one\nsigns too for the next 24 hours."
		}
		return cl.say(v, "%s\n\n"+text+"\n", v.Secret, v.Account)
	}
	return c
}

func webhookList(p *program) *command {
	c := newCommand("webhook list", "list the webhooks of videos that have ended, the newest first")
	c.examples = []string{"tollhouse webhook list", "tollhouse webhook list --account acme --limit 10 --json"}
	account := c.flags.String("account", "", "only those of one account")
	limit := c.flags.Uint16("limit", 100, "how many, at most 1000")
	return showing(p, c, func([]string) (string, string, any, error) {
		if *limit < 1 || *limit > 1000 {
			return "", "", nil, usagef("--limit must be from 1 to 1000, not %d", *limit)
		}
		query := url.Values{"account": {*account}, "limit": {strconv.Itoa(int(*limit))}}
		return http.MethodGet, "/admin/v1/webhooks?" + query.Encode(), nil, nil
	}, webhookTable)
}

// webhookTable lists deliveries. One column holds the time of the next attempt or
// of the end, since a delivery has only one of them.
func webhookTable(list adminapi.List[adminapi.Delivery]) *table {
	t := &table{head: []string{"ID", "ACCOUNT", "TYPE", "TASK", "HOST", "STATE", "TRIES FAILED", "NEXT OR ENDED", "REASON"}}
	for _, n := range list.Data {
		t.add(n.ID, n.Account, n.Type, n.Task, n.Host, n.State, n.Tries, timeText(cmp.Or(n.Next, n.Ended)), n.Reason)
	}
	return t
}

func webhookResend(p *program) *command {
	c := newCommand("webhook resend", "send a webhook again, whatever its state", "ID")
	c.details = "It keeps its id, by which a receiver recognizes one that it has already. It is retried for three days; while no\nserver runs, it is sent when one starts."
	c.examples = []string{"tollhouse webhook resend evt_1KBG4T92JSZ3QXK7HWM5A2LTFD"}
	return changing(p, c, http.MethodPost, "/admin/v1/webhooks/", "/resend", "The webhook %s is due again.\n")
}
