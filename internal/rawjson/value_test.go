package rawjson

import (
	"math"
	"testing"
)

func TestOnlyNullAndNothingAreNull(t *testing.T) {
	for raw, want := range map[string]bool{"": true, "null": true, "0": false, `""`: false, "{}": false, `"null"`: false} {
		if IsNull([]byte(raw)) != want {
			t.Errorf("%q: want %t", raw, want)
		}
	}
}

func TestStringDecodesStringsOnly(t *testing.T) {
	for raw, want := range map[string]string{`""`: "", `"a"`: "a", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u00e9\ud83d\ude00é"`: "é😀é", `"\u0000"`: "\x00"} {
		if s, ok := String([]byte(raw)); !ok || s != want {
			t.Errorf("%s: got %q, %t", raw, s, ok)
		}
	}
	for _, raw := range []string{"", "1", "null", "{}", "[]", `"`} {
		if s, ok := String([]byte(raw)); ok {
			t.Errorf("%s: got %q", raw, s)
		}
	}
}

func TestIntDecodesIntegersOnly(t *testing.T) {
	for raw, want := range map[string]int64{"0": 0, "7": 7, "-7": -7, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64} {
		if n, ok := Int([]byte(raw)); !ok || n != want {
			t.Errorf("%s: got %d, %t", raw, n, ok)
		}
	}
	for _, raw := range []string{"", "-0", "4.0", "1e1", "1E1", "9223372036854775808", "1e400", "null", `"1"`, "true", "{}"} {
		if n, ok := Int([]byte(raw)); ok {
			t.Errorf("%s: got %d", raw, n)
		}
	}
}

func TestFloatDecodesFiniteNumbersOnly(t *testing.T) {
	for raw, want := range map[string]float64{"0": 0, "1.50": 1.5, "-2e-3": -0.002, "1E2": 100} {
		if f, ok := Float([]byte(raw)); !ok || f != want {
			t.Errorf("%s: got %v, %t", raw, f, ok)
		}
	}
	for _, raw := range []string{"", "1e400", "-1e400", "null", `"1"`, "Inf", "NaN", "true", "[]"} {
		if f, ok := Float([]byte(raw)); ok {
			t.Errorf("%s: got %v", raw, f)
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
