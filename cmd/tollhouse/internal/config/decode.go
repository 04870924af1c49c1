package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
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
func (d *decoder) addSyntax(err error, data []byte) {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok || e.GetToken() == nil {
		d.problems.add(Pos{}, "%v", err)
		return
	}
	p, hint := e.GetToken().Position, ""
	if storeEndsInColon(data, p.Line) {
		hint = `; a value that ends in ":" needs quotes, such as store: "memory:"`
	}
	d.problems.add(Pos{p.Line, p.Column}, "this is not YAML: %s%s", e.GetMessage(), hint)
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

// field is a key of a struct: which field it sets, and the rule for its value.
type field struct {
	index []int
	rule  string
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
			known.keys[key] = field{f.Index, rule}
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
	says := func() string {
		keys := slices.AppendSeq(slices.Collect(maps.Keys(known.keys)), maps.Keys(more))
		slices.Sort(keys)
		return "; its fields are " + strings.Join(keys, ", ")
	}
	for _, p := range d.pairs(n, name, says) {
		f, plain := known.keys[p.key]
		read := more[p.key]
		switch {
		case plain:
			d.value(p.value, p.key, f.rule, to.FieldByIndex(f.index))
		case read != nil:
			read(p.value, p.key)
		case !d.lenient:
			d.problems.add(p.at, "%s has no field %q%s", name, p.key, says())
		}
	}
}

// value decodes what a node holds, by the form of its type. rule is for single values, in a
// list or a mapping too. Problems call the value name.
func (d *decoder) value(n ast.Node, name, rule string, to reflect.Value) {
	if own, ok := to.Addr().Interface().(decodable); ok {
		own.decode(d, n, name)
		return
	}
	switch kind := to.Kind(); {
	case kind == reflect.Slice:
		if rule == "" && to.Type().Elem().Kind() == reflect.String {
			to.Set(reflect.MakeSlice(to.Type(), 0, 0)) // unlike that of a file without it
		}
		items := d.items(n, name)
		to.Grow(len(items))
		for i, item := range items {
			to.SetLen(i + 1)
			d.value(item, "an item of "+name, rule, to.Index(i))
		}
	case kind == reflect.Map:
		for _, p := range d.pairs(n, name, nil) {
			v := reflect.New(to.Type().Elem()).Elem()
			d.value(p.value, name+": "+p.key, rule, v)
			if to.IsNil() {
				to.Set(reflect.MakeMap(to.Type()))
			}
			to.SetMapIndex(reflect.ValueOf(p.key), v)
		}
	case kind == reflect.Struct && rule == "":
		d.object(n, name, to, nil)
	default:
		d.single(n, name, ruleFor(rule, to.Type()), to)
	}
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

// pairs are the entries of a mapping; none for an empty value. says, if not nil, is what the
// problem of a value that is no mapping ends with.
func (d *decoder) pairs(n ast.Node, name string, says func() string) []pair {
	var values []*ast.MappingValueNode
	switch n := d.resolve(n).(type) {
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
		d.problems.add(position(n), "%s must be a mapping of keys to values%s", name, ends)
	}
	pairs := make([]pair, 0, len(values))
	for _, v := range values {
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			d.problems.add(position(v.Key), "merge keys (<<) are not supported; use an alias for the whole value")
			continue
		}
		pairs = append(pairs, pair{v.Key.GetToken().Value, position(v.Key), v.Value})
	}
	return pairs
}

// items are the items of a list; none for an empty value.
func (d *decoder) items(n ast.Node, name string) []ast.Node {
	switch n := d.resolve(n).(type) {
	case nil, *ast.NullNode:
	case *ast.SequenceNode:
		return n.Values
	default:
		d.problems.add(position(n), "%s must be a list", name)
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
