package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

// settings are what the tests vary of a configuration.
type settings struct {
	store  string
	vendor string // base address
	credit string
	limits string // of the account's key, such as "rpm: 100"
	prices string // YAML lines; empty for a price of 1.00 per million output tokens
}

// text is the configuration: the models m and n, one account and its key.
func (s settings) text() string {
	limits := ""
	if s.limits != "" {
		limits = ", " + s.limits
	}
	prices := s.prices
	if prices == "" {
		prices = "  m: {input: \"0\", output: \"1.00\"}\n  n: {input: \"0.30\", cached_input: \"0.05\", output: \"2.50\"}\n"
	}
	return fmt.Sprintf(`store: '%s'
channels:
  - name: main
    driver: openai
    base_url: %s
    keys: [vendor-key-0123456789]
    models: {m: m, n: n}
prices:
%saccounts:
  - {name: acme, credit: "%s", keys: [{env: ACME_KEY%s}]}
`, s.store, s.vendor, prices, s.credit, limits)
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
	return "sqlite:" + filepath.Join(t.TempDir(), "books.db")
}

// postgres is the address of a new schema.
func postgres(t testing.TB) string {
	t.Helper()
	longtest.Require(t)
	return storetest.Postgres(t)
}

// server is a Postgres of the test's own, which it may stop.
func server(t testing.TB) *storetest.Server {
	t.Helper()
	longtest.Require(t)
	s, err := storetest.StartPostgres()
	switch {
	case err == nil:
		t.Cleanup(func() { _ = s.Stop("immediate") }) // it may be down
		return s
	case os.Getenv("CI") == "true":
		t.Fatalf("no Postgres to test with: %v", err)
	default:
		t.Skipf("NOT TESTED, no Postgres: %v", err)
	}
	return nil
}

// with sets a parameter of an address.
func with(t testing.TB, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// isFile reports whether a store is a SQLite file, and its path.
func isFile(store string) (path string, ok bool) { return strings.CutPrefix(store, "sqlite:") }
