package lint

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goName is a Go name, with the package or the type that it belongs to.
var goName = regexp.MustCompile(`^[A-Za-z]\w*(?:\.[A-Za-z]\w*)*$`)

// names are the identifiers of the files.
func names(files []*file) map[string]bool {
	used := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name] = true
			}
			return true
		})
	}
	return used
}

// absent are the spans of code in a page that name a file, a folder or a Go name and that
// the repository does not have. A path can begin at any folder. Flags and patterns are
// not names.
func absent(p page, paths []string, used map[string]bool) (found []string) {
	has := map[string]bool{}
	for _, name := range paths {
		for ; name != "." && name != "/"; name = path.Dir(name) {
			has[name] = true
			for rest := name; rest != ""; _, rest, _ = strings.Cut(rest, "/") {
				has[rest] = true
			}
		}
	}
	for _, s := range span.FindAllString(p.text, -1) {
		s = strings.Trim(s, "`")
		switch {
		case strings.ContainsAny(s, " {}*:<>"):
		case strings.HasSuffix(s, ".go"), strings.Contains(s, "/") && !strings.HasPrefix(s, "/"):
			if !has[strings.TrimSuffix(s, "/")] {
				found = append(found, s)
			}
		case goName.MatchString(s):
			for part := range strings.SplitSeq(s, ".") {
				if !used[part] && !has[part] {
					found = append(found, s)
					break
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestEveryNameInTheMapOfTheCodeExists(t *testing.T) {
	p := readPage("ARCHITECTURE.md", read(t, "ARCHITECTURE.md"))
	for _, s := range absent(p, committed(t), names(tree(t))) {
		t.Errorf("ARCHITECTURE.md names `%s`, which does not exist", s)
	}
}

func TestANameThatDoesNotExistIsFound(t *testing.T) {
	f, err := parse("a/b.go", "a/b.go", "package b\n\nfunc F() {}\n")
	if err != nil {
		t.Fatal(err)
	}
	p := readPage("ARCHITECTURE.md", "`a/b.go` `b.go` `a` `b.F` `F` `--flag` `a/c.go` `c.go` `b.G` `G` `a/*`\n")
	found := absent(p, []string{"a/b.go"}, names([]*file{f}))
	if want := []string{"G", "a/c.go", "b.G", "c.go"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
