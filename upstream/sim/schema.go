package sim

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// schema is what instance reads of a JSON Schema.
type schema struct {
	Ref        string                    `json:"$ref"`
	AnyOf      []jsontext.Value          `json:"anyOf"`
	OneOf      []jsontext.Value          `json:"oneOf"`
	AllOf      []jsontext.Value          `json:"allOf"`
	Const      jsontext.Value            `json:"const"`
	Enum       []jsontext.Value          `json:"enum"`
	Type       jsontext.Value            `json:"type"`
	Properties map[string]jsontext.Value `json:"properties"`
	Required   []string                  `json:"required"`
	Items      jsontext.Value            `json:"items"`
	MinItems   float64                   `json:"minItems"`
	Minimum    float64                   `json:"minimum"`
}

// instance is a small JSON value that follows a JSON Schema as far as the
// structured output of a demo and the arguments of its tools need: the required
// members only, lists as short as they may be, the first of several ways.
// Keywords that the type schema does not have are ignored, and null is the value
// of a schema that cannot be read.
func instance(root []byte) []byte {
	const most = 1_000 // values; a schema that refers to itself may want more
	m := maker{root: root, left: most}
	return m.value(nil, root, 0)
}

// maker makes one instance.
type maker struct {
	root []byte // what "#" refers to
	left int    // how many more values may be made
}

// value appends an instance of a schema that is so many levels below the root.
func (m *maker) value(dst, raw []byte, depth int) []byte {
	m.left--
	if m.left < 0 {
		return append(dst, "null"...)
	}
	s := m.read(raw, depth)
	switch kind := s.kind(); {
	case s.Const != nil:
		return append(dst, s.Const...)
	case len(s.Enum) > 0:
		return append(dst, s.Enum[0]...)
	case kind == "object":
		return m.object(dst, &s, depth)
	case kind == "array":
		dst = append(dst, '[')
		for i := 0; float64(i) < s.MinItems && m.left > 0; i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.value(dst, s.Items, depth+1)
		}
		return append(dst, ']')
	case kind == "string":
		return append(dst, `"simulated"`...)
	case kind == "number":
		return strconv.AppendFloat(dst, max(s.Minimum, 0), 'f', -1, 64)
	case kind == "integer":
		return strconv.AppendFloat(dst, math.Ceil(max(s.Minimum, 0)), 'f', -1, 64)
	case kind == "boolean":
		return append(dst, "false"...)
	}
	return append(dst, "null"...)
}

func (m *maker) object(dst []byte, s *schema, depth int) []byte {
	dst = append(dst, '{')
	for i, name := range s.Required {
		if slices.Contains(s.Required[:i], name) {
			continue
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.Quote(dst, name), ':')
		dst = m.value(dst, s.Properties[name], depth+1)
	}
	return append(dst, '}')
}

// read decodes a schema and follows its reference or, where it has no type of
// its own, the first of its ways. Deep inside it takes the last way, so that a
// schema which refers to itself comes to an end.
func (m *maker) read(raw []byte, depth int) schema {
	const deep, most = 6, 32
	for range most {
		var s schema
		if err := json.Unmarshal(raw, &s, jsontext.AllowDuplicateNames(true)); err != nil {
			return schema{} // also true, false and an absent schema
		}
		ways := slices.Concat(s.AnyOf, s.OneOf, s.AllOf)
		switch {
		case s.Ref != "":
			raw = m.resolve(s.Ref)
		case len(ways) == 0 || s.Type != nil:
			return s
		case depth > deep:
			raw = ways[len(ways)-1]
		default:
			raw = ways[0]
		}
	}
	return schema{}
}

// resolve finds what "#/$defs/name" points at; nil for any other reference.
func (m *maker) resolve(ref string) []byte {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	at := m.root
	for _, step := range strings.Split(path, "/")[1:] {
		o, err := rawjson.Index(at, nil, nil)
		if err != nil {
			return nil
		}
		at = o.Raw(step)
	}
	return at
}

// kind is the schema's type, the first of several; "" if it has none.
func (s *schema) kind() string {
	raw := []byte(s.Type)
	if several := rawjson.Elements(raw); len(several) > 0 {
		raw = several[0]
	}
	kind, named := rawjson.String(raw)
	if !named && (s.Properties != nil || s.Required != nil) {
		return "object"
	}
	return kind
}
