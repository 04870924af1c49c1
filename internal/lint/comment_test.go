package lint

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxComment is how many words a sentence of a comment can have, and maxTestComment one of
// a comment in a test.
const maxComment, maxTestComment = 25, 32

// held are the folders whose comments are held to these numbers.
var held = []string{
	"auth/", "chat/", "embeddings/", "fault/", "idempotency/", "images/", "internal/", "messages/", "rerank/",
	"responses/", "secret/", "server/", "speech/", "upstream/", "video/", "webhook/",
}

// notHeld are folders within them that are not held to these numbers yet.
var notHeld = []string{"internal/ledger"}

// commentStop ends a sentence of a comment, in which a name in small letters can begin one.
var commentStop = regexp.MustCompile(`[.!?][)*"”]*\s+`)

// commentSentences are the sentences of a comment, without its code, its headings and the
// output of an example.
func commentSentences(g *ast.CommentGroup) (all []string) {
	var lines []string
	end := func() {
		text := strings.Join(lines, " ")
		for at := commentStop.FindStringIndex(text); at != nil; at = commentStop.FindStringIndex(text) {
			all, text = append(all, text[:at[1]]), text[at[1]:]
		}
		all, lines = append(all, text), nil
	}
	for line := range strings.Lines(g.Text()) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "Output:"):
			return all
		case text == "" || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "\t"):
			end()
			continue
		case listItem.MatchString(text):
			end()
			text = listItem.ReplaceAllString(text, "")
		}
		lines = append(lines, text)
	}
	end()
	return all
}

// longComments are the sentences of a file's comments that have more than so many words.
func longComments(f *file, most int) (found []string) {
	for _, g := range f.syntax.Comments {
		for _, s := range commentSentences(g) {
			if words(s) > most {
				found = append(found, strings.TrimSpace(s))
			}
		}
	}
	return found
}

func TestEverySentenceOfACommentIsShort(t *testing.T) {
	for _, f := range tree(t) {
		in := func(folder string) bool { return strings.HasPrefix(f.path, folder) }
		if !slices.ContainsFunc(held, in) || slices.ContainsFunc(notHeld, in) {
			continue
		}
		most := maxComment
		if f.test {
			most = maxTestComment
		}
		for _, s := range longComments(f, most) {
			t.Errorf("%s: a sentence of a comment has %d words, want at most %d: %s", f.path, words(s), most, s)
		}
	}
}

func TestALongSentenceOfACommentIsFound(t *testing.T) {
	short := "word" + strings.Repeat(" word", maxComment-1)
	f, err := parse("chat/a.go", "chat/a.go", strings.Join([]string{
		"// Package chat: " + short + ".", "//", "// # " + short + " heading", "//",
		"// " + short + ".", "// " + short + " it. " + short, "//", "//\t" + short + " code", "//",
		"//   - " + short, "//   - " + short + " item",
		"package chat", "", "const a = 1 // " + short + " beside", "",
		"func ExampleA() {", "// Output:", "// " + short + " printed", "}",
	}, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Package chat: " + short + ".", short + " it.", short + " item", short + " beside"}
	if got := longComments(f, maxComment); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
