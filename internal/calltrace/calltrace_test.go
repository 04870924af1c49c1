// Package calltrace counts the way of a request through the code: the functions that it
// enters, how often it changes the package, and how often it comes back to the root.
package calltrace

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tollhouse-ai/gateway"

// A program is an instrumented copy of the product. It exists only in an overlay of the Go
// command: no file of the repository is written.
type program struct {
	functions []function
	overlay   map[string]string // path in the module -> file that replaces it
}

// function is one that the product declares.
type function struct {
	Package string // below the module; empty for the root
	Name    string // with its receiver
}

func (f function) String() string {
	if f.Package == "" {
		return "gateway." + f.Name
	}
	return f.Package + "." + f.Name
}

// instrument makes an overlay in which each function of the packages that the server and the
// drivers need calls the recorder as it is entered.
func instrument(t *testing.T, root, dir string) *program {
	t.Helper()
	p := &program{overlay: make(map[string]string)}
	for _, name := range []string{"recorder/recorder.go", "drive/main.go"} {
		source, err := filepath.Abs(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		p.overlay[filepath.Join(root, "internal/calltrace", name)] = source
	}
	list := exec.Command("go", "list", "-deps", "-f", `{{with .Module}}{{if .Main}}{{$.ImportPath}} {{$.Dir}}{{range $.GoFiles}} {{.}}{{end}}{{end}}{{end}}`,
		"./server", "./upstream/openai", "./upstream/dashscope", "./store/memory")
	list.Dir = root
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(packages)) {
		fields := strings.Fields(line)
		for _, name := range fields[2:] {
			source := filepath.Join(fields[1], name)
			target := filepath.Join(dir, fmt.Sprintf("%d.go", len(p.overlay)))
			text := p.rewrite(t, strings.TrimPrefix(strings.TrimPrefix(fields[0], module), "/"), source)
			if err := os.WriteFile(target, text, 0o600); err != nil {
				t.Fatal(err)
			}
			p.overlay[source] = target
		}
	}
	return p
}

// rewrite returns the text of a file whose functions call the recorder.
func (p *program) rewrite(t *testing.T, pkg, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	type insertion struct {
		at   int
		text string
	}
	var insertions []insertion
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		at := files.Position(f.Body.Lbrace).Offset + 1
		insertions = append(insertions, insertion{at, fmt.Sprintf("defer recorder__.Enter(%d)();", len(p.functions))})
		p.functions = append(p.functions, function{pkg, nameOf(f)})
	}
	if len(insertions) == 0 {
		return text
	}
	insertions = slices.Insert(insertions, 0, insertion{
		files.Position(file.Name.End()).Offset, `; import recorder__ "` + module + `/internal/calltrace/recorder"`,
	})
	var out bytes.Buffer
	from := 0
	for _, i := range insertions {
		out.Write(text[from:i.at])
		out.WriteString(i.text)
		from = i.at
	}
	out.Write(text[from:])
	return out.Bytes()
}

// nameOf is the name of a function with its receiver.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	kind := f.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// call is one entry of a function, as testdata/recorder prints it.
type call struct {
	Function  int
	Caller    int // index of the call that entered it; -1 for the first of a goroutine
	Goroutine uint64
}

// trace builds the program, runs it, and returns the calls of each scenario.
func (p *program) trace(t *testing.T, root, dir string) map[string][]call {
	t.Helper()
	overlay, err := json.Marshal(map[string]any{"Replace": p.overlay})
	if err != nil {
		t.Fatal(err)
	}
	file, drive := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "drive")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", file, "-o", drive, "./internal/calltrace/drive")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.Command(drive)
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var traces map[string][]call
	if err := json.Unmarshal(out, &traces); err != nil {
		t.Fatal(err)
	}
	return traces
}

// A way is what a reader has to follow for one request.
type way struct {
	Calls     int // functions entered
	Functions int // different ones
	Packages  int // how often the next function entered is of another package
	Returns   int // how often it is of the root then
}

// leaves are packages of small helpers that know nothing of a request: how JSON is read, how
// tokens are counted, how an error or a name is spelled. The way without them is that through
// the pipeline.
var leaves = []string{
	"fault", "internal/dropped", "internal/rawjson", "internal/rule", "internal/safetext", "internal/tokencount",
	"secret", "upstream/internal/header",
}

func (p *program) way(calls []call, without []string) way {
	var w way
	seen := make(map[int]bool)
	last := make(map[uint64]string) // of a goroutine: the package of the function that it entered last
	for _, c := range calls {
		pkg := p.functions[c.Function].Package
		if slices.Contains(without, pkg) {
			continue
		}
		w.Calls++
		seen[c.Function] = true
		if from, ok := last[c.Goroutine]; ok && from != pkg {
			w.Packages++
			if pkg == "" {
				w.Returns++
			}
		}
		last[c.Goroutine] = pkg
	}
	w.Functions = len(seen)
	return w
}

// print writes the calls as a tree, without the leaves.
func (p *program) print(w *strings.Builder, calls []call) {
	depth := make([]int, len(calls))
	for i, c := range calls {
		if c.Caller >= 0 {
			depth[i] = depth[c.Caller] + 1
		}
		if f := p.functions[c.Function]; !slices.Contains(leaves, f.Package) {
			fmt.Fprintf(w, "%s%s\n", strings.Repeat("  ", depth[i]), f)
		}
	}
}

var tree = flag.String("tree", "", "print the calls of a scenario: chat, stream, video or embeddings")

// TestTheWayOfARequestGetsNoLonger holds the way of four requests against bounds. A bound that
// is not reached any more is lowered by the change that shortened the way; it never rises.
//
//	go test ./internal/calltrace -v -tree chat
func TestTheWayOfARequestGetsNoLonger(t *testing.T) {
	bounds := []struct {
		scenario        string
		whole, pipeline way
	}{
		{"chat", way{1240, 443, 348, 34}, way{472, 360, 182, 31}},
		{"stream", way{3034, 547, 648, 38}, way{770, 454, 304, 36}},
		{"video", way{2478, 471, 488, 51}, way{736, 406, 279, 47}},
		{"embeddings", way{932, 406, 271, 35}, way{435, 333, 161, 32}},
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := instrument(t, root, dir)
	traces := p.trace(t, root, dir)
	for _, b := range bounds {
		t.Run(b.scenario, func(t *testing.T) {
			calls := traces[b.scenario]
			for _, of := range []struct {
				name    string
				without []string
				most    way
			}{{"with leaf helpers", nil, b.whole}, {"the pipeline", leaves, b.pipeline}} {
				got := p.way(calls, of.without)
				t.Logf("%s: %d calls, %d functions, %d changes of package, %d returns into the root", of.name, got.Calls, got.Functions, got.Packages, got.Returns)
				if got.Calls == 0 || got.Calls > of.most.Calls || got.Functions > of.most.Functions || got.Packages > of.most.Packages || got.Returns > of.most.Returns {
					t.Errorf("%s: got %+v, want at most %+v", of.name, got, of.most)
				}
			}
			if *tree == b.scenario {
				var text strings.Builder
				p.print(&text, calls)
				t.Log("\n" + text.String())
			}
		})
	}
}
