package rule

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// refused is the refusal of a schema; empty for none.
func refused(schema string) string {
	var p Problem
	p.JSONSchema("schema", []byte(schema))
	return words(p.Err())
}

func TestAnswersMayFollowAValidSchemaOnly(t *testing.T) {
	for schema, valid := range map[string]bool{
		`true`: true,
		`{}`:   true,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`: true,
		`{"type":["string","null"]}`:                              true,
		`{"enum":[1,"a",null],"const":null}`:                      true,
		`{"minLength":1.0}`:                                       true,
		`{"pattern":"^(?=.*[0-9]).+$"}`:                           true,
		`{"pattern":"("}`:                                         true,
		`{"$ref":"https://example.com/other.json"}`:               true,
		`{"anyOf":[{"type":"null"},true]}`:                        true,
		`{"x-vendor":{"type":"banana"}}`:                          true,
		`{"default":{"type":"banana"},"examples":[{"type":"x"}]}`: true,

		`1`:                                false,
		`[]`:                               false,
		`{"type":"banana"}`:                false,
		`{"type":["string","string"]}`:     false,
		`{"minLength":-1}`:                 false,
		`{"multipleOf":0}`:                 false,
		`{"allOf":[]}`:                     false,
		`{"oneOf":[1]}`:                    false,
		`{"required":["a","a"]}`:           false,
		`{"enum":"a"}`:                     false,
		`{"properties":{"a":"string"}}`:    false,
		`{"pattern":1}`:                    false,
		`{"additionalProperties":"no"}`:    false,
		`{"$defs":{"a":{"minItems":-1}}}`:  false,
		`{"not":{"allOf":[{"type":"x"}]}}`: false,
	} {
		if message := refused(schema); (message == "") != valid || len(message) > 400 {
			t.Errorf("%s: refused: %s", schema, message)
		}
	}
}

// TestASchemaIsOneOfItsDraft has what drafts say differently: of the draft that $schema
// names, and of the caller's model that takes any.
func TestASchemaIsOneOfItsDraft(t *testing.T) {
	of := func(draft, rest string) string { return `{"$schema":"` + draft + `",` + rest[1:] }
	const (
		draft04, draft06, draft07 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema", "https://json-schema.org/draft-07/schema#"
		draft2019, draft2020      = "https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema"
		flag, list, depends       = `{"minimum":1,"exclusiveMinimum":true}`, `{"items":[{"type":"string"}],"additionalItems":false}`, `{"dependencies":{"a":["b"],"c":{"type":"object"}}}`
	)
	for _, tt := range []struct {
		schema       string
		strict, wide bool // whether it is taken
	}{
		{of(draft04, flag), true, true}, {of(draft06, flag), false, true}, {of(draft2020, flag), false, true}, {flag, false, true},
		{of(draft04, `{"exclusiveMinimum":1}`), false, true}, {of(draft07, `{"exclusiveMinimum":1}`), true, true}, {`{"exclusiveMinimum":1}`, true, true},
		{of(draft04, list), true, true}, {of(draft07, list), true, true}, {of(draft2019, list), true, true}, {of(draft2020, list), false, true}, {list, false, true},
		{of(draft07, depends), true, true}, {depends, true, true},
		{of("https://example.com/mine", list), false, true},
		{of(draft07, `{"items":[{"type":"strin"}]}`), false, false}, {of(draft04, `{"exclusiveMinimum":"no"}`), false, false}, {of(draft07, `{"items":[]}`), false, false},
	} {
		var strict Problem
		strict.JSONSchemaOfDraft("schema", []byte(tt.schema))
		if err := strict.Err(); (err == nil) != tt.strict {
			t.Errorf("%s by its draft: %v", tt.schema, err)
		}
		if message := refused(tt.schema); (message == "") != tt.wide {
			t.Errorf("%s by any: %s", tt.schema, message)
		}
	}
	if message := refused(of(draft07, `{"items":[true,{"type":"strin"}]}`)); !strings.Contains(message, "at #/items/1/type") {
		t.Error(message)
	}
}

func TestADeepSchemaIsNotAProblem(t *testing.T) {
	const depth = 63
	if message := refused(strings.Repeat(`{"not":`, depth) + `{}` + strings.Repeat(`}`, depth)); message != "" {
		t.Errorf("refused: %s", message)
	}
}

func TestTheMessageNamesThePlaceInTheCallersSchema(t *testing.T) {
	const kinds = `"array", "boolean", "integer", "null", "number", "object" or "string"`
	for schema, want := range map[string]string{
		`{"properties":{"a":{"type":"strin"}}}`:                 `at #/properties/a/type: "strin" is not ` + kinds,
		`{"items":{"anyOf":[{"type":"null"},{"minItems":-1}]}}`: `at #/items/anyOf/1/minItems: minimum: -1`,
		`{"properties":{"a":"string"}}`:                         `at #/properties/a: "string" is neither an object nor true or false`,
		`{"$defs":{"b":true},"required":"a"}`:                   `at #/required: `,
		`{"allOf":[]}`:                                          `at #/allOf: `,
		`[]`:                                                    `at #: [] is neither`,
	} {
		message := refused(schema)
		if !strings.Contains(message, want) || !strings.Contains(message, "draft 2020-12") || strings.Contains(message, "$defs/") || strings.Contains(message, "validating") {
			t.Errorf("%s: %s; want %s", schema, message, want)
		}
	}
}

func TestLongNamesInASchemaDoNotMakeALongMessage(t *testing.T) {
	name := strings.Repeat("ä", 5000)
	schema := strings.Repeat(`{"properties":{"`+name+`":`, 5) + `{"type":"` + name + `"}` + strings.Repeat(`}}`, 5)
	if message := refused(schema); message == "" || len(message) > 450 || !utf8.ValidString(message) {
		t.Errorf("%d bytes: %s", len(message), message)
	}
}
