package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tollhouse-ai/gateway/internal/rule"
)

// kinds are the values of the keyword `type` (Validation, 6.1.1).
var kinds = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// nests are the keywords whose values hold schemas, and how: one, a list, or by
// name. They are those of metaSchemaText.
var nests = map[string]byte{
	"items": '1', "contains": '1', "additionalProperties": '1', "propertyNames": '1',
	"if": '1', "then": '1', "else": '1', "not": '1', "contentSchema": '1',
	"unevaluatedItems": '1', "unevaluatedProperties": '1',
	"prefixItems": '[', "allOf": '[', "anyOf": '[', "oneOf": '[',
	"$defs": '{', "definitions": '{', "properties": '{', "patternProperties": '{', "dependentSchemas": '{',
}

// locate finds the first place of a bad schema that is wrong by itself; the
// validator tells only which rule was broken. Each value is looked at once.
func locate(meta *jsonschema.Resolved, schema any, path string) error {
	members, ok := schema.(map[string]any)
	if !ok {
		if _, ok := schema.(bool); ok {
			return nil
		}
		return fmt.Errorf("at %s: %s is neither an object nor true or false", "#"+path, excerpt(schema))
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := locateIn(meta, name, members[name], within(path, name)); err != nil {
			return err
		}
	}
	return nil
}

// locateIn looks at one keyword: at the schemas in it, or else at its value.
func locateIn(meta *jsonschema.Resolved, name string, value any, path string) error {
	list, isList := value.([]any)
	named, isNamed := value.(map[string]any)
	switch kind := nests[name]; {
	case kind == '1':
		return locate(meta, value, path)
	case kind == '[' && isList && len(list) > 0:
		for i, v := range list {
			if err := locate(meta, v, within(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
		return nil
	case kind == '{' && isNamed:
		for _, key := range slices.Sorted(maps.Keys(named)) {
			if err := locate(meta, named[key], within(path, key)); err != nil {
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
		return fmt.Errorf("at %s: %s is not %s, nor a list of different ones of them", "#"+path, excerpt(value), rule.Words(kinds))
	}
	return fmt.Errorf("at %s: %s", "#"+path, reason(err))
}

// within is the path of a member. It is bounded here, not in the message alone,
// for long names would be copied into each path below them.
func within(path, name string) string {
	const most = 100
	if len(path) >= most {
		return path
	}
	return cut(path+"/"+cut(name, most), most)
}

// excerpt is the beginning of a value.
func excerpt(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "the value"
	}
	return cut(string(data), 40)
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
	return strings.TrimSuffix(cut(s, 150), ".")
}

// cut keeps at most most bytes of a text.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
