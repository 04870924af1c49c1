package faultlab

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/server/openapi"
)

// grammar makes request bodies of the schemas of the OpenAPI document.
type grammar struct{ schemas map[string]any }

// schema is a JSON Schema as it is in the document.
type schema = map[string]any

func newGrammar() (*grammar, error) {
	data, err := openapi.JSON()
	if err != nil {
		return nil, err
	}
	var document struct {
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	g := &grammar{document.Components.Schemas}
	for i := range endpoints {
		if g.schemas[endpoints[i].schema] == nil {
			return nil, fmt.Errorf("the OpenAPI document has no schema %s", endpoints[i].schema)
		}
	}
	return g, nil
}

// endpoint is where a request goes and what its body is.
type endpoint struct {
	path, schema string
	models       []string
	form         bool
}

// endpoints are all that take a body, in the document's order. A union of the
// document stands here by its parts, since a part decides which models it has.
var endpoints = []endpoint{
	{"/v1/chat/completions", "ChatCompletionRequest", []string{plainChat, renamedChat, droppedChat, nativeChat, dearChat}, false},
	{"/v1/messages", "MessagesRequest", []string{nativeChat, plainChat, renamedChat, droppedChat}, false},
	{"/v1/messages/count_tokens", "MessagesCountRequest", []string{nativeChat, plainChat}, false},
	{"/v1/responses", "ResponseRequest", []string{plainChat, renamedChat, droppedChat, nativeChat, dearChat}, false},
	{"/v1/responses/input_tokens", "ResponseRequest", []string{plainChat, nativeChat}, false},
	{"/v1/images/generations", "AlphaImageRequest", []string{alphaImage}, false},
	{"/v1/images/generations", "OpenAIImageRequest", []string{tokenImage}, false},
	{"/v1/images/generations", "OtherImageRequest", []string{pieceImage}, false},
	{"/v1/images/edits", "ImageEditRequest", []string{tokenImage}, true},
	{"/v1/videos/generations", "BetaTextVideoRequest", []string{betaVideo}, false},
	{"/v1/videos/generations", "GammaVideoRequest", []string{gammaVideo}, false},
	{"/v1/embeddings", "EmbeddingRequest", []string{plainVector, otherVector}, false},
	{"/v1/audio/speech", "SpeechRequest", []string{alphaSpeech, otherSpeech}, false},
}

// generator is the source of one request.
type generator struct {
	source
	g     *grammar
	words string // the request's prompt: it tells the vendor what to do
}

// body is a request of an endpoint, as its schema has it.
func (d *generator) body(e *endpoint) *object {
	o, ok := d.value(schema{"$ref": "#/components/schemas/" + e.schema}, "", 0).(*object)
	if !ok {
		o = obj()
	}
	o.set("model", pick(d.source, e.models...))
	if e.schema == "OtherImageRequest" {
		o.set("prompt", d.words) // the document leaves it to the vendor
	}
	if d.chance(700) {
		d.plain(o, e)
	}
	return o
}

// plain replaces what seldom makes sense where it was generated, so that most
// requests get past the checks of their endpoint.
func (d *generator) plain(o *object, e *endpoint) {
	o.remove("webhook_url")
	switch e.schema {
	case "ChatCompletionRequest", "MessagesRequest", "MessagesCountRequest":
		o.set("messages", arr(obj("role", "user", "content", d.words)))
	case "ResponseRequest":
		o.set("input", arr(obj("role", "user", "content", d.words)))
		for _, refused := range []string{"previous_response_id", "background", "conversation", "prompt", "context_management", "moderation"} {
			o.remove(refused)
		}
	case "AlphaImageRequest":
		o.set("input", obj("messages", arr(obj("role", "user", "content", arr(obj("text", d.words))))))
	case "ImageEditRequest":
		o.set("image", "")
		o.set("response_format", "b64_json")
	case "GammaVideoRequest":
		o.set("content", arr(obj("type", "text", "text", d.words)))
	case "SpeechRequest":
		o.remove("instructions")
		o.set("response_format", "wav")
	}
}

// resolved is a schema without references, whose allOf is one with it and of
// whose alternatives one was chosen.
func (d *generator) resolved(s schema) schema {
	if ref, ok := s["$ref"].(string); ok {
		named, _ := d.g.schemas[ref[strings.LastIndexByte(ref, '/')+1:]].(schema)
		return d.resolved(named)
	}
	parts, _ := s["allOf"].([]any)
	for _, union := range []string{"oneOf", "anyOf"} {
		if all, ok := s[union].([]any); ok {
			parts = append(slices.Clone(parts), all[d.IntN(len(all))])
		}
	}
	if parts == nil {
		return s
	}
	one := maps.Clone(s)
	for _, union := range []string{"allOf", "oneOf", "anyOf"} {
		delete(one, union)
	}
	for _, part := range parts {
		merge(one, d.resolved(part.(schema)))
	}
	return one
}

func merge(into, from schema) {
	for k, v := range from {
		switch old := into[k].(type) {
		case schema:
			if more, ok := v.(schema); ok {
				both := maps.Clone(old)
				maps.Copy(both, more)
				into[k] = both
				continue
			}
		case []any:
			if more, ok := v.([]any); ok && k == "required" {
				into[k] = slices.Concat(old, more)
				continue
			}
		}
		into[k] = v
	}
}

// value is one that a schema allows, as far as types, values and bounds go.
func (d *generator) value(s schema, name string, depth int) any {
	s = d.resolved(s)
	if v, ok := s["const"]; ok {
		return literal(v)
	}
	if all, ok := s["enum"].([]any); ok {
		return literal(all[d.IntN(len(all))])
	}
	switch d.kind(s) {
	case "object":
		return d.object(s, depth)
	case "array":
		return d.array(s, name, depth)
	case "string":
		return d.string(s, name)
	case "integer":
		return d.integer(s, name)
	case "number":
		low, high := bounds(s, -2, 4)
		return raw(strconv.FormatFloat(low+d.Float64()*(high-low), 'f', 2, 64))
	case "boolean":
		return raw(strconv.FormatBool(d.chance(500)))
	case "null":
		return raw("null")
	}
	return pick[any](d.source, "low", "high", raw("1"), raw("null"), raw("true"), obj("a", raw("1")))
}

func literal(v any) any {
	if s, ok := v.(string); ok {
		return s
	}
	data, err := json.Marshal(v)
	if err != nil {
		return raw("null")
	}
	return raw(data)
}

// kind is one of the types of a schema; null is rare.
func (d *generator) kind(s schema) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		for range 3 {
			if k, _ := t[d.IntN(len(t))].(string); k != "null" {
				return k
			}
		}
		return "null"
	}
	if s["properties"] != nil {
		return "object"
	}
	return ""
}

func (d *generator) object(s schema, depth int) *object {
	o := obj()
	properties, _ := s["properties"].(schema)
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		const often, deepest = 220, 7
		if !slices.Contains(required, any(name)) && (depth > deepest || !d.chance(often)) {
			continue
		}
		p, _ := properties[name].(schema)
		o.add(name, d.value(p, name, depth+1))
	}
	return o
}

func (d *generator) array(s schema, name string, depth int) *list {
	l := arr()
	items, _ := s["items"].(schema)
	least, most := bounds(schema{"minimum": s["minItems"], "maximum": s["maxItems"]}, 0, 3)
	for range int(least) + d.IntN(max(1, min(3, int(most-least)+1))) {
		l.items = append(l.items, d.value(items, name, depth+1))
	}
	if c, ok := s["contains"].(schema); ok {
		l.items = append(l.items, d.value(c, name, depth+1))
	}
	return l
}

// samples are texts that match the document's patterns.
var samples = map[string]string{
	`^[hH][tT][tT][pP][sS]?://.`:               "https://media.example/a.png",
	`^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$`: "1024x1024",
	`^[1-9][0-9]{0,4}\*[1-9][0-9]{0,4}$`:       "1280*720",
}

// pixel is a picture of one point.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="

func (d *generator) string(s schema, name string) any {
	switch {
	case name == "webhook_url" || name == "callback_url":
		return "http://10.0.0.1/" // nothing is delivered: that is played elsewhere
	case name == "data":
		return pixel
	case strings.HasSuffix(name, "url") || name == "image" || name == "video":
		return pick(d.source, "https://media.example/a.png", "data:image/png;base64,"+pixel)
	case name == "size" && s["pattern"] == nil:
		return "1024x1024"
	case name == "voice":
		return "Cherry"
	}
	if p, ok := s["pattern"].(string); ok && samples[p] != "" {
		return samples[p]
	}
	return d.words
}

func (d *generator) integer(s schema, name string) any {
	low, high := bounds(s, 0, 1000)
	n := int64(low) + d.Int64N(min(int64(high-low), 40)+1)
	switch {
	case strings.HasPrefix(name, "max_"):
		n = pick[int64](d.source, 1, 5, 100, 1_000, 30_000, 60_000, 1<<31-1)
	case name == "n":
		n = pick[int64](d.source, 1, 1, 1, 2, 3, int64(high))
	case name == "execution_expires_after":
		n = pick[int64](d.source, 1, 60, 3_600, 172_800)
	case d.chance(100):
		n = int64(high)
	}
	return raw(strconv.FormatInt(n, 10))
}

// bounds are a schema's, or the usual ones.
func bounds(s schema, low, high float64) (from, to float64) {
	if v, ok := s["minimum"].(float64); ok {
		low, high = v, max(high, v)
	}
	if v, ok := s["maximum"].(float64); ok {
		high = v
	}
	return low, max(low, high)
}

// names are those of all members that a schema has, at every depth.
func (g *grammar) names(s schema, seen map[string]bool) (all []string) {
	if ref, ok := s["$ref"].(string); ok {
		name := ref[strings.LastIndexByte(ref, '/')+1:]
		if seen[name] {
			return nil
		}
		seen[name] = true
		named, _ := g.schemas[name].(schema)
		return g.names(named, seen)
	}
	properties, _ := s["properties"].(schema)
	for name, p := range properties {
		part, _ := p.(schema)
		all = append(append(all, name), g.names(part, seen)...)
	}
	for _, union := range []string{"oneOf", "anyOf", "allOf"} {
		parts, _ := s[union].([]any)
		for _, p := range parts {
			part, _ := p.(schema)
			all = append(all, g.names(part, seen)...)
		}
	}
	if items, ok := s["items"].(schema); ok {
		all = append(all, g.names(items, seen)...)
	}
	return all
}

// object is a JSON object as it is written: its members have an order, and a name
// may stand in it twice or be spelled with escapes.
type object struct{ members []member }

type member struct {
	name  string
	value any    // *object, *list, string, or raw
	quote string // how the name is written; empty means plainly
}

type list struct{ items []any }

// raw is JSON text that stands for itself.
type raw string

func obj(pairs ...any) *object {
	o := &object{}
	for i := 0; i < len(pairs); i += 2 {
		o.set(pairs[i].(string), pairs[i+1])
	}
	return o
}

func arr(items ...any) *list { return &list{items} }

// find is the place of a member; -1 if there is none.
func (o *object) find(name string) int {
	for i := range o.members {
		if o.members[i].name == name {
			return i
		}
	}
	return -1
}

func (o *object) set(name string, value any) *object {
	if i := o.find(name); i >= 0 {
		o.members[i].value = value
	} else {
		o.add(name, value)
	}
	return o
}

// add appends a member, also where one of its name is there.
func (o *object) add(name string, value any) {
	o.members = append(o.members, member{name: name, value: value})
}

func (o *object) remove(name string) {
	if i := o.find(name); i >= 0 {
		o.members = append(o.members[:i], o.members[i+1:]...)
	}
}

// objects are all objects of a value, the outer ones first.
func objects(v any) (all []*object) {
	switch v := v.(type) {
	case *object:
		all = append(all, v)
		for i := range v.members {
			all = append(all, objects(v.members[i].value)...)
		}
	case *list:
		for _, item := range v.items {
			all = append(all, objects(item)...)
		}
	}
	return all
}

// text is a value as JSON.
func text(v any) string {
	var b strings.Builder
	write(&b, v)
	return b.String()
}

func write(b *strings.Builder, v any) {
	switch v := v.(type) {
	case *object:
		b.WriteByte('{')
		for i := range v.members {
			if i > 0 {
				b.WriteByte(',')
			}
			m := &v.members[i]
			if m.quote != "" {
				b.WriteString(m.quote)
			} else {
				write(b, m.name)
			}
			b.WriteByte(':')
			write(b, m.value)
		}
		b.WriteByte('}')
	case *list:
		b.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				b.WriteByte(',')
			}
			write(b, item)
		}
		b.WriteByte(']')
	case raw:
		b.WriteString(string(v))
	default:
		data, err := json.Marshal(v)
		if err != nil {
			data = []byte("null")
		}
		b.Write(data)
	}
}
