package lint

import (
	"go/ast"
	"go/token"
	"math"
	"strconv"
	"strings"
)

// rule is one habit of the house that no public linter checks as we mean it.
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
	{"init", "importing a package does nothing", noInit},
	{"global", "state lies in values that have an owner, so that two gateways share nothing", noGlobals},
	{"undocumented", "every exported name says what it is", documented},
}

// noFloats looks at the room of money alone, its tests included.
func noFloats(f *file) (found []finding) {
	if !f.in("billing") {
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

func noInit(f *file) (found []finding) {
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			found = append(found, f.find("init", fn.Pos(), "init", "func init"))
		}
	}
	return found
}

// documented looks for a comment at every exported name that an importer can
// use; a comment on a group serves the whole group.
func documented(f *file) (found []finding) {
	if f.test || f.program() {
		return nil
	}
	miss := func(at token.Pos, name string) {
		found = append(found, f.find("undocumented", at, name, name+" has no comment"))
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && ast.IsExported(receiver(d)) {
				miss(d.Pos(), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, name := range bare(d) {
				miss(name.Pos(), name.Name)
			}
		}
	}
	return found
}

// receiver is the name of a method's type; that of a function is itself.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// bare are the exported names of a declaration without a comment.
func bare(d *ast.GenDecl) (names []*ast.Ident) {
	if d.Doc != nil {
		return nil
	}
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && s.Comment == nil {
				names = append(names, s.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && s.Doc == nil && s.Comment == nil {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
