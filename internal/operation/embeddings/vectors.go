package embeddings

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// vectorIndex is an answer, and the same answer without its vectors. A vector is a thousand
// numbers or more and most of an answer, and the gateway does not use its numbers. So it
// parses the short form and copies the long one (BenchmarkReadAnswer measures it).
type vectorIndex struct {
	data     []byte
	skeleton []byte // data with `0` instead of each vector
	ranges   []vectorRange
}

// vectorRange is the place of a vector.
type vectorRange struct {
	at      int // offset of its `0` in the skeleton
	removed int // bytes that the skeleton lacks up to and with this vector
}

var vectorName = []byte(`"embedding"`)

// indexVectors takes out the values of all members called "embedding" that are flat arrays or
// plain strings, wherever they stand. It takes time linear in the length of the answer,
// whatever that holds. Any other value stays for the parser to judge.
func indexVectors(data []byte) vectorIndex {
	h := vectorIndex{data: data, skeleton: make([]byte, 0, 1024)}
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
		h.ranges = append(h.ranges, vectorRange{len(h.skeleton) - 1, removed})
		at = start + length
		copied = at
	}
}

// valueAfter is where the value begins of a name that ends at the offset at. Without a colon
// behind it, it is no name, and valueAfter is the end of data.
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

// arrayLength is the length of the array of numbers that begins data, which has no quote. The
// array ends at the bracket behind the last digit, since only punctuation follows it up to the
// next name. If more follows, or the array is not flat, the skeleton lacks a bracket or the
// vector has no number.
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

// answerOffset returns the offset in the answer of an offset in the skeleton.
func (h *vectorIndex) answerOffset(at int) int {
	if i, _ := slices.BinarySearchFunc(h.ranges, at, func(r vectorRange, at int) int { return r.at - at }); i > 0 {
		return at + h.ranges[i-1].removed
	}
	return at
}

// isVector reports whether a vector stood at an offset in the skeleton.
func (h *vectorIndex) isVector(at int) bool {
	_, found := slices.BinarySearchFunc(h.ranges, at, func(r vectorRange, at int) int { return r.at - at })
	return found
}

// span is the span in the answer of a span in the skeleton.
func (h *vectorIndex) span(s rawjson.Span) rawjson.Span {
	return rawjson.Span{Start: h.answerOffset(s.Start), End: h.answerOffset(s.End)}
}

// patch replaces a span of a text.
type patch struct {
	rawjson.Span
	with []byte
}

// applyPatches is the text within a span with the patches applied, which are in
// order.
func applyPatches(src []byte, within rawjson.Span, patches []patch) []byte {
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

// parsedAnswer is an answer that was read: its members, and the items of data.
type parsedAnswer struct {
	vectorIndex
	object rawjson.Object // over the answer, vectors included
	list   rawjson.Span   // of data
	items  []item
}

// item is one element of data. Its spans are the answer's.
type item struct {
	at     rawjson.Span // all of it
	first  int          // where its first name begins
	index  rawjson.Span // empty where none is given
	number int64        // the index, or its place in data
	vector rawjson.Span // empty where there is none
}

// readAnswer parses an answer without its vectors. If that fails, it parses the answer with
// them, since digits behind an array can make arrayLength take too much.
func readAnswer(data []byte) (*parsedAnswer, error) {
	h := indexVectors(data)
	l, err := readIndexed(h)
	if err != nil && len(h.ranges) > 0 {
		return readIndexed(vectorIndex{data: data, skeleton: data})
	}
	return l, err
}

func readIndexed(h vectorIndex) (*parsedAnswer, error) {
	l := &parsedAnswer{vectorIndex: h}
	var err error
	l.object, err = rawjson.Index(l.skeleton, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "data" && rd.Kind() == '[' {
			return rd.Array(func(i int) error { return l.item(rd, i) })
		}
		_, err := rd.Skip()
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range l.object.Members {
		m := &l.object.Members[i]
		m.Key, m.Value = l.span(m.Key), l.span(m.Value)
		if m.Name == "data" {
			l.list = m.Value
		}
	}
	l.object.Src = h.data
	return l, nil
}

// item reads one element of data.
func (l *parsedAnswer) item(rd *rawjson.Reader, i int) error {
	if rd.Kind() != '{' {
		return errors.New("an item is not an object")
	}
	it := item{number: int64(i)}
	err := rd.Object(func(name []byte, key rawjson.Span) error {
		if it.first == 0 {
			it.first = l.answerOffset(key.Start)
			it.at.Start = l.answerOffset(bytes.LastIndexByte(l.skeleton[:key.Start], '{'))
		}
		kind := rd.Kind()
		span, err := rd.Skip()
		if err != nil {
			return err
		}
		switch string(name) {
		case "index":
			return it.readIndex(span.Of(l.skeleton), l.span(span))
		case "embedding":
			if kind == '"' || l.isVector(span.Start) || kind == '[' && !bytes.ContainsAny(span.Of(l.skeleton)[1:], `[{"`) {
				it.vector = l.span(span)
			}
		}
		return nil
	})
	it.at.End = l.answerOffset(int(rd.Offset()))
	l.items = append(l.items, it)
	return err
}

func (it *item) readIndex(raw []byte, span rawjson.Span) error {
	n, ok := rawjson.Int(raw)
	if !ok {
		return errors.New("an index is not an integer")
	}
	it.number, it.index = n, span
	return nil
}

// check finds each of the indexes up to want once, with a vector of numbers.
func (l *parsedAnswer) check(want int) error {
	if len(l.items) != want {
		return fmt.Errorf("%d items for %d inputs", len(l.items), want)
	}
	seen := make([]bool, want)
	for i := range l.items {
		it := &l.items[i]
		if it.number < 0 || it.number >= int64(want) || seen[it.number] {
			return fmt.Errorf("the index %d does not belong there", it.number)
		}
		seen[it.number] = true
		if v := it.vector.Of(l.data); len(v) < 2 || len(bytes.Trim(v[1:len(v)-1], space)) == 0 {
			return fmt.Errorf("item %d has no vector", i)
		} else if !isFinite(v) {
			return fmt.Errorf("item %d: %w", i, errVector)
		}
	}
	return nil
}

// isFinite reports whether no number of a vector is NaN or infinite. In an array these are
// words, and each has an N in it. Any other mistake there is for pack to find.
func isFinite(v []byte) bool {
	if v[0] == '[' {
		return bytes.IndexByte(v, 'n') < 0 && bytes.IndexByte(v, 'N') < 0
	}
	text := v[1 : len(v)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // some vendors escape each slash
		s, _ := rawjson.String(v)
		text = []byte(s)
	}
	return !hasInfinite(text)
}

// hasInfinite reports whether one of the float32 numbers in base64 is NaN or infinite: the
// eight bits of its exponent are ones. Three numbers are 16 letters. The exponents of ordinary
// numbers are seen not to be that from one letter each, so that few groups are decoded.
func hasInfinite(text []byte) bool {
	const group = 16
	var numbers [group / 4 * 3]byte
	for len(text) > 0 {
		part := text[:min(group, len(text))]
		text = text[len(part):]
		if len(part) == group && part[4] != 'f' && part[4] != '/' && part[15] != '/' {
			if c := part[10]; c != '8' && c != '9' && c != '+' && c != '/' {
				continue
			}
		}
		n, _ := base64.StdEncoding.Decode(numbers[:], part) // what is no base64 is for unpack to find
		for raw := numbers[:n]; len(raw) >= 4; raw = raw[4:] {
			const exponent = 0x7f800000
			if binary.LittleEndian.Uint32(raw)&exponent == exponent {
				return true
			}
		}
	}
	return false
}

// public returns data as the client gets it: in the order of the indexes, in the requested
// encoding, and with an index for each item. It returns nil if data is that already.
func (l *parsedAnswer) public(base64 bool) ([]byte, error) {
	byNumber := func(a, b item) int { return cmp.Compare(a.number, b.number) }
	sorted := slices.IsSortedFunc(l.items, byNumber)
	if !sorted {
		slices.SortFunc(l.items, byNumber)
	}
	var patches []patch
	out := []byte{'['}
	for i := range l.items {
		it := &l.items[i]
		var err error
		if patches, err = l.appendPatches(patches, it, base64); err != nil {
			return nil, err
		}
		if !sorted {
			if i > 0 {
				out = append(out, ',')
			}
			out, patches = append(out, applyPatches(l.data, it.at, patches)...), patches[:0]
		}
	}
	switch {
	case !sorted:
		return append(out, ']'), nil
	case len(patches) == 0:
		return nil, nil
	}
	return applyPatches(l.data, l.list, patches), nil
}

// appendPatches appends those of an item.
func (l *parsedAnswer) appendPatches(patches []patch, it *item, base64 bool) ([]patch, error) {
	if it.index == (rawjson.Span{}) {
		index := strconv.AppendInt([]byte(`"index":`), it.number, 10)
		patches = append(patches, patch{rawjson.Span{Start: it.first, End: it.first}, append(index, ',')})
	}
	before := it.vector.Of(l.data)
	after, err := encoded(before, base64)
	if err == nil && &after[0] != &before[0] {
		patches = append(patches, patch{it.vector, after})
	}
	return patches, err
}

// shiftedItems are the items with their indexes raised by before, without the
// brackets around them. Every item has an index.
func (l *parsedAnswer) shiftedItems(before int64) []byte {
	patches := make([]patch, len(l.items))
	for i := range l.items {
		it := &l.items[i]
		patches[i] = patch{it.index, strconv.AppendInt(nil, before+it.number, 10)}
	}
	inner := rawjson.Span{Start: l.list.Start + 1, End: l.list.End - 1}
	return bytes.Trim(applyPatches(l.data, inner, patches), space)
}

// errVector is a vector that is neither an array of numbers nor base64.
var errVector = errors.New("a vector is neither an array of float32 numbers nor the base64 of such")

// encoded is a vector in base64 or as numbers, whichever is asked for.
func encoded(v []byte, base64 bool) ([]byte, error) {
	switch {
	case base64 && v[0] == '[':
		return pack(v)
	case !base64 && v[0] == '"':
		return unpack(v)
	}
	return v, nil
}

// pack makes a base64 string of an array of numbers: float32, little-endian.
func pack(array []byte) ([]byte, error) {
	if !jsontext.Value(array).IsValid() { // ParseFloat takes more than JSON's numbers
		return nil, errVector
	}
	raw := make([]byte, 0, 4*(bytes.Count(array, []byte{','})+1))
	for field := range bytes.SplitSeq(array[1:len(array)-1], []byte{','}) {
		f, err := strconv.ParseFloat(string(bytes.Trim(field, space)), 32)
		if err != nil {
			return nil, errVector
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(f)))
	}
	out := make([]byte, 1, base64.StdEncoding.EncodedLen(len(raw))+len(`""`))
	out[0] = '"'
	return append(base64.StdEncoding.AppendEncode(out, raw), '"'), nil
}

// unpack makes an array of numbers of a base64 string.
func unpack(quoted []byte) ([]byte, error) {
	text, _ := rawjson.String(quoted)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 || len(raw)%4 != 0 {
		return nil, errVector
	}
	const usual = 14 // bytes of a number with its comma
	out := append(make([]byte, 0, len(raw)/4*usual), '[')
	for i := 0; i < len(raw); i += 4 {
		if i > 0 {
			out = append(out, ',')
		}
		f := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, errVector
		}
		out = strconv.AppendFloat(out, f, 'g', -1, 32)
	}
	return append(out, ']'), nil
}
