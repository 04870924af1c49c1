// Package lint holds tests that read the whole tree: the rules of the code
// that no public linter checks as we mean them, and whether the documents are
// true. It exports nothing.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowance lets one place break one rule, and says why.
type allowance struct{ rule, path, subject, reason string }

// allowed are the exceptions. One that nothing needs any more fails the test.
var allowed = []allowance{
	{"panic", "upstream/upstreamtest/wire.go", "cut", "http.ErrAbortHandler is net/http's way to cut a connection"},
	{"panic", "internal/scripted/scripted.go", "play", "the same, of the vendor of whole clients"},
	{"panic", "server/server.go", "serveRoutes", "http.ErrAbortHandler is net/http's way to break off audio that is not whole"},
	{"global", "cmd/tollhouse/main.go", "version", "the linker sets it"},
	{"global", "gatewaytest/gatewaytest.go", "tests", "all that Charges gets is the test"},
}

func TestTheCodeKeepsItsRules(t *testing.T) {
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

// offences are sources that break each rule once, next to something that looks
// alike and does not.
var offences = []struct{ rule, path, source string }{
	{"float", "billing/a.go", "package billing\nvar _ = int64(1)\nfunc f(x float64) {}"},
	{"float", "billing/a.go", "package billing\nconst rate = 0.5"},
	{"panic", "chat/a.go", "package chat\nfunc f() { defer recover(); panic(1) }"},
	{"print", "chat/a.go", "package chat\nfunc f() { fmt.Fprintln(w); fmt.Println(1) }"},
	{"print", "chat/a.go", "package chat\nimport (\n\"log/slog\"\n\"log\"\n)"},
	{"global", "chat/a.go", "package chat\nvar table = []int{1}\nvar cache = map[string]int{}"},
	{"global", "chat/a.go", "package chat\nvar pool = sync.Pool{}\nvar ErrX = errors.New(\"x\")\nvar count int"},
	{"global", "chat/a.go", "package chat\nvar table = []int{1}\nfunc f() { table := 2; table++ }\nvar other = []int{1}\nfunc g() { other[0] = 2 }"},
	{"comment", "chat/a.go", "package chat\n// F is one.\nfunc F() {}\nfunc G() {}\nfunc h() {}"},
	{"comment", "chat/a.go", "package chat\n// T is one.\ntype T struct{}\nfunc (t *T) M() {}\nfunc (T) m() {}\ntype u struct{}\nfunc (u) M() {}"},
	{"comment", "chat/a.go", "package chat\n// All of these.\nconst (\nA = 1\nB = 2\n)\nvar (\nC = 1 // is one\nD = 2\n)"},
	{"init", "chat/a.go", "package chat\nfunc init() {}\ntype t struct{}\nfunc (t) init() {}"},
	{"unfinished", "chat/a.go", "package chat\n// TODO: more.\n// A TODOS list.\nfunc f() {}"},
	{"unfinished", "chat/a.go", "package chat\nvar err = errors.New(\"chat: not implemented\")\nconst x = \"XXXL\""},
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

// rule is one rule of this repository that no public linter checks as we mean it.
type rule struct {
	name   string
	reason string
	check  func(f *file) []finding
}

// rules hold for every file on its own.
var rules = []rule{
	{"float", "no floats near money: prices and balances are exact", noFloats},
	{"panic", "an error is returned, and whoever embeds the gateway decides", noPanics},
	{"print", "only a program prints; a library has a slog.Logger by a field", noPrints},
	{"global", "state lies in values that have an owner, so that two gateways share nothing", noGlobals},
	{"comment", "whoever uses a name reads what it is, its units and its errors", commentedExports},
	{"init", "a program that imports a package runs none of it unasked", noInits},
	{"unfinished", "what is in the tree is done, or it is not there", nothingUnfinished},
}

// noFloats looks at package billing and below alone, its tests included.
func noFloats(f *file) (found []finding) {
	if !strings.HasPrefix(f.path, "billing/") {
		return nil
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if n.Name == "float32" || n.Name == "float64" || n.Name == "ParseFloat" {
				found = append(found, f.find("float", n.Pos(), n.Name, n.Name))
			}
		case *ast.BasicLit:
			if v, err := strconv.ParseFloat(n.Value, 64); n.Kind == token.FLOAT && (err != nil || v != math.Trunc(v)) { // 1e9 is an integer
				found = append(found, f.find("float", n.Pos(), n.Value, n.Value))
			}
		}
		return true
	})
	return found
}

func noPanics(f *file) []finding {
	if f.test {
		return nil
	}
	return f.calls("panic", func(name string) bool { return name == "panic" })
}

func noPrints(f *file) []finding {
	if f.test || f.program() {
		return nil
	}
	found := f.calls("print", func(name string) bool {
		return name == "print" || name == "println" || strings.HasPrefix(name, "fmt.Print")
	})
	for _, i := range f.syntax.Imports {
		if i.Path.Value == `"log"` {
			found = append(found, f.find("print", i.Pos(), "log", "it imports log"))
		}
	}
	return found
}

// calls finds the calls of functions by the name that they are called by.
func (f *file) calls(rule string, banned func(name string) bool) (found []finding) {
	for _, d := range f.syntax.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name := callee(call.Fun); banned(name) {
				found = append(found, f.find(rule, call.Pos(), named(d), name))
			}
			return true
		})
	}
	return found
}

// callee is "f" or "package.f"; empty for anything else.
func callee(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name + "." + e.Sel.Name
		}
	}
	return ""
}

// named is the name of a declared function; empty for other declarations.
func named(d ast.Decl) string {
	if fn, ok := d.(*ast.FuncDecl); ok {
		return fn.Name.Name
	}
	return ""
}

// noGlobals allows package-level variables that nothing can change the meaning
// of: tables with their content, errors, pools, embedded files, and assertions of
// an interface.
func noGlobals(f *file) (found []finding) {
	if f.test {
		return nil
	}
	for _, d := range f.syntax.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			s := spec.(*ast.ValueSpec)
			for i, name := range s.Names {
				switch {
				case name.Name == "_" || s.Type != nil && callee(s.Type) == "embed.FS" || embedded(g, s):
				case i >= len(s.Values) || !constant(s.Values[i]):
					found = append(found, f.find("global", name.Pos(), name.Name, "var "+name.Name+" is neither a table, an error nor a pool"))
				case assigned(f, name):
					found = append(found, f.find("global", name.Pos(), name.Name, "var "+name.Name+" is assigned to"))
				}
			}
		}
	}
	return found
}

// embedded reports whether the linker fills the variable from a file.
func embedded(g *ast.GenDecl, s *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, s.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if strings.HasPrefix(c.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

// makers are the functions whose results are as good as constants.
var makers = []string{
	"errors.New", "fmt.Errorf", "fault.New", "fault.Wrap", "fault.Invalid", // errors
	"regexp.MustCompile", "sync.OnceValue", "sync.OnceValues", // made once, never changed
	"template.Must", "time.Date", // values
}

// constant reports whether a variable's first value is one that can last: a
// literal with content, a pool, or what a maker gives.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit, *ast.FuncLit:
		return true
	case *ast.UnaryExpr:
		return constant(e.X)
	case *ast.CompositeLit:
		return len(e.Elts) > 0 || e.Type != nil && callee(e.Type) == "sync.Pool"
	case *ast.CallExpr:
		if a, ok := e.Fun.(*ast.ArrayType); ok { // []byte("…")
			return a.Len == nil
		}
		return slices.Contains(makers, callee(e.Fun))
	}
	return false
}

// assigned reports whether the variable, or a part of it, is assigned to in its
// own file. The parser knows the scopes of one file only.
func assigned(f *file, name *ast.Ident) (yes bool) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				yes = yes || n.Tok != token.DEFINE && owner(left) != nil && owner(left).Obj == name.Obj
			}
		case *ast.IncDecStmt:
			yes = yes || owner(n.X) != nil && owner(n.X).Obj == name.Obj
		}
		return !yes
	})
	return yes
}

// owner is the variable that an expression on the left of an assignment is
// part of.
func owner(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// commentedExports demands a comment of every exported name: its own, the one at
// its line's end, or that of the group in which it is declared. A method counts if
// its type is exported too.
func commentedExports(f *file) (found []finding) {
	if f.test {
		return nil
	}
	report := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(docs, func(doc *ast.CommentGroup) bool { return doc.Text() != "" }) {
			found = append(found, f.find("comment", name.Pos(), name.Name, name.Name+" has no comment"))
		}
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiver(d).IsExported() {
				report(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					report(s.Name, s.Doc, s.Comment, d.Doc)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						report(name, s.Doc, s.Comment, d.Doc)
					}
				}
			}
		}
	}
	return found
}

// receiver is the name of the type that a method belongs to.
func receiver(d *ast.FuncDecl) *ast.Ident {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x
		default:
			return ast.NewIdent("_")
		}
	}
}

func noInits(f *file) (found []finding) {
	if f.test {
		return nil
	}
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			found = append(found, f.find("init", fn.Pos(), "init", "func init"))
		}
	}
	return found
}

// unfinished are the words by which an author puts something off.
var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b|(?i:\bnot (yet )?implemented\b)`)

// nothingUnfinished looks at the comments and the texts of a file.
func nothingUnfinished(f *file) (found []finding) {
	if f.test {
		return nil
	}
	look := func(at token.Pos, text string) {
		if word := unfinished.FindString(text); word != "" {
			found = append(found, f.find("unfinished", at, word, word))
		}
	}
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			look(c.Pos(), c.Text)
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			look(text.Pos(), text.Value)
		}
		return true
	})
	return found
}

// root is where the module lies, seen from this package.
const root = "../.."

// file is one parsed Go file.
type file struct {
	path   string // from the root, with slashes
	syntax *ast.File
	fset   *token.FileSet
	test   bool
}

// finding is one place that breaks a rule.
type finding struct {
	rule    string
	path    string
	line    int
	subject string // what the allow-list names: a function, a variable, a type
	text    string
}

func (f *file) find(rule string, at token.Pos, subject, text string) finding {
	return finding{rule, f.path, f.fset.Position(at).Line, subject, text}
}

// dir is the folder of the file; "." for the root.
func (f *file) dir() string {
	if i := strings.LastIndexByte(f.path, '/'); i >= 0 {
		return f.path[:i]
	}
	return "."
}

// program reports whether the file belongs to a program, which may print.
func (f *file) program() bool { return f.syntax.Name.Name == "main" }

// tree parses every Go file of the module.
func tree(t *testing.T) []*file {
	t.Helper()
	var files []*file
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(relative), path, nil)
		if err == nil {
			files = append(files, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// parse reads one file; from source if it is not nil.
func parse(relative, path string, source any) (*file, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, path, source, parser.ParseComments)
	return &file{path: relative, syntax: syntax, fset: fset, test: strings.HasSuffix(relative, "_test.go")}, err
}
