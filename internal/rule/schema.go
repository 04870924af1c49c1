package rule

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// JSONSchema notes a schema that is too large, or that no draft from 04 to 2020-12 takes for
// valid: most vendors take schemas of several.
func (p *Problem) JSONSchema(param string, schema []byte) {
	p.jsonSchema(param, schema, anyDraft, "draft 04 to draft 2020-12")
}

// JSONSchemaOfDraft is the same for a vendor that reads a schema by its $schema: draft 04, 06,
// 07, 2019-09 or 2020-12. A schema that names none of them is of 2020-12.
func (p *Problem) JSONSchemaOfDraft(param string, schema []byte) {
	uri := strings.TrimSuffix(rawjson.LookupString(schema, "$schema"), "#")
	_, uri, _ = strings.Cut(uri, "://json-schema.org/")
	for _, d := range drafts {
		if d.path == uri {
			p.jsonSchema(param, schema, d.meta, d.name)
			return
		}
	}
	p.jsonSchema(param, schema, draft202012, "draft 2020-12")
}

func (p *Problem) jsonSchema(param string, schema []byte, meta metaSchema, draft string) {
	if schema == nil {
		schema = []byte("null")
	}
	if !p.Schema(param, schema) {
		return
	}
	const most = 32_768 // names, values and brackets: each is checked
	if err := rawjson.Within(schema, rawjson.Bounds{Tokens: most}); err != nil {
		p.Refuse(param, fmt.Sprintf("%q is too large: %s.", param, rawjson.Inside(err)))
	} else if err := checkSchema(schema, meta); err != nil {
		p.Refuse(param, fmt.Sprintf("%q must be a valid JSON Schema (%s): %s.", param, draft, err))
	}
}

// checkSchema validates a schema against a meta-schema. References are not
// followed and patterns not compiled: upstreams differ in what they allow.
func checkSchema(raw []byte, of metaSchema) error {
	var schema any
	if err := json.Unmarshal(raw, &schema); err != nil {
		return err
	}
	meta, err := of()
	if err != nil {
		return err
	}
	if err := meta.Validate(schema); err != nil {
		if e := locate(meta, schema, ""); e != nil {
			return e
		}
		return errors.New(reason(err))
	}
	return nil
}

// metaSchema is what a draft says of the keywords' own values; it is made when it is first
// needed.
type metaSchema = func() (*jsonschema.Resolved, error)

// The meta-schemas. That of draft 2020-12 is in metaSchemaText (JSON Schema Core, sections 8
// to 10; Validation, 6 to 9). The others differ from it in a few keywords.
var (
	draft202012 = sync.OnceValues(func() (*jsonschema.Resolved, error) { return newMetaSchema() })
	olderDraft  = sync.OnceValues(func() (*jsonschema.Resolved, error) { return newMetaSchema(olderKeywords) })
	draft04     = sync.OnceValues(func() (*jsonschema.Resolved, error) { return newMetaSchema(olderKeywords, flagBounds) })
	anyDraft    = sync.OnceValues(func() (*jsonschema.Resolved, error) { return newMetaSchema(olderKeywords, anyBounds) })
)

// drafts are by what their $schema names: the path at json-schema.org.
var drafts = []struct {
	path, name string
	meta       metaSchema
}{
	{"draft-04/schema", "draft 04", draft04},
	{"draft-06/schema", "draft 06", olderDraft},
	{"draft-07/schema", "draft 07", olderDraft},
	{"draft/2019-09/schema", "draft 2019-09", olderDraft},
}

// olderKeywords are the keywords that drafts before 2020-12 have, or have with other values.
const olderKeywords = `{
 "id": {"$ref": "#/$defs/text"}, "$recursiveRef": {"$ref": "#/$defs/text"}, "$recursiveAnchor": {"$ref": "#/$defs/flag"},
 "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/schemas"}]}, "additionalItems": {"$ref": "#"},
 "dependencies": {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/names"}]}}
}`

// The values of exclusive bounds in draft 04, and in any draft.
const (
	flagBounds = `{"exclusiveMaximum": {"$ref": "#/$defs/flag"}, "exclusiveMinimum": {"$ref": "#/$defs/flag"}}`
	anyBounds  = `{"exclusiveMaximum": {"type": ["number", "boolean"]}, "exclusiveMinimum": {"type": ["number", "boolean"]}}`
)

// newMetaSchema is the meta-schema of draft 2020-12 with other keywords.
func newMetaSchema(others ...string) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(metaSchemaText), &s); err != nil {
		return nil, err
	}
	for _, keywords := range others {
		if err := json.Unmarshal([]byte(keywords), &s.Properties); err != nil {
			return nil, err
		}
	}
	return s.Resolve(nil)
}

const metaSchemaText = `{
 "$defs": {
  "text":    {"type": "string"},
  "flag":    {"type": "boolean"},
  "number":  {"type": "number"},
  "count":   {"type": "integer", "minimum": 0},
  "names":   {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
  "kind":    {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]},
  "schemas": {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
  "named":   {"type": "object", "additionalProperties": {"$ref": "#"}}
 },
 "type": ["object", "boolean"],
 "properties": {
  "$id": {"$ref": "#/$defs/text"}, "$schema": {"$ref": "#/$defs/text"}, "$ref": {"$ref": "#/$defs/text"},
  "$anchor": {"$ref": "#/$defs/text"}, "$dynamicRef": {"$ref": "#/$defs/text"}, "$dynamicAnchor": {"$ref": "#/$defs/text"},
  "$comment": {"$ref": "#/$defs/text"}, "$defs": {"$ref": "#/$defs/named"}, "definitions": {"$ref": "#/$defs/named"},
  "$vocabulary": {"type": "object", "additionalProperties": {"type": "boolean"}},
  "type": {"anyOf": [{"$ref": "#/$defs/kind"}, {"type": "array", "minItems": 1, "uniqueItems": true, "items": {"$ref": "#/$defs/kind"}}]},
  "enum": {"type": "array"},
  "multipleOf": {"type": "number", "exclusiveMinimum": 0},
  "maximum": {"$ref": "#/$defs/number"}, "exclusiveMaximum": {"$ref": "#/$defs/number"},
  "minimum": {"$ref": "#/$defs/number"}, "exclusiveMinimum": {"$ref": "#/$defs/number"},
  "maxLength": {"$ref": "#/$defs/count"}, "minLength": {"$ref": "#/$defs/count"}, "pattern": {"$ref": "#/$defs/text"},
  "maxItems": {"$ref": "#/$defs/count"}, "minItems": {"$ref": "#/$defs/count"}, "uniqueItems": {"$ref": "#/$defs/flag"},
  "maxContains": {"$ref": "#/$defs/count"}, "minContains": {"$ref": "#/$defs/count"},
  "maxProperties": {"$ref": "#/$defs/count"}, "minProperties": {"$ref": "#/$defs/count"},
  "required": {"$ref": "#/$defs/names"},
  "dependentRequired": {"type": "object", "additionalProperties": {"$ref": "#/$defs/names"}},
  "prefixItems": {"$ref": "#/$defs/schemas"}, "items": {"$ref": "#"}, "contains": {"$ref": "#"},
  "additionalProperties": {"$ref": "#"}, "properties": {"$ref": "#/$defs/named"},
  "patternProperties": {"$ref": "#/$defs/named"}, "dependentSchemas": {"$ref": "#/$defs/named"},
  "propertyNames": {"$ref": "#"}, "if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"},
  "allOf": {"$ref": "#/$defs/schemas"}, "anyOf": {"$ref": "#/$defs/schemas"}, "oneOf": {"$ref": "#/$defs/schemas"},
  "not": {"$ref": "#"}, "unevaluatedItems": {"$ref": "#"}, "unevaluatedProperties": {"$ref": "#"},
  "title": {"$ref": "#/$defs/text"}, "description": {"$ref": "#/$defs/text"}, "format": {"$ref": "#/$defs/text"},
  "deprecated": {"$ref": "#/$defs/flag"}, "readOnly": {"$ref": "#/$defs/flag"}, "writeOnly": {"$ref": "#/$defs/flag"},
  "examples": {"type": "array"},
  "contentEncoding": {"$ref": "#/$defs/text"}, "contentMediaType": {"$ref": "#/$defs/text"}, "contentSchema": {"$ref": "#"}
 }
}`

// typeNames are the values of the keyword `type` (Validation, 6.1.1).
var typeNames = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// locate finds the first place in a bad schema that is itself wrong; the validator only tells
// which rule was broken. It looks at each value once.
func locate(meta *jsonschema.Resolved, schema any, path string) error {
	members, ok := schema.(map[string]any)
	if !ok {
		if _, ok := schema.(bool); ok {
			return nil
		}
		return fmt.Errorf("at %s: %s is neither an object nor true or false", "#"+path, excerpt(schema))
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := locateIn(meta, name, members[name], childPath(path, name)); err != nil {
			return err
		}
	}
	return nil
}

// locateIn looks at one keyword: at the schemas in it, otherwise at its value.
func locateIn(meta *jsonschema.Resolved, name string, value any, path string) error {
	list, isList := value.([]any)
	named, isNamed := value.(map[string]any)
	var ref string // by which the meta-schema says that the keyword holds schemas
	if keyword := meta.Schema().Properties[name]; keyword != nil {
		if ref = keyword.Ref; len(keyword.AnyOf) == 2 && keyword.AnyOf[0].Ref == "#" { // one or a list
			ref = "#"
			if isList {
				ref = keyword.AnyOf[1].Ref
			}
		}
	}
	switch {
	case ref == "#":
		return locate(meta, value, path)
	case ref == "#/$defs/schemas" && isList && len(list) > 0:
		for i, v := range list {
			if err := locate(meta, v, childPath(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
		return nil
	case ref == "#/$defs/named" && isNamed:
		for _, key := range slices.Sorted(maps.Keys(named)) {
			if err := locate(meta, named[key], childPath(path, key)); err != nil {
				return err
			}
		}
		return nil
	}
	err := meta.Validate(map[string]any{name: value})
	switch {
	case err == nil:
		return nil
	case name == "type":
		return fmt.Errorf("at %s: %s is not %s, nor a list of different ones of them", "#"+path, excerpt(value), Words(typeNames))
	}
	return fmt.Errorf("at %s: %s", "#"+path, reason(err))
}

// childPath is the path of a member. It is bounded here, not in the message alone,
// for long names would be copied into each path below them.
func childPath(path, name string) string {
	const most = 100
	if len(path) >= most {
		return path
	}
	return safetext.Truncate(path+"/"+safetext.Truncate(name, most), most)
}

// excerpt is the beginning of a value.
func excerpt(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "the value"
	}
	return safetext.Truncate(string(data), 40)
}

// reason is the innermost of the validator's chain, without the place in the
// meta-schema, which says nothing to a caller.
func reason(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, "validating "); i >= 0 {
		s = s[i:]
		if _, inner, ok := strings.Cut(s, ": "); ok {
			s = inner
		}
	}
	return strings.TrimSuffix(safetext.Truncate(s, 150), ".")
}
