package messages

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// withoutOwnThoughts is the call without the thoughts of a chat upstream that
// answered an earlier turn: they bear the gateway's own signature, which no
// vendor of the format takes. Turns that have none stay as they came, byte for
// byte, and so does the call if no turn has one.
func withoutOwnThoughts(call *upstream.Call) *upstream.Call {
	turns, cut := spliced(call.Body.Raw("messages"), turnWithoutOwnThoughts)
	if !cut {
		return call
	}
	edited := *call
	edited.Body = call.Body.Set("messages", turns)
	return &edited
}

// spliced is a JSON array with what edit makes of each of its elements, nil for
// none; false if edit changes none, or if it is no array.
func spliced(array []byte, edit func(element []byte) (now []byte, changed bool)) (out []byte, changed bool) {
	if !bytes.Contains(array, []byte(ownSignature)) {
		return nil, false
	}
	rd := rawjson.NewReader(array)
	defer rd.Close()
	out = append(out, '[')
	err := rd.Array(func(int) error {
		span, err := rd.Skip()
		if err != nil {
			return err
		}
		now, other := edit(span.Of(array))
		changed = changed || other
		if now != nil && len(out) > len("[") {
			out = append(out, ',')
		}
		out = append(out, now...)
		return nil
	})
	if err != nil || !changed {
		return nil, false // what is wrong with it the upstream will say
	}
	return append(out, ']'), true
}

// turnWithoutOwnThoughts is a message without its own thoughts; nil if nothing
// else is in it: two turns of the user's in a row are one.
func turnWithoutOwnThoughts(turn []byte) (now []byte, changed bool) {
	if !bytes.Contains(turn, []byte(ownSignature)) {
		return turn, false
	}
	o, err := rawjson.Index(turn, nil, nil)
	if err != nil {
		return turn, false
	}
	blocks, cut := spliced(o.Raw("content"), unlessOwnThought)
	switch {
	case !cut:
		return turn, false
	case string(blocks) == "[]":
		return nil, true
	}
	return o.Apply(nil, rawjson.Set("content", blocks)), true
}

// unlessOwnThought is a block, or nil for a thought with the gateway's signature.
func unlessOwnThought(block []byte) (now []byte, changed bool) {
	if !bytes.Contains(block, []byte(ownSignature)) {
		return block, false
	}
	o, err := rawjson.Index(block, nil, nil)
	if err != nil {
		return block, false
	}
	kind, _ := rawjson.String(o.Raw("type"))
	signature, _ := rawjson.String(o.Raw("signature"))
	if kind != "thinking" || signature != ownSignature {
		return block, false
	}
	return nil, true
}
