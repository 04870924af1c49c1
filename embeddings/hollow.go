package embeddings

import (
	"bytes"
	"sort"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// A vector is most of an answer: a thousand numbers that nobody here has to
// look at. So an answer is parsed without its vectors, and copied with them.

// hollowed is an answer beside the same without its vectors.
type hollowed struct {
	data     []byte
	skeleton []byte // with `0` in the place of each vector
	holes    []hole
}

// hole is the place of a vector.
type hole struct {
	at      int // in the skeleton
	removed int // bytes that the skeleton lacks up to and with this vector
}

var vectorName = []byte(`"embedding"`)

// hollow takes the values of all members called "embedding" out that are flat
// arrays or plain strings, wherever they stand: in time that is linear in the
// answer, whatever it holds. Any other value stays, for the parser to judge.
func hollow(data []byte) hollowed {
	h := hollowed{data: data, skeleton: make([]byte, 0, 1024)}
	copied, removed := 0, 0
	for at := 0; ; {
		n := bytes.Index(data[at:], vectorName)
		if n < 0 {
			h.skeleton = append(h.skeleton, data[copied:]...)
			return h
		}
		name := at + n
		at = name + len(vectorName)
		if name > 0 && data[name-1] == '\\' { // the end of a string
			continue
		}
		start := valueAfter(data, at)
		length := vectorLength(data[start:])
		if length == 0 {
			continue
		}
		h.skeleton = append(append(h.skeleton, data[copied:start]...), '0')
		removed += length - 1
		h.holes = append(h.holes, hole{len(h.skeleton) - 1, removed})
		at = start + length
		copied = at
	}
}

// valueAfter is where the value of a name begins that ends at; the end of data
// if no colon follows, since then it is no name.
func valueAfter(data []byte, at int) int {
	rest := bytes.TrimLeft(data[at:], space)
	if len(rest) == 0 || rest[0] != ':' {
		return len(data)
	}
	return len(data) - len(bytes.TrimLeft(rest[1:], space))
}

const space = " \t\r\n"

// vectorLength is how long the vector is that begins data: up to the end of a
// flat array, or of a string without escapes. It is 0 for any other value. It
// never looks beyond the next quote, and once only: this is most of what an
// answer costs.
func vectorLength(data []byte) int {
	if len(data) < len(`[]`) || data[0] != '[' && data[0] != '"' {
		return 0
	}
	quote := bytes.IndexByte(data[1:], '"') + 1
	if data[0] == '[' {
		if quote == 0 {
			quote = len(data)
		}
		return arrayLength(data[:quote])
	}
	if quote == 0 || bytes.IndexByte(data[1:quote], '\\') >= 0 {
		return 0
	}
	return quote + 1
}

// arrayLength is how long the array of numbers is that begins data, in which
// there is no quote: up to the bracket behind the last digit, since what follows
// it up to the next name is punctuation only. Where it is not, or the array is
// no flat one, the skeleton lacks a bracket or the vector is of no number.
func arrayLength(data []byte) int {
	first := bytes.TrimLeft(data[1:], space)
	if len(first) == 0 || first[0] != '-' && (first[0] < '0' || first[0] > '9') {
		return 0
	}
	last := bytes.LastIndexAny(data, "0123456789")
	end := bytes.IndexByte(data[max(last, 0):], ']')
	if last < 0 || end < 0 {
		return 0
	}
	return last + end + 1
}

// origin is where the byte before which at stands in the skeleton stands in the
// answer.
func (h *hollowed) origin(at int) int {
	if i := h.before(at); i > 0 {
		return at + h.holes[i-1].removed
	}
	return at
}

// before is how many holes there are before at.
func (h *hollowed) before(at int) int {
	return sort.Search(len(h.holes), func(i int) bool { return h.holes[i].at >= at })
}

// isHole reports whether a vector was at.
func (h *hollowed) isHole(at int) bool {
	i := h.before(at)
	return i < len(h.holes) && h.holes[i].at == at
}

// span leads from the skeleton to the answer.
func (h *hollowed) span(s rawjson.Span) rawjson.Span {
	return rawjson.Span{Start: h.origin(s.Start), End: h.origin(s.End)}
}

// patch is what a part of a text becomes.
type patch struct {
	rawjson.Span
	with []byte
}

// patched is the text within a span, with the patches made, which are in order.
func patched(src []byte, within rawjson.Span, patches []patch) []byte {
	size := within.End - within.Start
	for _, p := range patches {
		size += len(p.with) - (p.End - p.Start)
	}
	out := make([]byte, 0, size)
	at := within.Start
	for _, p := range patches {
		out = append(append(out, src[at:p.Start]...), p.with...)
		at = p.End
	}
	return append(out, src[at:within.End]...)
}
