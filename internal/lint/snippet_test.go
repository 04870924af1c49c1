package lint

import (
	"path/filepath"
	"strings"
	"testing"
)

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
