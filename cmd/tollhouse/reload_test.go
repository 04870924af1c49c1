package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/store"
)

// configTemplate is a file whose one model and price a test can replace.
const configTemplate = `billing: prepaid
channels:
  - {name: main, driver: sim, models: {MODEL: up}}
prices:
  MODEL: {input: "1", output: "1"}
accounts:
  - {name: acme, credit: "25.00", keys: [{env: ACME_KEY}]}
`

func simConfig(model string) string { return strings.ReplaceAll(configTemplate, "MODEL", model) }

var acme = environment{"ACME_KEY": "sk-acme-0123456789abcdef"}

// calls asks for a model and gives the status.
func calls(i *instance, model string) int {
	i.t.Helper()
	status, _ := i.ask(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody(model, false))
	return status
}

// reload has the configuration read again over the admin API.
func (i *instance) reload() error {
	c := &adminCommand{p: &program{env: environment{}.lookup}, flags: adminFlags{admin: i.admin, data: i.data}}
	return c.do(i.t.Context(), http.MethodPost, "/admin/v1/reload", nil, new(map[string]string))
}

func TestABadFileIsRefusedWithItsLineAndTheOldStaysInForce(t *testing.T) {
	good := simConfig("new-model")
	change := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for name, c := range map[string]struct{ change, want string }{
		"not YAML":     {"channels: [", ":1:"},
		"unknown key":  {good + "colour: red\n", `:8:1: the file has no field "colour"`},
		"no price":     {change("  new-model: {", "  other: {"), ":3:40: the model new-model has no price"},
		"billing":      {strings.Replace(change("prepaid", "count"), `credit: "25.00", `, "", 1), ":1:10: billing cannot change"},
		"unset secret": {change("ACME_KEY", "OTHER_KEY"), "OTHER_KEY is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			name := file(t, simConfig("old-model"))
			i := start(t, acme, "--config", name)
			write(t, name, c.change)
			if err := i.reload(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the command is told %v, want %q", err, c.want)
			}
			if i.stderr.Await("the old one stays in force") == nil || !strings.Contains(i.stderr.String(), strings.ReplaceAll(c.want, `"`, `\"`)) {
				t.Errorf("the log does not say %q:\n%s", c.want, i.stderr)
			}
			if old, now := calls(i, "old-model"), calls(i, "new-model"); old != 200 || now != 400 {
				t.Errorf("after the refusal: %d and %d", old, now)
			}
		})
	}
}

func TestWhatOnlyARestartCanChangeIsRefusedByName(t *testing.T) {
	const observed = `telemetry: {otlp: "http://127.0.0.1:4318", headers: {k: "${ACME_KEY}"}, service: s, sample: 0.5, traces: true, callers: true}` + "\n"
	const limited = "server: {max_calls: 5, trusted_proxies: [10.0.0.1]}\n"
	for _, c := range []struct{ name, old, now, want string }{
		{"listen", "", "listen: 127.0.0.1:9999\n", "8:9: listen"},
		{"admin", "", "admin: 127.0.0.1:9999\n", "8:8: admin"},
		{"data", "", "data: elsewhere\n", "8:7: data"},
		{"currency", "", "currency: EUR\n", "8:11: currency"},
		{"store", "", "store: sqlite:x.db\n", "8:8: store"},
		{"responses", "", "responses: {store: on}\n", "8:12: responses"},
		{"responses, the default written out", "", "responses: {store: off, retention: 30d}\n", ""},
		{"secrets", "", "secrets: [\"0123456789abcdef0123456789abcdef\"]\n", "8:10: secrets"},
		{"poll of videos", "", "video: {poll: 6s}\n", "8:8: video"},
		{"defaults of videos, written out", "", "video: {poll: 5s, retention: 168h, duplicate_window: 5s}\n", ""},
		{"webhooks", "", "webhooks: {allow_private: true}\n", "8:11: webhooks"},
		{"webhooks, the default written out", "", "webhooks: {allow_private: false}\n", ""},
		{"calls", limited, "server: {max_calls: 6, trusted_proxies: [10.0.0.1]}\n", "8:9: server"},
		{"no section", limited, "", "server"},
		{"a section elsewhere, in another order", limited, "limits: {rpm: 1}\nserver: {trusted_proxies: [10.0.0.1/32], max_calls: 5}\n", ""},
		{"collector", observed, strings.Replace(observed, "4318", "4319", 1), "8:12: telemetry"},
		{"trusted callers", observed, strings.Replace(observed, "callers: true", "trust_callers: true", 1), "8:12: telemetry"},
		{"the same telemetry elsewhere", observed, "\n\n" + observed, ""},
		{"no headers", "", "telemetry: {headers: {}}\n", ""},
		{"metrics", "", "metrics: {public: true}\n", "8:10: metrics"},
		{"tools off", "", "mcp: {enabled: false}\n", "8:6: mcp"},
		{"tools, the default written out", "", "mcp: {enabled: true, origins: []}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := func(text string) *config.Config {
				got, err := config.Read("t.yaml", []byte(simConfig("m")+text), acme.lookup)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			got, want := "", c.want
			if err := (&app{file: "t.yaml", data: "dir"}).refuseFixedChanges(read(c.old), read(c.now)); err != nil {
				got = strings.TrimLeft(strings.TrimPrefix(err.Error(), "t.yaml:"), " ")
			}
			if want != "" {
				want += " cannot change while the server runs: put it back, or restart"
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestAReloadKeepsBalancesAndKeysMadeAtRunTime(t *testing.T) {
	name := file(t, simConfig("old-model"))
	i := start(t, acme, "--config", name)
	made := strings.Fields(i.good("key", "create", "--account", "acme"))[0]
	i.good("account", "credit", "acme", "5.00")
	write(t, name, strings.Replace(simConfig("old-model"), "25.00", "99.00", 1)+"  - {name: beta, credit: \"1.00\"}\n")
	i.signals <- syscall.SIGHUP
	i.stderr.Await("credit in the file is only an opening credit")
	if status, body := i.ask(http.MethodGet, "/v1/balance", made, ""); status != 200 || !strings.Contains(body, `"posted":"30.00"`) {
		t.Errorf("the balance is %d %s", status, body)
	}
	if list := i.good("account", "list"); !strings.Contains(list, "beta     1.00") {
		t.Errorf("the new account is missing:\n%s", list)
	}
}

func TestAReloadChangesTheLimitsOfKeysAndAccounts(t *testing.T) {
	before := simConfig("old-model")
	for _, c := range []struct{ name, config, message string }{
		{"keys without their own", before + "limits: {rpm: 1}\n", "The limit of this key is reached"},
		{"an account", strings.Replace(before, `{name: acme, `, `{name: acme, rpm: 1, `, 1), "The limit of this account is reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := file(t, before)
			i := start(t, acme, "--config", name)
			write(t, name, c.config)
			if err := i.reload(); err != nil {
				t.Fatal(err)
			}
			var refused bool
			for range 3 { // minutes are fixed, so one may end between two calls
				status, body := i.ask(http.MethodPost, "/v1/chat/completions", acme["ACME_KEY"], chatBody("old-model", false))
				refused = refused || status == 429 && strings.Contains(body, c.message)
			}
			if !refused {
				t.Errorf("none of three requests in a minute was refused with %q", c.message)
			}
		})
	}
}

// The vendor gets the session as a hash, which no client can choose.
func TestAReloadChangesTheAffinityAndTheHeaderToTheVendor(t *testing.T) {
	v := newFakeVendor(t, 200, vendorAnswerOf("m"))
	text := "billing: count\naffinity: off\nchannels: [{name: main, driver: openai, base_url: " + v.url + "/v1, session_header: x-session-id, models: {m: m, own: m}}]\naccounts: [{name: acme, keys: [{env: ACME_KEY}]}]\n"
	name := file(t, text)
	i := start(t, acme, "--config", name)
	session := func(model string) []string {
		if status := calls(i, model); status != 200 {
			t.Fatalf("%s: status %d\n%s", model, status, i.stderr)
		}
		return v.got().header.Values("X-Session-Id")
	}
	if got := session("m"); got != nil {
		t.Errorf("with affinity: off the vendor gets the session %q", got)
	}
	write(t, name, strings.Replace(text, "affinity: off", "affinity: prefix\nmodels: {own: {affinity: session}}", 1))
	if err := i.reload(); err != nil {
		t.Fatal(err)
	}
	if got := session("m"); len(got) != 1 || len(got[0]) != 32 || strings.Trim(got[0], "0123456789abcdef") != "" {
		t.Errorf("the vendor gets the session %q, want 32 hexadecimal digits", got)
	}
	if got := session("own"); got != nil {
		t.Errorf("a model with affinity: session of its own has the session %q", got)
	}
}

// Whoever asked for a reload may leave while it swaps keys, accounts and prices.
func TestAReloadIsNotGivenUpHalfWay(t *testing.T) {
	name, dir := file(t, simConfig("m")), t.TempDir()
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
	write(t, name, simConfig("m")+"  - {name: newcomer, credit: \"1.00\", keys: [{hash: \"sha256:"+strings.Repeat("5f", 32)+"\"}]}\n")
	if err := h.reload(gone); err != nil {
		t.Error(err)
	}
	found, err := h.storage.ledger.Exists(t.Context(), "newcomer")
	keys, failed := h.storage.keys.List(t.Context(), "newcomer")
	if err != nil || failed != nil || !found || len(keys) != 1 {
		t.Errorf("the account is there: %t, with the keys %v; %v, %v", found, keys, err, failed)
	}
	h.reloading <- struct{}{} // another one is under way
	write(t, name, simConfig("m"))
	if err := h.reload(gone); !fault.Is(err, fault.ClientGone) {
		t.Errorf("who left while waiting for a turn: %v", err)
	}
	<-h.reloading
	if err := h.shutdown(); err != nil {
		t.Error(err)
	}
}

// slowKeys are keys whose store does not answer until the test says so.
type slowKeys struct {
	store.Keys
	asked  int
	answer chan struct{}
}

func (s *slowKeys) Replace(ctx context.Context, keys []auth.Key) error {
	s.asked++
	select {
	case <-s.answer:
		return s.Keys.Replace(ctx, keys)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loopingApp is an app whose store of keys is slow, with a loop that runs in a synctest
// bubble.
type loopingApp struct {
	*app
	keys    *slowKeys
	log     *servertest.Output
	signals chan os.Signal
	ticks   chan time.Time
	ended   chan error
}

func newLoopingApp(t *testing.T, name string) *loopingApp {
	t.Helper()
	dir := t.TempDir()
	a := &loopingApp{log: new(servertest.Output), signals: make(chan os.Signal), ticks: make(chan time.Time), ended: make(chan error, 1)}
	p := &program{env: acme.lookup, ticks: a.ticks}
	src, err := p.source(&settings{config: name, data: dir})
	if err != nil {
		t.Fatal(err)
	}
	if a.app, err = p.newApp(t.Context(), src, dir, slog.New(slog.NewTextHandler(a.log, nil))); err != nil {
		t.Fatal(err)
	}
	a.keys = &slowKeys{Keys: a.storage.keys, answer: make(chan struct{})}
	a.storage.keys = a.keys
	go func() { a.ended <- p.loop(t.Context(), a.app, &listeners{failed: make(chan error)}, a.signals) }()
	return a
}

func (a *loopingApp) signal(s os.Signal) {
	a.signals <- s
	synctest.Wait()
}

func TestAServerEndsAtOnceThoughAReloadIsSlow(t *testing.T) {
	name := file(t, simConfig("m"))
	for what, begin := range map[string]func(*loopingApp){
		"at a hang-up": func(a *loopingApp) { a.signal(syscall.SIGHUP) },
		"of a file that changed": func(a *loopingApp) {
			write(t, name, simConfig("m")+"# "+strings.Repeat("x", 100)+"\n")
			for range 2 {
				a.ticks <- time.Time{}
				synctest.Wait()
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			write(t, name, simConfig("m"))
			synctest.Test(t, func(t *testing.T) {
				a := newLoopingApp(t, name)
				begin(a)
				if a.keys.asked != 1 {
					t.Fatalf("the store was asked %d times", a.keys.asked)
				}
				began := time.Now()
				a.signal(syscall.SIGTERM)
				if err := errors.Join(<-a.ended, a.shutdown()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %s", took)
				}
				synctest.Wait()
				if log := a.log.String(); !strings.Contains(log, "reload cancelled: the server is shutting down") || strings.Contains(log, "refused") {
					t.Errorf("the log says\n%s", log)
				}
				if err := a.reload(t.Context()); !fault.Is(err, fault.ServiceUnavailable) {
					t.Errorf("a reload after the end: %v", err)
				}
			})
		})
	}
}

func TestHangUpsDuringAReloadLeadToOneMore(t *testing.T) {
	name := file(t, simConfig("m"))
	synctest.Test(t, func(t *testing.T) {
		a := newLoopingApp(t, name)
		for range 3 {
			a.signal(syscall.SIGHUP)
		}
		for _, want := range []int{1, 2} {
			if a.keys.asked != want {
				t.Errorf("the file was read %d times, not %d", a.keys.asked, want)
			}
			a.keys.answer <- struct{}{}
			synctest.Wait()
		}
		if n := strings.Count(a.log.String(), "configuration reloaded"); n != 2 || a.keys.asked != 2 {
			t.Errorf("%d reloads, %d begun:\n%s", n, a.keys.asked, a.log)
		}
		a.signal(os.Interrupt)
		if err := errors.Join(<-a.ended, a.shutdown()); err != nil {
			t.Error(err)
		}
	})
}

// What is read without a context, a file on a disk that is away, does not keep
// the server either.
func TestAReloadThatHangsDoesNotKeepTheServerRunning(t *testing.T) {
	name := file(t, simConfig("m"))
	synctest.Test(t, func(t *testing.T) {
		a := newLoopingApp(t, name)
		a.signal(syscall.SIGTERM)
		a.reloading <- struct{}{} // and it never ends
		began := time.Now()
		if err := errors.Join(<-a.ended, a.shutdown()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// newWatcher reads a configuration of which it gives the watch.
func newWatcher(t *testing.T, name string) *fileWatcher {
	t.Helper()
	_, seen, err := readConfig(name, acme.lookup)
	if err != nil {
		t.Fatal(err)
	}
	w := new(fileWatcher)
	w.setRead(seen)
	return w
}

// A file that is truncated first and written a moment later is loaded once, and
// as a whole: what has just changed is left alone until the next look.
func TestAFileThatIsBeingWrittenIsWaitedFor(t *testing.T) {
	name := file(t, simConfig("old-model"))
	w := newWatcher(t, name)
	whole := simConfig("new-model") + strings.Repeat("# what else there is to say\n", 1000)
	for _, part := range []int{0, 20, len(simConfig("new-model")), len(whole) / 2, len(whole)} {
		write(t, name, whole[:part])
		if w.changed() {
			t.Errorf("it was to be read with %d of %d bytes written", part, len(whole))
		}
	}
	if !w.changed() {
		t.Error("it was not to be read when it was written")
	}
	_, seen, _ := readConfig(name, acme.lookup)
	w.setRead(seen)
	for range 3 {
		if w.changed() {
			t.Error("it was to be read twice")
		}
	}
}

func TestAChangeIsSeenByItsSizeItsTimeOrItsFile(t *testing.T) {
	for what, change := range map[string]func(name string) error{
		"size": func(name string) error { return os.WriteFile(name, []byte(simConfig("longer")), 0o600) },
		"time": func(name string) error { return os.Chtimes(name, time.Time{}, time.Unix(1, 0)) },
		"file": func(name string) error {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if err := os.WriteFile(name+".new", data, 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(name+".new", time.Time{}, info.ModTime()); err != nil {
				return err
			}
			return os.Rename(name+".new", name)
		},
		"nothing":    func(string) error { return nil },
		"absence":    os.Remove,
		"key, new":   func(name string) error { return os.WriteFile(name+".keys", []byte("new"), 0o600) },
		"key, gone":  func(name string) error { return os.Remove(name + ".keys") },
		"key, other": func(name string) error { return os.WriteFile(name+".other", []byte("new"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "c.yaml")
			write(t, name+".keys", "key-1")
			write(t, name, strings.Replace(simConfig("m"), "driver: sim", "driver: openai, keys: [{file: '"+name+".keys'}]", 1))
			w := newWatcher(t, name)
			if err := change(name); err != nil {
				t.Fatal(err)
			}
			w.changed()
			want := what != "nothing" && what != "absence" && what != "key, gone" && what != "key, other"
			if got := w.changed(); got != want {
				t.Errorf("seen: %v", got)
			}
		})
	}
}

// keyCheckingVendor is a vendor that accepts only some keys.
type keyCheckingVendor struct {
	url  string
	mu   sync.Mutex
	good map[string]bool
	seen map[string]int // calls by key
}

func newKeyCheckingVendor(t *testing.T, keys ...string) *keyCheckingVendor {
	t.Helper()
	l := &keyCheckingVendor{seen: map[string]int{}}
	l.take(keys...)
	s := httptest.NewServer(l)
	t.Cleanup(s.Close)
	l.url = s.URL + "/v1"
	return l
}

// take says which keys are good from now on.
func (l *keyCheckingVendor) take(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.good = map[string]bool{}
	for _, k := range keys {
		l.good[k] = true
	}
}

// calls is how often a key was used since the last time that it was asked.
func (l *keyCheckingVendor) calls(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer delete(l.seen, key)
	return l.seen[key]
}

// ServeHTTP implements http.Handler.
func (l *keyCheckingVendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	l.mu.Lock()
	l.seen[key]++
	good := l.good[key]
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if !good {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s","code":"invalid_api_key"}}`, key)
		return
	}
	_, _ = w.Write([]byte(vendorAnswerOf("m")))
}

// keyedConfig is a file whose one channel has its keys in a file.
func keyedConfig(base, keys string) string {
	return fmt.Sprintf(`billing: count
channels:
  - {name: main, driver: openai, base_url: "%s", keys: [{file: %s}], models: {m: m}}
accounts:
  - {name: acme, keys: [{env: ACME_KEY}]}
`, base, keys)
}

// tickTwice has the server look twice at its files, as it does in two seconds.
func (i *instance) tickTwice() {
	for range 3 { // the third is taken when the second was dealt with
		i.ticks <- time.Time{}
	}
}

func TestAKeyIsRotatedWithoutARestart(t *testing.T) {
	l := newKeyCheckingVendor(t, "old-key-0123456789")
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "old-key-0123456789\n")
	i := start(t, acme, "--config", file(t, keyedConfig(l.url, keys)))
	ask := func(n int) {
		t.Helper()
		for range n {
			if status := calls(i, "m"); status != 200 {
				t.Errorf("a call got %d", status)
			}
		}
	}
	ask(2)
	// Both are good: both are used.
	l.take("old-key-0123456789", "new-key-0123456789")
	write(t, keys, "new-key-0123456789\nold-key-0123456789\n")
	i.tickTwice()
	l.calls("old-key-0123456789")
	ask(6)
	if a, b := l.calls("old-key-0123456789"), l.calls("new-key-0123456789"); a != 3 || b != 3 {
		t.Errorf("with both in the file the old one was used %d times, the new one %d times", a, b)
	}
	// The old one is revoked before it is out of the file: nobody notices.
	l.take("new-key-0123456789")
	began := time.Now()
	ask(10)
	most := 4 + int(time.Since(began)/time.Second) // it is tried again after each rest, of a second or more
	if n := l.calls("old-key-0123456789"); n > most {
		t.Errorf("a key that is refused was used %d times, not %d at the most", n, most)
	}
	write(t, keys, "new-key-0123456789\n")
	i.tickTwice()
	ask(4)
	if a := l.calls("old-key-0123456789"); a != 0 {
		t.Errorf("a key that is not in the file any more was used %d times", a)
	}
	i.stop()
	if log := i.stderr.String(); strings.Contains(log, "old-key") || strings.Contains(log, "new-key") {
		t.Errorf("a key is in the log:\n%s", log)
	}
}

func TestAFileOfKeysThatCannotBeUsedIsRefusedAndTheOldKeysStay(t *testing.T) {
	l := newKeyCheckingVendor(t, "old-key-0123456789", "new-key-0123456789")
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "old-key-0123456789")
	name := file(t, keyedConfig(l.url, keys))
	i := start(t, acme, "--config", name)
	write(t, keys, "")
	i.tickTwice()
	if want := name + ":3:"; i.stderr.Await("the old one stays in force") == nil || !strings.Contains(i.stderr.String(), want) || !strings.Contains(i.stderr.String(), "the file is empty") {
		t.Errorf("the log does not tell %q:\n%s", want, i.stderr)
	}
	if status := calls(i, "m"); status != 200 || l.calls("old-key-0123456789") != 1 {
		t.Errorf("with an empty file a call got %d", status)
	}
	i.tickTwice()
	if n := strings.Count(i.stderr.String(), "the old one stays in force"); n != 1 {
		t.Errorf("it is told %d times", n)
	}
	// One that is away is being replaced: it is waited for.
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	i.tickTwice()
	write(t, keys, "new-key-0123456789")
	i.tickTwice()
	if status := calls(i, "m"); status != 200 || l.calls("new-key-0123456789") != 1 {
		t.Errorf("when it is mended a call got %d:\n%s", status, i.stderr)
	}
}

// A configuration that is refused for its file of keys is loaded when that is
// there, though nobody touches the configuration again.
func TestAFileOfKeysThatComesLaterIsNoticed(t *testing.T) {
	l := newKeyCheckingVendor(t, "new-key-0123456789")
	name := file(t, simConfig("m"))
	i := start(t, acme, "--config", name)
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, name, strings.Replace(simConfig("m"), "driver: sim", "driver: openai, base_url: '"+l.url+"', keys: [{file: "+keys+"}]", 1))
	i.tickTwice()
	if i.stderr.Await("the file cannot be read: no such file or directory") == nil {
		t.Fatal(i.stderr)
	}
	write(t, keys, "new-key-0123456789")
	i.tickTwice()
	if status := calls(i, "m"); status != 200 || l.calls("new-key-0123456789") != 1 {
		t.Errorf("a call got %d:\n%s", status, i.stderr)
	}
}

// connections counts those that a server has open.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]bool
}

func (c *connections) note(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == http.StateClosed || s == http.StateHijacked {
		delete(c.open, conn)
		return
	}
	c.open[conn] = true
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// Every reload has another key, and so other connections; each is used, the one
// before it while it is replaced.
func TestAThousandReloadsLeaveNoGoroutineAndNoConnectionBehind(t *testing.T) {
	rounds := longtest.Count(1000, 200)
	l := newKeyCheckingVendor(t)
	for i := range rounds + 1 {
		l.good[fmt.Sprint("vendor-key-", i)] = true
	}
	c := &connections{open: map[net.Conn]bool{}}
	s := httptest.NewUnstartedServer(l)
	s.Config.ConnState = c.note
	s.Start()
	t.Cleanup(s.Close)
	l.url = s.URL + "/v1"
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "vendor-key-0")
	i := start(t, acme, "--config", file(t, "store: 'memory:'\n"+keyedConfig(l.url, keys)), "--log-level", "error")
	one := func(n int) {
		t.Helper()
		write(t, keys, fmt.Sprint("vendor-key-", n))
		var late sync.WaitGroup
		late.Go(func() { _ = calls(i, "m") }) // with the key before or with this one
		if err := i.reload(); err != nil {
			t.Fatal(err)
		}
		if status := calls(i, "m"); status != 200 {
			t.Fatalf("after %d reloads a call got %d", n, status)
		}
		late.Wait()
	}
	one(1)
	before := runtime.NumGoroutine()
	for n := 2; n <= rounds; n++ {
		one(n)
	}
	began := time.Now()
	for runtime.NumGoroutine() > before+10 || c.count() > 4 {
		if time.Since(began) > time.Minute {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before; %d connections\n%s", runtime.NumGoroutine(), before, c.count(), buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
	t.Logf("%d goroutines before, %d after %d reloads; %d connections", before, runtime.NumGoroutine(), rounds, c.count())
}
