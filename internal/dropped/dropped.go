// Package dropped gathers the names of request fields that do not reach an
// upstream, for the header X-Gateway-Dropped.
package dropped

import "slices"

// Fields are names of fields, each once. Some of them are the caller's own, and
// all end up in a header: what is no plain name, or too much, becomes "others".
// The zero Fields has none; it is not safe for concurrent use.
type Fields struct {
	names  []string
	others bool
}

// Note adds a field.
func (d *Fields) Note(name string) {
	const most, longest = 32, 80
	switch {
	case slices.Contains(d.names, name):
	case len(d.names) == most, len(name) > longest, name == "", slices.ContainsFunc([]byte(name), notInName):
		d.others = true
	default:
		d.names = append(d.names, name)
	}
}

// Sort puts the names in the order of their bytes.
func (d *Fields) Sort() { slices.Sort(d.names) }

// List are the names in the order in which they came, "others" last.
func (d *Fields) List() []string {
	const others = "others"
	if d.others && !slices.Contains(d.names, others) {
		return append(slices.Clone(d.names), others)
	}
	return slices.Clip(d.names)
}

// notInName reports whether a byte has no place in a field's name.
func notInName(b byte) bool { return b <= ' ' || b > '~' || b == ',' || b == '"' }

// Bounded are the names of several lists as [Fields] has them.
func Bounded(lists ...[]string) []string {
	var all Fields
	for _, list := range lists {
		for _, name := range list {
			all.Note(name)
		}
	}
	return all.List()
}
