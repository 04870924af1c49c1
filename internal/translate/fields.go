package translate

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// What becomes of a field.
const (
	carried = "carried"
	leftOut = "dropped" // and reported: it is a hint
	refused = "refused" // 400: without it the answer would mean something else
	handled = "settled" // has its effect without reaching the upstream
)

// field is a row of a table: what becomes of one field of a request. The tests print the rows
// into testdata/*_fates.golden, to which docs/guides/messages.md links. Each row has a test.
type field[B any] struct {
	name   string // dotted, without indexes
	action string
	note   string // as what it is carried, or why not
	chat   string // its name in chat, by which a channel may drop it too; empty for the same
	noop   string // a value that asks for nothing, and whose loss is not reported

	// carry carries a top-level field that is not null into the request that b builds. It is nil
	// if there is nothing to do. It fails with errDropped if the value is a hint that cannot be
	// carried, and with a 400 if the answer would mean something else.
	carry func(b B, raw []byte) error
}

// errDropped says that a field is dropped and reported.
var errDropped = errors.New("the field is dropped")

// isNoop reports whether a value asks for nothing.
func (f *field[B]) isNoop(raw []byte) bool {
	if f.noop == "0" {
		n, ok := rawjson.Float(raw)
		return ok && n == 0
	}
	return f.noop != "" && string(raw) == f.noop
}

// fieldMapper reads one request by its table and gathers what is dropped. A field without a
// row is dropped.
type fieldMapper[B any] struct {
	fields  []field[B]
	dropped dropped.Fields
	drops   []string // fields that the channel drops: they are dropped where they would be refused

	// pathless are the names that mean the same wherever they stand, and are reported
	// without the place.
	pathless []string
	// ignoresEmpty says that an empty list asks for nothing within an object, if its
	// field has no row.
	ignoresEmpty bool
}

// carry carries the top-level fields, in the order of the table.
func (m *fieldMapper[B]) carry(b B, body upstream.Body) error {
	for i := range m.fields {
		f := &m.fields[i]
		if f.carry == nil || rawjson.IsNull(body.Raw(f.name)) {
			continue
		}
		switch err := f.carry(b, body.Raw(f.name)); {
		case errors.Is(err, errDropped), err != nil && m.mayDrop(f):
			m.drop("", f.name)
		case err != nil:
			return err
		}
	}
	return nil
}

// mayDrop reports whether the operator has a field dropped that would be refused.
// Several candidates are never made one in silence.
func (m *fieldMapper[B]) mayDrop(f *field[B]) bool {
	return f.name != "n" && (slices.Contains(m.drops, f.name) || f.chat != "" && slices.Contains(m.drops, f.chat))
}

// find returns the row of a field, or nil.
func (m *fieldMapper[B]) find(name string) *field[B] {
	for i := range m.fields {
		if m.fields[i].name == name {
			return &m.fields[i]
		}
	}
	return nil
}

// dropUnmapped drops the members of an object that no row carries and that ask for something.
// path is the path of the object; it is empty or ends in a point.
func (m *fieldMapper[B]) dropUnmapped(path string, members iter.Seq2[string, []byte]) {
	for name, raw := range members {
		f := m.find(path + name)
		if strings.Contains(name, ".") { // a name with a point is not the row of a part
			f = nil
		}
		switch {
		case rawjson.IsNull(raw):
		case f != nil && (f.action != leftOut || f.isNoop(raw)):
		case f == nil && path != "" && m.ignoresEmpty && string(raw) == "[]":
		default:
			m.drop(path, name)
		}
	}
}

// dropUnknown does the same with the members of an object that its type does not name.
func (m *fieldMapper[B]) dropUnknown(path string, extra []byte) {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, extra, nil, nil) == nil {
		m.dropUnmapped(path, o.All())
	}
}

// drop notes that a field was left out. path is empty or ends in a point.
func (m *fieldMapper[B]) drop(path, name string) {
	if slices.Contains(m.pathless, name) {
		path = ""
	}
	m.dropped.Note(path + name)
}

// refusal is the 400 for a field whose loss would change the answer.
func refusal(param, must string) error {
	return fault.Invalid(param, fmt.Sprintf("%q must be %s.", param, must))
}

// decodeList decodes a list; its error names the place, as "messages[0].content".
func decodeList(raw []byte, into any, param string) error {
	err := json.Unmarshal(raw, into, jsontext.AllowDuplicateNames(true))
	if err == nil {
		return nil
	}
	var at *json.SemanticError
	if errors.As(err, &at) {
		for token := range at.JSONPointer.Tokens() {
			if strings.Trim(token, "0123456789") == "" {
				param += "[" + token + "]"
			} else {
				param += "." + token
			}
		}
	}
	return refusal(param, "of the form that the API describes")
}

// blank reports whether a text has no visible character.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

// isObject reports whether raw is one strict JSON object.
func isObject(raw jsontext.Value) bool { return raw.IsValid() && raw.Kind() == '{' }
