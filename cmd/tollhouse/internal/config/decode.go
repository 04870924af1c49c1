package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/suggest"
)

// decoder decodes YAML into structs whose fields have a tag: the key in the file and, after a
// comma, the rule for its value. Unlike the decoder of go-yaml it reports every problem and
// not the first, shows no value, which can be a secret, and takes a decimal as it is written.
type decoder struct {
	env      Env
	anchors  map[string]ast.Node
	problems problems
	keyFiles []KeyFile
	known    map[reflect.Type]fields // of the structs so far
	lenient  bool                    // ignores unknown keys
}

// newDecoder parses a file. The node is nil for an empty one.
func newDecoder(name string, data []byte, env Env) (*decoder, ast.Node, error) {
	d := &decoder{env: env, anchors: make(map[string]ast.Node), known: make(map[reflect.Type]fields)}
	body, err := parseYAML(data)
	if err != nil {
		d.addSyntax(err, data)
		return nil, nil, d.problems.err(name)
	}
	if body != nil {
		ast.Walk(d, body)
	}
	return d, body, nil
}

// field is a key of a struct: which field it sets, the rule for its value, and an example of
// a list or a mapping.
type field struct {
	index         []int
	rule, example string
}

// fields are the keys of a struct.
type fields struct {
	keys map[string]field
	pos  []int // of its field Pos; nil if it has none
}

// fieldsOf are the keys that the tags of a struct name, those of embedded structs included. A
// struct of another package has them as tags of JSON.
func (d *decoder) fieldsOf(t reflect.Type) fields {
	if known, ok := d.known[t]; ok {
		return known
	}
	known := fields{keys: make(map[string]field)}
	for _, f := range reflect.VisibleFields(t) {
		key, rule, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" {
			key, _, _ = strings.Cut(f.Tag.Get("json"), ",")
		}
		if key != "" {
			known.keys[key] = field{f.Index, rule, f.Tag.Get("example")}
		} else if f.Type == reflect.TypeFor[Pos]() {
			known.pos = f.Index
		}
	}
	d.known[t] = known
	return known
}

// decodable is a value with a form of its own in the file.
type decodable interface {
	decode(d *decoder, n ast.Node, name string)
}

// special are the keys of a struct that are no plain fields, and what reads them.
type special map[string]func(n ast.Node, name string)

// object decodes a mapping into a struct. Its field Pos, if it has one, gets the position.
func (d *decoder) object(n ast.Node, name string, to reflect.Value, more special) {
	known := d.fieldsOf(to.Type())
	if known.pos != nil {
		*to.FieldByIndex(known.pos).Addr().Interface().(*Pos) = position(d.resolve(n))
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(known.keys)), maps.Keys(more))
	slices.Sort(keys)
	says := "; its fields are " + strings.Join(keys, ", ")
	for _, p := range d.pairs(n, name, says) {
		f, plain := known.keys[p.key]
		read := more[p.key]
		switch {
		case plain:
			d.value(p.value, p.key, f, to.FieldByIndex(f.index))
		case read != nil:
			read(p.value, p.key)
		case d.lenient:
		default:
			advice := says
			if near := suggest.Nearest(p.key, keys); near != "" {
				advice = "; did you mean " + near + "?"
			}
			d.problems.add(p.at, "%s has no field %q%s", name, p.key, advice)
		}
	}
}

// value decodes what a node holds, by the form of its type. The rule of the field is for single
// values, in a list or a mapping too. Problems call the value name.
func (d *decoder) value(n ast.Node, name string, f field, to reflect.Value) {
	if f.example != "" {
		var ok bool
		if n, ok = d.formed(n, name, f.example); !ok {
			return
		}
	}
	if own, ok := to.Addr().Interface().(decodable); ok {
		own.decode(d, n, name)
		return
	}
	single := field{rule: f.rule}
	switch kind := to.Kind(); {
	case kind == reflect.Slice:
		if f.rule == "" && to.Type().Elem().Kind() == reflect.String {
			to.Set(reflect.MakeSlice(to.Type(), 0, 0)) // unlike that of a file without it
		}
		items := d.items(n)
		to.Grow(len(items))
		for i, item := range items {
			to.SetLen(i + 1)
			d.value(item, "an item of "+name, single, to.Index(i))
		}
	case kind == reflect.Map:
		for _, p := range d.pairs(n, name, "") {
			v := reflect.New(to.Type().Elem()).Elem()
			d.value(p.value, name+": "+p.key, single, v)
			if to.IsNil() {
				to.Set(reflect.MakeMap(to.Type()))
			}
			to.SetMapIndex(reflect.ValueOf(p.key), v)
		}
	case kind == reflect.Struct && f.rule == "":
		d.object(n, name, to, nil)
	default:
		d.single(n, name, ruleFor(f.rule, to.Type()), to)
	}
}

// formed resolves a value that must be a list or a mapping, as its example is; no value is both.
// Any other one is a problem.
func (d *decoder) formed(n ast.Node, name, example string) (ast.Node, bool) {
	n = d.resolve(n)
	isList, isMapping := false, false
	switch n.(type) {
	case nil, *ast.NullNode:
		return nil, true
	case *ast.SequenceNode:
		isList = true
	case *ast.MappingNode, *ast.MappingValueNode:
		isMapping = true
	}
	switch wantsList := example[0] == '['; {
	case wantsList && !isList:
		d.problems.add(position(n), "%s must be a list, for example %s: %s", name, name, example)
	case !wantsList && !isMapping:
		d.problems.add(position(n), "%s must be a mapping of keys to values, for example %s: %s", name, name, example)
	default:
		return n, true
	}
	return nil, false
}

// single decodes a single value by its rule, whose errors must not repeat it.
func (d *decoder) single(n ast.Node, name string, parse rule, to reflect.Value) {
	text, ok := d.text(n, name, parse, to)
	if !ok {
		return
	}
	if err := parse(text, to); err != nil {
		d.problems.add(position(n), "%s: %v", name, err)
	}
}

// pair is a key of a mapping with its value.
type pair struct {
	key   string
	at    Pos
	value ast.Node
}

// pairs are the entries of a mapping; none for an empty value. A key that occurs twice is a
// problem. The problem of a value that is no mapping ends with says.
func (d *decoder) pairs(n ast.Node, name, says string) []pair {
	var values []*ast.MappingValueNode
	switch n := d.resolve(n).(type) {
	case nil, *ast.NullNode:
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		d.problems.add(position(n), "%s must be a mapping of keys to values%s", name, says)
	}
	pairs, lines := make([]pair, 0, len(values)), make(map[string]int, len(values))
	for _, v := range values {
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			d.problems.add(position(v.Key), "merge keys (<<) are not supported; use an alias for the whole value")
			continue
		}
		p := pair{v.Key.GetToken().Value, position(v.Key), v.Value}
		if first, twice := lines[p.key]; twice {
			d.problems.add(p.at, "%s has %q twice, first in line %d: remove one of them", name, p.key, first)
			continue
		}
		lines[p.key] = p.at.Line
		pairs = append(pairs, p)
	}
	return pairs
}

// items are the items of a list; none for an empty value.
func (d *decoder) items(n ast.Node) []ast.Node {
	if list, ok := d.resolve(n).(*ast.SequenceNode); ok {
		return list.Values
	}
	return nil
}

// text is a single value as it is written, with variables expanded. In the place of a
// mapping, a list or no value the problem says what would be right: what the rule, if it is
// not nil, says of an empty text.
func (d *decoder) text(n ast.Node, name string, parse rule, to reflect.Value) (string, bool) {
	written, ok := scalar(d.resolve(n))
	if !ok {
		says := ""
		if parse != nil {
			if err := parse("", to); err != nil && !errors.Is(err, errEmpty) {
				says = ": " + err.Error()
			}
		}
		d.problems.add(position(n), "%s must be a single value%s", name, says)
		return "", false
	}
	value, err := expand(written, d.env)
	if err != nil {
		d.problems.add(position(n), "%s: %v", name, err)
		return "", false
	}
	return value, true
}

// resolve follows anchors, aliases and tags.
func (d *decoder) resolve(n ast.Node) ast.Node {
	for range 100 { // an alias may lead to itself
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.TagNode:
			n = v.Value
		case *ast.AliasNode:
			target, ok := d.anchors[v.Value.GetToken().Value]
			if !ok {
				d.problems.add(position(v), "there is no anchor of this name")
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
func (d *decoder) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		d.anchors[a.Name.GetToken().Value] = a.Value
	}
	return d
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
