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

// instance returns a small JSON value that follows a JSON Schema as far as a demo needs. It
// has the required members only, the shortest lists and the first of several alternatives. It
// ignores other keywords. A schema that cannot be read gives null.
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

// follow resolves a schema's reference or, if it has no type, takes its first alternative.
// Deep inside it takes the last alternative, so that a recursive schema ends. It returns nil
// for a reference to another document.
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
