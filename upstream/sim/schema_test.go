package sim

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
)

// checked validates an instance against its schema.
func checked(t *testing.T, schema, instance string) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	var v any
	if err := json.Unmarshal([]byte(instance), &v); err != nil {
		t.Fatalf("%s gave %s: %v", schema, instance, err)
	}
	if err := resolved.Validate(v); err != nil {
		t.Errorf("%s gave %s: %v", schema, instance, err)
	}
}

func TestAnInstanceIsTheLeastThatTheSchemaAllows(t *testing.T) {
	for _, row := range []struct{ schema, want string }{
		{`{}`, `null`},
		{`{"type":"object"}`, `{}`},
		{`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["b"]}`, `{"b":0}`},
		{`{"required":["b","a"],"properties":{"a":{"type":"boolean"}}}`, `{"b":null,"a":false}`},
		{`{"type":"array","items":{"type":"string"}}`, `[]`},
		{`{"type":"array","items":{"type":"boolean"},"minItems":2}`, `[false,false]`},
		{`{"type":"string"}`, `"simulated"`},
		{`{"type":"integer"}`, `0`},
		{`{"type":"integer","minimum":2.5}`, `3`},
		{`{"type":"number","minimum":-1,"maximum":1}`, `0`},
		{`{"type":"number","minimum":0.5}`, `0.5`},
		{`{"type":["null","string"]}`, `null`},
		{`{"enum":["b","a"]}`, `"b"`},
		{`{"const":12345678901234567890}`, `12345678901234567890`},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `"simulated"`},
		{`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}}`, `"simulated"`},
		{`{"type":"object","required":["a","a"],"properties":{"a":{"type":"string"}}}`, `{"a":"simulated"}`},
	} {
		got := string(instance([]byte(row.schema)))
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.schema, diff)
		}
		checked(t, row.schema, got)
	}
}

func TestASchemaThatRefersToItselfComesToAnEnd(t *testing.T) {
	tree := `{"type":"object","properties":{"left":{"anyOf":[{"$ref":"#"},{"type":"null"}]},"right":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["left","right"]}`
	checked(t, tree, string(instance([]byte(tree))))
	for _, endless := range []string{
		`{"$ref":"#"}`, `{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`,
		`{"type":"object","required":["a","b"],"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`,
		`{"type":"array","minItems":9e99,"items":{"$ref":"#"}}`, `{"type":"object","minProperties":1e300}`,
		`{"$ref":"other.json"}`, `{"$ref":"#/$defs/none/deeper"}`, `{"type":"string","minLength":1e300}`,
		`{"type":"integer","minimum":1e300}`, `{"type":"integer","minimum":5,"maximum":1}`, `{"type":"number","multipleOf":0}`,
		`{"type":"number","exclusiveMinimum":1,"multipleOf":1e-310}`, `{"type":"number","minimum":1.7e308,"multipleOf":1.6e308}`,
		`{"type":"number","minimum":1e999}`, `{"type":"number","maximum":-1e999,"multipleOf":1e999}`,
	} {
		if got := instance([]byte(endless)); !json.Valid(got) {
			t.Errorf("%s gave %.100s", endless, got)
		}
	}
}

func TestStructuredOutputFollowsItsSchema(t *testing.T) {
	const schema = `{"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","minItems":1,"items":{"type":"string"}}},"required":["name","tags"],"additionalProperties":false}`
	r := ask(t, Options{}, with(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":`+schema+`}}`))
	checked(t, schema, r.Choices[0].Message.Content.String())
}

func FuzzAnInstanceIsAlwaysJSON(f *testing.F) {
	f.Add(`{"type":"object","required":["a"],"properties":{"a":{"type":"string","pattern":"^a|b$"}}}`)
	f.Add(`{"anyOf":[{"type":"array","minItems":3,"uniqueItems":true,"items":{"type":"number","exclusiveMinimum":1}}]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		if json.Valid([]byte(schema)) && !strings.Contains(schema, `\ud`) {
			if got := instance([]byte(schema)); !json.Valid(got) {
				t.Errorf("%s gave %q", schema, got)
			}
		}
	})
}
