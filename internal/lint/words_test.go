package lint

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// unfinished are the words of work that is not done, put together so that this
// file does not hold them.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b|(?i:not (yet )?imple` + `mented)`)

func TestNoFileHasWordsOfUnfinishedWork(t *testing.T) {
	for _, path := range committed(t) {
		text := read(t, path)
		if bytes.ContainsRune([]byte(text), 0) { // no text
			continue
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			if word := unfinished.FindString(line); word != "" {
				t.Errorf("%s:%d: %q", path, n, word)
			}
		}
	}
}

func TestWordsOfUnfinishedWorkAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"// TO" + "DO: this": true, "is Not Imple" + "mented": true, "// FIX" + "ME": true,
		"mastodon, TODOS, fixme": false, "it implements this": false,
	} {
		if unfinished.MatchString(text) != want {
			t.Errorf("%q: found %t, want %t", text, !want, want)
		}
	}
}
