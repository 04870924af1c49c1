// Package openapitest holds tests' traffic against the OpenAPI document: each
// request that was accepted and each response must be as the document says.
package openapitest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tollhouse-ai/gateway/server/openapi"
)

// Spec is the document, ready to check by. It is safe for concurrent use.
type Spec struct {
	doc        map[string]any
	operations []*Operation
	webhooks   map[string]*Operation // by name
	fallback   *jsonschema.Schema    // of an error where no operation is asked for
}

// Operation is a method of a path.
type Operation struct {
	Method, Path string // the path has "{id}" where it takes one, which may be several segments

	parameters []parameter
	request    map[string]*jsonschema.Schema // by media type; nil if it takes no body
	form       map[string]any                // the properties of a multipart body
	responses  map[string]response           // by status, or "default"
}

type parameter struct {
	name, in string
	required bool
	schema   *jsonschema.Schema
}

type response struct {
	headers map[string]parameter
	content map[string]*jsonschema.Schema // by media type or range
}

// Load compiles every schema of the document once.
var Load = sync.OnceValues(load)

// address is what the compiler calls the document. It is never fetched.
const address = "openapi.json"

// load compiles all operations, and the schemas that none of them refers to, so that a
// mistake in any of them is found.
func load() (*Spec, error) {
	data, err := openapi.JSON()
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the document is a %T", doc)
	}
	c := &compiler{doc: root, schemas: jsonschema.NewCompiler()}
	if err := c.schemas.AddResource(address, doc); err != nil {
		return nil, err
	}
	s := &Spec{doc: root, fallback: c.schema("/components/schemas/Error"), webhooks: make(map[string]*Operation)}
	for path, item := range child(root, "paths") {
		for method := range item.(map[string]any) {
			s.operations = append(s.operations, c.operation(strings.ToUpper(method), path, "/paths/"+escape(path)+"/"+method))
		}
	}
	for name, item := range child(root, "webhooks") {
		for method := range item.(map[string]any) {
			s.webhooks[name] = c.operation(strings.ToUpper(method), name, "/webhooks/"+escape(name)+"/"+method)
		}
	}
	for name := range child(root, "components", "schemas") {
		c.schema("/components/schemas/" + escape(name))
	}
	return s, c.err
}

// Operations are all operations, sorted by path and method.
func (s *Spec) Operations() []*Operation {
	sorted := slices.Clone(s.operations)
	slices.SortFunc(sorted, func(a, b *Operation) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	return sorted
}

// find gives the operation of a request. Where only the method is another, it is
// one of the same path, and ok is false; nil if the path is not described.
func (s *Spec) find(method, path string) (found *Operation, ok bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, o := range s.operations {
		prefix, suffix, hasID := strings.Cut(o.Path, "{id}")
		rest, begins := strings.CutPrefix(path, prefix)
		id, ends := strings.CutSuffix(rest, suffix)
		if !begins || !ends || hasID != (id != "") || found != nil && len(o.Path) < len(found.Path) { // of two the one that says more of the path
			continue
		}
		if found == nil || o.Method == method || len(o.Path) > len(found.Path) {
			found = o
		}
	}
	return found, found != nil && found.Method == method
}

// unknown is the schema of the error at a path that is not described. It is that of the
// described path which it goes on from, if any.
func (s *Spec) unknown(path string) *jsonschema.Schema {
	for _, o := range s.operations {
		if strings.HasPrefix(path, o.Path+"/") {
			return o.responses["default"].content["application/json"]
		}
	}
	return s.fallback
}

// compiler makes schemas of places in the document, and keeps the first error.
type compiler struct {
	doc     map[string]any
	schemas *jsonschema.Compiler
	err     error
}

// schema is that at a JSON pointer. Braces of paths cannot stand in a URL.
func (c *compiler) schema(at string) *jsonschema.Schema {
	s, err := c.schemas.Compile(address + "#" + strings.ReplaceAll(strings.ReplaceAll(at, "{", "%7B"), "}", "%7D"))
	if err != nil && c.err == nil {
		c.err = err
	}
	return s
}

// operation is the method of a path, or a webhook, at a JSON pointer.
func (c *compiler) operation(method, path, at string) *Operation {
	o := &Operation{Method: method, Path: path, responses: make(map[string]response)}
	raw, _ := c.at(at)
	list, _ := raw["parameters"].([]any)
	for i := range list {
		p, at := c.at(fmt.Sprintf("%s/parameters/%d", at, i))
		o.parameters = append(o.parameters, c.parameter(p, at))
	}
	if _, ok := raw["requestBody"]; ok {
		body, at := c.at(at + "/requestBody")
		o.request = c.content(body, at)
		if o.request["multipart/form-data"] != nil {
			form, _ := c.at(at + "/content/multipart~1form-data/schema")
			o.form = child(form, "properties")
		}
	}
	for status := range child(raw, "responses") {
		r, at := c.at(at + "/responses/" + status)
		headers := make(map[string]parameter)
		for name := range child(r, "headers") {
			h, at := c.at(at + "/headers/" + name)
			headers[name] = c.parameter(h, at)
		}
		o.responses[status] = response{headers, c.content(r, at)}
	}
	return o
}

func (c *compiler) parameter(p map[string]any, at string) parameter {
	name, _ := p["name"].(string)
	in, _ := p["in"].(string)
	return parameter{name, in, p["required"] == true, c.schema(at + "/schema")}
}

// content are the schemas of a request's or response's body by media type.
func (c *compiler) content(of map[string]any, at string) map[string]*jsonschema.Schema {
	content := make(map[string]*jsonschema.Schema)
	for media := range child(of, "content") {
		content[media] = c.schema(at + "/content/" + escape(media) + "/schema")
	}
	return content
}

// at is the object at a place, and its own place where that refers to another.
func (c *compiler) at(place string) (map[string]any, string) {
	var v any = c.doc
	for _, name := range strings.Split(place, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			n, _ := strconv.Atoi(name) // we made the place
			v = in[n]
		}
	}
	o, ok := v.(map[string]any)
	if ref, _ := o["$ref"].(string); ref != "" {
		return c.at(strings.TrimPrefix(ref, "#"))
	}
	if !ok && c.err == nil {
		c.err = fmt.Errorf("the document has no object at %s", place)
	}
	return o, place
}

// escape makes a name a part of a JSON pointer (RFC 6901).
func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// child is the object under names; empty if there is none.
func child(o map[string]any, names ...string) map[string]any {
	for _, name := range names {
		o, _ = o[name].(map[string]any)
	}
	return o
}

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
