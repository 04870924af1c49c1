package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// token is the node's admin token.
func (n *node) token() string {
	n.t.Helper()
	return strings.TrimSpace(n.at.command(n.t, "admin", "token").stdout)
}

// sinks are everything that a node leaves behind or tells its operator, by name.
func sinks(t testing.TB, c *crowd, n *node, store string) map[string]string {
	t.Helper()
	all := map[string]string{"stdout": n.out.String(), "stderr": n.log.String()}
	for path, text := range files(t, n.at.data) {
		all[path] = text
	}
	if path, ok := isFile(store); ok {
		for path, text := range files(t, filepath.Dir(path)) {
			all[path] = text
		}
	}
	for name, text := range openBooks(t, store).tables(store) {
		all["table "+name] = text
	}
	for _, path := range []string{"accounts", "accounts/acme", "keys", "usage?by=model", "usage?by=key", "server", "ledger/verify"} {
		all["admin "+path] = c.fetch("GET", "http://"+n.admin+"/admin/v1/"+path, n.token(), "").ok(t, path).body
	}
	all["admin metrics"] = n.metrics()
	for _, path := range []string{"/readyz", "/healthz", "/v1/balance", "/v1/usage", "/v1/usage?format=csv&by=key", "/v1/models"} {
		all[path] = c.get(n, path, acmeKey).ok(t, path).body
	}
	return all
}

// files are the contents of all files below a directory, by path.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// tables are the contents of every table, with the bytes of every column.
func (b books) tables(store string) map[string]string {
	b.t.Helper()
	list := "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
	if _, file := isFile(store); file {
		list = "SELECT name FROM sqlite_master WHERE type = 'table'"
	}
	names := strings.Fields(b.text(list))
	if len(names) < 9 {
		b.t.Fatalf("the database has only the tables %v", names)
	}
	all := map[string]string{}
	for _, name := range names {
		all[name] = b.text(`SELECT * FROM "` + name + `"`)
	}
	return all
}

// text is all that a query gives.
func (b books) text(query string) string {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), query)
	if err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		b.t.Fatal(err)
	}
	var all strings.Builder
	row, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		to[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			b.t.Fatal(err)
		}
		for _, v := range row {
			if bytes, ok := v.([]byte); ok {
				v = string(bytes)
			}
			_, _ = fmt.Fprintln(&all, v) // a builder takes everything
		}
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return all.String()
}

// ok demands a good answer.
func (a answer) ok(t testing.TB, what string) answer {
	t.Helper()
	if a.err != nil || a.status != 200 {
		t.Errorf("%s: %s", what, a)
	}
	return a
}
