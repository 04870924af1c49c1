package messages

import "slices"

// droppedFields gathers the names of fields that a translation leaves out, each
// once. They end up in a header, so what is no plain name, or too much, becomes
// "others".
type droppedFields struct {
	names  []string
	others bool
}

// note adds a field.
func (d *droppedFields) note(name string) {
	const most, longest = 32, 80
	switch {
	case slices.Contains(d.names, name):
	case len(d.names) == most, len(name) > longest, slices.ContainsFunc([]byte(name), notInName):
		d.others = true
	default:
		d.names = append(d.names, name)
	}
}

// list are the names in the order in which they came, "others" last.
func (d *droppedFields) list() []string {
	const others = "others"
	if d.others && !slices.Contains(d.names, others) {
		return append(slices.Clone(d.names), others)
	}
	return slices.Clip(d.names)
}

// notInName reports whether a byte has no place in a field's name.
func notInName(b byte) bool { return b <= ' ' || b > '~' || b == ',' || b == '"' }
