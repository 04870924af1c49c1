// Package rawjson reads JSON strictly in one pass and edits it by splicing. What was not
// edited keeps its bytes.
package rawjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// MaxDepth is how many levels of objects and arrays a document may have, not more than
// Reader.objects has bits.
const MaxDepth = 64

const _ uint64 = 1 << (MaxDepth - 1) // overflows if it is more

// SyntaxError says why a document is refused and at which byte.
type SyntaxError struct {
	Offset int64
	Reason string
	Field  string // that stands twice or is misspelled; empty for any other error
}

// Error gives the reason and the offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s (byte %d)", e.Reason, e.Offset)
}

// Inside is the text of a [SyntaxError] whose offset is counted from the first byte of a
// value inside the document.
func Inside(err error) string { return strings.TrimSuffix(err.Error(), ")") + " of it)" }

// Reader walks one JSON document. Every method consumes the next value, checks
// its syntax and depth, and fails with a *SyntaxError; after an error the
// Reader is of no use. Take one with [NewReader] and give it back with Close.
type Reader struct {
	src   []byte
	at    int  // where the last consumed token ended
	next  int  // where the next token begins, if kind is not 0
	kind  byte // of the next token; 0 if it was not looked at yet
	delim byte // that has to stand before the next token: a comma, a colon or 0

	depth   int           // of the objects and arrays that are open
	objects uint64        // a bit for each of them, for MaxDepth at most, the outermost the lowest: 1 for an object
	lengths [MaxDepth]int // of the open objects: the members so far

	names map[string]string // member names met before, so that equal names share memory

	top, inner level // the names that Index checks

	bounds Bounds // of the document; zero for one that was read before
	tokens int    // names, values and brackets that were read, where they are bounded
	field  string // the top-level member that is being read
	// exceeded says that the document holds more than the bounds say.
	exceeded bool
}

// readers keeps tables of names between requests.
var readers = sync.Pool{New: func() any { return &Reader{names: make(map[string]string)} }}

// NewReader returns a Reader over src, which must not change until Close.
func NewReader(src []byte) *Reader {
	r := readers.Get().(*Reader)
	r.src = src
	return r
}

// Close gives the Reader's memory back. The Reader must not be used again, nor
// closed twice.
func (r *Reader) Close() {
	r.src = nil
	r.at, r.kind, r.delim, r.depth, r.objects = 0, 0, 0, 0, 0
	r.bounds, r.tokens, r.field, r.exceeded = Bounds{}, 0, "", false
	r.top.reset()
	r.inner.reset()
	readers.Put(r)
}

// kinds are those of the first bytes of tokens.
var kinds = [256]byte{
	'{': '{', '}': '}', '[': '[', ']': ']', '"': '"', 't': 't', 'f': 'f', 'n': 'n', '-': '0',
	'0': '0', '1': '0', '2': '0', '3': '0', '4': '0', '5': '0', '6': '0', '7': '0', '8': '0', '9': '0',
}

// Kind returns the first byte of the next value: '{', '[', '"', 't', 'f', 'n', or '0' for any
// number. It returns '}' or ']' if one stands there instead of a value, even the wrong one. It
// returns 0 at the end, at a byte that begins no token, and where a comma or a colon is
// missing or misplaced.
func (r *Reader) Kind() byte {
	if r.kind != 0 {
		return r.kind
	}
	at := skipSpace(r.src, r.at)
	var delim byte
	if at < len(r.src) && (r.src[at] == ',' || r.src[at] == ':') {
		delim = r.src[at]
		at = skipSpace(r.src, at+1)
	}
	if at == len(r.src) {
		return 0
	}
	kind, wanted := kinds[r.src[at]], r.delim
	if wanted == ',' && (kind == '}' || kind == ']') {
		wanted = 0
	}
	if delim != wanted {
		return 0
	}
	r.kind, r.next = kind, at
	return kind
}

// skipSpace is where white space ends that begins at an offset.
func skipSpace(src []byte, at int) int {
	for at < len(src) && (src[at] == ' ' || src[at] == '\n' || src[at] == '\t' || src[at] == '\r') {
		at++
	}
	return at
}

// inObject reports whether the innermost open value is an object.
func (r *Reader) inObject() bool { return r.depth > 0 && r.objects>>(r.depth-1)&1 != 0 }

// atName reports whether the next token must be a name, or end an object.
func (r *Reader) atName() bool { return r.delim != ':' && r.inObject() }

// consumed moves behind a token that completes a value.
func (r *Reader) consumed(end int) {
	r.at, r.kind, r.delim = end, 0, 0
	if r.depth > 0 {
		r.delim = ','
	}
}

// Skip consumes the next value and returns where it stands.
func (r *Reader) Skip() (Span, error) {
	kind := r.Kind()
	start := r.next
	if kind != '{' && kind != '[' {
		if !r.scalar(kind) {
			return Span{}, r.fail(true)
		}
		return Span{start, r.at}, r.count()
	}
	if r.bounds == (Bounds{}) {
		if end := compositeEnd(r.src, start, MaxDepth-r.depth); end >= 0 {
			r.consumed(end)
			return Span{start, end}, nil
		}
	} // else what is wrong with it, or too much of it, is found token by token
	for depth := r.depth; ; {
		if err := r.token(); err != nil {
			return Span{}, err
		}
		if r.depth == depth {
			return Span{start, r.at}, nil
		}
	}
}

// scalar consumes a value that is neither an object nor an array; false if there is none.
func (r *Reader) scalar(kind byte) bool {
	end := -1
	switch kind {
	case '"':
		end = StringEnd(r.src, r.next)
	case '0':
		end = numberEnd(r.src, r.next)
	case 't':
		end = wordEnd(r.src, r.next, "true")
	case 'f':
		end = wordEnd(r.src, r.next, "false")
	case 'n':
		end = wordEnd(r.src, r.next, "null")
	}
	if end < 0 {
		return false
	}
	r.consumed(end)
	return true
}

// token consumes one token and checks the depth.
func (r *Reader) token() error {
	switch kind := r.Kind(); {
	case kind == '}' || kind == ']':
		if r.depth == 0 || r.delim == ':' || r.inObject() != (kind == '}') {
			return r.fail(false)
		}
		r.depth--
		r.consumed(r.next + 1)
	case r.atName():
		return r.name(false)
	case kind == '{' || kind == '[':
		if r.depth == MaxDepth {
			return &SyntaxError{Offset: int64(r.next), Reason: fmt.Sprintf("nesting is deeper than %d levels", MaxDepth)}
		}
		r.objects &^= 1 << r.depth
		if kind == '{' {
			r.objects |= 1 << r.depth
		}
		r.lengths[r.depth] = 0
		r.depth++
		r.at, r.kind, r.delim = r.next+1, 0, 0
	default:
		if !r.scalar(kind) {
			return r.fail(false)
		}
	}
	return r.count()
}

// name consumes a member's name, and checks how many members its object has so far.
func (r *Reader) name(asValue bool) error {
	if r.Kind() != '"' || !r.scalar('"') {
		return r.fail(asValue)
	}
	r.delim = ':'
	most := r.bounds.Members
	if r.depth == 1 {
		most = r.bounds.TopMembers
	}
	length := &r.lengths[r.depth-1]
	if *length++; most > 0 && *length > most {
		return r.exceed("an object has more than %d members", most)
	}
	return r.count()
}

// count counts one name, value or bracket.
func (r *Reader) count() error {
	if r.tokens++; r.bounds.Tokens > 0 && r.tokens > r.bounds.Tokens {
		return r.exceed("the document holds more than %d names, values and brackets", r.bounds.Tokens)
	}
	return nil
}

// exceed is the error of a document that holds more than a bound says, with the field in
// which it does.
func (r *Reader) exceed(reason string, most int) error {
	r.exceeded = true
	reason = fmt.Sprintf(reason, most)
	if r.field != "" {
		reason += fmt.Sprintf(", in the field %q,", safetext.Truncate(r.field, maxQuoted))
	}
	return &SyntaxError{Offset: int64(r.at), Reason: reason}
}

// Object consumes an object: each is called at every member's value, which it
// must consume with exactly one call. The name is valid during the call only.
// The error of each ends the walk and is returned as it is.
func (r *Reader) Object(each func(name []byte, key Span) error) error {
	if err := r.open('{', "a JSON object is expected"); err != nil {
		return err
	}
	for r.Kind() != '}' {
		start := r.next
		if err := r.name(true); err != nil {
			return err
		}
		key := Span{start, r.at}
		plain := r.src[start+1 : r.at-1]
		if bytes.IndexByte(plain, '\\') >= 0 {
			var err error
			if plain, err = jsontext.AppendUnquote(nil, key.Of(r.src)); err != nil {
				return r.fail(true)
			}
		}
		if err := each(plain, key); err != nil {
			return err
		}
	}
	return r.token()
}

// Array consumes an array: each is called at every element, which it must
// consume with exactly one call. The error of each ends the walk and is
// returned as it is.
func (r *Reader) Array(each func(i int) error) error {
	if err := r.open('[', "a JSON array is expected"); err != nil {
		return err
	}
	for i := 0; r.Kind() != ']'; i++ {
		if err := each(i); err != nil {
			return err
		}
	}
	return r.token()
}

// open consumes the bracket that begins a value of the kind.
func (r *Reader) open(kind byte, otherwise string) error {
	if next := r.Kind(); next != kind && next != 0 {
		return &SyntaxError{Offset: int64(r.next), Reason: otherwise}
	}
	return r.token()
}

// End checks that nothing but white space follows.
func (r *Reader) End() error {
	if at := skipSpace(r.src, r.at); at < len(r.src) {
		return &SyntaxError{Offset: int64(at), Reason: "data follows the JSON object"}
	}
	return nil
}

// Offset is where the last consumed token ended, in bytes from the start.
func (r *Reader) Offset() int64 { return int64(r.at) }

const tooEarly = "the JSON text ends too early"

// fail is the error of what follows the last consumed token. To name the reason and the byte,
// jsontext's decoder reads the document once more, up to there. A Reader itself only knows
// that something is wrong. asValue says that a whole value was to be read, or a name, and not
// one token of either.
func (r *Reader) fail(asValue bool) error {
	if skipSpace(r.src, r.at) == len(r.src) { // of what may be absent this is usual
		return &SyntaxError{Offset: int64(len(r.src)), Reason: tooEarly}
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(r.src), jsontext.AllowDuplicateNames(true))
	var err error
	for err == nil && dec.InputOffset() < int64(r.at) {
		_, err = dec.ReadToken()
	}
	if err == nil && asValue {
		_, err = dec.ReadValue()
	} else if err == nil {
		_, err = dec.ReadToken()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{Offset: int64(len(r.src)), Reason: tooEarly}
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) && syntactic.Err != nil {
		reason := strings.TrimPrefix(syntactic.Err.Error(), "jsontext: ")
		return &SyntaxError{Offset: syntactic.ByteOffset, Reason: "invalid JSON: " + reason}
	}
	return &SyntaxError{Offset: int64(r.at), Reason: "invalid JSON"}
}
