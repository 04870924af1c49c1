package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	head = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// anchors are the names by which a page's headings are linked to.
func anchors(p page) (names []string) {
	for _, m := range head.FindAllStringSubmatch(p.text, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		names = append(names, name)
	}
	return names
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
