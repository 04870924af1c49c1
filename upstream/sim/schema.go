package sim

import (
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
)

// mostValues bounds an instance: a schema that refers to itself may want more.
const mostValues = 1_000

// instance is a small JSON value that follows a JSON Schema as far as the
// structured output of a demo and the arguments of its tools need: the required
// members only, lists as short as they may be, the first of several ways. Other
// keywords are ignored, and null is the value of a schema that cannot be read.
func instance(schema []byte) []byte {
	var root jsonschema.Schema
	if err := json.Unmarshal(schema, &root); err != nil {
		return []byte("null")
	}
	m := maker{root: &root, left: mostValues}
	data, err := json.Marshal(m.value(&root, 0), json.Deterministic(true))
	if err != nil { // a number that JSON does not have
		return []byte("null")
	}
	return data
}

// maker makes one instance.
type maker struct {
	root *jsonschema.Schema // what "#" refers to
	left int                // how many more values may be made
}

// value is an instance of a schema that is so many levels below the root.
func (m *maker) value(s *jsonschema.Schema, depth int) any {
	m.left--
	if s = m.follow(s, depth); s == nil || m.left < 0 {
		return nil
	}
	kind := s.Type
	switch {
	case s.Const != nil:
		return *s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.Types) > 0:
		kind = s.Types[0]
	case kind == "" && (s.Properties != nil || s.Required != nil):
		kind = "object"
	}
	least := 0.0
	if s.Minimum != nil {
		least = max(*s.Minimum, 0)
	}
	switch kind {
	case "object":
		object := make(map[string]any)
		for _, name := range s.Required {
			object[name] = m.value(s.Properties[name], depth+1)
		}
		return object
	case "array":
		list := []any{}
		for s.MinItems != nil && len(list) < *s.MinItems && m.left > 0 {
			list = append(list, m.value(s.Items, depth+1))
		}
		return list
	case "string":
		return "simulated"
	case "number":
		return least
	case "integer":
		return math.Ceil(least)
	case "boolean":
		return false
	}
	return nil
}

// follow follows a schema's reference or, where it has no type of its own, the first
// of its ways. Deep inside it takes the last way, so that a schema which refers to
// itself comes to an end. It is nil for a reference to elsewhere.
func (m *maker) follow(s *jsonschema.Schema, depth int) *jsonschema.Schema {
	const deep, most = 6, 32
	for range most {
		if s == nil {
			return nil
		}
		switch ways := slices.Concat(s.AnyOf, s.OneOf, s.AllOf); {
		case s.Ref == "#":
			s = m.root
		case s.Ref != "":
			s = m.root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
		case len(ways) == 0 || s.Type != "" || s.Types != nil:
			return s
		case depth > deep:
			s = ways[len(ways)-1]
		default:
			s = ways[0]
		}
	}
	return nil
}
