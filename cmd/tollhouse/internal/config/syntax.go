package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// parseYAML returns the tree of a file; nil for an empty one. A panic of the parser
// becomes an error, so that a file cannot end a server that reads it again.
func parseYAML(data []byte) (body ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file cannot be read as YAML (%v)", p)
		}
	}()
	file, err := parser.ParseBytes(withoutMark(data), 0, parser.AllowDuplicateMapKey()) // the decoder reports them all
	switch {
	case err != nil:
		return nil, err
	case len(file.Docs) == 0:
		return nil, nil
	case len(file.Docs) > 1:
		return nil, errors.New("the file has more than one YAML document: remove the --- line, or split the file")
	}
	return file.Docs[0].Body, nil
}

// withoutMark is a file without the byte order mark that some editors put before it.
func withoutMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\ufeff")) }

// addSyntax adds an error of the parser. The parser's own text is not used, since
// it shows the line, in which a key may stand.
func (d *decoder) addSyntax(err error, data []byte) {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok || e.GetToken() == nil {
		d.problems.add(Pos{}, "%v", err)
		return
	}
	at, says := e.GetToken().Position, "this is not YAML: check the indentation, the quotes and the brackets of this line"
	for _, s := range syntaxErrors {
		if strings.Contains(e.GetMessage(), s.message) {
			says = s.says
			break
		}
	}
	if says == secondColon && !hasColon(data, at) {
		says = "the next line is indented as if it belonged to this value: begin all keys of one mapping in the same column"
	}
	d.problems.add(Pos{at.Line, at.Column}, "%s", says)
}

// hasColon reports whether a colon ends a word in the text from a position to the end of its line.
func hasColon(data []byte, at *token.Position) bool {
	lines := strings.Split(string(data), "\n")
	if at.Line > len(lines) {
		return false
	}
	text := strings.TrimSpace(lines[at.Line-1])
	_, value, _ := strings.Cut(text, ":")
	return strings.Contains(value, ": ") || strings.HasSuffix(value, ":")
}

// syntaxErrors say what is wrong and what would be right, by a part of the parser's message. The
// first part that fits counts.
var syntaxErrors = []struct{ message, says string }{
	{"character '\\t'", tabs},
	{"character '\t'", tabs},
	{"tab character", tabs},
	{"end token '}'", "this { is not closed: add the } behind its last entry"},
	{"end token ']'", "this [ is not closed: add the ] behind its last item"},
	{"']' must be specified", "a comma or the closing ] is missing before this"},
	{"'}' must be specified", "a comma or the closing } is missing before this"},
	{"corresponding to", "this bracket closes nothing: remove it, or add the one that opens"},
	{"double-quoted", `this text has no closing ": add it`},
	{"single-quoted", `this text has no closing ': add it`},
	{"escape character", `between " and ", a \ begins an escape: write \\ for \ itself, or put the text between ' and '`},
	{"unexpected key name", "this line is no key with a value: write KEY: VALUE, with a colon and a space, as in billing: count"},
	{"mapping value is not allowed", secondColon},
	{"value is not allowed", "this line begins in another column than the lines above: begin all keys of one mapping, and all items of one list, in the same column"},
	{"non-map value", "this line is no key with a value: write KEY: VALUE, with a colon and a space, as in billing: count"},
	{"reserved character", "a value cannot begin with @ or `: put it in quotes"},
	{"directive", "a value cannot begin with %: put it in quotes"},
	{"flow map content", `a key or a value is missing here: check the brackets, and put a * in quotes, as in {"*": "*"}`},
	{"alias name", `a * needs quotes, as in "*": "*"`},
	{"anchor", `a value that begins with & needs quotes`},
}

const (
	tabs        = "this line is indented with a tab: indent with spaces only"
	secondColon = `this value has a colon in it: put it in quotes, as in store: "memory:"`
)
