package rule

import (
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

func TestOneMemberOfABodyIsVisited(t *testing.T) {
	const body = `{"model":"m","messages":[1,2],"x":{"messages":3}}`
	for name, want := range map[string]string{"messages": "[1,2]", "x": `{"messages":3}`, "none": ""} {
		got := ""
		var o rawjson.Object
		err := Read(&o, Body, []byte(body), name, func(rd *rawjson.Reader) error {
			at, err := rd.Skip()
			got += body[at.Start:at.End]
			return err
		})
		if err != nil || got != want || string(o.Raw("messages")) != "[1,2]" || len(o.Members) != 3 {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestABodyThatIsNotAcceptableIsRefusedByItsOffset(t *testing.T) {
	skip := func(rd *rawjson.Reader) error { _, err := rd.Skip(); return err }
	for body, param := range map[string]string{`[]`: "", `{"a":1,"a":2}`: "a", `{"Model":"m"}`: "Model", `{"a":[1`: ""} {
		for _, visit := range []func(*rawjson.Reader) error{nil, skip} {
			err := Read(new(rawjson.Object), Body, []byte(body), "a", visit)
			if f := fault.From(err); f.HTTPStatus() != 400 || !strings.Contains(f.Message, " (byte ") || f.Param != param {
				t.Errorf("%s: %v, of the field %q, want %q", body, err, f.Param, param)
			}
		}
	}
}

func TestWhatDoesNotObeyItsRuleIsNoted(t *testing.T) {
	table := Table{{"n", Integer(1, 2)}, {"flag", Bool()}}
	for raw, want := range map[string]string{
		`{}`: "", `{"n":null}`: "", `{"n":2,"flag":true,"x":9}`: "",
		`{"n":3}`: `"at.n" must be an integer from 1 to 2.`, `{"flag":1}`: `"at.flag" must be true or false.`,
		`{"flag":1,"n":3}`: `"at.n" must be an integer from 1 to 2.`, // the table's order, not the body's
	} {
		o, err := rawjson.Index([]byte(raw), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var p Problem
		ok := p.AllObey(table, &o, "at.")
		if message := words(p.Err()); message != want || ok != (want == "") {
			t.Errorf("%s: %q, %t", raw, message, ok)
		}
	}
}

// view has a field of every type that [Fields] decode.
type view struct {
	text  string
	texts []string
	flag  bool
	n     int64
	half  float64
	most  *int64
	top   *float64
	raw   []byte // what Then got
}

var viewFields = Fields[view]{
	{Name: "text", Check: String(), Into: func(v *view) any { return &v.text }},
	{Name: "texts", Check: StringOrStrings(2), Into: func(v *view) any { return &v.texts }},
	{Name: "flag", Check: Bool(), Into: func(v *view) any { return &v.flag }},
	{Name: "n", Check: Integer(1, 2), Into: func(v *view) any { return &v.n }},
	{Name: "half", Into: func(v *view) any { return &v.half }},
	{Name: "most", Into: func(v *view) any { return &v.most }},
	{Name: "top", Into: func(v *view) any { return &v.top }},
	{Name: "raw", Check: Array(), Then: func(v *view, raw []byte) { v.raw = raw }},
}

func TestFieldsAreReadInTheOrderOfTheBody(t *testing.T) {
	o, err := rawjson.Index([]byte(`{"n":3,"text":"\u0061","raw":[1],"texts":"one","flag":true,"half":0.5,"most":7,"top":1e0,"other":9,"raw":{}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var v view
	var p Problem
	viewFields.Read(&v, &o, &p, false)
	if want := `"n" must be an integer from 1 to 2.`; words(p.Err()) != want || v.n != 0 {
		t.Errorf("%q, n is %d", words(p.Err()), v.n)
	}
	if v.text != "a" || !slices.Equal(v.texts, []string{"one"}) || !v.flag || v.half != 0.5 || *v.most != 7 || *v.top != 1 || string(v.raw) != "[1]" {
		t.Errorf("%+v", v)
	}
	v = view{text: "typed"}
	viewFields.Read(&v, &o, &p, true)
	if v.text != "typed" || v.flag || string(v.raw) != "[1]" {
		t.Errorf("of a typed request: %+v", v)
	}
}

func TestFieldsAreReadInTheOrderOfTheTable(t *testing.T) {
	o, err := rawjson.Index([]byte(`{"most":"many","raw":{},"n":3,"flag":1,"text":"\u0061","half":null}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var v view
	var p Problem
	viewFields.ReadListed(&v, &o, &p, false)
	if want := `"flag" must be true or false.`; words(p.Err()) != want {
		t.Errorf("%q, want %q", words(p.Err()), want)
	}
	if v.text != "a" || v.n != 3 || v.flag || v.most != nil || string(v.raw) != "{}" {
		t.Errorf("%+v", v)
	}
	v = view{text: "typed", n: 1}
	viewFields.ReadListed(&v, &o, nil, true)
	if v.text != "typed" || v.n != 1 {
		t.Errorf("of a typed request: %+v", v)
	}
}

// words is the message of a refusal; empty if there is none.
func words(err error) string {
	if err == nil {
		return ""
	}
	return fault.From(err).Message
}
