package main

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/servertest"
)

func addressFileOf(i *instance) string { return filepath.Join(i.data, addressFile) }

// TestTheRecordOfAServerThatRunsIsItsOwn starts two servers with one data directory. The
// commands reach one of them, and the other's banner says how it is reached.
func TestTheRecordOfAServerThatRunsIsItsOwn(t *testing.T) {
	t.Parallel()
	kept := []string{"--config", file(t, "billing: count\nchannels: [{name: main, driver: sim, models: {m: m}}]\naccounts: [{name: kept}]\n")}
	beside := []string{"--config", file(t, "billing: count\nstore: 'sqlite:"+filepath.Join(t.TempDir(), "beside.db")+"'\nchannels: [{name: main, driver: sim, models: {m: m}}]\naccounts: [{name: beside}]\n")}
	demo := []string{"--demo"}
	for _, row := range []struct {
		name          string
		first, second []string
		gives         bool // the second gets the record
	}{
		{"a demo beside a server", kept, demo, false},
		{"a demo beside a demo", demo, demo, false},
		{"a server beside a server", kept, beside, false},
		{"a server beside a demo, whose accounts end with it", demo, kept, true},
	} {
		data := filepath.Join(t.TempDir(), "data")
		first := start(t, nil, append(row.first, "--data", data)...)
		second := start(t, nil, append(row.second, "--data", data)...)
		owner, other := first, second
		if row.gives {
			owner, other = second, first
		}
		if r := tollhouse(t, nil, "account", "create", "made", "--data", data); r.code != exitOK || !strings.Contains(owner.good("account", "list"), "made") {
			t.Errorf("%s: the account was made elsewhere: %q", row.name, r.stderr)
		}
		want := "commands reach the server at " + first.admin + ", which runs with the data directory " + data + " too: give them --admin " + second.admin + " for this one"
		if said := strings.Contains(second.stdout.String(), want); said == row.gives || strings.Contains(first.stdout.String(), "commands reach") {
			t.Errorf("%s: the banner of the second says\n%s", row.name, second.stdout)
		}
		other.stop()
		if info, err := os.Stat(addressFileOf(owner)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the mode of the record is %v, %v", row.name, info.Mode(), err)
		}
		if text, err := os.ReadFile(addressFileOf(owner)); err != nil || string(text) != owner.admin+"\n" {
			t.Errorf("%s: when the other had ended, the record was %q, %v", row.name, text, err)
		}
		owner.stop()
		if _, err := os.Stat(addressFileOf(owner)); !os.IsNotExist(err) {
			t.Errorf("%s: a server that has ended left the record: %v", row.name, err)
		}
	}
	data := filepath.Join(t.TempDir(), "data")
	first, second := start(t, nil, "--demo", "--data", data), start(t, nil, "--demo", "--data", data)
	first.stop()
	second.ticks <- time.Time{}
	second.ticks <- time.Time{} // the one before has been dealt with
	if text, err := os.ReadFile(addressFileOf(second)); err != nil || string(text) != second.admin+"\n" {
		t.Errorf("when the first has ended, the record of the second is %q, %v", text, err)
	}
	second.stop()
	if _, err := os.Stat(addressFileOf(second)); !os.IsNotExist(err) {
		t.Errorf("the second has ended and left its record: %v", err)
	}
	for _, stale := range []string{nowhere, serving(t).admin} { // killed; and its port is that of a server with another token
		data := t.TempDir()
		write(t, filepath.Join(data, addressFile), stale+"\n")
		i := start(t, nil, "--demo", "--data", data)
		if text, err := os.ReadFile(addressFileOf(i)); err != nil || string(text) != i.admin+"\n" {
			t.Errorf("the record of a server that was killed: it is %q, %v", text, err)
		}
	}
}

func TestAStaleAddressMisleadsNoCommand(t *testing.T) {
	t.Parallel()
	stranger := serving(t)
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for _, row := range []struct {
		name, text string
		mode       fs.FileMode
		timeout    time.Duration // half of it is for the address that was recorded; 0: the usual one
	}{
		{"nothing listens", nowhere + "\n", 0o600, 0},
		{"a server with another token", stranger.admin + "\n", 0o600, 0},
		{"another program", strings.TrimPrefix(elsewhere.URL, "http://") + "\n", 0o600, 0},
		{"a program that does not answer", silent.Addr().String() + "\n", 0o600, time.Second},
		{"no address", "not an address\n", 0o600, 0},
		{"empty", "", 0o600, 0},
		{"written by others", stranger.admin + "\n", 0o666, 0},
	} {
		data := t.TempDir()
		if _, err := ensureToken(data); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(data, addressFile)
		write(t, name, row.text)
		if err := os.Chmod(name, row.mode); err != nil {
			t.Fatal(err)
		}
		stdout, stderr := new(servertest.Output), new(servertest.Output)
		p := &program{env: environment{}.lookup, stdout: stdout, stderr: stderr, admin: nowhere, timeout: row.timeout}
		if code := p.run(t.Context(), []string{"account", "create", "beta", "--data", data}); code != exitOK {
			t.Errorf("%s: the store was not used: %q", row.name, stderr)
		}
		if out := stranger.good("account", "list"); strings.Contains(out, "beta") {
			t.Fatalf("%s: the change was made on another server", row.name)
		}
	}
}

// Nothing that a server or a command prints holds a key of a vendor, a key of
// a customer, or the admin token, whatever goes wrong.
func TestNoSecretIsEverPrinted(t *testing.T) {
	const vendorKey, literalKey, customerKey = "sk-vendor-0123456789", "sk-literal-0123456789", "sk-customer-0123456789"
	v := newFakeVendor(t, 401, `{"error":{"message":"Incorrect API key provided: sk-vendor-0123456789","type":"authentication_error","code":"invalid_api_key"}}`)
	env := environment{"VENDOR_KEY": vendorKey, "CUSTOMER_KEY": customerKey, "BASE": v.url + "/v1"}
	name := file(t, `billing: count
channels:
  - {name: main, driver: openai, base_url: "${BASE}", keys: ["${VENDOR_KEY}", `+literalKey+`], models: {"*": "*"}}
accounts:
  - {name: acme, keys: [{env: CUSTOMER_KEY}]}
`)
	i := start(t, env, "--config", name, "--log-level", "debug")
	if status, body := i.ask(http.MethodPost, "/v1/chat/completions", customerKey, chatBody("m", false)); status != 502 || strings.Contains(body, vendorKey) {
		t.Errorf("the call got %d %s", status, body)
	}
	token, err := os.ReadFile(filepath.Join(i.data, tokenFile))
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	add := func(r result) { said.WriteString(r.stdout + r.stderr) }
	for _, args := range [][]string{{"key", "list", "--json"}, {"account", "list"}, {"usage"}} {
		add(i.command(args...))
	}
	add(tollhouse(t, env, "check", "--config", name))
	add(tollhouse(t, env, "models", "--config", name))
	for _, wrong := range []string{
		"channels: [" + literalKey + "]",
		"channels:\n  - keys: {" + literalKey,
		"channels:\n  - {name: a, driver: openai, base_url: 'https://u:" + literalKey + "@h', models: {a: b}}",
		"channels:\n  - {name: a, driver: " + literalKey + "}",
		"accounts:\n  - {name: a, keys: [{env: " + literalKey + "}, {hash: " + literalKey + "}, " + literalKey + "]}",
		"accounts:\n  - {name: a, keys: [{env: VENDOR_KEY, rpm: '${VENDOR_KEY}'}]}",
		"listen: '${VENDOR_KEY}'\nstore: '${VENDOR_KEY}'\ncurrency: '${VENDOR_KEY}'\nlimits: {rpm: '${VENDOR_KEY}'}",
	} {
		r := tollhouse(t, env, "check", "--config", file(t, wrong))
		if r.code != exitFailed {
			t.Errorf("%q was not refused", wrong)
		}
		add(r)
	}
	i.stop()
	said.WriteString(i.stdout.String() + i.stderr.String())
	for _, secret := range []string{vendorKey, literalKey, customerKey, strings.TrimSpace(string(token))} {
		if at := strings.Index(said.String(), secret); at >= 0 {
			t.Errorf("printed: …%s", said.String()[max(0, at-200):at+len(secret)])
		}
	}
}

func TestTheAdminTokenIsMadeOnDemandAndStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first := tollhouse(t, nil, "admin", "token", "--data", dir)
	second := tollhouse(t, environment{"TOLLHOUSE_DATA": dir}, "admin", "token")
	if first.code != exitOK || first.stdout != second.stdout || len(first.stdout) < 40 {
		t.Errorf("%+v, then %+v", first, second)
	}
	info, err := os.Stat(filepath.Join(dir, tokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestATokenThatIsALinkGoesToNoRecordedAddress has what a cloned repository may hold: a link
// to the operator's token, beside an address.
func TestATokenThatIsALinkGoesToNoRecordedAddress(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	victim := t.TempDir()
	if _, err := ensureToken(victim); err != nil {
		t.Fatal(err)
	}
	chdirPrivate(t)
	if err := errors.Join(os.Mkdir(defaultData, 0o700), os.Symlink(filepath.Join(victim, tokenFile), filepath.Join(defaultData, tokenFile))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(defaultData, addressFile), strings.TrimPrefix(elsewhere.URL, "http://")+"\n")
	if r := tollhouse(t, nil, "channel", "list"); r.code != exitFailed || asked.Load() != 0 {
		t.Errorf("%d: %q; asked %d times", r.code, r.stderr, asked.Load())
	}
}
