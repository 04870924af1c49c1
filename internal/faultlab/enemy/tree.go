package enemy

import (
	"encoding/json"
	"strings"
)

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

func (o *object) set(name string, value any) {
	if i := o.find(name); i >= 0 {
		o.members[i].value = value
		return
	}
	o.add(name, value)
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
