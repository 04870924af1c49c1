package openapitest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Examples calls tell for every example of a request, a response, a parameter or
// a header, with what its schema says of it.
func (s *Spec) Examples(tell func(at string, err error)) error {
	c := &compiler{doc: s.doc, schemas: jsonschema.NewCompiler()}
	if err := c.schemas.AddResource(address, any(s.doc)); err != nil {
		return err
	}
	c.walk(s.doc, "", tell)
	return c.err
}

func (c *compiler) walk(v any, at string, tell func(at string, err error)) {
	switch v := v.(type) {
	case []any:
		for i, element := range v {
			c.walk(element, at+"/"+strconv.Itoa(i), tell)
		}
	case map[string]any:
		if v["schema"] != nil && !strings.HasSuffix(at, "/properties") {
			c.examples(v, at, tell)
		}
		for name, member := range v {
			if name != "example" && name != "examples" {
				c.walk(member, at+"/"+escape(name), tell)
			}
		}
	}
}

// examples checks those of one object that has a schema.
func (c *compiler) examples(o map[string]any, at string, tell func(at string, err error)) {
	values := make(map[string]any)
	for name, example := range child(o, "examples") {
		values[name] = child(map[string]any{"": example}, "")["value"]
	}
	if one, ok := o["example"]; ok {
		values["example"] = one
	}
	if len(values) == 0 {
		return
	}
	schema := c.schema(at + "/schema")
	if schema == nil {
		return
	}
	for name, v := range values {
		tell(at+"/"+name, explain(fmt.Sprint(v), schema.Validate(v)))
	}
}
