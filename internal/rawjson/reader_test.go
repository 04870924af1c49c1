package rawjson

import (
	"errors"
	"strings"
	"testing"
)

func TestSkipTellsWhereEveryKindOfValueStands(t *testing.T) {
	for _, value := range []string{`"a\"b"`, `""`, "-1.5e+3", "0", "true", "false", "null", "{}", "[ ]", `{"a":[{}]}`, `[[],"]"]`} {
		src := []byte(" [ 1 , \t" + value + "\n, 2 ] ")
		r := NewReader(src)
		var got []string
		err := r.Array(func(i int) error {
			if i == 1 && r.Kind() != kindOf(value) {
				t.Errorf("%s has kind %q", value, r.Kind())
			}
			span, err := r.Skip()
			got = append(got, string(span.Of(src)))
			if int(r.Offset()) != span.End {
				t.Errorf("after %s the offset is %d, want %d", value, r.Offset(), span.End)
			}
			return err
		})
		if err != nil || strings.Join(got, "|") != "1|"+value+"|2" {
			t.Errorf("%q: got %q, %v", src, got, err)
		}
		if err := r.End(); err != nil {
			t.Errorf("%q: %v", src, err)
		}
		r.Close()
	}
}

func kindOf(value string) byte {
	if c := value[0]; c != '-' {
		return c
	}
	return '0'
}

func TestAWalkInsideAnotherKindIsRefused(t *testing.T) {
	for _, tt := range []struct {
		src    string
		walk   func(*Reader) error
		offset int64
	}{
		{`  "x"`, func(r *Reader) error { return r.Object(nil) }, 2},
		{` []`, func(r *Reader) error { return r.Object(nil) }, 1},
		{`{}`, func(r *Reader) error { return r.Array(nil) }, 0},
		{`null`, func(r *Reader) error { return r.Array(nil) }, 0},
		{``, func(r *Reader) error { return r.Array(nil) }, 0},
		{`{"a" : 1}`, func(r *Reader) error {
			return r.Object(func([]byte, Span) error { return r.Array(nil) })
		}, 7},
	} {
		r := NewReader([]byte(tt.src))
		var own *SyntaxError
		if err := tt.walk(r); !errors.As(err, &own) || own.Offset != tt.offset {
			t.Errorf("%q: got %v, want an error at %d", tt.src, err, tt.offset)
		}
		r.Close()
	}
}

func TestAReaderTakenAfterAFailureStartsClean(t *testing.T) {
	for range 50 {
		r := NewReader([]byte(`{"a":[[[`))
		r.Skip()
		r.Close()
		if _, err := Index([]byte(`{"a":1}`), bodyRules, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAStringIsReadAlikeWhereverItsPlainTextEnds(t *testing.T) {
	for _, end := range []string{`"`, `\n"`, `\x"`, `\u0041"`, `é"`, "\xff\"", "\x1f\"", "\x00\"", " !#\x7f\"", `""`, ""} {
		for before := range 100 {
			src := []byte(`"` + strings.Repeat("a", before) + end)
			want := -1
			if end != `""` && valid(src) {
				want = len(src)
			} else if end == `""` {
				want = len(src) - 1
			}
			if got := StringEnd(src, 0); got != want {
				t.Errorf("%q ends at %d, want %d", src, got, want)
			}
			if got := StringEnd(append(src, strings.Repeat(" ", 64)...), 0); got != want && end != "" {
				t.Errorf("%q, followed by spaces, ends at %d, want %d", src, got, want)
			}
		}
	}
}
