package rawjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// reference is a Reader that leaves the grammar to jsontext's decoder: what
// [Reader] must agree with on every document.
type reference struct {
	src      []byte
	dec      *jsontext.Decoder
	bounds   Bounds
	tokens   int
	field    string
	exceeded bool
}

func newReference(src []byte) *reference {
	return &reference{src: src, dec: jsontext.NewDecoder(bytes.NewBuffer(src), jsontext.AllowDuplicateNames(true))}
}

// walker is what both readers do.
type walker interface {
	Kind() byte
	Skip() (Span, error)
	Object(each func(name []byte, key Span) error) error
	Array(each func(i int) error) error
	End() error
	Offset() int64
}

// trace is all that a reader tells of a document. Bytes of the script say where the walk
// goes into a value, where it skips it, and where it takes it for another kind.
func trace(r walker, script []byte) (lines []string) {
	note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	at := 0
	var value func() error
	value = func() error {
		choice := byte(0)
		if len(script) > 0 {
			choice, at = script[at%len(script)], at+1
		}
		kind := byte(' ')
		if choice&1 != 0 {
			kind = r.Kind()
			note("kind %c", kind)
		}
		switch {
		case choice == 2, choice&2 == 0 && kind == '{':
			return r.Object(func(name []byte, key Span) error {
				note("%q %v %d", name, key, r.Offset())
				return value()
			})
		case choice == 4, choice&4 == 0 && kind == '[':
			return r.Array(func(i int) error {
				note("element %d %d", i, r.Offset())
				return value()
			})
		}
		span, err := r.Skip()
		note("skip %v", span)
		return err
	}
	err := value()
	if err == nil {
		err = r.End()
	}
	note("%#v %d", err, r.Offset())
	if err != nil {
		lines[len(lines)-1] = fmt.Sprint(err) // a reader that failed is of no use
	}
	return lines
}

func FuzzReaderAgreesWithItsReference(f *testing.F) {
	long := strings.Repeat("abcdefgh", 9)
	for _, src := range append(corpus, ownCorpus...) {
		for _, script := range []string{"\x00", "\x01", "\x01\x03\x05", "\x02", "\x04\x07"} {
			f.Add([]byte(src), []byte(script), byte(0))
			f.Add([]byte(strings.ReplaceAll(src, "a", long)), []byte(script), byte(9))
		}
	}
	f.Fuzz(func(t *testing.T, src, script []byte, bounds byte) {
		b := Bounds{TopMembers: int(bounds & 3), Members: int(bounds >> 2 & 3), Tokens: int(bounds>>4) * 3}
		want := newReference(src)
		want.bounds, want.field = b, "a"
		got := NewReader(src)
		defer got.Close()
		got.bounds, got.field = b, "a"
		if diff := cmp.Diff(trace(want, script), trace(got, script)); diff != "" {
			t.Errorf("%q by %v (-want +got):\n%s", src, script, diff)
		}
		if want.exceeded != got.exceeded {
			t.Errorf("%q exceeds its bounds: %t, want %t", src, got.exceeded, want.exceeded)
		}
	})
}

// ownCorpus is where the fuzzer of the readers begins, besides corpus. It has each way in
// which a token can be wrong, and the limits of the eight bytes that are read at a time.
var ownCorpus = []string{
	``, ` `, `"`, `"a`, `"a"`, `"abcdefg"`, `"abcdefgh"`, `"abcdefghi"`, `"\`, `"\u12`, `"\ud83d\u`, `"\ud83d\ude0`, `"\uD83D\uDE00"`, `"\ud83d\n"`,
	"\"a\x7f\"", "\"a\x1f\"", "\"abcdefg\x00\"", "\"abcdefg\xc3\"", "\"abcdefg\xc3\xa9\"", "\"\xe0\x80\x80\"", "\"\xe0\xa0\x80\"", "\"\xed\xa0\x80\"", "\"\xed\x9f\xbf\"",
	"\"\xe4\xb8\xad\xe6\x96\x87\"", "\"\xe4\xb8", "\"\xe4\x41\x80\"", "\"\xf0\x9f\x98\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xf0\x8f\x80\x80\"", "\"\xef\xbf\xbd\"", "\"\xff\"",
	`-`, `-0`, `01`, `1.`, `1.5`, `1e`, `1e+`, `1e-7`, `1E5`, `.5`, `+1`, `0x1`, `1_0`, `-a`, `[-]`, `[1.e]`,
	`t`, `tru`, `true`, `truex`, `falsy`, `nul`, `[nul]`, `[true false]`, `[1 2]`, `[1,]`, `[,1]`, `[1,,2]`, `[1:2]`, `[1}`, `[]]`, `]`, `}`, `,1`, `:1`,
	`{"a"}`, `{"a":}`, `{"a":1,}`, `{,"a":1}`, `{"a",1}`, `{"a":1:2}`, `{1:2}`, `{{}:1}`, `{{"x}:1}`, `{[1`, `{"a":{"b":1]}`, `{"a":[1}}`, `{"a":1]`, `{:1}`, `{true:1}`, `{"a":1 "b"`,
	`{"a":[{"b":[1,2,{"c":"d"}]},[],{}],"e":{"f":{"g":null}}}`, "\ufeff{}", `{"\u0061\n":"\/\b\f"}`, `[{"a":1,"b":2,"c":3},{"d":4}]`,
}

func (r *reference) Kind() byte { return byte(r.dec.PeekKind()) }

func (r *reference) Skip() (Span, error) {
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

func (r *reference) token() error {
	if _, err := r.dec.ReadToken(); err != nil {
		return r.fail(err)
	}
	if r.dec.StackDepth() > MaxDepth {
		return &SyntaxError{Offset: r.dec.InputOffset() - 1, Reason: fmt.Sprintf("nesting is deeper than %d levels", MaxDepth)}
	}
	return r.bounded()
}

func (r *reference) bounded() error {
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

func (r *reference) count() error {
	if r.tokens++; r.bounds.Tokens > 0 && r.tokens > r.bounds.Tokens {
		return r.exceed("the document holds more than %d names, values and brackets", r.bounds.Tokens)
	}
	return nil
}

func (r *reference) exceed(reason string, most int) error {
	r.exceeded = true
	reason = fmt.Sprintf(reason, most)
	if r.field != "" {
		reason += fmt.Sprintf(", in the field %q,", safetext.Truncate(r.field, maxQuoted))
	}
	return &SyntaxError{Offset: r.dec.InputOffset(), Reason: reason}
}

func (r *reference) Object(each func(name []byte, key Span) error) error {
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

func (r *reference) Array(each func(i int) error) error {
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

func (r *reference) open(kind jsontext.Kind, otherwise string) error {
	if next := r.dec.PeekKind(); next != kind && next != 0 {
		return &SyntaxError{Offset: int64(r.next(int(r.dec.InputOffset()))), Reason: otherwise}
	}
	return r.token()
}

func (r *reference) next(at int) int {
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

func (r *reference) End() error {
	at := int(r.dec.InputOffset())
	rest := bytes.TrimLeft(r.src[at:], " \t\n\r")
	if len(rest) > 0 {
		return &SyntaxError{Offset: int64(len(r.src) - len(rest)), Reason: "data follows the JSON object"}
	}
	return nil
}

func (r *reference) Offset() int64 { return r.dec.InputOffset() }

func (r *reference) fail(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{Offset: int64(len(r.src)), Reason: "the JSON text ends too early"}
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) && syntactic.Err != nil {
		reason := strings.TrimPrefix(syntactic.Err.Error(), "jsontext: ")
		return &SyntaxError{Offset: syntactic.ByteOffset, Reason: "invalid JSON: " + reason}
	}
	return &SyntaxError{Offset: r.dec.InputOffset(), Reason: "invalid JSON"}
}
