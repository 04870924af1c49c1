package rawjson

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Rules say what makes an otherwise valid request document ambiguous
// (decisions.md, Bodies). The zero Rules, like nil, allow everything that JSON
// allows.
type Rules struct {
	// Unique refuses a repeated name at the top level and directly inside the
	// top-level objects named in Nested.
	Unique bool
	// Billed are ASCII names of which no case variant may stand at those levels.
	Billed []string
	// Nested are the top-level objects whose members obey the same rules.
	Nested []string
}

// nests reports whether the rules hold inside the top-level object called name.
func (rules *Rules) nests(name string) bool {
	return rules != nil && slices.Contains(rules.Nested, name)
}

// level is the names of one object that the rules hold for.
type level struct {
	names []string
	set   map[string]struct{} // the same, once they are many
}

// many is from how many names on a search through all of them for every new
// one would let a caller buy quadratic time with a small body.
const many = 32

// check refuses a name that repeats an earlier one of the level or is a case
// variant of a billed name, and remembers it.
func (l *level) check(rules *Rules, name string, key Span) error {
	if rules == nil {
		return nil
	}
	if rules.Unique && !l.add(name) {
		return &SyntaxError{int64(key.Start), fmt.Sprintf("the field %q is given twice", clip(name))}
	}
	for _, billed := range rules.Billed {
		// A folded letter may take more bytes than the ASCII one ("ſ"), never fewer.
		if len(name) >= len(billed) && name != billed && strings.EqualFold(name, billed) {
			return &SyntaxError{int64(key.Start), fmt.Sprintf("the field %q must be spelled %q", clip(name), billed)}
		}
	}
	return nil
}

// add remembers name; false if it was there.
func (l *level) add(name string) bool {
	if l.set != nil {
		before := len(l.set)
		l.set[name] = struct{}{}
		return len(l.set) > before
	}
	if slices.Contains(l.names, name) {
		return false
	}
	l.names = append(l.names, name)
	if len(l.names) == many {
		l.set = make(map[string]struct{}, 2*many)
		for _, n := range l.names {
			l.set[n] = struct{}{}
		}
	}
	return true
}

// reset forgets the names and keeps the memory of a small level.
func (l *level) reset() {
	clear(l.names)
	l.names, l.set = l.names[:0], nil
}

// clip bounds what a message repeats of a caller's text.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	at := most
	for !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at] + "…"
}
