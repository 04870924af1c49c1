package mutation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/store/storetest"
)

// mutation is a guard, how it is taken out, and the tests that have to notice.
type mutation struct {
	guard string
	file  string // from the root of the module
	edits []edit
	in    string // the package of the tests
	run   string // which of its tests, as for go test
	needs needs
}

// edit replaces a piece of code, which must stand exactly once in its file.
type edit struct{ old, new string }

// needs is what the tests cannot run without.
type needs string

const postgres needs = "postgres"

const root = "../.."

// TestEveryGuardIsMissedWhenItIsGone writes nothing into the tree: the compiler
// is told to read a changed file in the place of each original.
func TestEveryGuardIsMissedWhenItIsGone(t *testing.T) {
	if os.Getenv("MUTATION") != "1" || testing.Short() {
		t.Skip("NOT RUN: it builds and runs the tests of some sixty changed programs. Set MUTATION=1, without -short.")
	}
	f := newForge(t)
	start := time.Now()
	t.Run("rows", func(t *testing.T) { // ends when all of them have
		for _, m := range table() {
			t.Run(strings.ReplaceAll(m.guard, " ", "_"), func(t *testing.T) {
				t.Parallel()
				f.check(t, m)
			})
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("%d guards were taken out, %d were missed, in %s", f.tried, f.killed, time.Since(start).Round(time.Second))
}

func table() []mutation {
	return slices.Concat(inMemory, inStore, inTasks, inAccess, inGateway, inRouter, inLoad)
}

// Without it a change of the code is noticed minutes later, when the guards are
// taken out.
func TestEveryGuardOfTheTableStandsInTheCode(t *testing.T) {
	for _, m := range table() {
		t.Run(strings.ReplaceAll(m.guard, " ", "_"), func(t *testing.T) { m.overlay(t) })
	}
}

// forge builds and runs tests.
type forge struct {
	dir      string
	postgres string // the address of a server; empty if there is none

	mu            sync.Mutex
	sound         map[string]func() error // what the unchanged code does, by package and tests
	tried, killed int
}

func newForge(t *testing.T) *forge {
	f := &forge{dir: t.TempDir(), sound: map[string]func() error{}, postgres: os.Getenv("TOLLHOUSE_TEST_POSTGRES")}
	if f.postgres != "" {
		return f
	}
	server, err := storetest.StartPostgres()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Logf("NOT TESTED where it takes Postgres: %v", err)
		return f
	}
	t.Cleanup(func() { _ = server.Stop("immediate") })
	f.postgres = server.URL
	return f
}

// check takes a guard out and has its tests run.
func (f *forge) check(t *testing.T, m mutation) {
	if m.needs == postgres && f.postgres == "" {
		t.Skip("NOT TESTED, no Postgres")
	}
	overlay := m.overlay(t)
	if err := f.unchanged(m)(); err != nil {
		t.Fatalf("before anything was changed: %v", err)
	}
	program := filepath.Join(t.TempDir(), "changed")
	if err := build(program, m.in, "-overlay="+overlay); err != nil {
		t.Fatalf("the change does not compile, so that it says nothing of the tests: %v", err)
	}
	out, err := f.test(program, m, time.Minute) // without the guard it may hang
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried++
	switch {
	case err == nil:
		t.Errorf("nothing notices: %s -run '%s' passes without it", m.in, m.run)
	case !bytes.Contains(out, []byte("--- FAIL: ")):
		t.Errorf("no test has failed, the program did: %v\n%s", err, tail(out))
	default:
		f.killed++
		t.Log(named(out))
	}
}

// overlay is the file that tells the compiler what to read instead.
func (m mutation) overlay(t *testing.T) string {
	t.Helper()
	original, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(original)
	if err != nil {
		t.Fatalf("%v: the table names a file that is gone; bring it up to date", err)
	}
	text := string(data)
	for _, e := range m.edits {
		if n := strings.Count(text, e.old); n != 1 {
			t.Fatalf("%s has this %d times, and must have it once; bring the table up to date:\n%s", m.file, n, e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err == nil {
		err = errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, replace, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}

// unchanged runs the same tests on the code as it is, once for all that name them.
func (f *forge) unchanged(m mutation) func() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	program := filepath.Join(f.dir, strings.NewReplacer("/", "-", ".", "root").Replace(m.in))
	built, ok := f.sound[m.in]
	if !ok {
		built = sync.OnceValue(func() error { return build(program, m.in) })
		f.sound[m.in] = built
	}
	passes, ok := f.sound[m.in+" "+m.run]
	if !ok {
		passes = sync.OnceValue(func() error {
			if err := built(); err != nil {
				return err
			}
			out, err := f.test(program, m, 10*time.Minute)
			switch {
			case err != nil:
				return fmt.Errorf("%s -run '%s' fails: %w\n%s", m.in, m.run, err, tail(out))
			case !bytes.Contains(out, []byte("--- PASS: ")) || bytes.Contains(out, []byte("--- SKIP: ")):
				return fmt.Errorf("%s -run '%s' does not run every test that it names\n%s", m.in, m.run, tail(out))
			}
			return nil
		})
		f.sound[m.in+" "+m.run] = passes
	}
	return passes
}

// build compiles the tests of a package.
func build(program, in string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"test", "-c", "-ldflags=-s -w", "-o", program}, flags...), "./"+in)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, tail(out))
	}
	return nil
}

// test runs a compiled test where go test would.
func (f *forge) test(program string, m mutation, patience time.Duration) ([]byte, error) {
	cmd := exec.Command(program, "-test.v", "-test.failfast", "-test.timeout="+patience.String(), "-test.run="+m.run)
	cmd.Dir = filepath.Join(root, m.in)
	cmd.Env = append(os.Environ(), "TOLLHOUSE_TEST_POSTGRES="+f.postgres)
	return cmd.CombinedOutput()
}

// named is the line of the innermost test that failed.
func named(out []byte) (name string) {
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- FAIL: ") {
			name = strings.TrimSpace(line)
		}
	}
	return name
}

// tail is the end of an output.
func tail(out []byte) []byte { return out[max(0, len(out)-2_000):] }
