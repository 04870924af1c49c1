package operation

import (
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
)

// Word is a word in the ids of vendors' models that says what they are for.
type Word struct {
	Text  string // in lower case
	Whole bool   // it stands between separators; else it is anywhere in the id
}

// In reports whether an id in lower case has the word.
func (w Word) In(id string) bool {
	if !w.Whole {
		return strings.Contains(id, w.Text)
	}
	words := strings.FieldsFunc(id, func(c rune) bool { return strings.ContainsRune("-_./:", c) })
	return slices.Contains(words, w.Text)
}

// Members is a [Spec.Probe] or [Spec.Example] that is the same for every model.
func Members(text string) func(model string) string { return func(string) string { return text } }

// DemoModel is a simulated model, and what it would cost.
type DemoModel struct {
	ID    string
	Rates []billing.Rate
}
