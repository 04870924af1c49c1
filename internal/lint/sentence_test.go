package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxSentence is how many words a sentence of the documents can have.
const maxSentence = 25

// unclear are phrases that no page needs, with what to write instead. Readers had to read
// their sentences twice.
var unclear = []struct {
	phrase  *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\bof which\b`), "a sentence of its own"},
	{regexp.MustCompile(`(?i)\blikewise\b`), "the verb again, or \"too\""},
	{regexp.MustCompile(`(?i)\bthat is so\b`), "what holds"},
	{regexp.MustCompile(`(?i)\bthe same by\b`), "the verb again"},
	{regexp.MustCompile(`(?i)\bfor none\b`), "\"without one\""},
	{regexp.MustCompile(`(?i)\b(?:has|have) (?:it|them) none\b`), "\"lacks it\""},
	{regexp.MustCompile(`(?i)\bthat (?:is|are) none\b`), "\"that is no …\""},
	{regexp.MustCompile(`\b(?:he|him|his)\b`), "\"they\", or the customer, client or operator"},
	{regexp.MustCompile(`(?i)\bpictures?\b`), "\"image\""},
	{regexp.MustCompile(`(?i)\bclients? (?:leaves?|left)\b`), "\"disconnects\""},
	{regexp.MustCompile(`(?i)\bsays no (?:word|more)\b`), "\"reveals nothing\""},
	{regexp.MustCompile(`(?i)\bas if nothing\b`), "what holds"},
	{regexp.MustCompile(`(?i)\bin the place of\b`), "\"instead of\""},
}

var (
	span     = regexp.MustCompile("`[^`]*`")
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	listItem = regexp.MustCompile(`^(?:[-*]|\d+\.) `)
	fullStop = regexp.MustCompile(`[.!?][)*"”]*\s+[^a-z\s]`)
	word     = regexp.MustCompile(`[\pL\pN]`)
	ruler    = regexp.MustCompile(`^\|(?:[ :]*-+[ :]*\|)+\s*$`)
)

// paragraphs are the running texts of a page: its paragraphs, list items and cells of
// tables, without headings and code. A span of code is one word, which can begin a sentence.
func paragraphs(p page) (all []string) {
	var lines []string
	end := func() {
		if len(lines) > 0 {
			all, lines = append(all, linked.ReplaceAllString(strings.Join(lines, " "), "$1")), nil
		}
	}
	for line := range strings.Lines(p.text) {
		line = span.ReplaceAllString(strings.TrimSpace(line), "Code")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			end()
			continue
		case strings.HasPrefix(line, "|"):
			end()
			// A semicolon stands between the items of a cell.
			for item := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == '|' || r == ';' }) {
				all = append(all, linked.ReplaceAllString(item, "$1"))
			}
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

func TestEverySentenceOfTheDocumentsIsShortAndClear(t *testing.T) {
	for _, p := range pages(t) {
		if p.path != "README.md" && p.path != "ARCHITECTURE.md" && !strings.HasPrefix(p.path, "docs/") {
			continue
		}
		for _, s := range long(p) {
			t.Errorf("%s: a sentence has %d words, want at most %d: %s", p.path, words(s), maxSentence, s)
		}
		for _, text := range paragraphs(p) {
			for _, u := range unclear {
				if u.phrase.MatchString(text) {
					t.Errorf("%s: %q is unclear, write %s: %s", p.path, u.phrase.FindString(text), u.instead, text)
				}
			}
		}
	}
}

func TestEveryPageOfTheDocumentsBeginsForANewcomer(t *testing.T) {
	for _, p := range pages(t) {
		folder := strings.Split(p.path, "/")
		if folder[0] != "docs" || len(folder) < 3 || folder[1] == "clients" {
			continue // such as those that say where a page has moved to
		}
		text, _, found := strings.Cut(read(t, p.path), "\n```")
		if strings.Contains(text, "\n## ") || !found {
			t.Errorf("%s: no command stands before the first chapter", p.path)
		}
		n := 0
		for _, paragraph := range paragraphs(page{text: text}) {
			n += len(sentences(strings.TrimSpace(paragraph)))
		}
		if n < 4 || n > 9 {
			t.Errorf("%s: %d sentences stand before the first command, want about five", p.path, n)
		}
	}
}

func TestEveryTableOfTheDocumentsHasAHeader(t *testing.T) {
	for _, p := range pages(t) {
		before := ""
		for line := range strings.Lines(p.text) {
			if ruler.MatchString(line) && !strings.HasPrefix(before, "|") {
				t.Errorf("%s: no row of names stands above %q", p.path, strings.TrimSpace(line))
			}
			before = line
		}
	}
}

func TestALongSentenceIsFound(t *testing.T) {
	short := "Word" + strings.Repeat(" word", maxSentence-1)
	p := readPage("docs/a.md", strings.Join([]string{
		"# " + short + " heading",
		short + ". " + short + " (it.",
		"", "- " + short, "- `a b c` " + short, "",
		"| " + short + " cell | " + short + "; next |", "", "```sh", short + " code", "```", "",
		"Short.", short + " [a b](c.md).",
	}, "\n"))
	want := []string{short + " (it.", "Code " + short, short + " cell", short + " a b."}
	if got := long(p); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
