package translate

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// reasoningSignature is the member of a chat message that keeps what the upstream needs to
// take its own reasoning back: an opaque text beside reasoning_content. The client sends it
// back unchanged with that. In a stream its pieces are concatenated.
//
// It is a row of pieces, one for each block of reasoning. A piece is "t", the length of its
// text in bytes, ".", the length of its signature in bytes, ".", the signature. A block that
// the upstream encrypted is "r", its length in bytes, ".", the block. A reasoning item of an
// upstream of Responses is "e", the length of its encrypted_content in bytes, ".", the
// content, whatever of its text was shown. Anything else that a vendor of chat wants back is
// "v", its length in bytes, ".", the value, sealed (wanted.go). What an upstream of one wire
// wrote is never sent to one of another.
const reasoningSignature = "reasoning_signature"

// appendSigned appends the piece of reasoning that p ends, or that p is.
func appendSigned(dst []byte, p *piece) []byte {
	value, _ := rawjson.String(p.text)
	switch p.kind {
	case redacted:
		dst = append(dst, 'r')
	case encrypted:
		dst = append(dst, 'e')
	case wantedBack:
		dst = append(dst, 'v')
	default:
		dst = append(strconv.AppendInt(append(dst, 't'), int64(p.size), 10), '.')
	}
	dst = append(strconv.AppendInt(dst, int64(len(value)), 10), '.')
	return append(dst, value...)
}

// thinkingBlocks makes blocks of a message's reasoning_content and
// reasoning_signature; false if there is a text that they do not fit.
func thinkingBlocks(text, pieces string) (blocks []messages.Block, ok bool) {
	for pieces != "" {
		kind, size, value, rest, ok := cutPiece(pieces)
		if !ok || size > len(text) {
			return nil, false
		}
		pieces = rest
		switch kind {
		case 'v': // of another wire's vendor
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

// encryptedThoughts returns the reasoning items of a message's reasoning_signature; false if
// it has anything else.
func encryptedThoughts(pieces string) (blobs []string, ok bool) {
	for pieces != "" {
		kind, _, value, rest, ok := cutPiece(pieces)
		switch {
		case ok && kind == 'e':
			blobs = append(blobs, value)
		case !ok || kind != 'v':
			return nil, false
		}
		pieces = rest
	}
	return blobs, true
}

// cutPiece takes a piece off a reasoningSignature, which is not empty. size is the length of
// its text.
func cutPiece(pieces string) (kind byte, size int, value, rest string, ok bool) {
	kind, rest = pieces[0], pieces[1:]
	if kind == 't' {
		if size, rest, ok = cutCount(rest); !ok {
			return kind, 0, "", "", false
		}
	}
	length, rest, ok := cutCount(rest)
	if !ok || length > len(rest) {
		return kind, 0, "", "", false
	}
	return kind, size, rest[:length], rest[length:], true
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

// isSynthetic reports whether a signature is the gateway's own: alone, or before what
// an upstream of responses encrypted, in the form of reasoningSignature.
func isSynthetic(signature string) bool {
	rest, ok := strings.CutPrefix(signature, syntheticSignature)
	return ok && (rest == "" || rest[0] == '.')
}

// withoutSynthetic returns the call without the reasoning of another wire's upstream that
// answered an earlier turn. That reasoning has the gateway's own signature, which no vendor
// accepts. Turns without it keep their bytes, and so does the call if no turn has it. A turn
// with nothing left is removed; two turns of the user's in a row count as one.
func withoutSynthetic(call *upstream.Call) *upstream.Call {
	return without(call, "messages", syntheticSignature, func(turn []byte) []byte {
		blocks, changed := editElements(rawjson.Lookup(turn, "content"), syntheticSignature, func(block []byte) []byte {
			if rawjson.LookupString(block, "type") == "thinking" && isSynthetic(rawjson.LookupString(block, "signature")) {
				return nil
			}
			return block
		})
		switch {
		case !changed:
			return turn
		case string(blocks) == "[]":
			return nil
		}
		return rawjson.Apply(turn, rawjson.Set("content", blocks))
	})
}

// withoutSealed is the same for responses: a reasoning item that the gateway sealed is
// for the gateway alone.
func withoutSealed(call *upstream.Call) *upstream.Call {
	return without(call, "input", sealedPrefix, func(item []byte) []byte {
		if rawjson.LookupString(item, "type") == "reasoning" && strings.HasPrefix(rawjson.LookupString(item, "encrypted_content"), sealedPrefix) {
			return nil
		}
		return item
	})
}

// ownThoughts remove the gateway's own reasoning from a call that otherwise passes untouched.
var ownThoughts = map[upstream.Op]func(*upstream.Call) *upstream.Call{
	upstream.Messages: withoutSynthetic, upstream.CountTokens: withoutSynthetic,
	upstream.Responses: withoutSealed, upstream.CountInput: withoutSealed,
}

// without is the call with a list of its body edited, or itself if nothing changes.
func without(call *upstream.Call, list, mark string, edit func(element []byte) []byte) *upstream.Call {
	elements, changed := editElements(call.Body.Raw(list), mark, edit)
	if !changed {
		return call
	}
	stripped := *call
	stripped.Body = call.Body.Set(list, elements)
	return &stripped
}

// editElements applies edit to the elements of a JSON array that contain mark, and removes an
// element if edit returns nil. It returns false if nothing changed.
func editElements(array []byte, mark string, edit func(element []byte) []byte) (out []byte, changed bool) {
	if len(array) == 0 || array[0] != '[' || !bytes.Contains(array, []byte(mark)) {
		return nil, false
	}
	var kept [][]byte
	for _, element := range rawjson.Elements(array) {
		now := element
		if bytes.Contains(element, []byte(mark)) {
			now = edit(element)
		}
		changed = changed || len(now) != len(element)
		if now != nil {
			kept = append(kept, now)
		}
	}
	return rawjson.AppendArray(nil, kept), changed
}
