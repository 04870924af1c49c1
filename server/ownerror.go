package server

import (
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

// members are what an upstream's own error must have, in order: the name and,
// where it is missing, the value.
type members []member

type member struct {
	name  string
	value func(f *fault.Error) []byte
	empty bool // an empty string counts as missing
}

func quoted(text func(f *fault.Error) string) func(*fault.Error) []byte {
	return func(f *fault.Error) []byte { return rawjson.Quote(nil, text(f)) }
}

func literal(raw string) func(*fault.Error) []byte {
	return func(*fault.Error) []byte { return []byte(raw) }
}

func messageOf(f *fault.Error) string     { return f.Message }
func codeOf(f *fault.Error) string        { return string(f.Code) }
func typeOf(f *fault.Error) string        { return fault.Type(f.HTTPStatus()) }
func messageTypeOf(f *fault.Error) string { return messages.ErrorType(f.HTTPStatus()) }

var (
	message = member{"message", quoted(messageOf), true}

	openAIMembers = members{
		message, {name: "type", value: quoted(typeOf)}, {name: "code", value: quoted(codeOf)}, {name: "param", value: literal("null")},
	}
	alphaMembers        = members{{"code", quoted(codeOf), true}, message}
	messageMembers      = members{{name: "type", value: literal(`"error"`)}}
	messageErrorMembers = members{message, {name: "type", value: quoted(messageTypeOf)}, {name: "code", value: quoted(codeOf)}}
)

// missing are the edits that complete an object.
func (all members) missing(o *rawjson.Object, f *fault.Error) []rawjson.Edit {
	var edits []rawjson.Edit
	for _, m := range all {
		raw := o.Raw(m.name)
		if said, ok := rawjson.String(raw); raw == nil || m.empty && (!ok || said == "") {
			edits = append(edits, rawjson.Set(m.name, m.value(f)))
		}
	}
	return edits
}

// own is an upstream's own error body with the members that the form needs and
// our request id; nil if there is none that fits.
func (form *form) own(f *fault.Error, id string) []byte {
	if f.Body == nil {
		return nil
	}
	outer, err := rawjson.Index(f.Body, nil, nil)
	if err != nil {
		return nil
	}
	raw := outer.Raw("error")
	if _, said := rawjson.String(outer.Raw("message")); rawjson.IsNull(raw) && form.flat && said {
		raw = []byte("{}")
	}
	inner, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil
	}
	edits := []rawjson.Edit{rawjson.Set("error", inner.Apply(nil, form.inner.missing(&inner, f)...))}
	edits = append(edits, form.outer.missing(&outer, f)...)
	if form.outer != nil || outer.Raw("request_id") != nil {
		edits = append(edits, rawjson.Set("request_id", rawjson.Quote(nil, id)))
	}
	return outer.Apply(nil, edits...)
}
