// Package e2e holds the proofs that need real processes. The program is built once and started
// on ports of the system's choice. It is killed, cut off from its database and started again.
// Meanwhile clients count over HTTP what they got, and a vendor counts what it was asked. It
// exports nothing.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
)

// binary is where the program is built, once and only if a test needs it.
type binary struct {
	dir  string
	once sync.Once
	err  error
}

var built = new(binary)

// parallelTests is how many tests run at once: most of them wait for a lease to end.
const parallelTests = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	err := flag.Set("test.parallel", parallelTests)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if built.dir, err = os.MkdirTemp("", "tollhouse-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(built.dir) // what stays is the system's to clear
	os.Exit(code)
}

// path is where the program is; the first call builds it.
func (w *binary) path(t testing.TB) string {
	t.Helper()
	path := filepath.Join(w.dir, "tollhouse")
	w.once.Do(func() {
		if w.err = statSources("../.."); w.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-ldflags=-w", "-o", path, "github.com/tollhouse-ai/gateway/cmd/tollhouse").CombinedOutput()
		if err != nil {
			w.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if w.err != nil {
		t.Fatal(w.err)
	}
	return path
}

// statSources asks for the times of all sources. `go test` repeats an old result unless a file
// changed that the test looked at. The sources of the program that is built here are not among
// the test's own.
func statSources(root string) error {
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if ext := filepath.Ext(path); err == nil && !d.IsDir() && (ext == ".go" || ext == ".sql" || ext == ".mod") {
			_, err = os.Stat(path)
		}
		return err
	})
}

// settings are what the tests vary of a configuration.
type settings struct {
	store  string
	vendor string // base address
	credit string
	limits string // of the account's key, such as "rpm: 100"
}

// text is the configuration: the models m and n, one account and its key.
func (s settings) text() string {
	limits := ""
	if s.limits != "" {
		limits = ", " + s.limits
	}
	return fmt.Sprintf(`store: '%s'
channels:
  - name: main
    driver: openai
    base_url: %s
    keys: [vendor-key-0123456789]
    models: {m: m, n: n}
prices:
  m: {input: "0", output: "1.00"}
  n: {input: "0.30", cached_input: "0.05", output: "2.50"}
accounts:
  - {name: acme, credit: "%s", keys: [{env: ACME_KEY%s}]}
`, s.store, s.vendor, s.credit, limits)
}

// price is of one output token of the model m, in nano-units.
const price = 1000

// stores are the databases that a test runs on: Postgres only where long tests are
// enabled.
func stores(t *testing.T, test func(t *testing.T, store string, nodes int), nodes int) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, sqliteFile(t), 1) })
	t.Run("postgres", func(t *testing.T) { test(t, postgres(t), nodes) })
}

// sqliteFile is the address of a new file.
func sqliteFile(t testing.TB) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
}

// postgres is the address of a new schema.
func postgres(t testing.TB) string {
	t.Helper()
	longtest.Require(t)
	return pgtest.Schema(t)
}

// server is a Postgres of the test's own, which it may stop.
func server(t testing.TB) *pgtest.Server {
	t.Helper()
	longtest.Require(t)
	return pgtest.NewServer(t)
}

// patience is how long something may take that comes by itself.
const patience = time.Minute

// isFile reports whether a store is a SQLite file, and its path.
func isFile(store string) (path string, ok bool) { return strings.CutPrefix(store, "sqlite:") }

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
