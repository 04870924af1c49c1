package sim

import (
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

func TestAnInstanceIsTheLeastThatTheSchemaAllows(t *testing.T) {
	for schema, want := range map[string]string{
		`{}`:                `null`,
		`{"type":"object"}`: `{}`,
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["b"]}`: `{"b":0}`,
		`{"required":["b","a"],"properties":{"a":{"type":"boolean"}}}`:                                  `{"a":false,"b":null}`,
		`{"type":"array","items":{"type":"string"}}`:                                                    `[]`,
		`{"type":"array","items":{"type":"boolean"},"minItems":2}`:                                      `[false,false]`,
		`{"type":"string"}`:                                                `"simulated"`,
		`{"type":"integer","minimum":2.5}`:                                 `3`,
		`{"type":"number","minimum":-1}`:                                   `0`,
		`{"type":"number","minimum":0.5}`:                                  `0.5`,
		`{"type":["null","string"]}`:                                       `null`,
		`{"enum":["b","a"]}`:                                               `"b"`,
		`{"const":{"a":[1]}}`:                                              `{"a":[1]}`,
		`{"anyOf":[{"type":"string"},{"type":"null"}]}`:                    `"simulated"`,
		`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}}`: `"simulated"`,
		`{"type":"object","properties":{"a":{"oneOf":[{"$ref":"#"},{"type":"null"}]}},"required":["a"]}`: `{"a":{"a":{"a":{"a":{"a":{"a":{"a":null}}}}}}}`,
	} {
		got := instance([]byte(schema))
		if string(got) != want {
			t.Errorf("%s gave %s, want %s", schema, got, want)
		}
		validate(t, schema, got)
	}
}

// validate validates an instance against its schema.
func validate(t *testing.T, schema string, instance []byte) {
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
	if err := json.Unmarshal(instance, &v); err != nil {
		t.Fatalf("%s gave %s: %v", schema, instance, err)
	}
	if err := resolved.Validate(v); err != nil {
		t.Errorf("%s gave %s: %v", schema, instance, err)
	}
}

func TestAnInstanceOfAnySchemaIsJSONAndBounded(t *testing.T) {
	for _, schema := range []string{
		`{"$ref":"#"}`, `{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`, `{"$ref":"other.json"}`, `{"$ref":"#/$defs/none/deeper"}`, `7`, `true`, `{"type":7}`,
		`{"type":"object","required":["a","b"],"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`,
		`{"type":"array","minItems":9e99,"items":{"$ref":"#"}}`, `{"type":"array","minItems":1000000000,"items":{"$ref":"#"}}`,
		`{"type":"integer","minimum":1e300}`, `{"type":"number","minimum":1e999}`, `{"type":"integer","minimum":5,"maximum":1}`,
	} {
		if got := instance([]byte(schema)); !json.Valid(got) || len(got) > 100*mostValues {
			t.Errorf("%s gave %.100s", schema, got)
		}
	}
}

func TestStructuredOutputFollowsItsSchema(t *testing.T) {
	const schema = `{"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","minItems":1,"items":{"type":"string"}}},"required":["name","tags"],"additionalProperties":false}`
	r := ask(t, Options{}, with(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":`+schema+`}}`))
	validate(t, schema, []byte(r.Choices[0].Message.Content.String()))
}
