package rawjson

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var bodyRules = &Rules{Unique: true, Billed: []string{"model", "stream", "duration", "tokens"}, Nested: []string{"parameters"}}

// texts are the members of an index as text.
func texts(o Object) [][3]string {
	var all [][3]string
	for _, m := range o.Members {
		all = append(all, [3]string{m.Name, string(m.Key.Of(o.Src)), string(m.Value.Of(o.Src))})
	}
	return all
}

func TestTheIndexTellsWhereEveryMemberStands(t *testing.T) {
	for _, tt := range []struct {
		src  string
		want [][3]string
	}{
		{`{}`, nil},
		{" \t\r\n{ \t\r\n} \t\r\n", nil},
		{"\n{\t\"a\"\r\n : \t1 \n,\r\"b\" :\n{ \"c\" : [ ] }\n}\n", [][3]string{{"a", `"a"`, "1"}, {"b", `"b"`, `{ "c" : [ ] }`}}},
		{`{"a":1.0,"a":-0,"a":1e400}`, [][3]string{{"a", `"a"`, "1.0"}, {"a", `"a"`, "-0"}, {"a", `"a"`, "1e400"}}},
		{`{"\u0061\"":"x","":"","é\ud83d\ude00":null}`, [][3]string{{`a"`, `"\u0061\""`, `"x"`}, {"", `""`, `""`}, {"é😀", `"é\ud83d\ude00"`, "null"}}},
		{`{"a":[1,[2]],"b":true,"c":":,:","d":{"a":{"a":{}}}}`, [][3]string{
			{"a", `"a"`, "[1,[2]]"}, {"b", `"b"`, "true"}, {"c", `"c"`, `":,:"`}, {"d", `"d"`, `{"a":{"a":{}}}`},
		}},
	} {
		o, err := Index([]byte(tt.src), nil, nil)
		if err != nil {
			t.Errorf("%q: %v", tt.src, err)
		}
		if diff := cmp.Diff(tt.want, texts(o)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.src, diff)
		}
	}
}

func TestARefusalNamesTheByte(t *testing.T) {
	for _, tt := range []struct {
		src    string
		offset int64
		reason string
	}{
		{``, 0, "the JSON text ends too early"},
		{`{`, 1, "the JSON text ends too early"},
		{`{"a":"b`, 7, "the JSON text ends too early"},
		{"{\"a\":\"\xe4\xb8", 8, "the JSON text ends too early"},
		{`[{}]`, 0, "the document is not a JSON object"},
		{`{} {}`, 3, "data follows the JSON object"},
		{"{}\n\x00", 3, "data follows the JSON object"},
		{"\ufeff{}", 0, "invalid JSON: invalid character '\\ufeff' at start of value"},
		{`{"a":1 "b":2}`, 7, `invalid JSON: invalid character '"' after object value (expecting ',' or '}')`},
		{`{"a" 1}`, 5, "invalid JSON: invalid character '1' after object name (expecting ':')"},
		{`{"a"::1}`, 5, ""},
		{`{a:1}`, 1, ""},
		{`{"a":01}`, 6, ""},
		{`{"a":NaN}`, 5, ""},
		{`{"a":1]`, 6, ""},
		{"{\"a\":\"\n\"}", 6, ""},
		{"{\"a\":\"b\xff\"}", 7, "invalid JSON: invalid UTF-8"},
		{"{\"\xc0\x80\":1}", 2, "invalid JSON: invalid UTF-8"},
		{"{\"a\":\"\xed\xa0\x80\"}", 6, "invalid JSON: invalid UTF-8"},
		{`{"a":{"b":["\ud800"]}}`, 12, ""},
		{`{"a":"\udc00\ud800"}`, 6, ""},
		{`{"\ud800x":1}`, 2, ""},
		{`{"a":"\x41"}`, 6, ""},
		{`{"model":1,"n":2,"model":1}`, 17, `the field "model" is given twice`},
		{`{"a":1,"\u0061":1}`, 7, `the field "a" is given twice`},
		{`{"parameters":{"a":1,"a":2}}`, 21, `the field "a" is given twice`},
		{`{"Model":1}`, 1, `the field "Model" must be spelled "model"`},
		{"{\"to\u212aen\u017f\":1}", 1, "the field \"to\u212aen\u017f\" must be spelled \"tokens\""},
		{`{"parameters":{"a":{},"Duration":2}}`, 22, `the field "Duration" must be spelled "duration"`},
	} {
		_, err := Index([]byte(tt.src), bodyRules, nil)
		var own *SyntaxError
		if !errors.As(err, &own) {
			t.Errorf("%q: got %v, want a refusal", tt.src, err)
			continue
		}
		if own.Offset != tt.offset || (tt.reason != "" && own.Reason != tt.reason) {
			t.Errorf("%q: got %q at %d, want %q at %d", tt.src, own.Reason, own.Offset, tt.reason, tt.offset)
		}
		if want := fmt.Sprintf("%s (byte %d)", own.Reason, own.Offset); err.Error() != want {
			t.Errorf("the error reads %q, want %q", err, want)
		}
	}
}

func TestWhatIsNotAmbiguousPassesTheRules(t *testing.T) {
	for _, src := range []string{
		`{"tools":[{"a":1,"a":2,"Model":1}],"messages":{"b":1,"b":2}}`,
		`{"a":1,"A":1,"models":1,"Mode":1,"mödel":1}`,
		`{"parameters":{"model":1,"deep":{"a":1,"a":2,"Model":3}},"model":1}`,
		`{"parameters":[{"a":1,"a":2}]}`,
		`{"parameters":null}`,
	} {
		if _, err := Index([]byte(src), bodyRules, nil); err != nil {
			t.Errorf("%s: %v", src, err)
		}
	}
	two := &Rules{Unique: true, Nested: []string{"input", "parameters"}}
	if _, err := Index([]byte(`{"input":{"a":1},"parameters":{"a":1},"a":1}`), two, nil); err != nil {
		t.Errorf("the same name in two objects: %v", err)
	}
	for _, rules := range []*Rules{nil, {}} {
		if _, err := Index([]byte(`{"model":1,"model":2,"Model":3}`), rules, nil); err != nil {
			t.Errorf("%v: %v", rules, err)
		}
	}
}

func TestARepeatedNameIsFoundAmongManyWithoutQuadraticTime(t *testing.T) {
	const members = 100_000 // the square of it would take minutes
	var b strings.Builder
	for i := range members {
		fmt.Fprintf(&b, `,"%d":0`, i)
	}
	all := b.String()[1:]
	for _, wrap := range []string{"{%s}", `{"parameters":{%s}}`} {
		if _, err := Index([]byte(fmt.Sprintf(wrap, all)), bodyRules, nil); err != nil {
			t.Errorf(wrap+": %v", "…", err)
		}
		for _, again := range []int{0, many - 1, many, many + 1, members - 1} {
			src := fmt.Sprintf(wrap, fmt.Sprintf(`%s,"%d":1`, all, again))
			if _, err := Index([]byte(src), bodyRules, nil); err == nil || !strings.Contains(err.Error(), "twice") {
				t.Errorf(wrap+": the name %d repeated: %v", "…", again, err)
			}
		}
	}
}

func TestARefusalRepeatsOnlyABoundedPartOfTheText(t *testing.T) {
	long := strings.Repeat("é", 1000)
	_, err := Index([]byte(`{"`+long+`":1,"`+long+`":2}`), bodyRules, nil)
	if err == nil || len(err.Error()) > 200 || !strings.Contains(err.Error(), "éé…") {
		t.Errorf("got %v", err)
	}
}

// nested is depth arrays, one in the other.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestADocumentMayHave64LevelsAndNoMore(t *testing.T) {
	shapes := map[string]func(depth int) string{
		"arrays":     func(n int) string { return `{"a":` + nested(n-1) + `}` },
		"objects":    func(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) },
		"parameters": func(n int) string { return `{"parameters":{"x":` + nested(n-2) + `}}` },
		"unclosed":   func(n int) string { return `{"a":` + strings.Repeat("[", n-1) },
	}
	for name, shape := range shapes {
		for _, depth := range []int{3, MaxDepth - 1, MaxDepth, MaxDepth + 1, 10_001, 100_000} {
			_, err := Index([]byte(shape(depth)), bodyRules, nil)
			tooDeep := err != nil && strings.Contains(err.Error(), "nesting is deeper than 64 levels")
			if tooDeep != (depth > MaxDepth) {
				t.Errorf("%s, %d levels: %v", name, depth, err)
			}
			if err == nil && name == "unclosed" {
				t.Errorf("%s was accepted", name)
			}
		}
	}
	r := NewReader([]byte(nested(MaxDepth + 1)))
	defer r.Close()
	var walk func(int) error
	walk = func(int) error { return r.Array(walk) }
	if err := walk(0); err == nil || !strings.Contains(err.Error(), "deeper") {
		t.Errorf("a walk from array to array: %v", err)
	}
	_, err := Index([]byte(`{"a":`+nested(MaxDepth)+`}`), nil, nil)
	var own *SyntaxError
	if !errors.As(err, &own) || own.Offset != int64(len(`{"a":`)+MaxDepth-1) {
		t.Errorf("got %v, want the offset of the bracket that goes too deep", err)
	}
}

func TestVisitIsCalledAtEveryValueButThoseWithRulesInside(t *testing.T) {
	src := []byte(`{"a":{"b":[1,2]},"parameters":{"x":1},"c":"s"}`)
	var names []string
	o, err := Index(src, bodyRules, func(r *Reader, name []byte) error {
		names = append(names, string(name))
		if string(name) == "a" {
			return r.Object(func([]byte, Span) error {
				return r.Array(func(int) error { _, err := r.Skip(); return err })
			})
		}
		_, err := r.Skip()
		return err
	})
	if diff := cmp.Diff([]string{"a", "c"}, names); diff != "" || err != nil {
		t.Errorf("visited (-want +got):\n%s%v", diff, err)
	}
	want := [][3]string{{"a", `"a"`, `{"b":[1,2]}`}, {"parameters", `"parameters"`, `{"x":1}`}, {"c", `"c"`, `"s"`}}
	if diff := cmp.Diff(want, texts(o)); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
	own := errors.New("own")
	if _, err := Index(src, nil, func(r *Reader, _ []byte) error {
		return r.Object(func([]byte, Span) error { return own })
	}); err != own {
		t.Errorf("the error of a visit comes back as %v", err)
	}
}

func TestADocumentHoldsNoMoreThanItsBounds(t *testing.T) {
	bounds := Bounds{TopMembers: 2, Members: 3, Tokens: 12}
	for src, want := range map[string]string{
		`{"a":{"x":1,"y":2,"z":3}}`:               "",
		`{"a":1,"b":2,"c":3}`:                     "more than 2 members",
		`{"a":{"w":1,"x":1,"y":2,"z":3}}`:         `more than 3 members, in the field "a",`,
		`{"a":[1,2,3,4],"b":[1,2,3,4]}`:           `more than 12 names, values and brackets, in the field "b",`,
		`{"a":[1,2,3,4,5,6,7,8,9,10,11,12,13,14]`: "more than 12 names",
	} {
		_, err := Index([]byte(src), &Rules{Bounds: bounds}, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", src, err, want)
		}
		if within := Within([]byte(src), bounds); (within == nil) != (want == "") {
			t.Errorf("%s: %v", src, within)
		}
	}
}

func TestAnIndexCanBeUsedAgain(t *testing.T) {
	o := Borrow()
	defer GiveBack(o)
	for _, src := range []string{`{"a":1,"b":2}`, `{"c":3}`, `{}`, `{"a":1,"b":2,"c":3}`} {
		fresh, _ := Index([]byte(src), nil, nil)
		if err := IndexInto(o, []byte(src), nil, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(texts(fresh), texts(*o)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", src, diff)
		}
		if a := o.Raw("a"); string(a) != string(fresh.Raw("a")) || (a == nil) == strings.Contains(src, "a") {
			t.Errorf("%s: a is %q", src, a)
		}
	}
	if err := IndexInto(o, []byte(`{"z":1,`), nil, nil); err == nil || len(o.Members) != 1 {
		t.Errorf("after an error: %v, %v", texts(*o), err)
	}
}

func TestNamesKeptBetweenDocumentsAreBounded(t *testing.T) {
	r := &Reader{names: make(map[string]string)}
	for i := range 5000 {
		name := fmt.Sprint(i, strings.Repeat("x", i%60))
		if got := r.intern([]byte(name)); got != name {
			t.Fatalf("%q became %q", name, got)
		}
	}
	if len(r.names) > 512 {
		t.Errorf("%d names are kept", len(r.names))
	}
	for name := range r.names {
		if len(name) > 40 {
			t.Errorf("a name of %d bytes is kept", len(name))
		}
	}
	if r.intern([]byte("model")); r.names["model"] != "model" {
		t.Error("a full table takes no new name")
	}
}

func TestIndexingTakesLittleMemory(t *testing.T) {
	src := []byte(chunk)
	var o Object
	// The least of many runs counts: now and then a pool starts anew.
	least := func(index func()) float64 {
		n := testing.AllocsPerRun(1, index)
		for range 50 {
			n = min(n, testing.AllocsPerRun(1, index))
		}
		return n
	}
	if n := least(func() { Index(src, bodyRules, nil) }); n > 1 {
		t.Errorf("Index: %v allocations", n)
	}
	if n := least(func() { IndexInto(&o, src, bodyRules, nil) }); n > 0 {
		t.Errorf("IndexInto: %v allocations", n)
	}
}

func TestEditsSpliceTheSource(t *testing.T) {
	const three = "{ \"a\" : 1 ,\n\t\"b\" : 2.0 ,\r\n \"c\":[ 3 ] }\n"
	for _, tt := range []struct {
		name, src string
		edits     []Edit
		want      string
	}{
		{"no edit", three, nil, three},
		{"edits of nothing", three, []Edit{Delete("x"), Rename("x", "y"), Rename("a", "a"), Delete("")}, three},
		{"set the first", three, []Edit{Set("a", []byte(`"x"`))}, "{ \"a\" : \"x\" ,\n\t\"b\" : 2.0 ,\r\n \"c\":[ 3 ] }\n"},
		{"append", three, []Edit{Set("d", []byte("4")), Set("e", []byte("5"))}, "{ \"a\" : 1 ,\n\t\"b\" : 2.0 ,\r\n \"c\":[ 3 ],\"d\":4,\"e\":5 }\n"},
		{"delete the first", three, []Edit{Delete("a")}, "{ \"b\" : 2.0 ,\r\n \"c\":[ 3 ] }\n"},
		{"delete the middle", three, []Edit{Delete("b")}, "{ \"a\" : 1 ,\r\n \"c\":[ 3 ] }\n"},
		{"delete the last", three, []Edit{Delete("c")}, "{ \"a\" : 1 ,\n\t\"b\" : 2.0 }\n"},
		{"delete all and append", three, []Edit{Delete("b"), Delete("a"), Delete("c"), Set("d", []byte("4"))}, "{ \"d\":4 }\n"},
		{"delete and set again", `{"a":1,"b":2}`, []Edit{Delete("a"), Set("a", []byte("3"))}, `{"b":2,"a":3}`},
		{"rename", three, []Edit{Rename("b", "x\n\"é")}, "{ \"a\" : 1 ,\n\t\"x\\n\\\"é\" : 2.0 ,\r\n \"c\":[ 3 ] }\n"},
		{"rename onto a later one", `{"a":1,"b":2}`, []Edit{Rename("a", "b")}, `{"b":2}`},
		{"rename onto one that was deleted", `{"a":1,"b":2}`, []Edit{Delete("a"), Rename("b", "a")}, `{"a":2}`},
		{"rename and set", `{"a":1}`, []Edit{Rename("a", "b"), Set("b", []byte("2")), Set("a", []byte("3"))}, `{"b":2,"a":3}`},
		{"into an empty object", " { \n } ", []Edit{Set("a", []byte("1")), Set("", []byte("2"))}, " {\"a\":1,\"\":2 \n } "},
		{"a name with escapes", `{"\u0061":1,"b":2}`, []Edit{Set("a", []byte("3"))}, `{"\u0061":3,"b":2}`},
		{"set a repeated name", `{"a":1,"b":2,"a":3}`, []Edit{Set("a", []byte("4"))}, `{"a":4,"b":2}`},
		{"rename a repeated name onto another", `{"a":1,"b":2,"a":3}`, []Edit{Rename("a", "b")}, `{"b":2}`},
	} {
		o, err := Index([]byte(tt.src), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := string(o.Apply([]byte("before"), tt.edits...)); got != "before"+tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
		if string(o.Src) != tt.src {
			t.Errorf("%s: the source changed", tt.name)
		}
	}
}

// A long text is cut into many parts, each an edit of the whole request.
func TestAnEditTakesNoMemoryForWhatItTakesOut(t *testing.T) {
	const long = 1 << 20
	o, err := Index([]byte(`{"model":"m","input":"`+strings.Repeat("a", long)+`","voice":"v"}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, edits := range map[string][]Edit{
		"another value":         {Set("input", []byte(`"b"`))},
		"another value and one": {Set("input", []byte(`"b"`)), Set("voice", []byte(`"w"`))},
		"no value":              {Delete("input"), Set("text", []byte(`"b"`))},
	} {
		if out := o.Apply(nil, edits...); cap(out) > 1<<10 {
			t.Errorf("%s: %d bytes for %s", name, cap(out), out)
		}
	}
}

func TestEditingAChunkTakesNoMemory(t *testing.T) {
	o, _ := Index([]byte(chunk), nil, nil)
	dst := make([]byte, 0, 2*len(chunk))
	model := []byte(`"house/model"`)
	if n := testing.AllocsPerRun(200, func() { o.Apply(dst, Set("model", model), Delete("usage")) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
