package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// reader walks the tree of a YAML file. It is stricter than a decoder into Go
// types, which would take 1.5 for a whole number, and it notes every problem
// instead of the first. No message repeats a value that might be a secret.
type reader struct {
	env      Env
	anchors  map[string]ast.Node
	problems problems
	keyFiles []KeyFile
}

// fields says what to do with each key of a mapping.
type fields map[string]func(ast.Node)

// pair is a key of a mapping with its value.
type pair struct {
	key   string
	at    Pos
	value ast.Node
}

// object reads a mapping whose keys are known.
func (r *reader) object(n ast.Node, what string, known fields) {
	for _, p := range r.pairs(n, what) {
		if read, ok := known[p.key]; ok {
			read(p.value)
			continue
		}
		r.problems.add(p.at, "%s has no field %q; its fields are %s", what, p.key, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
}

// pairs are the entries of a mapping; none for an empty value.
func (r *reader) pairs(n ast.Node, what string) []pair {
	var values []*ast.MappingValueNode
	switch n := r.resolve(n).(type) {
	case nil, *ast.NullNode:
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		r.problems.add(position(n), "%s must be a mapping of keys to values", what)
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

// list reads a sequence.
func (r *reader) list(n ast.Node, what string, item func(ast.Node)) {
	switch n := r.resolve(n).(type) {
	case nil, *ast.NullNode:
	case *ast.SequenceNode:
		for _, v := range n.Values {
			item(v)
		}
	default:
		r.problems.add(position(n), "%s must be a list", what)
	}
}

// text reads a single value as it is written, with variables expanded.
func (r *reader) text(n ast.Node, what string) (string, bool) {
	written, ok := scalar(r.resolve(n))
	if !ok {
		r.problems.add(position(n), "%s must be a single value", what)
		return "", false
	}
	value, err := expand(written, r.env)
	if err != nil {
		r.problems.add(position(n), "%s: %v", what, err)
		return "", false
	}
	return value, true
}

// parsed reads a value by parse, whose errors must not repeat it.
func parsed[T any](r *reader, n ast.Node, what string, parse func(string) (T, error)) (v T) {
	text, ok := r.text(n, what)
	if !ok {
		return v
	}
	v, err := parse(text)
	if err != nil {
		r.problems.add(position(n), "%s: %v", what, err)
	}
	return v
}

// into gives the reader of a field that parse understands.
func into[T any](r *reader, to *T, what string, parse func(string) (T, error)) func(ast.Node) {
	return func(n ast.Node) { *to = parsed(r, n, what, parse) }
}

func (r *reader) duration(to *time.Duration, what string) func(ast.Node) {
	return into(r, to, what, func(text string) (time.Duration, error) {
		d, err := ParseDuration(text)
		if err == nil && d == 0 {
			err = fmt.Errorf("it must be longer than 0; leave it out for the default")
		}
		return d, err
	})
}

func (r *reader) boolean(to *bool, what string) func(ast.Node) {
	return into(r, to, what, func(text string) (bool, error) {
		if text != "true" && text != "false" {
			return false, fmt.Errorf("it must be true or false")
		}
		return text == "true", nil
	})
}

// count reads a whole number that is not negative.
func (r *reader) count(to *int64, what string) func(ast.Node) {
	return into(r, to, what, func(text string) (int64, error) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("it must be a whole number, 0 or more")
		}
		return n, nil
	})
}

// word reads a value that must not be empty.
func (r *reader) word(to *string, what string) func(ast.Node) {
	return into(r, to, what, func(text string) (string, error) {
		if text == "" {
			return "", fmt.Errorf("it must not be empty")
		}
		return text, nil
	})
}

func (r *reader) words(to *[]string, what string) func(ast.Node) {
	return func(n ast.Node) {
		*to = []string{}
		r.list(n, what, func(item ast.Node) {
			var w string
			r.word(&w, "an item of "+what)(item)
			*to = append(*to, w)
		})
	}
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

// place is where a node stands; that of a mapping is its first key.
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

// Env looks a variable of the environment up; os.LookupEnv is one.
type Env func(name string) (value string, set bool)

// expand puts variables in the place of ${NAME}; "$${" stands for "${" itself.
// Nothing in a value is expanded again.
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

func isName(name string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return name != "" && strings.Trim(name, letters+"0123456789") == "" && strings.Contains(letters, name[:1])
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

// parseDate reads a day or a moment.
func parseDate(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("write a day such as 2026-12-31")
}
