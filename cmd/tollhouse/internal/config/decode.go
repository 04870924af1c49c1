package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// reader walks the tree of a YAML file. It is stricter than a decoder into Go
// types, which takes 1.5 for a whole number and rounds decimals; it reports every
// problem with its place instead of the first; and no message repeats a value,
// which might be a secret.
type reader struct {
	env      Env
	anchors  map[string]ast.Node
	problems problems
	sections map[string]Pos // of the file's sections, by name
	keyFiles []KeyFile
}

// parseYAML returns the tree of a file; nil for an empty one. A panic of the parser
// becomes an error, so that a file cannot end a server that reads it again.
func parseYAML(data []byte) (body ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file cannot be read as YAML (%v)", p)
		}
	}()
	file, err := parser.ParseBytes(withoutMark(data), 0)
	switch {
	case err != nil:
		return nil, err
	case len(file.Docs) == 0:
		return nil, nil
	case len(file.Docs) > 1:
		return nil, errors.New("the file has more than one YAML document")
	}
	return file.Docs[0].Body, nil
}

// withoutMark is a file without the byte order mark that some editors put before it.
func withoutMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\ufeff")) }

// addSyntax adds an error of the parser. The parser's own text is not used, since
// it shows the line, in which a key may stand.
func (r *reader) addSyntax(err error, data []byte) {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok || e.GetToken() == nil {
		r.problems.add(Pos{}, "%v", err)
		return
	}
	p, hint := e.GetToken().Position, ""
	if storeEndsInColon(data, p.Line) {
		hint = `; a value that ends in ":" needs quotes, such as store: "memory:"`
	}
	r.problems.add(Pos{p.Line, p.Column}, "this is not YAML: %s%s", e.GetMessage(), hint)
}

// storeEndsInColon reports whether a line is "store: memory:" or similar.
func storeEndsInColon(data []byte, line int) bool {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) {
		return false
	}
	text, _, _ := strings.Cut(lines[line-1], " #")
	value, isStore := strings.CutPrefix(strings.TrimSpace(text), "store:")
	return isStore && strings.HasSuffix(value, ":")
}

// field reads the value of a key. name is how problems call it: the key, or more.
type field func(n ast.Node, name string)

// fields are the keys of a mapping.
type fields map[string]field

// pair is a key of a mapping with its value.
type pair struct {
	key   string
	at    Pos
	value ast.Node
}

// object reads a mapping whose keys are known.
func (r *reader) object(n ast.Node, name string, known fields) {
	says := func() string { return "; its fields are " + strings.Join(slices.Sorted(maps.Keys(known)), ", ") }
	for _, p := range r.pairs(n, name, says) {
		if read, ok := known[p.key]; ok {
			read(p.value, p.key)
			continue
		}
		r.problems.add(p.at, "%s has no field %q%s", name, p.key, says())
	}
}

// pairs are the entries of a mapping; none for an empty value. says, if not nil, is what the
// problem of a value that is no mapping ends with.
func (r *reader) pairs(n ast.Node, name string, says func() string) []pair {
	var values []*ast.MappingValueNode
	switch n := r.resolve(n).(type) {
	case nil, *ast.NullNode:
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		ends := ""
		if says != nil {
			ends = says()
		}
		r.problems.add(position(n), "%s must be a mapping of keys to values%s", name, ends)
	}
	pairs := make([]pair, 0, len(values))
	for _, v := range values {
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			r.problems.add(position(v.Key), "merge keys (<<) are not supported; use an alias for the whole value")
			continue
		}
		pairs = append(pairs, pair{v.Key.GetToken().Value, position(v.Key), v.Value})
	}
	return pairs
}

// list reads a sequence. Problems call its items "an item of NAME".
func (r *reader) list(item field) field {
	return func(n ast.Node, name string) {
		switch n := r.resolve(n).(type) {
		case nil, *ast.NullNode:
		case *ast.SequenceNode:
			for _, v := range n.Values {
				item(v, "an item of "+name)
			}
		default:
			r.problems.add(position(n), "%s must be a list", name)
		}
	}
}

// text reads a single value as it is written, with variables expanded. parse, if not nil,
// knows what would be right in the place of a mapping, a list or no value at all: what it
// says of an empty text.
func (r *reader) text(n ast.Node, name string, parse func(string) error) (string, bool) {
	written, ok := scalar(r.resolve(n))
	if !ok {
		says := ""
		if parse != nil {
			if err := parse(""); err != nil && !errors.Is(err, errEmpty) {
				says = ": " + err.Error()
			}
		}
		r.problems.add(position(n), "%s must be a single value%s", name, says)
		return "", false
	}
	value, err := expand(written, r.env)
	if err != nil {
		r.problems.add(position(n), "%s: %v", name, err)
		return "", false
	}
	return value, true
}

// into reads a value with parse, whose errors must not repeat it.
func into[T any](r *reader, to *T, parse func(string) (T, error)) field {
	return func(n ast.Node, name string) {
		text, ok := r.text(n, name, func(text string) error { _, err := parse(text); return err })
		if !ok {
			return
		}
		v, err := parse(text)
		if err != nil {
			r.problems.add(position(n), "%s: %v", name, err)
		}
		*to = v
	}
}

// intoList reads a sequence, each item with parse.
func intoList[T any](r *reader, to *[]T, parse func(string) (T, error)) field {
	return r.list(func(n ast.Node, name string) {
		var v T
		into(r, &v, parse)(n, name)
		*to = append(*to, v)
	})
}

// word reads a value that must not be empty.
func (r *reader) word(to *string) field { return into(r, to, parseWord) }

// words reads a sequence of values. An empty one is not nil, unlike one that the
// file does not have.
func (r *reader) words(to *[]string) field {
	items := intoList(r, to, parseWord)
	return func(n ast.Node, name string) {
		*to = []string{}
		items(n, name)
	}
}

// whole reads a whole number of a range, which says names in a problem: ", 0 or more".
func whole[T int | int64](r *reader, to *T, least, most int64, says string) field {
	return into(r, to, func(text string) (T, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return 0, errors.New("it must be a whole number" + says)
		}
		return T(n), nil
	})
}

// count reads a whole number that is not negative.
func (r *reader) count(to *int64) field { return whole(r, to, 0, math.MaxInt64, ", 0 or more") }

// positive reads a whole number above 0.
func (r *reader) positive(to *int64) field {
	return whole(r, to, 1, math.MaxInt32, ", 1 or more; leave it out for the default")
}

func (r *reader) boolean(to *bool) field { return r.choose(to, "true", "false") }

// negated reads a boolean and stores its opposite.
func (r *reader) negated(to *bool) field { return r.choose(to, "false", "true") }

// oneOf reads one of several words.
func oneOf[T, S ~string](choices []S) func(string) (T, error) {
	return func(text string) (T, error) {
		if slices.Contains(choices, S(text)) {
			return T(text), nil
		}
		names := make([]string, len(choices))
		for i, c := range choices {
			names[i] = string(c)
		}
		return "", errors.New("it must be one of " + strings.Join(names, ", "))
	}
}

// choose reads a word that stands for true or one that stands for false.
func (r *reader) choose(to *bool, set, unset string) field {
	return into(r, to, func(text string) (bool, error) {
		if text != set && text != unset {
			return false, errors.New("it must be true or false")
		}
		return text == set, nil
	})
}

// duration reads one above 0: where 0 means the default, a file that says 0 would not get
// what it says.
func (r *reader) duration(to *time.Duration) field {
	return into(r, to, func(text string) (time.Duration, error) {
		d, err := ParseDuration(text)
		if err == nil && d == 0 {
			err = errors.New("it must be longer than 0; leave it out for the default")
		}
		return d, err
	})
}

var errEmpty = errors.New("it must not be empty")

func parseWord(text string) (string, error) {
	if text == "" {
		return "", errEmpty
	}
	return text, nil
}

// ParseDuration reads Go's durations and whole days: "90s", "24h", "30d".
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	return 0, errors.New("write a duration such as 90s, 24h or 30d")
}

// resolve follows anchors, aliases and tags.
func (r *reader) resolve(n ast.Node) ast.Node {
	for range 100 { // an alias may lead to itself
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.TagNode:
			n = v.Value
		case *ast.AliasNode:
			target, ok := r.anchors[v.Value.GetToken().Value]
			if !ok {
				r.problems.add(position(v), "there is no anchor of this name")
				return nil
			}
			n = target
		default:
			return n
		}
	}
	return nil
}

// Visit implements [ast.Visitor]: it collects the anchors.
func (r *reader) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		r.anchors[a.Name.GetToken().Value] = a.Value
	}
	return r
}

// scalar is the text of a single value; false for anything else.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// position is where a node stands; that of a mapping is its first key.
func position(n ast.Node) Pos {
	switch m := n.(type) {
	case nil:
		return Pos{}
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return position(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(m.Key)
	}
	p := n.GetToken().Position
	return Pos{p.Line, p.Column}
}

// Env looks up an environment variable; os.LookupEnv is one.
type Env func(name string) (value string, set bool)

// Trimmed is the environment for keys and addresses: white space around one does not count.
// It is the line end of the command or the file that the variable was made from.
func (e Env) Trimmed() Env {
	return func(name string) (string, bool) {
		value, set := e(name)
		return strings.TrimSpace(value), set
	}
}

// expand replaces ${NAME} by variables; "$${" stands for "${" itself. The values of
// variables are not expanded again.
func expand(text string, env Env) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !isName(name) {
			return "", errors.New("${ must be followed by a variable's name and }; write $${ for ${ itself")
		}
		value, set := env(name)
		if !set {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		out.WriteString(before + value)
		text = after
	}
}

// isName reports whether a text can be the name of a variable.
func isName(name string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return name != "" && strings.Trim(name, letters+"0123456789") == "" && strings.Contains(letters, name[:1])
}
