package rule

import (
	"strings"
	"testing"
)

func TestChecksDecide(t *testing.T) {
	for _, row := range []struct {
		name    string
		check   Check
		text    string
		allowed []string
		refused []string
	}{
		{"number", Number(-2, 0.5), "a number from -2 to 0.5",
			[]string{"-2", "0.5", "-0", "5e-1", "1e-400", "0.50"},
			[]string{"0.51", "-2.0001", `"0"`, "true", "[]", "{}", "1e400", "-1e400"}},
		{"integer", Integer(1, 128), "an integer from 1 to 128",
			[]string{"1", "128"}, []string{"0", "129", "1.0", "1e0", "-0", `"1"`, "true", "99999999999999999999"}},
		{"bool", Bool(), "true or false", []string{"true", "false"}, []string{"0", `"true"`, "{}"}},
		{"string", String(), "a string", []string{`""`, `"a"`}, []string{"1", "[]"}},
		{"non-empty string", NonEmptyString(), "a non-empty string", []string{`"a"`, `" "`}, []string{`""`, "1", "[]"}},
		{"object", Object(), "an object", []string{"{}"}, []string{"[]", `"{}"`}},
		{"array", Array(), "an array", []string{"[]", "[1]"}, []string{"{}", `"[]"`}},
		{"one of", OneOf("a", "bé"), `"a" or "bé"`, []string{`"a"`, `"\u0061"`, `"b\u00e9"`}, []string{`"A"`, `""`, "1", `["a"]`}},
		{"string or strings", StringOrStrings(2), "a string or an array of at most 2 strings",
			[]string{`"a"`, "[]", `["a"]`, `[ "a" , "b" ]`}, []string{`["a","b","c"]`, "[1]", "[null]", `["a",["b"]]`, "1", "{}"}},
		{"model id", ModelID(), "a non-empty string of at most 256 bytes without a NUL",
			[]string{`"m"`, `"` + strings.Repeat("m", 256) + `"`}, []string{`""`, "1", `"` + strings.Repeat("m", 257) + `"`, `"m\u0000"`}},
	} {
		if row.check.Text != row.text {
			t.Errorf("%s: %q, want %q", row.name, row.check.Text, row.text)
		}
		for _, raw := range row.allowed {
			if !row.check.OK([]byte(raw)) {
				t.Errorf("%s refuses %s", row.name, raw)
			}
		}
		for _, raw := range row.refused {
			if row.check.OK([]byte(raw)) {
				t.Errorf("%s allows %s", row.name, raw)
			}
		}
	}
}

func TestWordsReadAsASentence(t *testing.T) {
	for want, words := range map[string][]string{
		"": nil, `"a"`: {"a"}, `"a" or "b"`: {"a", "b"}, `"a", "b" or "c"`: {"a", "b", "c"},
	} {
		if got := Words(words); got != want {
			t.Errorf("%v: %s, want %s", words, got, want)
		}
	}
}
