package lint

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const faultsPage = "docs/faults.md"

var (
	faultRow = regexp.MustCompile(`(?m)^\| (\d+) \|.*$`)
	cited    = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)`")
)

// tests are the names of all test functions with their packages, as the page
// writes them: "upstream/openai.TestX"; those of the root stand under "gateway".
func tests(files []*file) map[string]bool {
	all := make(map[string]bool)
	for _, f := range files {
		if !f.test {
			continue
		}
		dir := f.dir()
		if dir == "." {
			dir = "gateway"
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				all[dir+"."+fn.Name.Name] = true
			}
		}
	}
	return all
}

// unproven are what is wrong with the table of faults: a row that is missing or
// names no test, and a test that is not there.
func unproven(text string, all map[string]bool, rows int) (wrong []string) {
	seen := make([]string, 0, rows)
	for _, m := range faultRow.FindAllStringSubmatch(text, -1) {
		seen = append(seen, m[1])
		tests := cited.FindAllStringSubmatch(m[0], -1)
		if len(tests) == 0 && !strings.Contains(m[0], "none yet") {
			wrong = append(wrong, "row "+m[1]+" names no test and does not say that there is none yet")
		}
		for _, name := range tests {
			if full := name[1] + "." + name[2]; !all[full] {
				wrong = append(wrong, "row "+m[1]+" names "+full+", which is not there")
			}
		}
	}
	for i := range rows {
		if n := fmt.Sprint(i + 1); !slices.Contains(seen, n) {
			wrong = append(wrong, "there is no row "+n)
		}
	}
	return wrong
}

func TestEveryFaultOfTheTableHasATestThatIsThere(t *testing.T) {
	const rows = 98
	for _, w := range unproven(read(t, faultsPage), tests(tree(t)), rows) {
		t.Errorf("%s: %s", faultsPage, w)
	}
}

func TestAFaultWithoutATestIsFound(t *testing.T) {
	text := "| 1 | a | `a/b.TestA` |\n| 2 | b | |\n| 3 | c | `a.TestGone`, `a/b.FuzzA` |\n| 4 | d | none yet |\n"
	wrong := unproven(text, map[string]bool{"a/b.TestA": true, "a/b.FuzzA": true}, 5)
	want := []string{"row 2 names no test and does not say that there is none yet", "row 3 names a.TestGone, which is not there", "there is no row 5"}
	if !slices.Equal(wrong, want) {
		t.Errorf("found %q", wrong)
	}
}
