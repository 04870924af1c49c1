package lint

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// moved is the line of a page at an old address.
var moved = regexp.MustCompile(`(?m)^This page has moved to \[`)

// oldPages are the addresses that pages had before docs/ had folders. Links to them lie
// outside of the repository.
var oldPages = strings.Fields(`
	adding-an-endpoint benchmarks billing clients configuration deployment design embedding fault-lab faults
	getting-started http-api limits mcp messages observability openapi operations postgres rerank responses
	upstreams vendors video webhooks
	clients/ai-sdk clients/claude-code clients/codex clients/cursor clients/langchain clients/llamaindex
	clients/n8n clients/open-webui`)

func TestEveryOldAddressOfAPageLeadsToTheNewOne(t *testing.T) {
	all := pages(t)
	at := func(name string) int { return slices.IndexFunc(all, func(p page) bool { return p.path == name }) }
	for _, name := range oldPages {
		i := at("docs/" + name + ".md")
		if i < 0 || !moved.MatchString(all[i].text) {
			t.Errorf("docs/%s.md does not say where the page has moved", name)
			continue
		}
		for _, m := range link.FindAllStringSubmatch(all[i].text, -1) {
			if to := at(path.Join("docs", path.Dir(name), m[1])); to < 0 || moved.MatchString(all[to].text) {
				t.Errorf("docs/%s.md leads to %s, which is no page", name, m[1])
			}
		}
	}
}

func TestNothingInTheRepositoryUsesAnOldAddress(t *testing.T) {
	all := pages(t)
	old := func(name string) bool {
		i := slices.IndexFunc(all, func(p page) bool { return p.path == name })
		return i >= 0 && moved.MatchString(all[i].text)
	}
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if name := path.Join(path.Dir(p.path), to); to != "" && old(name) {
				t.Errorf("%s links to %s, which has moved", p.path, name)
			}
		}
	}
	for _, f := range tree(t) {
		for _, group := range f.syntax.Comments {
			for _, m := range mention.FindAllStringSubmatch(group.Text(), -1) {
				if old(m[1]) {
					t.Errorf("%s: a comment names %s, which has moved", f.path, m[1])
				}
			}
		}
	}
}
