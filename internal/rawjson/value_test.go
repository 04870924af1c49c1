package rawjson

import (
	"math"
	"slices"
	"testing"
)

// A value is decoded as one type only, and to null and nothing as none.
func TestValuesAreDecodedAsWhatTheyAre(t *testing.T) {
	type decoded struct {
		null bool
		text any
		n    any
		f    any
	}
	for raw, want := range map[string]decoded{
		"": {null: true}, "null": {null: true}, `"null"`: {text: "null"}, "{}": {}, "[]": {}, "true": {}, `"`: {}, "Inf": {}, "NaN": {},
		`""`: {text: ""}, `"1"`: {text: "1"}, `"\u0000"`: {text: "\x00"},
		`"\"\\\/\b\f\n\r\t"`: {text: "\"\\/\b\f\n\r\t"}, `"\u00e9\ud83d\ude00é"`: {text: "é😀é"},
		"0": {n: int64(0), f: 0.0}, "-7": {n: int64(-7), f: -7.0}, "4.0": {f: 4.0}, "1e1": {f: 10.0}, "-2e-3": {f: -0.002}, "1E2": {f: 100.0}, "1e400": {}, "-1e400": {},
		"-0": {f: math.Copysign(0, -1)}, "9223372036854775807": {n: int64(math.MaxInt64), f: 0x1p63}, "-9223372036854775808": {n: int64(math.MinInt64), f: -0x1p63}, "9223372036854775808": {f: 0x1p63},
	} {
		got := decoded{null: IsNull([]byte(raw))}
		if s, ok := String([]byte(raw)); ok {
			got.text = s
		}
		if n, ok := Int([]byte(raw)); ok {
			got.n = n
		}
		if f, ok := Float([]byte(raw)); ok {
			got.f = f
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", raw, got, want)
		}
	}
}

func FuzzWhatIsQuotedIsReadAgain(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\/\b\f\n\r\t\x00\x7f", "é😀\u2028\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := Quote([]byte("x"), s)
		if quoted[0] != 'x' || !valid(quoted[1:]) {
			t.Fatalf("%q becomes %q", s, quoted)
		}
		back, ok := String(quoted[1:])
		if want := string([]rune(s)); !ok || back != want {
			t.Errorf("%q comes back as %q", s, back)
		}
	})
}

func TestEveryElementOfAnArrayIsVisitedInOrder(t *testing.T) {
	for raw, want := range map[string]struct {
		count int
		all   []string
	}{
		`[]`:                       {0, nil},
		` [ 1 , "a,]" ]`:           {2, []string{"1", `"a,]"`}},
		`[{"a":[1]},[2, 3], null]`: {3, []string{`{"a":[1]}`, "[2, 3]", "null"}},
		`[1,{"a":`:                 {1, []string{"1"}},
		`[1 2]`:                    {1, []string{"1"}},
		`{"a":1}`:                  {-1, nil},
		``:                         {-1, nil},
	} {
		var all []string
		count := Each([]byte(raw), func(i int, at Span) {
			if i != len(all) {
				t.Errorf("%s: element %d is visited as number %d", raw, len(all), i)
			}
			all = append(all, raw[at.Start:at.End])
		})
		if count != want.count || !slices.Equal(all, want.all) || len(Elements([]byte(raw))) != len(all) {
			t.Errorf("%s has %d elements, %q", raw, count, all)
		}
	}
}

func TestAMemberIsLookedUpByItsPath(t *testing.T) {
	const body = `{"a":{"b":"text","c":[{"b":1}]},"d":null}`
	for _, row := range []struct {
		path      []string
		raw, text string
	}{
		{[]string{"a", "b"}, `"text"`, "text"},
		{[]string{"d"}, "null", ""},
		{[]string{"x"}, "", ""},
		{[]string{"a", "c", "b"}, "", ""}, // an array is no object
		{[]string{"d", "b"}, "", ""},
		{nil, body, ""},
	} {
		if raw, text := string(Lookup([]byte(body), row.path...)), LookupString([]byte(body), row.path...); raw != row.raw || text != row.text {
			t.Errorf("%v: %s, %q, want %s, %q", row.path, raw, text, row.raw, row.text)
		}
	}
}

func TestEditsThatChangeNothingCopyNothing(t *testing.T) {
	raw := []byte(`{"a":1}`)
	for _, edit := range []Edit{Delete("b"), Rename("b", "c"), Rename("a", "a")} {
		if got := Apply(raw, edit); &got[0] != &raw[0] {
			t.Errorf("%+v made a copy", edit)
		}
	}
}

func TestEditsOfWhatIsNoObjectChangeNothing(t *testing.T) {
	for raw, want := range map[string]string{`{ "a":1 }`: `{ "a":2 }`, `[1]`: `[1]`, `{"a":`: `{"a":`, "": ""} {
		if got := string(Apply([]byte(raw), Set("a", []byte("2")))); got != want {
			t.Errorf("%s becomes %s, want %s", raw, got, want)
		}
	}
}
