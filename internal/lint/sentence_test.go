package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxSentence is how many words a sentence of the documents can have. Most should have
// fewer than 25.
const maxSentence = 32

var (
	span     = regexp.MustCompile("`[^`]*`")
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	listItem = regexp.MustCompile(`^(?:[-*]|\d+\.) `)
	fullStop = regexp.MustCompile(`[.!?][)*"”]*\s+[^a-z\s]`)
	word     = regexp.MustCompile(`[\pL\pN]`)
)

// paragraphs are the running texts of a page: its paragraphs and list items, without
// headings, tables and code. A span of code is one word, which can begin a sentence.
func paragraphs(p page) (all []string) {
	var lines []string
	end := func() {
		if len(lines) > 0 {
			text := span.ReplaceAllString(strings.Join(lines, " "), "Code")
			all, lines = append(all, linked.ReplaceAllString(text, "$1")), nil
		}
	}
	for line := range strings.Lines(p.text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#"):
			end()
			continue
		case listItem.MatchString(line):
			end()
			line = listItem.ReplaceAllString(line, "")
		}
		lines = append(lines, line)
	}
	end()
	return all
}

// sentences are those of a text. A sentence ends at a full stop before anything but a
// small letter.
func sentences(text string) (all []string) {
	for {
		at := fullStop.FindStringIndex(text)
		if at == nil {
			return append(all, text)
		}
		end := at[0] + 1
		all, text = append(all, text[:end]), text[end:]
	}
}

// words is the number of words of a sentence. A dash or a sign by itself is none.
func words(sentence string) (n int) {
	for _, field := range strings.Fields(sentence) {
		if word.MatchString(field) {
			n++
		}
	}
	return n
}

// long are the sentences of a page that have more words than maxSentence.
func long(p page) (found []string) {
	for _, text := range paragraphs(p) {
		for _, s := range sentences(text) {
			if words(s) > maxSentence {
				found = append(found, strings.TrimSpace(s))
			}
		}
	}
	return found
}

func TestNoSentenceOfTheDocumentsIsTooLong(t *testing.T) {
	for _, p := range pages(t) {
		if p.path != "README.md" && p.path != "ARCHITECTURE.md" && !strings.HasPrefix(p.path, "docs/") {
			continue
		}
		for _, s := range long(p) {
			t.Errorf("%s: a sentence has %d words, want at most %d: %s", p.path, words(s), maxSentence, s)
		}
	}
}

func TestALongSentenceIsFound(t *testing.T) {
	short := "Word" + strings.Repeat(" word", maxSentence-1)
	p := readPage("docs/a.md", strings.Join([]string{
		"# " + short + " heading",
		short + ". " + short + " (it.",
		"", "- " + short, "- `a b c` " + short, "",
		"| " + short + " cell |", "", "```sh", short + " code", "```", "",
		"Short.", short + " [a b](c.md).",
	}, "\n"))
	want := []string{short + " (it.", "Code " + short, short + " a b."}
	if got := long(p); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
