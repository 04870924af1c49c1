package rule

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

func TestOneMemberOfABodyIsVisited(t *testing.T) {
	const body = `{"model":"m","messages":[1,2],"x":{"messages":3}}`
	for name, want := range map[string]string{"messages": "[1,2]", "x": `{"messages":3}`, "none": ""} {
		got := ""
		o, err := Read([]byte(body), name, func(rd *rawjson.Reader) error {
			at, err := rd.Skip()
			got += body[at.Start:at.End]
			return err
		})
		if err != nil || got != want || string(o.Raw("messages")) != "[1,2]" || len(o.Members) != 3 {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if o, err := Read([]byte(body), "", nil); err != nil || string(o.Raw("model")) != `"m"` {
		t.Errorf("%v, %v", o, err)
	}
}

func TestABodyThatIsNotAcceptableIsRefusedByItsOffset(t *testing.T) {
	skip := func(rd *rawjson.Reader) error { _, err := rd.Skip(); return err }
	for _, body := range []string{`[]`, `{"a":1,"a":2}`, `{"Model":"m"}`, `{"a":[1`} {
		for _, visit := range []func(*rawjson.Reader) error{nil, skip} {
			if _, err := Read([]byte(body), "a", visit); fault.From(err).HTTPStatus() != 400 || !strings.Contains(err.Error(), "at byte ") {
				t.Errorf("%s: %v", body, err)
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
	for raw, want := range map[string]string{"2": "", "3": `"n" must be an integer from 1 to 2.`} {
		var p Problem
		if ok := p.Obeys(table, "n", []byte(raw)); ok != (want == "") || words(p.Err()) != want {
			t.Errorf("%s: %t, %v", raw, ok, p.Err())
		}
	}
	var p Problem
	if !p.Obeys(table, "x", []byte("9")) || p.Err() != nil {
		t.Error("a name without a rule has one")
	}
}

// words is the message of a refusal; empty if there is none.
func words(err error) string {
	if err == nil {
		return ""
	}
	return fault.From(err).Message
}
