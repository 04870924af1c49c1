package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

// statements are those that connections run. It is safe for concurrent use.
type statements struct {
	mu   sync.Mutex
	seen map[string]bool
}

// recorded is a place of which s records the statements.
func (s *statements) recorded(p storetest.Place) storetest.Place {
	open := p.Open
	p.Open = func(ctx context.Context, o store.Options) (*store.DB, error) {
		wrap := o.Wrap
		o.Wrap = func(c driver.Connector) driver.Connector {
			if wrap != nil {
				c = wrap(c)
			}
			return sqlhook.Wrap(c, s.around)
		}
		return open(ctx, o)
	}
	return p
}

func (s *statements) around(step sqlhook.Step, do func() error) error {
	s.mu.Lock()
	s.seen[step.Query] = true
	s.mu.Unlock()
	return do()
}

// What may read a whole table that grows: Totals and Verify, which read every account
// and budget, and what stops at the first row of an index.
var (
	growing  = regexp.MustCompile(`^SCAN (receipt|entry|usage_hour|attempt|answer|account|budget|key|task|notice|response|r|named)\b`)
	partial  = regexp.MustCompile(` INDEX task_by_lease$`) // of open tasks only
	mayScan  = regexp.MustCompile(`^SELECT COUNT\(\*\), CAST\(COALESCE\(SUM\(posted |^SELECT (id|key_id), held, (posted|'') FROM |^SELECT id, held FROM budget$|^SELECT b\.id, .* FROM budget AS b |^SELECT budget, kind, amount FROM budget_entry |^SELECT id, budgets, COALESCE\(n, 0\) FROM account | ORDER BY \w+ DESC LIMIT 1$`)
	hasPlans = regexp.MustCompile(`^(SELECT|INSERT|UPDATE|DELETE|WITH) `)
)

// noScans fails for each of the statements that would read a whole table that grows.
// SQLite's plans do not depend on how large the tables are: nothing analyzes them.
func (s *statements) noScans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	first := &statements{seen: map[string]bool{}} // with the migrations, which may
	opened(t, first.recorded(storetest.Place{Open: func(ctx context.Context, o store.Options) (*store.DB, error) { return sqlite.Open(ctx, path, o) }}), store.Options{})
	raw, err := sql.Open("sqlite", "file:"+path)
	must(t, err)
	defer func() { _ = raw.Close() }()
	planned := 0
	for _, query := range slices.Sorted(maps.Keys(s.seen)) {
		if !hasPlans.MatchString(query) || first.seen[query] {
			continue
		}
		planned++
		for _, step := range plan(t, raw, query) {
			if growing.MatchString(step) && !partial.MatchString(step) && !mayScan.MatchString(query) {
				t.Errorf("%s: %s", step, query)
			}
		}
	}
	if planned < 100 {
		t.Errorf("only %d statements were seen", planned)
	}
	if steps := plan(t, raw, "SELECT id FROM receipt WHERE account = 'acme'"); !growing.MatchString(strings.Join(steps, "\n")) {
		t.Errorf("a scan is not found in %q", steps)
	}
}

// plan is how SQLite would run a query.
func plan(t *testing.T, db *sql.DB, query string) (steps []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query)
	if err != nil {
		return nil // about a table that a test has changed
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var step string
		must(t, rows.Scan(new(any), new(any), new(any), &step))
		steps = append(steps, step)
	}
	must(t, rows.Err())
	return steps
}
