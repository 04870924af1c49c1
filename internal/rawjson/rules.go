package rawjson

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// Bounds are the most that a document may hold, so that memory made while it is read is
// bounded too. 0 means no bound.
type Bounds struct {
	TopMembers int // members of the document's own object
	Members    int // members of each object in it
	Tokens     int // names, values and brackets in all
}

// Rules say what makes an otherwise valid request document ambiguous, and how
// much it may hold. The zero Rules, like nil, allow everything that JSON
// allows.
type Rules struct {
	// Unique refuses a repeated name at the top level and directly inside the
	// top-level objects named in Nested.
	Unique bool
	// Once refuses a repeated name at those levels that is one of Billed.
	Once bool
	// Billed are lower-case ASCII names. No case variant of them may stand at those levels.
	Billed []string
	// Nested are the top-level objects whose members obey the same rules.
	Nested []string
	// Bounds hold for the whole document.
	Bounds Bounds
}

// nests reports whether the rules hold inside the top-level object called name.
func (rules *Rules) nests(name string) bool {
	return rules != nil && slices.Contains(rules.Nested, name)
}

// level is the names of one object that the rules hold for.
type level map[string]struct{}

// check refuses a name that repeats an earlier one of the level or is a case
// variant of a billed name, and remembers it.
func (l *level) check(rules *Rules, name string, key Span) error {
	if rules == nil {
		return nil
	}
	if (rules.Unique || rules.Once && slices.Contains(rules.Billed, name)) && !l.add(name) {
		return repeated(name, key)
	}
	if i := variantOf(rules.Billed, name); i >= 0 {
		return misspelled(name, rules.Billed[i], key)
	}
	return nil
}

// repeated is the error of a name that stands twice in its object.
func repeated(name string, key Span) error {
	name = safetext.Truncate(name, maxQuoted)
	return &SyntaxError{Offset: int64(key.Start), Reason: fmt.Sprintf("the field %q is given twice", name), Field: name}
}

// misspelled is the error of a case variant.
func misspelled(name, exact string, key Span) error {
	name = safetext.Truncate(name, maxQuoted)
	return &SyntaxError{Offset: int64(key.Start), Reason: fmt.Sprintf("the field %q must be spelled %q", name, exact), Field: name}
}

// variantOf is the index of the lower-case ASCII name that the given one is a case variant of,
// or -1. A reader that minds no case, such as encoding/json, takes both for the same.
func variantOf(exact []string, name string) int {
	if !mixed(name) {
		return -1
	}
	for i := range exact {
		// A folded letter may take more bytes than the ASCII one ("ſ"), never
		// fewer.
		if len(name) >= len(exact[i]) && name != exact[i] && strings.EqualFold(name, exact[i]) {
			return i
		}
	}
	return -1
}

// mixed reports whether a name has a byte that no lower-case ASCII name has: only
// such a name can be a case variant of one.
func mixed[S string | []byte](name S) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return true
		}
	}
	return false
}

// Names are the members that are read of one kind of object, at most 64
// lower-case ASCII names.
type Names []string

// Find returns the index of a member's name among the names, or -1. seen has a bit for each
// name that the object had before. Find fails with a *SyntaxError if the name is repeated or
// is a case variant of one of the names. A vendor that takes the last one, or ignores case,
// would read another value than the one checked and counted.
func (n Names) Find(name []byte, key Span, seen *uint64) (int, error) {
	for i := range n {
		if string(name) != n[i] {
			continue
		}
		if *seen&(1<<i) != 0 {
			return i, repeated(n[i], key)
		}
		*seen |= 1 << i
		return i, nil
	}
	if mixed(name) {
		if i := variantOf(n, string(name)); i >= 0 {
			return i, misspelled(string(name), n[i], key)
		}
	}
	return -1, nil
}

// add remembers name; false if it was there.
func (l *level) add(name string) bool {
	if *l == nil {
		*l = make(level)
	}
	before := len(*l)
	(*l)[name] = struct{}{}
	return len(*l) > before
}

// reset forgets the names and keeps the memory of a small level.
func (l *level) reset() {
	if len(*l) > many {
		*l = nil
	}
	clear(*l)
}

// many is how many names a level has whose memory is let go.
const many = 32

// maxQuoted is how many bytes an error repeats of a member's name.
const maxQuoted = 64
