package sim

import (
	"math"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// view is a schema together with those that it refers to: what `$ref` and
// `allOf` name, and the first way of `anyOf` and `oneOf`.
type view []rawjson.Object

// view gathers the schemas. Deep inside, the last way of `anyOf` is taken
// instead of the first, so that a schema which refers to itself comes to an end.
func (m *maker) view(schema []byte) view {
	const deep, most = 6, 32
	var all view
	for queue := [][]byte{schema}; len(queue) > 0 && len(all) < most; {
		o, err := rawjson.Index(queue[0], nil, nil)
		queue = queue[1:]
		if err != nil {
			continue // true, false, absent
		}
		all = append(all, o)
		if ref, ok := rawjson.String(o.Raw("$ref")); ok {
			queue = append(queue, m.resolve(ref))
		}
		queue = append(queue, rawjson.Elements(o.Raw("allOf"))...)
		for _, ways := range [][][]byte{rawjson.Elements(o.Raw("anyOf")), rawjson.Elements(o.Raw("oneOf"))} {
			switch {
			case len(ways) == 0:
			case m.depth > deep:
				queue = append(queue, ways[len(ways)-1])
			default:
				queue = append(queue, ways[0])
			}
		}
	}
	return all
}

// resolve finds what "#/$defs/name" points at; nil for any other reference.
func (m *maker) resolve(ref string) []byte {
	at, plain := m.root, strings.NewReplacer("~1", "/", "~0", "~")
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	for _, step := range strings.Split(path, "/")[1:] {
		o, err := rawjson.Index(at, nil, nil)
		if err != nil {
			return nil
		}
		at = o.Raw(plain.Replace(step))
	}
	return at
}

// get is the first value of a keyword; nil if no schema has it.
func (v view) get(name string) []byte {
	for i := range v {
		if raw := v[i].Raw(name); raw != nil {
			return raw
		}
	}
	return nil
}

// kinds say which type a schema means that only has keywords of one.
var kinds = []struct{ keyword, kind string }{
	{"properties", "object"}, {"required", "object"}, {"items", "array"}, {"prefixItems", "array"},
	{"minItems", "array"}, {"pattern", "string"}, {"minLength", "string"}, {"format", "string"},
	{"minimum", "number"}, {"maximum", "number"}, {"multipleOf", "number"},
}

// kind is the schema's type, the first of several; "null" if it has none.
func (v view) kind() string {
	raw := v.get("type")
	if several := rawjson.Elements(raw); len(several) > 0 {
		raw = several[0]
	}
	if kind, ok := rawjson.String(raw); ok {
		return kind
	}
	for _, k := range kinds {
		if v.get(k.keyword) != nil {
			return k.kind
		}
	}
	return "null"
}

// most is the greatest value of a keyword, least the smallest.
func (v view) most(name string) (f float64, ok bool)  { return v.pick(name, math.Max) }
func (v view) least(name string) (f float64, ok bool) { return v.pick(name, math.Min) }

func (v view) pick(name string, better func(a, b float64) float64) (best float64, found bool) {
	for i := range v {
		f, ok := rawjson.Float(v[i].Raw(name))
		switch {
		case !ok:
		case found:
			best = better(best, f)
		default:
			best, found = f, true
		}
	}
	return best, found
}

// bounds are the least and the greatest number that are allowed.
func (v view) bounds() (low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	if f, ok := v.most("minimum"); ok {
		low = f
	}
	if f, ok := v.least("maximum"); ok {
		high = f
	}
	above, isAbove := v.most("exclusiveMinimum")
	below, isBelow := v.least("exclusiveMaximum")
	gap := 1.0
	for v.kind() != "integer" && isAbove && above+gap >= math.Min(high, orInf(below, isBelow)) && gap > 1e-9 {
		gap /= 2
	}
	if isAbove && above >= low {
		low = v.after(above, gap)
	}
	if isBelow && below <= high {
		high = -v.after(-below, gap)
	}
	return low, high
}

// after is the next number above f: the next integer, or f and a gap.
func (v view) after(f, gap float64) float64 {
	if v.kind() == "integer" {
		return math.Floor(f) + 1
	}
	return f + gap
}

func orInf(f float64, ok bool) float64 {
	if ok {
		return f
	}
	return math.Inf(1)
}

// required are the names that every instance has, each once.
func (v view) required() (names []string) {
	for i := range v {
		for _, raw := range rawjson.Elements(v[i].Raw("required")) {
			name, _ := rawjson.String(raw)
			names = appendNew(names, name)
		}
	}
	return names
}

// properties are the names that the schema describes.
func (v view) properties() (names []string) {
	for i := range v {
		if o, err := rawjson.Index(v[i].Raw("properties"), nil, nil); err == nil {
			for _, m := range o.Members {
				names = appendNew(names, m.Name)
			}
		}
	}
	return names
}

// property is the schema of a member.
func (v view) property(name string) []byte {
	for i := range v {
		if o, err := rawjson.Index(v[i].Raw("properties"), nil, nil); err == nil && o.Raw(name) != nil {
			return o.Raw(name)
		}
	}
	return v.get("additionalProperties")
}

func appendNew(names []string, name string) []string {
	for _, n := range names {
		if n == name {
			return names
		}
	}
	return append(names, name)
}
