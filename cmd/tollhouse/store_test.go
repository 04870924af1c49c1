package main

import (
	"database/sql"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
)

// Else the gateway would not keep a task and its answer in the transaction in
// which the money moves.
func TestInADatabaseMoneyTasksAndAnswersAreOneStore(t *testing.T) {
	s, err := new(program).openStorage(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "b.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	if any(s.ledger) != any(s.tasks) || any(s.ledger) != any(s.idempotency) {
		t.Errorf("the ledger is %T, the tasks are in %T and the answers in %T", s.ledger, s.tasks, s.idempotency)
	}
}

func TestAnAddressOfEveryInterfaceIsReachedOnThisMachine(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", ":80": "127.0.0.1:80", "0.0.0.0:80": "127.0.0.1:80", "[::]:80": "127.0.0.1:80",
		"[::1]:80": "[::1]:80", "host.example:80": "host.example:80", "nothing": "nothing",
	} {
		if got := dialable(address); got != want {
			t.Errorf("%s is reached at %s, not %s", address, got, want)
		}
	}
}

func TestTheNameOfAStoreTellsDatabasesApartWithoutTheirPasswords(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:hunter2@h/db":                        "postgres://u@h:5432/db",
		"postgresql://u:hunter2@h:5432/db?sslmode=disable": "postgres://u@h:5432/db",
		"postgres://u@h/db?password=hunter2":               "postgres://u@h:5432/db",
		"postgres://u@h:5433/db":                           "postgres://u@h:5433/db",
		"postgres://u@h/other":                             "postgres://u@h:5432/other",
		"postgres://u@[::1]/db":                            "postgres://u@[::1]:5432/db",
		"postgres:///db?user=u&host=/sock":                 "postgres://u@/db?host=%2Fsock&port=5432",
		"postgres:///db?user=u&host=/other":                "postgres://u@/db?host=%2Fother&port=5432",
		"postgres://u@h/db?search_path=s":                  "postgres://u@h:5432/db?search_path=s",
		"postgres://u@a:1,b:2/db":                          "postgres://u@a:1,b:2/db",
		"postgres://u@/db?host=/sock,a&port=1,2":           "postgres://u@/db?host=%2Fsock%2Ca&port=1%2C2",
		"postgres://u:hunter2@h:port/db":                   "postgres:",
		"memory:":                                          "memory:",
		"sqlite:/a/../b.db":                                "sqlite:/b.db",
	} {
		if got := storeName(address); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}

// databases are the addresses of new stores, by kind.
func databases(t *testing.T) map[string]string {
	t.Helper()
	stores := map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "books", "b.db")}
	if longtest.Enabled() {
		stores["postgres"] = pgtest.Schema(t)
	}
	return stores
}

// restart starts a server like the one before, whose data directory it takes over.
func restart(t *testing.T, before *instance, env environment, args ...string) *instance {
	t.Helper()
	return start(t, env, append(args, "--data", before.data)...)
}

// docs/guides/operations.md, Secrets: each step of a rotation, and what is lost where one is left
// out.
func TestStoredResponsesOutliveTheServerAndTheRotationOfItsSecret(t *testing.T) {
	t.Parallel()
	const first, second = "the first secret, of 32 characters", "the second secret, of 32 characters"
	for kind, address := range databases(t) {
		t.Run(kind, func(t *testing.T) {
			name := file(t, simConfig("m")+"store: "+address+"\nresponses: {store: on}\n")
			i := start(t, acme, "--config", name)
			var last string
			steps := []struct {
				name, secrets string
				lost          bool // what was stored before
			}{
				{"a restart", "", false},
				{"a first secret of the file", "secrets: ['" + first + "']\n", false},
				{"a second one behind it", "secrets: ['" + first + "', '" + second + "']\n", false},
				{"in front of it", "secrets: ['" + second + "', '" + first + "']\n", false},
				{"alone, after something was made with it", "secrets: ['" + second + "']\n", false},
				{"none", "", true},
			}
			respond := func(previous string) (status int, id string) {
				status, body := i.ask(http.MethodPost, "/v1/responses", acme["ACME_KEY"], `{"model":"m","input":"hi"`+previous+`}`)
				var r struct{ ID string }
				if err := json.Unmarshal([]byte(body), &r); err != nil {
					t.Fatal(err)
				}
				return status, r.ID
			}
			_, last = respond("")
			for _, step := range steps {
				i.stop()
				write(t, name, simConfig("m")+"store: "+address+"\nresponses: {store: on}\n"+step.secrets)
				i = restart(t, i, acme, "--config", name)
				shown, _ := i.ask(http.MethodGet, "/v1/responses/"+last, acme["ACME_KEY"], "")
				followed, _ := respond(`,"previous_response_id":"` + last + `"`)
				if want := map[bool][2]int{false: {200, 200}, true: {404, 400}}[step.lost]; [2]int{shown, followed} != want {
					t.Errorf("%s: shown %d, followed %d", step.name, shown, followed)
				}
				_, last = respond("")
			}
		})
	}
}

func TestArchiveMovesReceiptsIntoFiles(t *testing.T) {
	t.Parallel()
	for kind, address := range databases(t) {
		t.Run(kind, func(t *testing.T) {
			data, out := filepath.Join(t.TempDir(), "data"), t.TempDir()
			name := file(t, simConfig("m")+"store: "+address+"\nadmin: 127.0.0.1:1\ndata: "+data+"\n")
			do := func(args ...string) result { return tollhouse(t, environment{"TOLLHOUSE_CONFIG": name}, args...) }
			if r := do("archive", "--before", "2020-01-01", "--out", out); kind == "sqlite" && (r.code != exitFailed || !strings.Contains(r.stderr, "there is no database at")) {
				t.Errorf("before there is anything: %d %q", r.code, r.stderr)
			}
			i := start(t, acme, "--config", name, "--data", data)
			if status := calls(i, "m"); status != 200 {
				t.Fatalf("the call got %d", status)
			}
			if r := do("archive", "--before", "2020-01-01", "--out", out); kind == "sqlite" && (r.code != exitFailed || !strings.Contains(r.stderr, "stop it first")) {
				t.Errorf("beside a server: %d %q", r.code, r.stderr)
			} else if kind == "postgres" && r.code != exitOK {
				t.Errorf("beside a server: %d %q", r.code, r.stderr)
			}
			i.stop()
			for _, c := range []struct {
				args           string
				code           int
				stdout, stderr string // patterns
			}{
				{"--before 2100-01-01", exitUsage, `^$`, `^tollhouse archive: --before may be at most \d{4}-\d\d-\d\d: receipts are needed for three days \(see `},
				{"--before 2100-01-01 --json", exitUsage, `^$`, `--before may be at most`},
				{"--before 2020-01-01", exitOK, `^No receipts before 2020-01-01\.\n$`, `^$`},
				{"--before 2020-01-01 --json", exitOK, `^\[\]\n$`, `^$`},
			} {
				r := do(append(strings.Fields("archive "+c.args), "--out", out)...)
				if r.code != c.code || !regexp.MustCompile(c.stdout).MatchString(r.stdout) || !regexp.MustCompile(c.stderr).MatchString(r.stderr) {
					t.Errorf("%s: %d %q %q", c.args, r.code, r.stdout, r.stderr)
				}
			}
			age(t, kind, address)
			usage := do("usage").stdout
			r := do("archive", "--before", time.Now().UTC().Add(-5*24*time.Hour).Format(time.DateOnly), "--out", out, "--json")
			var files []archivedFile
			if err := json.Unmarshal([]byte(r.stdout), &files); err != nil || r.code != exitOK || len(files) != 1 || files[0].Receipts != 1 || files[0].Charge == "0.00" {
				t.Fatalf("%d %s%s", r.code, r.stdout, r.stderr)
			}
			if info, err := os.Stat(files[0].File); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info, err)
			}
			if got := do("usage").stdout; got != usage || !strings.Contains(got, files[0].Charge) {
				t.Errorf("the usage was\n%s and is\n%s", usage, got)
			}
			verify := func(what string, code int, stdout, stderr string) {
				t.Helper()
				r := do("ledger", "verify", "--archive", out)
				if r.code != code || !regexp.MustCompile(stdout).MatchString(r.stdout) || !regexp.MustCompile(stderr).MatchString(r.stderr) {
					t.Errorf("verify of %s: %d %s%s", what, r.code, r.stdout, r.stderr)
				}
			}
			verify("the files as they were written", exitOK, `Of the files that receipts were moved into, all 1 are in `, `^$`)
			changed, err := os.ReadFile(files[0].File)
			if err != nil {
				t.Fatal(err)
			}
			write(t, files[0].File, string(changed[1:]))
			verify("a file that was changed", exitFailed, ``, `receipts-\S+ is not the file that was written: its SHA-256 is \w{64}, and was \w{64}`)
			if err := os.Remove(files[0].File); err != nil {
				t.Fatal(err)
			}
			verify("a file that is gone", exitFailed, ``, `receipts-\S+ is not there: it has 1 receipts for \d`)
		})
	}
}

// age makes all receipts ten days older.
func age(t *testing.T, kind, address string) {
	t.Helper()
	driver, dsn := "pgx", address
	if kind == "sqlite" {
		driver, dsn = "sqlite", "file:"+strings.TrimPrefix(address, "sqlite:")
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{"UPDATE receipt SET settled_at = settled_at - 864000000000000", "UPDATE usage_hour SET hour = hour - 864000000000000"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheCommandsWorkWhileNoServerRuns(t *testing.T) {
	t.Parallel()
	for kind, address := range databases(t) {
		t.Run(kind, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			name := file(t, simConfig("m")+"store: "+address+"\nadmin: 127.0.0.1:1\ndata: "+data+"\n")
			do := func(args ...string) result { return tollhouse(t, environment{"TOLLHOUSE_CONFIG": name}, args...) }
			if kind == "sqlite" {
				if r := do("account", "list"); r.code != exitFailed || !strings.Contains(r.stderr, "there is no database at") {
					t.Errorf("before there is anything: %d %q", r.code, r.stderr)
				}
				if _, err := os.Stat(strings.TrimPrefix(address, "sqlite:")); err == nil {
					t.Error("a command that only reads made a database")
				}
			}
			for _, c := range []struct{ args, want string }{
				{"account create beta --credit 25.00", `beta +25\.00`},
				{"account credit beta 5 --reference r", `beta +30\.00`},
				{"account credit beta 5 --reference r", `beta +30\.00`},
				{"account credit --reference r2 -- beta -5", `beta +25\.00`},
				{"account show beta", `beta +25\.00 +0\.00 +25\.00 +USD`},
				{"account list", `(?s)ACCOUNT +POSTED +HELD +AVAILABLE +CURRENCY\n.*beta +25\.00`},
				{"key create --account beta --name ci", `^sk-\w+\n`},
				{"key list", `key_\w+ +beta +ci +enabled`},
				{"usage --account beta", `^none\n$`},
				{"ledger verify", `sound`},
			} {
				r := do(strings.Fields(c.args)...)
				if r.code != exitOK || !regexp.MustCompile(c.want).MatchString(r.stdout) {
					t.Errorf("%s: %d\n%s%s", c.args, r.code, r.stdout, r.stderr)
				}
			}
			i := start(t, acme, "--config", name, "--data", data)
			key := strings.Fields(do("key", "create", "--account", "beta").stdout)
			if kind == "postgres" { // which both have open
				if status, body := i.ask(http.MethodPost, "/v1/chat/completions", key[0], chatBody("m", false)); status != 200 {
					t.Errorf("a key that was made beside the server got %d %s", status, body)
				}
			} else if len(key) > 0 {
				t.Error("a second process has the SQLite file open")
			}
		})
	}
}

// The first start may fail at a port that is taken, after it has made the account.
func TestTheFirstStartThatSucceedsPrintsOneKeyOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	env, data := environment{"OPENAI_API_KEY": "sk-open", "OPENAI_BASE_URL": "http://" + nowhere}, filepath.Join(t.TempDir(), "data")
	if r := tollhouse(t, env, "serve", "--listen", taken.Addr().String(), "--admin", "127.0.0.1:0", "--data", data); r.code != exitFailed || !strings.Contains(r.stderr, "cannot listen on") {
		t.Fatalf("%d %q", r.code, r.stderr)
	}
	i := start(t, env, "--data", data)
	key := firstKey(t, i.stdout.String())
	i.stop()
	i = restart(t, i, env)
	if strings.Contains(i.stdout.String(), "sk-") || strings.Contains(i.stdout.String(), "no API keys") {
		t.Errorf("the next start says\n%s", i.stdout)
	}
	if status, body := i.ask(http.MethodGet, "/v1/balance", key, ""); status != 200 {
		t.Errorf("the key of the first start got %d %s", status, body)
	}
	if out := i.good("account", "list"); strings.Count(out, "default") != 1 {
		t.Errorf("the accounts are\n%s", out)
	}
}

func TestALedgerKeepsItsCurrency(t *testing.T) {
	i := serving(t)
	i.stop()
	r := tollhouse(t, acme, "serve", "--config", file(t, simConfig("m")+"currency: EUR\n"), "--admin", "off", "--data", i.data)
	if r.code != exitFailed || !strings.Contains(r.stderr, "keeps its books in USD") || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("%d %q", r.code, r.stderr)
	}
}

func TestReadyzTellsOfNodesThatChargeDifferentPrices(t *testing.T) {
	address := pgtest.Schema(t)
	name := file(t, simConfig("m")+"store: "+address+"\n")
	one := start(t, acme, "--config", name)
	same := start(t, acme, "--config", name)
	if _, body := same.ask(http.MethodGet, "/readyz", "", ""); strings.Contains(body, "warnings") || !strings.Contains(body, `"store":"ok"`) {
		t.Errorf("with the same prices: %s", body)
	}
	other := file(t, strings.Replace(simConfig("m")+"store: "+address+"\n", `output: "`, `output: "1`, 1))
	start(t, acme, "--config", other)
	if status, body := one.ask(http.MethodGet, "/readyz", "", ""); status != 200 || !strings.Contains(body, "different price lists") {
		t.Errorf("with other prices: %d %s", status, body)
	}
}

func TestADatabaseThatOthersCouldOpenIsClosedToThem(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	i := start(t, environment{"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "http://" + nowhere})
	i.stop()
	db := filepath.Join(i.data, "tollhouse.db")
	for name, mode := range map[string]fs.FileMode{db: 0o644, i.data: 0o777} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	i = restart(t, i, environment{"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "http://" + nowhere})
	if info, err := os.Stat(db); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if log := i.stderr.String(); !strings.Contains(log, "database file was readable by others") {
		t.Errorf("the log is %s", log)
	}
	if page := i.stdout.String(); strings.Count(page, "others can write to the directory") != 1 || strings.Contains(page, "others can open") {
		t.Errorf("the banner is\n%s", page)
	}
}

func TestAFileThatCannotBeClosedToOthersIsTold(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	path := filepath.Join(t.TempDir(), "a b.db")
	write(t, path, "")
	write(t, path+"-wal", "")
	if err := os.Chmod(path+"-wal", 0o640); err != nil {
		t.Fatal(err)
	}
	for name, chmod := range map[string]func(string, fs.FileMode) error{
		"refused": func(string, fs.FileMode) error { return fs.ErrPermission },
		"ignored": func(string, fs.FileMode) error { return nil },
	} {
		closed, open := restrictAccess(path, chmod)
		if len(closed) != 0 || len(open) != 1 || !strings.Contains(open[0], "chmod 600 '"+path+"-wal'") {
			t.Errorf("%s: %q, %q", name, closed, open)
		}
	}
	if closed, open := restrictAccess(path, os.Chmod); len(closed) != 1 || len(open) != 0 {
		t.Errorf("%q, %q", closed, open)
	}
}
