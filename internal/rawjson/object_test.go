package rawjson

import "testing"

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

func TestEditingAChunkTakesNoMemory(t *testing.T) {
	o, _ := Index([]byte(chunk), nil, nil)
	dst := make([]byte, 0, 2*len(chunk))
	model := []byte(`"house/model"`)
	if n := testing.AllocsPerRun(200, func() { o.Apply(dst, Set("model", model), Delete("usage")) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
