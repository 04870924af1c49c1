// Package rawjson reads JSON strictly in one pass and edits it by splicing, so
// that what was not edited stays as it came, byte for byte.
package rawjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/word"
)

// MaxDepth is how many levels of objects and arrays a document may have.
const MaxDepth = 64

// SyntaxError says why a document is refused and at which byte.
type SyntaxError struct {
	Offset int64
	Reason string
}

// Error gives the reason and the offset.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
}

// Reader walks one JSON document. Every method consumes the next value, checks
// its syntax and depth, and fails with a *SyntaxError; after an error the
// Reader is of no use. Take one with [NewReader] and give it back with Close.
type Reader struct {
	src   []byte
	buf   bytes.Buffer
	dec   jsontext.Decoder
	names map[string]string // member names met before, so that equal names share memory

	top, inner level // the names that Index checks

	bounds Bounds // of the document; zero for one that was read before
	tokens int    // names, values and brackets that were read, where they are bounded
	field  string // the top-level member that is being read
	// exceeded says that the document holds more than the bounds say.
	exceeded bool
}

// readers keeps decoders and their buffers between requests.
var readers = sync.Pool{New: func() any { return &Reader{names: make(map[string]string)} }}

// NewReader returns a Reader over src, which must not change until Close.
func NewReader(src []byte) *Reader {
	r := readers.Get().(*Reader)
	r.src = src
	r.buf = *bytes.NewBuffer(src)
	r.dec.Reset(&r.buf, jsontext.AllowDuplicateNames(true))
	return r
}

// Close gives the Reader's memory back. The Reader must not be used again, nor
// closed twice.
func (r *Reader) Close() {
	r.src = nil
	r.bounds, r.tokens, r.field, r.exceeded = Bounds{}, 0, "", false
	r.top.reset()
	r.inner.reset()
	r.buf = bytes.Buffer{}
	r.dec.Reset(&r.buf)
	readers.Put(r)
}

// Kind is the first byte of the next value ('{', '[', '"', '0', 't', 'f',
// 'n'), or 0 at an error or the end.
func (r *Reader) Kind() byte { return byte(r.dec.PeekKind()) }

// Skip consumes the next value and returns where it stands.
func (r *Reader) Skip() (Span, error) {
	kind := r.dec.PeekKind()
	if kind != '{' && kind != '[' {
		v, err := r.dec.ReadValue()
		if err != nil {
			return Span{}, r.fail(err)
		}
		end := int(r.dec.InputOffset())
		return Span{end - len(v), end}, r.count()
	}
	if err := r.token(); err != nil {
		return Span{}, err
	}
	start := int(r.dec.InputOffset()) - 1
	for depth := r.dec.StackDepth(); r.dec.StackDepth() >= depth; {
		if err := r.token(); err != nil {
			return Span{}, err
		}
	}
	return Span{start, int(r.dec.InputOffset())}, nil
}

// token consumes one token and checks the depth.
func (r *Reader) token() error {
	if _, err := r.dec.ReadToken(); err != nil {
		return r.fail(err)
	}
	if r.dec.StackDepth() > MaxDepth {
		return &SyntaxError{r.dec.InputOffset() - 1, fmt.Sprintf("nesting is deeper than %d levels", MaxDepth)}
	}
	return r.bounded()
}

// bounded counts the name or bracket that was consumed, and checks how many members the
// object has so far that it stands in.
func (r *Reader) bounded() error {
	if r.bounds == (Bounds{}) {
		return nil
	}
	depth, most := r.dec.StackDepth(), r.bounds.Members
	if depth == 1 {
		most = r.bounds.TopMembers
	}
	if depth > 0 && most > 0 {
		if kind, length := r.dec.StackIndex(depth); kind == '{' && length > 2*int64(most) { // names and values
			return r.exceed("an object has more than %d members", most)
		}
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
		reason += fmt.Sprintf(", in the field %q,", word.Truncate(r.field, maxQuoted))
	}
	return &SyntaxError{r.dec.InputOffset(), reason}
}

// Object consumes an object: each is called at every member's value, which it
// must consume with exactly one call. The name is valid during the call only.
// The error of each ends the walk and is returned as it is.
func (r *Reader) Object(each func(name []byte, key Span) error) error {
	if err := r.open('{', "a JSON object is expected"); err != nil {
		return err
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.dec.ReadValue()
		if err != nil {
			return r.fail(err)
		}
		if err := r.bounded(); err != nil {
			return err
		}
		end := int(r.dec.InputOffset())
		key := Span{end - len(name), end}
		plain := name[1 : len(name)-1]
		if bytes.IndexByte(plain, '\\') >= 0 {
			if plain, err = jsontext.AppendUnquote(nil, name); err != nil {
				return r.fail(err)
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
	for i := 0; r.dec.PeekKind() != ']'; i++ {
		if err := each(i); err != nil {
			return err
		}
	}
	return r.token()
}

// open consumes the bracket that begins a value of the kind.
func (r *Reader) open(kind jsontext.Kind, otherwise string) error {
	if next := r.dec.PeekKind(); next != kind && next != 0 {
		return &SyntaxError{int64(r.next(int(r.dec.InputOffset()))), otherwise}
	}
	return r.token()
}

// next is where the value begins that follows offset at.
func (r *Reader) next(at int) int {
	for at < len(r.src) {
		switch r.src[at] {
		case ' ', '\t', '\n', '\r', ':', ',':
			at++
		default:
			return at
		}
	}
	return at
}

// End checks that nothing but white space follows.
func (r *Reader) End() error {
	at := int(r.dec.InputOffset())
	rest := bytes.TrimLeft(r.src[at:], " \t\n\r")
	if len(rest) > 0 {
		return &SyntaxError{int64(len(r.src) - len(rest)), "data follows the JSON object"}
	}
	return nil
}

// Offset is where the last consumed token ended, in bytes from the start.
func (r *Reader) Offset() int64 { return r.dec.InputOffset() }

// fail turns a decoder's error into a SyntaxError.
func (r *Reader) fail(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{int64(len(r.src)), "the JSON text ends too early"}
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) && syntactic.Err != nil {
		reason := strings.TrimPrefix(syntactic.Err.Error(), "jsontext: ")
		return &SyntaxError{syntactic.ByteOffset, "invalid JSON: " + reason}
	}
	return &SyntaxError{r.dec.InputOffset(), "invalid JSON"}
}

// scratch keeps indexes that nobody looks at any more, for the next.
var scratch = sync.Pool{New: func() any { return new(Object) }}

// Borrow returns an Object for [IndexInto]. Give it back with [GiveBack].
func Borrow() *Object { return scratch.Get().(*Object) }

// GiveBack ends the use of o. The memory of an unusually large index is let go.
func GiveBack(o *Object) {
	const usual = 64
	if cap(o.Members) > usual {
		return
	}
	o.Src = nil
	scratch.Put(o)
}
