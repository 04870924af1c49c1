package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

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

// in reports whether the file lies in one of the folders or below.
func (f *file) in(folders ...string) bool {
	for _, folder := range folders {
		if strings.HasPrefix(f.path, folder+"/") {
			return true
		}
	}
	return false
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
