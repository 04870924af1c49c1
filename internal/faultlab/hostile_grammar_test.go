package faultlab

import (
	"encoding/json"
	"slices"
	"strings"
)

// endpoint is where a request goes, and what it can have. Each operation's own tests have
// every member with every value; here are those that decide what a request costs.
type endpoint struct {
	path    string
	models  []string
	form    bool
	body    func(words string) *object // a good request
	members []alternatives
}

// alternatives are values that a member can have.
type alternatives struct {
	name   string
	values []any
}

// choice is the alternatives of a member.
func choice(name string, values ...any) alternatives { return alternatives{name, values} }

// numbers are alternatives that are numbers, or other JSON.
func numbers(name string, values ...raw) alternatives {
	var all []any
	for _, v := range values {
		all = append(all, v)
	}
	return alternatives{name, all}
}

// pixel is a picture of one point.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="

var (
	function = obj("name", "f", "description", "d", "parameters", obj("type", "object", "properties", obj("a", obj("type", "string"))))
	schema   = obj("type", "object", "properties", obj("a", obj("type", "string")), "required", arr("a"), "additionalProperties", raw("false"))
	mostText = []raw{"1", "5", "100", "1000", "30000", "60000", "2147483647"}

	chatMembers = []alternatives{
		numbers("max_tokens", mostText...), numbers("max_completion_tokens", mostText...), numbers("n", "1", "2", "3", "128"),
		numbers("stream", "true", "false"), choice("stream_options", obj("include_usage", raw("true")), obj("include_usage", raw("false"))),
		choice("tools", arr(obj("type", "function", "function", function))), choice("reasoning_effort", "low", "high"),
		choice("response_format", obj("type", "json_schema", "json_schema", obj("name", "s", "schema", schema)), obj("type", "json_object")),
		choice("stop", "a", arr("a", "b")), numbers("logprobs", "true"), choice("service_tier", "auto", "default", "flex"),
		numbers("temperature", "0.5"), choice("user", "u"), numbers("store", "true"), choice("metadata", obj("a", "b")),
	}
	messageMembers = []alternatives{
		numbers("max_tokens", mostText...), numbers("stream", "true", "false"), choice("system", "s", arr(obj("type", "text", "text", "s"))),
		choice("thinking", obj("type", "enabled", "budget_tokens", raw("1024")), obj("type", "adaptive"), obj("type", "disabled")),
		choice("tools", arr(obj("name", "f", "input_schema", schema))), choice("stop_sequences", arr("a")), choice("service_tier", "auto", "standard_only"),
		choice("metadata", obj("user_id", "u")), choice("cache_control", obj("type", "ephemeral")),
	}
	responseMembers = []alternatives{
		numbers("max_output_tokens", mostText...), numbers("stream", "true", "false"), numbers("store", "true", "false"), choice("instructions", "i"),
		choice("reasoning", obj("effort", "low", "summary", "auto"), obj("effort", "high")), choice("include", arr("reasoning.encrypted_content")),
		choice("tools", arr(obj("type", "function", "name", "f", "parameters", schema, "strict", raw("true"))), arr(obj("type", "custom", "name", "c"))),
		choice("text", obj("format", obj("type", "json_schema", "name", "s", "schema", schema))), numbers("max_tool_calls", "1"), numbers("parallel_tool_calls", "false"),
	}
	imageMembers = []alternatives{
		numbers("n", "1", "2", "4", "10"), choice("size", "1024x1024", "auto"), choice("quality", "low", "high", "auto"), numbers("stream", "true"),
		numbers("partial_images", "0", "3"), choice("response_format", "b64_json", "url"),
	}
	videoMembers = []alternatives{
		numbers("duration", "2", "5", "15", "-1"), choice("resolution", "480p", "720p", "1080p"), numbers("execution_expires_after", "1", "60", "3600", "172800"),
		choice("webhook_url", "http://10.0.0.1/"), numbers("wait", "true"), numbers("seed", "1"), choice("ratio", "16:9", "9:16"),
	}
)

// endpoints are all that take a body.
var endpoints = []endpoint{
	{chatPath, []string{plainChat, renamedChat, droppedChat, nativeChat, dearChat}, false, func(words string) *object { return obj("messages", turn(words)) }, chatMembers},
	{messagesPath, []string{nativeChat, plainChat, renamedChat, droppedChat}, false, func(words string) *object { return obj("max_tokens", raw("500"), "messages", turn(words)) }, messageMembers},
	{messagesPath + "/count_tokens", []string{nativeChat, plainChat}, false, func(words string) *object { return obj("messages", turn(words)) }, messageMembers[2:]},
	{responsesPath, []string{plainChat, renamedChat, droppedChat, nativeChat, dearChat}, false, func(words string) *object { return obj("input", turn(words)) }, responseMembers},
	{responsesPath + "/input_tokens", []string{plainChat, nativeChat}, false, func(words string) *object { return obj("input", words) }, responseMembers[3:]},
	{imagesPath, []string{alphaImage}, false, func(words string) *object {
		return obj("input", obj("messages", turn(arr(obj("text", words)))))
	}, []alternatives{choice("parameters", obj("n", raw("1"), "size", "1280*720"), obj("n", raw("4")))}},
	{imagesPath, []string{tokenImage, pieceImage}, false, func(words string) *object { return obj("prompt", words) }, imageMembers},
	{"/v1/images/edits", []string{tokenImage}, true, func(words string) *object {
		return obj("image", "", "prompt", words, "response_format", "b64_json")
	}, imageMembers[:5]},
	{videosPath, []string{betaVideo}, false, func(words string) *object {
		return obj("duration", raw("5"), "resolution", "720p", "input", obj("prompt", words))
	}, videoMembers},
	{videosPath, []string{gammaVideo}, false, func(words string) *object {
		return obj("content", arr(obj("type", "text", "text", words)))
	}, videoMembers},
	{vectorsPath, []string{plainVector, otherVector}, false, func(words string) *object { return obj("input", arr(words, "b")) }, []alternatives{
		numbers("dimensions", "256", "1024"), choice("encoding_format", "float", "base64"), choice("user", "u"),
	}},
	{speechPath, []string{alphaSpeech, otherSpeech}, false, func(words string) *object {
		return obj("input", words, "voice", "Cherry", "response_format", "wav")
	}, []alternatives{numbers("speed", "0.5", "2"), choice("language_type", "Auto"), numbers("stream", "true")}},
}

// generator is the source of one request.
type generator struct {
	source
	words string // the request's prompt: it tells the vendor what to do
}

// body is a good request of an endpoint with some of the members that it can have.
func (d *generator) body(e *endpoint) *object {
	o := e.body(d.words)
	o.set("model", pick(d.source, e.models...))
	for _, m := range e.members {
		const often = 220
		if d.chance(often) {
			o.set(m.name, copied(pick(d.source, m.values...)))
		}
	}
	return o
}

// copied is a value that the change of one request changes in no other.
func copied(v any) any {
	switch v := v.(type) {
	case *object:
		c := &object{slices.Clone(v.members)}
		for i := range c.members {
			c.members[i].value = copied(c.members[i].value)
		}
		return c
	case *list:
		c := &list{slices.Clone(v.items)}
		for i := range c.items {
			c.items[i] = copied(c.items[i])
		}
		return c
	}
	return v
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
