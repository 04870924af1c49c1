// Package longtest tells tests whether they may take long.
//
// `go test ./...` is for everybody's machine and takes a few minutes at most. Longer tests run
// where TOLLHOUSE_LONG is set, as .ci/run does. Examples are very many kills of a process, or
// a test on SQLite that is repeated on Postgres.
package longtest

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

const variable = "TOLLHOUSE_LONG"

// Enabled reports whether TOLLHOUSE_LONG is set. With -short nothing is long.
func Enabled() bool { return os.Getenv(variable) != "" && !testing.Short() }

// Require skips the test unless long tests are enabled.
func Require(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skipf("a long test: run with %s=1", variable)
	}
}

// Count is how often something is repeated: n times, or at most a few times if
// long tests are not enabled.
func Count(n, few int) int {
	if Enabled() {
		return n
	}
	return min(n, few)
}

// Checks makes package rapid make few checks instead of its usual number in the rest of a
// test. It is for checks whose every step is a commit. Long tests make the usual number, as
// does a run that gives -rapid.checks.
func Checks(t testing.TB, few int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if f == nil || f.Value.String() != f.DefValue || Enabled() {
		return
	}
	if err := f.Value.Set(strconv.Itoa(few)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
}
