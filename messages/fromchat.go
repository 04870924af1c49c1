package messages

import (
	"fmt"
	"slices"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// fromChat translates a chat completion request for an upstream that speaks only
// Messages, as chatFates says field by field. defaultMax is max_tokens where the
// caller sets none. dropped names the fields that could not be carried, each
// once and without indexes. It fails with a 400 that names the field where
// leaving it out would change what the caller asked for.
func fromChat(c *chat.Request, defaultMax int64) (r *Request, dropped []string, err error) {
	if c.Source() == nil { // typed: what has no field of its own is found in the JSON alone
		if c, err = chat.Encode(c); err != nil {
			return nil, nil, err
		}
	}
	t := &chatCall{c: c, r: &Request{}, defaultMax: defaultMax}
	for i := range chatFates {
		if put := chatFates[i].put; put != nil {
			if err := put(t); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := t.dropRest(); err != nil {
		return nil, nil, err
	}
	t.dropped.Sort() // whichever of the two passes found them
	return t.r, t.dropped.List(), nil
}

// chatCall is a chat completion request on its way into Messages.
type chatCall struct {
	c          *chat.Request
	r          *Request
	defaultMax int64
	dropped    dropped.Fields
}

// dropRest notes the members of the request that nothing carries.
func (t *chatCall) dropRest() error {
	o, err := rawjson.Index(t.c.Source(), nil, nil)
	if err != nil {
		return fault.Invalid("", "The request body is not acceptable: "+err.Error()+".")
	}
	for _, m := range o.Members {
		raw := m.Value.Of(o.Src)
		if rawjson.IsNull(raw) {
			continue
		}
		f := fateOf(m.Name)
		if f == nil || f.fate == fateDropped && !f.idles(raw) {
			t.drop(m.Name)
		}
	}
	return nil
}

// dropMembers notes every member of an object of extras that asks for something.
func (t *chatCall) dropMembers(extra []byte, prefix string, known ...string) {
	if rawjson.IsNull(extra) {
		return
	}
	o, err := rawjson.Index(extra, nil, nil)
	if err != nil {
		return // it was read as an object before
	}
	for _, m := range o.Members {
		raw := m.Value.Of(o.Src)
		if !rawjson.IsNull(raw) && string(raw) != "[]" && !slices.Contains(known, m.Name) {
			t.drop(prefix + m.Name)
		}
	}
}

// drop notes a field that is not carried.
func (t *chatCall) drop(name string) { t.dropped.Note(name) }

// refusedField is the 400 for a field whose loss would change the answer.
func refusedField(param, must string) error {
	return fault.Invalid(param, fmt.Sprintf("%q must be %s.", param, must))
}
