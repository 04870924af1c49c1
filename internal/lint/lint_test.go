// Package lint holds tests that read the whole tree: the rules of the house
// that no public linter checks as we mean them, and whether the documents are
// true. It exports nothing.
package lint

import (
	"slices"
	"testing"
)

// allowance lets one place break one rule, and says why.
type allowance struct{ rule, path, subject, reason string }

// allowed are the exceptions. One that nothing needs any more fails the test.
var allowed = []allowance{
	{"panic", "upstream/upstreamtest/wire.go", "cut", "http.ErrAbortHandler is net/http's way to cut a connection"},
	{"panic", "server/server.go", "ServeHTTP", "http.ErrAbortHandler is net/http's way to break off audio that is not whole"},
	{"panic", "server/crowd.go", "apart", "a panic of another goroutine goes on where the handler runs, for whoever recovers it there"},
	{"global", "cmd/tollhouse/version.go", "version", "the linker sets it"},
}

func TestTheTreeKeepsTheRulesOfTheHouse(t *testing.T) {
	used := make(map[allowance]bool)
	for _, f := range tree(t) {
		for _, r := range rules {
			for _, found := range r.check(f) {
				i := slices.IndexFunc(allowed, func(a allowance) bool {
					return a.rule == found.rule && a.path == found.path && a.subject == found.subject
				})
				if i >= 0 {
					used[allowed[i]] = true
					continue
				}
				t.Errorf("%s:%d: %s: %s (%s)", found.path, found.line, found.rule, found.text, r.reason)
			}
		}
	}
	for _, a := range allowed {
		if !used[a] {
			t.Errorf("nothing needs the allowance for %s of %s in %s any more (%s)", a.rule, a.subject, a.path, a.reason)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	commented, packages := map[string]bool{}, map[string]bool{}
	for _, f := range tree(t) {
		if f.test {
			continue
		}
		packages[f.dir()] = true
		if f.syntax.Doc != nil {
			commented[f.dir()] = true
		}
	}
	if len(packages) < 10 {
		t.Fatalf("found only %d packages", len(packages))
	}
	for dir := range packages {
		if !commented[dir] {
			t.Errorf("the package in %s has no package comment", dir)
		}
	}
}

// offences are sources that break each rule once, next to something that looks
// alike and does not.
var offences = []struct{ rule, path, source string }{
	{"float", "billing/a.go", "package billing\nvar _ = int64(1)\nfunc f(x float64) {}"},
	{"float", "billing/a.go", "package billing\nconst rate = 0.5"},
	{"panic", "chat/a.go", "package chat\nfunc f() { defer recover(); panic(1) }"},
	{"print", "chat/a.go", "package chat\nfunc f() { fmt.Fprintln(w); fmt.Println(1) }"},
	{"print", "chat/a.go", "package chat\nimport (\n\"log/slog\"\n\"log\"\n)"},
	{"init", "chat/a.go", "package chat\nfunc (x T) init() {}\nfunc init() {}"},
	{"global", "chat/a.go", "package chat\nvar table = []int{1}\nvar cache = map[string]int{}"},
	{"global", "chat/a.go", "package chat\nvar pool = sync.Pool{}\nvar ErrX = errors.New(\"x\")\nvar count int"},
	{"global", "chat/a.go", "package chat\nvar table = []int{1}\nfunc f() { table := 2; table++ }\nvar other = []int{1}\nfunc g() { other[0] = 2 }"},
	{"undocumented", "chat/a.go", "package chat\n// A is.\ntype A int\nfunc (a A) b() {}\nfunc (a *A) B() {}"},
	{"undocumented", "chat/a.go", "package chat\n// These are.\nconst (\nA = 1\n)\nconst (\nB = 1\n)"},
}

func TestEachRuleFindsWhatBreaksIt(t *testing.T) {
	for _, o := range offences {
		f, err := parse(o.path, o.path, o.source)
		if err != nil {
			t.Fatal(err)
		}
		var found []finding
		for _, r := range rules {
			if r.name == o.rule {
				found = r.check(f)
			}
		}
		if len(found) != 1 {
			t.Errorf("%s: found %v in\n%.200s", o.rule, found, o.source)
		}
	}
}
