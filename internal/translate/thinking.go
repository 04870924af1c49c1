package translate

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// reasoningSignature is the member of a chat message that keeps what the
// upstream needs to take its own thoughts back: an opaque text beside
// reasoning_content, to be sent back with it unchanged. In a stream its pieces
// add up as those of every text do.
//
// It is a row of pieces, one for each block of thought: "t", the bytes of its
// text, ".", the bytes of its signature, ".", the signature; or, for a block
// that the upstream gave encrypted, "r", the bytes of it, ".", itself.
const reasoningSignature = "reasoning_signature"

// appendSigned appends the piece of the thought that p ends, or that p is.
func appendSigned(dst []byte, p *piece) []byte {
	value, _ := rawjson.String(p.text)
	if p.kind == redacted {
		dst = append(dst, 'r')
	} else {
		dst = append(strconv.AppendInt(append(dst, 't'), int64(p.size), 10), '.')
	}
	dst = append(strconv.AppendInt(dst, int64(len(value)), 10), '.')
	return append(dst, value...)
}

// thinkingBlocks makes blocks of a message's reasoning_content and
// reasoning_signature; false if there is a text that they do not fit.
func thinkingBlocks(text, pieces string) (blocks []messages.Block, ok bool) {
	for pieces != "" {
		kind, size := pieces[0], 0
		pieces = pieces[1:]
		if kind == 't' {
			if size, pieces, ok = cutCount(pieces); !ok || size > len(text) {
				return nil, false
			}
		}
		length, rest, ok := cutCount(pieces)
		if !ok || length > len(rest) {
			return nil, false
		}
		value := rest[:length]
		pieces = rest[length:]
		switch kind {
		case 't':
			blocks = append(blocks, messages.Block{Type: "thinking", Thinking: text[:size], Signature: &value})
			text = text[size:]
		case 'r':
			blocks = append(blocks, messages.Block{Type: "redacted_thinking", Data: value})
		default:
			return nil, false
		}
	}
	if text != "" {
		return nil, false
	}
	return blocks, true
}

// cutCount takes a number and the point after it off a text.
func cutCount(s string) (n int, rest string, ok bool) {
	digits, rest, ok := strings.Cut(s, ".")
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, "", false
	}
	n, err := strconv.Atoi(digits)
	return n, rest, err == nil
}

// stripSyntheticThinking is the call without the thoughts of a chat upstream that
// answered an earlier turn: they bear the gateway's own signature, which no
// vendor of the format takes. Turns that have none stay as they came, byte for
// byte, and so does the call if no turn has one.
func stripSyntheticThinking(call *upstream.Call) *upstream.Call {
	turns, cut := editElements(call.Body.Raw("messages"), stripMessageThinking)
	if !cut {
		return call
	}
	edited := *call
	edited.Body = call.Body.Set("messages", turns)
	return &edited
}

// editElements is a JSON array with what edit makes of each of its elements, nil for
// none; false if edit changes none, or if it is no array.
func editElements(array []byte, edit func(element []byte) (now []byte, changed bool)) (out []byte, changed bool) {
	if !bytes.Contains(array, []byte(syntheticSignature)) {
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

// stripMessageThinking is a message without its own thoughts; nil if nothing
// else is in it: two turns of the user's in a row are one.
func stripMessageThinking(turn []byte) (now []byte, changed bool) {
	if !bytes.Contains(turn, []byte(syntheticSignature)) {
		return turn, false
	}
	o, err := rawjson.Index(turn, nil, nil)
	if err != nil {
		return turn, false
	}
	blocks, cut := editElements(o.Raw("content"), stripThinkingBlock)
	switch {
	case !cut:
		return turn, false
	case string(blocks) == "[]":
		return nil, true
	}
	return o.Apply(nil, rawjson.Set("content", blocks)), true
}

// stripThinkingBlock is a block, or nil for a thought with the gateway's signature.
func stripThinkingBlock(block []byte) (now []byte, changed bool) {
	if !bytes.Contains(block, []byte(syntheticSignature)) {
		return block, false
	}
	o, err := rawjson.Index(block, nil, nil)
	if err != nil {
		return block, false
	}
	kind, _ := rawjson.String(o.Raw("type"))
	signature, _ := rawjson.String(o.Raw("signature"))
	if kind != "thinking" || signature != syntheticSignature {
		return block, false
	}
	return nil, true
}
