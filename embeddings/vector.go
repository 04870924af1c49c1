package embeddings

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

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

// pack makes a base64 string of an array of numbers: float32, little-endian
// (decisions.md, Embeddings and speech).
func pack(array []byte) ([]byte, error) {
	raw := make([]byte, 0, 4*(bytes.Count(array, []byte{','})+1))
	for field := range bytes.SplitSeq(array[1:len(array)-1], []byte{','}) {
		f, err := number(bytes.Trim(field, space))
		if err != nil {
			return nil, err
		}
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	out := make([]byte, 1, base64.StdEncoding.EncodedLen(len(raw))+len(`""`))
	out[0] = '"'
	return append(base64.StdEncoding.AppendEncode(out, raw), '"'), nil
}

// number reads a JSON number that a float32 can hold. ParseFloat alone would
// take more: words, hexadecimal, a plus, a point without digits.
func number(text []byte) (float32, error) {
	if !isNumber(text) {
		return 0, errVector
	}
	f, err := strconv.ParseFloat(string(text), 32)
	if err != nil {
		return 0, errVector
	}
	return float32(f), nil
}

// isNumber reports whether text is a number of JSON's (RFC 8259, 6).
func isNumber(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte{'-'})
	whole := digits(text)
	if whole == 0 || whole > 1 && text[0] == '0' {
		return false
	}
	if text = text[whole:]; len(text) > 0 && text[0] == '.' {
		n := digits(text[1:])
		if n == 0 {
			return false
		}
		text = text[1+n:]
	}
	if len(text) > 0 && text[0]|0x20 == 'e' {
		text = text[1:]
		if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
			text = text[1:]
		}
		return len(text) > 0 && digits(text) == len(text)
	}
	return len(text) == 0
}

// digits is how many digits text begins with.
func digits(text []byte) int {
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return n
}

// unpack makes an array of numbers of a base64 string.
func unpack(quoted []byte) ([]byte, error) {
	raw, err := floats(quoted)
	if err != nil {
		return nil, err
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

// floats are the bytes under a base64 string.
func floats(quoted []byte) ([]byte, error) {
	text, ok := rawjson.String(quoted)
	if !ok {
		return nil, errVector
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 || len(raw)%4 != 0 {
		return nil, errVector
	}
	return raw, nil
}
