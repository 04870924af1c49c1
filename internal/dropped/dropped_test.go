package dropped

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestNamesThatFitNoHeaderBecomeOthers(t *testing.T) {
	many := make([]string, 200_000)
	for i := range many {
		many[i] = fmt.Sprintf("x%06d", i)
	}
	for _, c := range []struct {
		name        string
		lists, want []string
	}{
		{"none", nil, nil},
		{"plain names, each once", []string{"speed", "user", "speed"}, []string{"speed", "user"}},
		{"too many", many, append(slices.Clone(many[:32]), "others")},
		{"too long", []string{strings.Repeat("a", 81), "b"}, []string{"b", "others"}},
		{"not ASCII", []string{"größe", "b"}, []string{"b", "others"}},
		{"a line break", []string{"a\r\nb"}, []string{"others"}},
		{"a comma", []string{"a,b"}, []string{"others"}},
		{"empty", []string{""}, []string{"others"}},
		{"a field called others", []string{"others", "é"}, []string{"others"}},
	} {
		if got := Bounded(c.lists[:len(c.lists)/2], c.lists[len(c.lists)/2:]); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
