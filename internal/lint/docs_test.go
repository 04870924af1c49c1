package lint

import (
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// page is a Markdown file.
type page struct {
	path  string // from the root, with slashes
	text  string // without fenced blocks
	fence []fence
}

// fence is a fenced block of a page.
type fence struct{ language, text string }

// committed are the files that are in the repository or would be by the next
// commit, from the root.
func committed(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("this is no clone of the repository, so there is no list of its files: %v", err)
	}
	return strings.Fields(string(out))
}

// pages are the Markdown files of the repository.
func pages(t *testing.T) (all []page) {
	t.Helper()
	for _, path := range committed(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		all = append(all, readPage(path, read(t, path)))
	}
	if len(all) < 10 {
		t.Fatalf("found only %d pages", len(all))
	}
	return all
}

// read is the content of a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func readPage(path, content string) page {
	p := page{path: path}
	inside := false
	for line := range strings.Lines(content) {
		language, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !inside:
			p.fence = append(p.fence, fence{language: strings.TrimSpace(language)})
			inside = true
		case isFence:
			inside = false
		case inside:
			p.fence[len(p.fence)-1].text += line
		default:
			p.text += line
		}
	}
	return p
}

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	head = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// anchors are the names by which a page's headings are linked to.
func anchors(p page) (names []string) {
	for _, m := range head.FindAllStringSubmatch(p.text, -1) {
		names = append(names, anchor(m[1]))
	}
	return names
}

// anchor is the name by which a heading is linked to.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// dead are the links of a page that lead nowhere in the repository.
func dead(p page, all []page, exists func(string) bool) (links []string) {
	for _, m := range link.FindAllStringSubmatch(p.text, -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		to := p.path
		if target != "" {
			to = path.Join(path.Dir(p.path), target)
		}
		i := slices.IndexFunc(all, func(q page) bool { return q.path == to })
		switch {
		case !exists(to):
			links = append(links, m[1])
		case anchor != "" && (i < 0 || !slices.Contains(anchors(all[i]), anchor)):
			links = append(links, m[1])
		}
	}
	return links
}

func TestEveryLinkOfTheDocumentsLeadsSomewhere(t *testing.T) {
	all := pages(t)
	exists := func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	}
	for _, p := range all {
		for _, l := range dead(p, all, exists) {
			t.Errorf("%s: the link %s leads nowhere", p.path, l)
		}
	}
}

func TestADeadLinkIsFound(t *testing.T) {
	a := readPage("docs/a.md", "# A page\n[good](b.md#who-pays-1) [good](#a-page) [far](https://example.com/x)\n```\n[no link](z.md)\n```\n[bad](c.md) [bad](b.md#d)")
	b := readPage("docs/b.md", "## Who pays? (1)\n")
	found := dead(a, []page{a, b}, func(p string) bool { return p == "docs/a.md" || p == "docs/b.md" })
	if want := []string{"c.md", "b.md#d"}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// plain is Go source without indentation and empty lines, for comparing.
func plain(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString("\n" + line)
		}
	}
	return b.String() + "\n"
}

// sources are all Go files of the repository, plain.
func sources(t *testing.T) (all []string) {
	t.Helper()
	for _, path := range committed(t) {
		if filepath.Ext(path) == ".go" {
			all = append(all, plain(read(t, path)))
		}
	}
	return all
}

// contained reports whether one of the sources has the snippet's lines, one
// after the other.
func contained(all []string, snippet string) bool {
	for _, s := range all {
		if strings.Contains(s, plain(snippet)) {
			return true
		}
	}
	return false
}

func TestEveryGoSnippetOfTheDocumentsIsCodeOfThisRepository(t *testing.T) {
	all, found := sources(t), 0
	for _, p := range pages(t) {
		for _, f := range p.fence {
			if f.language != "go" {
				continue
			}
			found++
			if !contained(all, f.text) {
				t.Errorf("%s: no file has these lines:\n%s", p.path, f.text)
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d snippets", found)
	}
}

func TestASnippetThatIsNowhereIsFound(t *testing.T) {
	all := []string{plain("func f() {\n\ta := 1\n\n\tb := 2\n}\n")}
	if !contained(all, "a := 1\nb := 2\n") {
		t.Error("lines that are there were not found")
	}
	for _, snippet := range []string{"b := 2\na := 1\n", "a := 11\n", "= 1\n"} {
		if contained(all, snippet) {
			t.Errorf("%q was found", snippet)
		}
	}
}

// The commands that set everything up on a machine with only Go on it.
var commands = []string{"go run ./cmd/tollhouse serve --demo", "go test ./..."}

func TestTheReadmeHasExactlyTwoCommands(t *testing.T) {
	var found []string
	for _, f := range readPage("README.md", read(t, "README.md")).fence {
		if f.language != "go" && f.language != "" {
			found = append(found, strings.Split(strings.TrimSpace(f.text), "\n")...)
		}
	}
	if !slices.Equal(found, commands) {
		t.Errorf("the commands are %q, want %q", found, commands)
	}
}

func TestTheProgramInTheReadmeIsTheExample(t *testing.T) {
	program := read(t, "examples/embed/main.go")
	for _, f := range readPage("README.md", read(t, "README.md")).fence {
		if f.language == "go" && f.text != program {
			t.Errorf("the README shows\n%s\nwant examples/embed/main.go:\n%s", f.text, program)
		}
	}
	_, main, _ := strings.Cut(program, "func main() {\n")
	main, _, _ = strings.Cut(main, "\n}\n")
	if n := strings.Count(main, "\n") + 3; n != 12 {
		t.Errorf("the program's main has %d lines, not twelve", n)
	}
}

// mention is a page of docs that a comment names, with the heading that it gives.
var mention = regexp.MustCompile(`\b(docs/[a-z/-]+\.md)(?:, (\p{Lu}[^).;:]*))?`)

// missing are the pages and headings that the comments of a file name and that are
// not there.
func missing(f *file, all []page) (names []string) {
	for _, group := range f.syntax.Comments {
		for _, m := range mention.FindAllStringSubmatch(strings.Join(strings.Fields(group.Text()), " "), -1) {
			i := slices.IndexFunc(all, func(p page) bool { return p.path == m[1] })
			if i < 0 || m[2] != "" && !slices.Contains(anchors(all[i]), anchor(m[2])) {
				names = append(names, m[0])
			}
		}
	}
	return names
}

func TestEveryPageThatACommentNamesIsThere(t *testing.T) {
	all := pages(t)
	for _, f := range tree(t) {
		for _, m := range missing(f, all) {
			t.Errorf("%s: there is no %q", f.path, m)
		}
	}
}

func TestAPageThatIsNotThereIsFound(t *testing.T) {
	f, err := parse("a.go", "a.go", "package a\n\n// F is bounded (docs/a.md, Who\n// pays?). See docs/a.md, docs/b.md and docs/a.md, What pays.\nfunc F() {}\n")
	if err != nil {
		t.Fatal(err)
	}
	found := missing(f, []page{readPage("docs/a.md", "# A page\n## Who pays?\n")})
	if want := []string{"docs/b.md", "docs/a.md, What pays"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

const faultsPage = "docs/reference/faults.md"

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
