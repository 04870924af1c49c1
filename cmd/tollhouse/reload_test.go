package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// plant is a file whose one model and price a test can replace.
const plant = `billing: prepaid
channels:
  - {name: main, driver: sim, models: {MODEL: up}}
prices:
  MODEL: {input: "1", output: "1"}
accounts:
  - {name: acme, credit: "25.00", keys: [{env: ACME_KEY}]}
`

func planted(model string) string { return strings.ReplaceAll(plant, "MODEL", model) }

var acme = environment{"ACME_KEY": "sk-acme-0123456789abcdef"}

// calls asks for a model and gives the status.
func calls(i *instance, model string) int {
	i.t.Helper()
	status, _ := i.ask(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody(model, false))
	return status
}

func TestAHangUpLoadsTheFileAgain(t *testing.T) {
	name := file(t, planted("old-model"))
	i := start(t, acme, "--config", name)
	if before := calls(i, "old-model"); before != 200 {
		t.Fatalf("before the reload: %d", before)
	}
	write(t, name, planted("new-model"))
	i.signals <- syscall.SIGHUP
	i.stderr.await("configuration reloaded")
	if old, now := calls(i, "old-model"), calls(i, "new-model"); old != 400 || now != 200 {
		t.Errorf("after the reload: %d and %d", old, now)
	}
}

func TestAChangedFileIsLoadedWithoutBeingTold(t *testing.T) {
	name := file(t, planted("old-model"))
	i := start(t, acme, "--config", name)
	i.ticks <- time.Time{}
	i.ticks <- time.Time{} // taken when the one before was dealt with
	write(t, name, planted("a-longer-model"))
	i.ticks <- time.Time{} // sees the change, and waits until it is over
	i.ticks <- time.Time{}
	i.stderr.await("configuration reloaded")
	if now := calls(i, "a-longer-model"); now != 200 {
		t.Errorf("after the change: %d", now)
	}
	// The same size; only the time tells.
	write(t, name, planted("another-model1"))
	if err := os.Chtimes(name, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		i.ticks <- time.Time{}
	}
	if now := calls(i, "another-model1"); now != 200 {
		t.Errorf("after the second change: %d", now)
	}
	if n := strings.Count(i.stderr.String(), "configuration reloaded"); n != 2 {
		t.Errorf("loaded %d times:\n%s", n, i.stderr)
	}
}

func TestABadFileIsRefusedWithItsLineAndTheOldStaysInForce(t *testing.T) {
	good := planted("new-model")
	change := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for name, c := range map[string]struct{ change, want string }{
		"not YAML":     {"channels: [", ":1:"},
		"unknown key":  {good + "colour: red\n", `:8:1: the file has no field \"colour\"`},
		"no price":     {change("  new-model: {", "  other: {"), ":3:40: the model new-model has no price"},
		"listen":       {good + "listen: 127.0.0.1:9999\n", ":8:9: listen cannot change while the server runs"},
		"billing":      {strings.Replace(change("prepaid", "count"), `credit: "25.00", `, "", 1), ":1:10: billing cannot change"},
		"currency":     {good + "currency: EUR\n", ":8:11: currency cannot change"},
		"store":        {good + "store: sqlite:x.db\n", ":8:8: store cannot change while the server runs"},
		"video":        {good + "video: {poll: 2s}\n", ":8:8: video cannot change while the server runs"},
		"webhooks":     {good + "webhooks: {allow_private: true}\n", ":8:11: webhooks cannot change while the server runs"},
		"unset secret": {change("ACME_KEY", "OTHER_KEY"), "OTHER_KEY is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			name := file(t, planted("old-model"))
			i := start(t, acme, "--config", name)
			write(t, name, c.change)
			i.signals <- syscall.SIGHUP
			if i.stderr.await("the old one stays in force") == nil || !strings.Contains(i.stderr.String(), c.want) {
				t.Errorf("the log does not say %q:\n%s", c.want, i.stderr)
			}
			if old, now := calls(i, "old-model"), calls(i, "new-model"); old != 200 || now != 400 {
				t.Errorf("after the refusal: %d and %d", old, now)
			}
		})
	}
}

func TestAReloadByTheAdminAPITellsTheLine(t *testing.T) {
	name := file(t, planted("old-model"))
	i := start(t, acme, "--config", name)
	cl := &adminCommand{p: &program{env: environment{}.lookup}, flags: adminFlags{admin: i.admin, data: i.data}}
	var answer map[string]string
	if err := cl.do(t.Context(), http.MethodPost, "/admin/v1/reload", nil, &answer); err != nil || answer["status"] != "reloaded" {
		t.Errorf("a good file: %v, %v", answer, err)
	}
	write(t, name, planted("new-model")+"colour: red\n")
	err := cl.do(t.Context(), http.MethodPost, "/admin/v1/reload", nil, &answer)
	if err == nil || !strings.Contains(err.Error(), name+":8:1:") {
		t.Errorf("a bad file: %v", err)
	}
}

func TestAReloadKeepsBalancesAndKeysMadeAtRunTime(t *testing.T) {
	name := file(t, planted("old-model"))
	i := start(t, acme, "--config", name)
	made := strings.Fields(i.good("key", "create", "--account", "acme"))[0]
	i.good("account", "credit", "acme", "5.00")
	write(t, name, strings.Replace(planted("old-model"), "25.00", "99.00", 1)+"  - {name: beta, credit: \"1.00\"}\n")
	i.signals <- syscall.SIGHUP
	i.stderr.await("credit in the file is an opening credit")
	if status, body := i.ask(http.MethodGet, "/v1/balance", made, ""); status != 200 || !strings.Contains(body, `"posted":"30.00"`) {
		t.Errorf("the balance is %d %s", status, body)
	}
	if list := i.good("account", "list"); !strings.Contains(list, "beta     1.00") {
		t.Errorf("the new account is missing:\n%s", list)
	}
}

func TestAReloadChangesTheLimitsOfKeys(t *testing.T) {
	name := file(t, planted("old-model"))
	i := start(t, acme, "--config", name)
	write(t, name, planted("old-model")+"limits: {rpm: 1}\n")
	i.signals <- syscall.SIGHUP
	i.stderr.await("configuration reloaded")
	calls(i, "old-model")
	// Minutes are fixed, so one may end between two calls; three are enough.
	if a, b := calls(i, "old-model"), calls(i, "old-model"); a != 429 && b != 429 {
		t.Errorf("statuses %d and %d", a, b)
	}
}

// Whoever asked for a reload may leave while it swaps keys, accounts and prices.
func TestAReloadIsNotGivenUpHalfWay(t *testing.T) {
	name, dir := file(t, planted("m")), t.TempDir()
	p := &program{env: acme.lookup}
	src, err := p.source(&settings{config: name, data: dir})
	if err != nil {
		t.Fatal(err)
	}
	h, err := p.newApp(t.Context(), src, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	write(t, name, planted("m")+"  - {name: newcomer, credit: \"1.00\", keys: [{hash: \"sha256:"+strings.Repeat("5f", 32)+"\"}]}\n")
	if err := h.reload(gone); err != nil {
		t.Error(err)
	}
	names, err := h.storage.ledger.AccountNames(t.Context())
	keys, failed := h.storage.keys.List(t.Context(), "newcomer")
	if err != nil || failed != nil || !slices.Contains(names, "newcomer") || len(keys) != 1 {
		t.Errorf("there are the accounts %q and the keys %v; %v, %v", names, keys, err, failed)
	}
	h.reloading <- struct{}{} // another one is under way
	write(t, name, planted("m"))
	if err := h.reload(gone); !fault.Is(err, fault.ClientGone) {
		t.Errorf("who left while waiting for a turn: %v", err)
	}
	<-h.reloading
	if err := h.shutdown(); err != nil {
		t.Error(err)
	}
}
