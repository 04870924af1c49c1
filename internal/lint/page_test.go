package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
