package rawjson

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// valid reports whether raw is one strict JSON value.
func valid(raw []byte) bool { return jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) }

// pair is one member as an independent reader sees it.
type pair struct{ Name, Value string }

// oracle reads src with encoding/json, and says what that lets pass. ok is
// false when the document has to be refused.
func oracle(src []byte, rules *Rules) (pairs []pair, ok bool) {
	if !json.Valid(src) || !utf8.Valid(src) || loneSurrogate(src) || depthOf(src) > MaxDepth {
		return nil, false
	}
	pairs, ok = pairsOf(src)
	if !ok || ambiguous(pairs, rules) {
		return nil, false
	}
	for _, p := range pairs {
		if rules != nil && slices.Contains(rules.Nested, p.Name) {
			if inner, isObject := pairsOf([]byte(p.Value)); isObject && ambiguous(inner, rules) {
				return nil, false
			}
		}
	}
	return pairs, true
}

// pairsOf lists the members of a valid value; false if it is not an object.
func pairsOf(src []byte) ([]pair, bool) {
	dec := json.NewDecoder(bytes.NewReader(src))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var pairs []pair
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		pairs = append(pairs, pair{name.(string), string(value)})
	}
	return pairs, true
}

func ambiguous(pairs []pair, rules *Rules) bool {
	if rules == nil {
		return false
	}
	seen := make(map[string]bool)
	for _, p := range pairs {
		if rules.Unique && seen[p.Name] {
			return true
		}
		seen[p.Name] = true
		for _, billed := range rules.Billed {
			if p.Name != billed && strings.EqualFold(p.Name, billed) {
				return true
			}
		}
	}
	return false
}

// depthOf counts the levels of valid JSON.
func depthOf(src []byte) (deepest int) {
	dec := json.NewDecoder(bytes.NewReader(src))
	for depth := 0; ; {
		t, err := dec.Token()
		if err == io.EOF {
			return deepest
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// loneSurrogate looks at the escapes of valid JSON, which stand in strings only.
func loneSurrogate(src []byte) bool {
	for i := 0; i < len(src); i++ {
		if src[i] != '\\' {
			continue
		}
		i++
		if src[i] != 'u' {
			continue
		}
		r := unit(src[i+1:])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+6 >= len(src) || src[i+1] != '\\' || src[i+2] != 'u' || utf16.DecodeRune(r, unit(src[i+3:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

func unit(hex []byte) rune {
	n, _ := strconv.ParseUint(string(hex[:4]), 16, 16)
	return rune(n)
}

// corpus is where the fuzzers begin.
var corpus = []string{
	chunk, `{}`, " {\n} ", `[]`, `{"a":1,"a":2}`, `{"Model":1,"model":2}`, `{"parameters":{"a":1,"Stream":true}}`,
	`{"a":"\ud83d\ude00\u0000","é":[1.0,-0,1e400,true,null]}`, `{"a":"\ud83d"}`, `{"a":"\udc00\ud800"}`, "{\"a\":\"\xff\"}",
	`{} {}`, "{ \"a\" : 1 ,\n\t\"b\" : { \"c\" : [ ] } ,\r\n \"x\\n\":3 }\n",
	`{"a":` + nested(MaxDepth-1) + `}`, `{"a":` + nested(MaxDepth) + `}`,
}

func FuzzIndex(f *testing.F) {
	for _, src := range corpus {
		f.Add([]byte(src), true)
		f.Add([]byte(src), false)
	}
	f.Fuzz(func(t *testing.T, src []byte, ruled bool) {
		var rules *Rules
		if ruled {
			rules = bodyRules
		}
		before := string(src)
		want, ok := oracle(src, rules)
		o, err := Index(src, rules, nil)
		if (err == nil) != ok {
			t.Fatalf("%q: got %v, but acceptable is %t", src, err, ok)
		}
		if string(src) != before {
			t.Fatalf("%q: the source became %q", before, src)
		}
		if err != nil {
			own, isOwn := err.(*SyntaxError)
			if !isOwn || own.Offset < 0 || own.Offset > int64(len(src)) {
				t.Fatalf("%q: the error is %#v", src, err)
			}
			return
		}
		var got []pair
		for _, m := range o.Members {
			if !valid(m.Value.Of(src)) {
				t.Errorf("%q: the value of %q is %q", src, m.Name, m.Value.Of(src))
			}
			if name, ok := String(m.Key.Of(src)); !ok || name != m.Name {
				t.Errorf("%q: the key of %q is %q", src, m.Name, m.Key.Of(src))
			}
			got = append(got, pair{m.Name, string(m.Value.Of(src))})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", src, diff)
		}
	})
}

// editsOf makes edits out of arbitrary bytes, three for each.
func editsOf(script []byte, members []Member) []Edit {
	names := []string{"a", "b", "model", "é\n\"\x00", ""}
	for _, m := range members {
		names = append(names, m.Name)
	}
	values := []string{"1.0", `"x"`, "null", `{ "a" : [ ] }`}
	var edits []Edit
	for ; len(script) >= 3; script = script[3:] {
		name := names[int(script[1])%len(names)]
		switch script[0] % 3 {
		case 0:
			edits = append(edits, Set(name, []byte(values[int(script[2])%len(values)])))
		case 1:
			edits = append(edits, Delete(name))
		case 2:
			if to := names[int(script[2])%len(names)]; to != "" {
				edits = append(edits, Rename(name, to))
			}
		}
	}
	return edits
}

// edited is what an edit means, on plain pairs.
func edited(pairs []pair, e Edit) []pair {
	at := func(name string) int { return slices.IndexFunc(pairs, func(p pair) bool { return p.Name == name }) }
	i := at(e.Name)
	switch {
	case e.Rename == e.Name && e.Rename != "", e.Rename != "" && i < 0:
		return pairs
	case e.Value != nil && i < 0:
		return append(pairs, pair{e.Name, string(e.Value)})
	}
	kept := pair{e.Name, string(e.Value)}
	keep := e.Value != nil
	if e.Rename != "" {
		kept, keep = pair{e.Rename, pairs[max(i, 0)].Value}, at(e.Rename) < 0
	}
	var out []pair
	for j, p := range pairs {
		switch {
		case p.Name != e.Name:
			out = append(out, p)
		case j == i && keep:
			out = append(out, kept)
		}
	}
	return out
}

func FuzzApply(f *testing.F) {
	for _, src := range corpus {
		f.Add([]byte(src), []byte{})
		f.Add([]byte(src), []byte{0, 0, 0, 1, 1, 0, 2, 5, 6})
		f.Add([]byte(src), []byte{1, 5, 0, 1, 6, 0, 1, 7, 0, 0, 4, 3})
	}
	f.Fuzz(func(t *testing.T, src, script []byte) {
		o, err := Index(src, nil, nil)
		if err != nil {
			return
		}
		edits := editsOf(script, o.Members)
		before, _ := pairsOf(src)
		want := before
		for _, e := range edits {
			want = edited(slices.Clone(want), e)
		}
		out := o.Apply(nil, edits...)
		if !valid(out) {
			t.Fatalf("%q after %v is %q", src, edits, out)
		}
		got, _ := pairsOf(out)
		if !slices.Equal(want, got) {
			t.Errorf("%q after %v is %q, want %q", src, edits, out, want)
		}
		var listed []pair
		for name, value := range o.Edited(edits...) {
			listed = append(listed, pair{name, string(value)})
		}
		if !slices.Equal(want, listed) {
			t.Errorf("%q after %v is listed as %q, want %q", src, edits, listed, want)
		}
		checkUntouched(t, &o, out, edits)
		if got := Apply(src, edits...); !bytes.Equal(got, out) {
			t.Errorf("%q after %v is %q without an index, want %q", src, edits, got, out)
		}
		for _, room := range [...]int{0, 3, 100} {
			over := append(make([]byte, 0, len(src)+room), src...)
			o := Object{Src: over, Members: o.Members}
			if got := o.ApplyInPlace(edits...); !bytes.Equal(got, out) {
				t.Errorf("%q after %v in place is %q, want %q", src, edits, got, out)
			}
		}
	})
}

// checkUntouched fails when a member that no edit names does not stand in out
// with every byte from its key to the end of its value.
func checkUntouched(t *testing.T, o *Object, out []byte, edits []Edit) {
	named := func(name string) bool {
		return slices.ContainsFunc(edits, func(e Edit) bool { return e.Name == name || e.Rename == name })
	}
	rest, all := out, true
	for _, m := range o.Members {
		if named(m.Name) {
			all = false
			continue
		}
		text := Span{m.Key.Start, m.Value.End}.Of(o.Src)
		at := bytes.Index(rest, text)
		if at < 0 {
			t.Fatalf("%q after %v is %q: %q changed or moved", o.Src, edits, out, text)
		}
		rest = rest[at+len(text):]
	}
	appended := slices.ContainsFunc(edits, func(e Edit) bool { return e.Value != nil })
	if all && !appended && !bytes.Equal(out, o.Src) {
		t.Errorf("%q after %v is %q, though nothing was edited", o.Src, edits, out)
	}
}
