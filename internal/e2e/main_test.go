// Package e2e holds the proofs that need real processes: the program is built
// once and started on ports of the system's choice, killed, cut off from its
// database and started again, while clients count over HTTP what they got and
// a vendor counts what it was asked. It exports nothing.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// workshop is where the program is built, once and only if a test needs it.
type workshop struct {
	dir  string
	once sync.Once
	err  error
}

var shop = new(workshop)

// waiting is how many tests run at once: most of them wait for a lease to end.
const waiting = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	err := flag.Set("test.parallel", waiting)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if shop.dir, err = os.MkdirTemp("", "tollhouse-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(shop.dir) // what stays is the system's to clear
	os.Exit(code)
}

// program is the path of the program.
func (w *workshop) program(t testing.TB) string {
	t.Helper()
	path := filepath.Join(w.dir, "tollhouse")
	w.once.Do(func() {
		if w.err = look("../.."); w.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", path, "github.com/tollhouse-ai/gateway/cmd/tollhouse").CombinedOutput()
		if err != nil {
			w.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if w.err != nil {
		t.Fatal(w.err)
	}
	return path
}

// look asks for the times of all sources: what a test looked at decides whether
// `go test` may repeat an old result, and the sources of the program that is
// built here are not among those of the test.
func look(root string) error {
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if ext := filepath.Ext(path); err == nil && !d.IsDir() && (ext == ".go" || ext == ".sql" || ext == ".mod") {
			_, err = os.Stat(path)
		}
		return err
	})
}
