// Package mutants proves that the laws of money are tested. Each law of docs/design/laws.md
// names the one test that proves it, and faults that this test must find. Here each fault is
// planted in an overlay of the Go command, so that no file of the repository is written, and
// the test is run: it has to fail.
//
//	TOLLHOUSE_MUTANTS=1 TOLLHOUSE_LONG=1 go test ./internal/mutants -v -timeout 2h             # all of them
//	TOLLHOUSE_MUTANTS=1 TOLLHOUSE_LONG=1 go test ./internal/mutants -v -run 'Fails/Settlement' # one chapter
//	go test ./internal/mutants -update                                                         # write the page anew
//
// Without TOLLHOUSE_MUTANTS a long run plants only those whose test is quick to build and run.
package mutants

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/longtest"
)

const page = "docs/design/laws.md"

var update = flag.Bool("update", false, "write the tables of "+page)

// root is the folder of the module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// split returns the package of a law's test, empty for the root, and the names of the test
// and of the subtests that lead to the law.
func (l *law) split() (pkg string, names []string) {
	pkg, test, _ := strings.Cut(l.test, ".")
	if pkg == "gateway" {
		pkg = ""
	}
	return pkg, strings.Split(test, "/")
}

// TestEachLawNamesATestAndEachMutantATextThatIsThere keeps the list true while code moves.
func TestEachLawNamesATestAndEachMutantATextThatIsThere(t *testing.T) {
	for _, c := range chapters {
		for _, l := range c.laws {
			pkg, names := l.split()
			if !declares(t, pkg, "func "+names[0]+"(") {
				t.Errorf("%s: there is no test %s", l.says, l.test)
			}
			for _, name := range names[1:] { // of a table, in the package or in the suite of stores
				if !declares(t, pkg, `"`+name+`"`) && !declares(t, "store/storetest", `"`+name+`"`) {
					t.Errorf("%s: there is no case %q of %s", l.says, name, l.test)
				}
			}
			for _, m := range l.mutants {
				if n := strings.Count(read(t, m.file), m.text); n != 1 {
					t.Errorf("%s, %s: the text stands %d times in %s:\n%s", l.says, m.fault, n, m.file, m.text)
				}
			}
		}
	}
}

// declares reports whether a text stands in a Go file of a package.
func declares(t *testing.T, pkg, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), text) {
			return true
		}
	}
	return false
}

// TestThePageHasTheLaws compares the tables of the page with the list.
func TestThePageHasTheLaws(t *testing.T) {
	text := read(t, page)
	const begin, end = "<!-- The tables are written by go test ./internal/mutants -update. -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(text, begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatalf("%s has no place for the tables", page)
	}
	want := before + begin + tables() + end + after
	if *update {
		if err := os.WriteFile(filepath.Join(root(t), page), []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Errorf("the tables of %s are not those of the list: run go test ./internal/mutants -update", page)
	}
}

// tables are the chapters in Markdown.
func tables() string {
	var b strings.Builder
	n := 0
	for _, c := range chapters {
		fmt.Fprintf(&b, "\n## %s\n\n| # | Law | Test | It fails if |\n|---|---|---|---|\n", c.title)
		for _, l := range c.laws {
			n++
			var faults []string
			for _, m := range l.mutants {
				faults = append(faults, m.fault)
			}
			fmt.Fprintf(&b, "| %d | %s | `%s` | %s |\n", n, l.says, l.test, strings.Join(faults, "; "))
		}
	}
	return b.String() + "\n"
}

// slow reports whether the law's test takes long to build or to run: it links databases or the
// whole gateway. Together these tests take several minutes.
func (l *law) slow() bool {
	pkg, _ := l.split()
	return pkg == "" || strings.HasPrefix(pkg, "store") || pkg == "internal/faultlab" || pkg == "internal/crashtest"
}

// TestEachTestFailsWithTheMutantsOfItsLaw plants each fault and runs the law's test.
func TestEachTestFailsWithTheMutantsOfItsLaw(t *testing.T) {
	longtest.Require(t)
	all := os.Getenv("TOLLHOUSE_MUTANTS") != ""
	for _, c := range chapters {
		t.Run(c.title, func(t *testing.T) {
			for _, l := range c.laws {
				if l.slow() && !all {
					t.Logf("not planted without TOLLHOUSE_MUTANTS: %s", l.says)
					continue
				}
				for _, m := range l.mutants {
					t.Run(m.fault, func(t *testing.T) { kill(t, &l, &m) })
				}
			}
		})
	}
}

// kill runs a law's test with a fault, and fails if the test does not.
func kill(t *testing.T, l *law, m *mutant) {
	t.Helper()
	dir := t.TempDir()
	mutated, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(mutated, []byte(strings.Replace(read(t, m.file), m.text, m.replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root(t), m.file): mutated}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	pkg, names := l.split()
	pattern := "^" + strings.Join(names, "$/^") + "$"
	test := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-failfast", "-timeout=5m", "-run", pattern, "./"+pkg)
	test.Dir = root(t)
	if test.Env = os.Environ(); !l.long {
		test.Env = append(test.Env, "TOLLHOUSE_LONG=") // as everybody runs it
	}
	out, err := test.CombinedOutput()
	switch failed := regexp.MustCompile(`(?m)^(--- FAIL|panic: |fatal error: |FAIL\t\S+\t)`).Match(out); {
	case err == nil:
		t.Errorf("%s: %s passes although %s:\n%s", l.says, l.test, m.fault, out)
	case !failed || strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
		t.Errorf("%s did not run: %v\n%s", l.test, err, out)
	}
}
