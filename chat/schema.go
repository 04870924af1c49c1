package chat

import (
	"encoding"
	stdjson "encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
)

// form is the JSON form of a Go type.
type form struct {
	name    string               // of the type, as vendors take names
	wire    jsontext.Value       // the schema that the model gets
	check   *jsonschema.Resolved // what its JSON is held against; optional members may be null
	strict  bool                 // wire obeys the rules of strict schemas
	wrapped bool                 // the type is no object: it is the member "value" of one
}

// formOf is the form of an answer. Every member of a strict schema is required; an optional one
// may be null.
func formOf(t reflect.Type) (*form, error) {
	f, s, err := newForm(t)
	if err != nil {
		return nil, err
	}
	if f.strict {
		each(s, requireAll)
	}
	return f, f.setWire(s)
}

// argumentsOf is the form of a tool's arguments. Optional members may be left out.
func argumentsOf(t reflect.Type) (*form, error) {
	f, s, err := newForm(t)
	if err != nil {
		return nil, err
	}
	return f, f.setWire(s)
}

// newForm is the form of a type but for what the model gets, which is made of the schema s.
func newForm(t reflect.Type) (f *form, s *jsonschema.Schema, err error) {
	f = &form{name: nameOf(t)}
	if s, err = schemaOf(t); err != nil {
		return nil, nil, err
	}
	defs := s.Defs
	s.Defs = nil
	withoutNull(s)
	if s.Type != "object" {
		f.wrapped = true
		s = &jsonschema.Schema{
			Type: "object", Properties: map[string]*jsonschema.Schema{"value": s}, Required: []string{"value"},
			AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
		}
	}
	s.Defs = defs
	checked := s.CloneSchemas()
	each(checked, optionalMayBeNull)
	if f.check, err = checked.Resolve(nil); err != nil {
		return nil, nil, err
	}
	f.strict = true
	each(s, func(s *jsonschema.Schema) { f.strict = f.strict && isClosed(s) })
	each(s, func(s *jsonschema.Schema) {
		if slices.Contains(s.Types, "array") { // a list without elements says as much as null
			withoutNull(s)
		}
	})
	return f, s, nil
}

// schemaOf is the schema of a type. A struct that contains itself, or has numbers that are
// written as text, is a definition, to which the others refer.
func schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	o := &jsonschema.ForOptions{TypeSchemas: textTypes(t)}
	own := definitions(t, o.TypeSchemas)
	names := make(map[reflect.Type]string)
	for _, r := range own {
		names[r] = fmt.Sprintf("%s_%d", nameOf(r), len(names)+1)
		o.TypeSchemas[r] = &jsonschema.Schema{Ref: "#/$defs/" + names[r]}
	}
	defs := make(map[string]*jsonschema.Schema)
	for _, r := range own {
		s, err := jsonschema.ForType(unnamed(r), o)
		if err != nil {
			return nil, err
		}
		defs[names[r]] = s
	}
	for t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	s := defs[names[t]].CloneSchemas()
	if s == nil {
		var err error
		if s, err = jsonschema.ForType(t, o); err != nil {
			return nil, err
		}
	}
	if len(defs) > 0 {
		s.Defs = defs
	}
	each(s, func(s *jsonschema.Schema) {
		if s.Ref != "" && len(s.Types) > 0 { // of a pointer
			s.Types = nil
			orNull(s)
		}
	})
	return s, nil
}

// definitions are the structs in t that contain themselves, or have a field with the option
// "string", but for those that known describes.
func definitions(t reflect.Type, known map[reflect.Type]*jsonschema.Schema) (found []reflect.Type) {
	var within []reflect.Type
	done := make(map[reflect.Type]bool)
	add := func(t reflect.Type) {
		if !slices.Contains(found, t) {
			found = append(found, t)
		}
	}
	var look func(t reflect.Type)
	look = func(t reflect.Type) {
		switch {
		case known[t] != nil:
		case t.Kind() == reflect.Struct && slices.Contains(within, t):
			add(t)
		case done[t]:
		case t.Kind() == reflect.Struct:
			within = append(within, t)
			for i := range t.NumField() {
				if asText(t.Field(i)) {
					add(t)
				}
				look(t.Field(i).Type)
			}
			within = within[:len(within)-1]
			done[t] = true
		case t.Name() == "" && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map):
			look(t.Elem())
		}
	}
	look(t)
	return found
}

// unnamed is a struct with the fields that encoding/json reads of t.
func unnamed(t reflect.Type) reflect.Type {
	var fields []reflect.StructField
	for _, f := range reflect.VisibleFields(t) {
		if !f.IsExported() || f.Anonymous {
			continue
		}
		if asText(f) {
			f.Type = reflect.TypeFor[string]()
		}
		fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
	}
	return reflect.StructOf(fields)
}

// asText reports whether a field has the option "string", by which encoding/json writes its
// number as text.
func asText(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if !slices.Contains(strings.Split(options, ","), "string") {
		return false
	}
	kind := f.Type.Kind()
	return kind >= reflect.Bool && kind <= reflect.Float64 || kind == reflect.String
}

// orNull lets what a schema refers to be null too.
func orNull(s *jsonschema.Schema) {
	s.AnyOf = []*jsonschema.Schema{{Ref: s.Ref}, {Type: "null"}}
	s.Ref = ""
}

// setWire makes s the schema that the model gets.
func (f *form) setWire(s *jsonschema.Schema) (err error) {
	f.wire, err = stdjson.Marshal(s)
	return err
}

// each calls f for a schema and all schemas in it.
func each(s *jsonschema.Schema, f func(*jsonschema.Schema)) {
	if s == nil {
		return
	}
	f(s)
	each(s.Items, f)
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
		each(s.AdditionalProperties, f)
	}
	for _, p := range s.Properties {
		each(p, f)
	}
	for _, d := range s.Defs {
		each(d, f)
	}
}

// isClosed reports whether a schema says all that its values may be.
func isClosed(s *jsonschema.Schema) bool {
	typed := s.Type != "" || len(s.Types) > 0 || s.Ref != "" || s.AnyOf != nil
	return typed && (s.AdditionalProperties == nil || s.AdditionalProperties.Not != nil)
}

// requireAll makes every member of an object required, and null what stands for an absent one.
func requireAll(s *jsonschema.Schema) {
	optionalMayBeNull(s)
	if s.Properties != nil {
		s.Required = slices.Clone(s.PropertyOrder)
	}
	if s.Properties != nil && len(s.Required) == 0 {
		for name := range s.Properties {
			s.Required = append(s.Required, name)
		}
		slices.Sort(s.Required)
	}
}

// optionalMayBeNull lets the members of an object be null that are not required.
func optionalMayBeNull(s *jsonschema.Schema) {
	for name, p := range s.Properties {
		switch {
		case slices.Contains(s.Required, name):
		case p.Type != "":
			p.Types, p.Type = []string{p.Type, "null"}, ""
		case p.Ref != "":
			orNull(p)
		}
	}
}

// withoutNull takes null out of the types of a schema.
func withoutNull(s *jsonschema.Schema) {
	if at := slices.Index(s.Types, "null"); at >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-at], nil
	}
}

// textTypes are the schemas of the types in t that encoding/json does not write by their
// fields: as text, or as they like.
func textTypes(t reflect.Type) map[reflect.Type]*jsonschema.Schema {
	found := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():          {Type: "string", Format: "date-time"},
		reflect.TypeFor[stdjson.Number]():     {Type: "number"},
		reflect.TypeFor[stdjson.RawMessage](): {},
		reflect.TypeFor[jsontext.Value]():     {},
		reflect.TypeFor[big.Int]():            {Type: "integer"},
	}
	seen := make(map[reflect.Type]bool)
	var look func(t reflect.Type)
	look = func(t reflect.Type) {
		if seen[t] || found[t] != nil {
			return
		}
		seen[t] = true
		implements := reflect.PointerTo(t).Implements
		switch {
		case t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer:
		case implements(reflect.TypeFor[stdjson.Unmarshaler]()):
			found[t] = &jsonschema.Schema{}
			return
		case implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
			found[t] = &jsonschema.Schema{Type: "string"}
			return
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
			found[t] = &jsonschema.Schema{Type: "string", Description: "In base64."}
			return
		}
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			look(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				look(t.Field(i).Type)
			}
		}
	}
	look(t)
	return found
}

// nameOf is the name of a type in letters, digits, "_" and "-"; "answer" if it has none.
func nameOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	const most = 64
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, t.Name())
	if name == "" {
		return "answer"
	}
	return name[:min(len(name), most)]
}
