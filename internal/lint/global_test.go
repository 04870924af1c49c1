package lint

import (
	"go/ast"
	"go/token"
	"slices"
)

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
				case name.Name == "_" || s.Type != nil && callee(s.Type) == "embed.FS":
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
