package messages

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
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

// appendThought appends the piece of a thinking block whose text has size bytes.
func appendThought(dst []byte, size int, signature string) []byte {
	dst = append(dst, 't')
	dst = strconv.AppendInt(dst, int64(size), 10)
	dst = append(dst, '.')
	return appendCounted(dst, signature)
}

// appendRedacted appends the piece of a redacted_thinking block.
func appendRedacted(dst []byte, data string) []byte { return appendCounted(append(dst, 'r'), data) }

func appendCounted(dst []byte, s string) []byte {
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	dst = append(dst, '.')
	return append(dst, s...)
}

// signedThoughts makes blocks of a message's reasoning_content and
// reasoning_signature; false if there is a text that they do not fit.
func signedThoughts(text, pieces string) (blocks []Block, ok bool) {
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
			blocks = append(blocks, thought(text[:size], value))
			text = text[size:]
		case 'r':
			blocks = append(blocks, Block{Type: "redacted_thinking", Data: value})
		default:
			return nil, false
		}
	}
	if text != "" {
		return nil, false
	}
	return blocks, true
}

// thought is a thinking block. The upstream wants its text even where it is
// empty.
func thought(text, signature string) Block {
	b := Block{Type: "thinking", Thinking: text, Signature: &signature}
	if text == "" {
		b.Extra = jsontext.Value(`{"thinking":""}`)
	}
	return b
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
