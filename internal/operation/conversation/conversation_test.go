package conversation

import (
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

func TestATemplateMatchesWhatDiffersInItsTextItsNumberAndItsPadding(t *testing.T) {
	event := func(text, number, padding, rest string) string {
		return `{"a":1,"text":"` + text + `","n":` + number + `,"obfuscation":"` + padding + `"` + rest + `}`
	}
	const out = `data: {"text":"one","n":7}`
	for _, row := range []struct {
		name, learned, out, number string // of one event
		event, data                string // the next one
		text                       string
		matches                    bool
	}{
		{"another text", event("one", "1", "abc", ""), out, "n", "e", event("two", "1", "abc", ""), "two", true},
		{"all three", event("one", "1", "abc", ""), out, "n", "e", event("other words", "1000", "x", ""), "other words", true},
		{"no number at all", `{"text":"one"}`, `data: {"text":"one"}`, "", "e", `{"text":"two"}`, "two", true},
		{"an empty text", event("one", "1", "abc", ""), out, "n", "e", event("", "1", "", ""), "", true},
		{"an escape", event("one", "1", "abc", ""), out, "n", "e", event(`\n`, "2", "x", ""), `\n`, true},
		{"half of a character", event("one", "1", "abc", ""), out, "n", "e", event(`\ud83d`, "1", "x", ""), "", false},
		{"the end of the string", event("one", "1", "abc", ""), out, "n", "e", event(`","c":"`, "1", "x", ""), "", false},
		{"the end of the padding", event("one", "1", "abc", ""), out, "n", "e", event("two", "1", `","text":"`, ""), "", false},
		{"a control character", event("one", "1", "abc", ""), out, "n", "e", event("\n", "1", "x", ""), "", false},
		{"a number that is none", event("one", "1", "abc", ""), out, "n", "e", event("two", "01", "x", ""), "", false},
		{"a number that is long", event("one", "1", "abc", ""), out, "n", "e", event("two", "1000000000000000000", "x", ""), "", false},
		{"no number", event("one", "1", "abc", ""), out, "n", "e", event("two", "", "x", ""), "", false},
		{"another event", event("one", "1", "abc", ""), out, "n", "f", event("two", "1", "x", ""), "", false},
		{"one member more", event("one", "1", "abc", ""), out, "n", "e", event("two", "1", "x", `,"b":2`), "", false},
		{"another member", event("one", "1", "abc", `,"b":2`), out, "n", "e", event("two", "1", "x", `,"b":3`), "", false},
		{"a number that is not there", `{"text":"one"}`, `data: {"text":"one"}`, "n", "e", `{"text":"two"}`, "", false},
		{"a number given twice", event("one", "1", "abc", `,"n":2`), out, "n", "e", event("two", "1", "abc", `,"n":2`), "", false},
		{"a name that the client gets twice", event("one", "1", "abc", ""), `data: {"id":{"text":"one"},"text":"one","n":7}`, "n", "e", event("two", "1", "abc", ""), "", false},
		{"a text that the client does not get", event("one", "1", "abc", ""), `data: {"n":7}`, "n", "e", event("two", "1", "abc", ""), "", false},
		{"no text", event("", "1", "abc", ""), `data: {"text":"","n":7}`, "n", "e", event("two", "1", "abc", ""), "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if strings.Contains(row.learned, padding) {
				row.out += `,"obfuscation":"abc"`
			}
			o, err := rawjson.Index([]byte(row.learned), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			at := o.Members[slices.IndexFunc(o.Members, func(m rawjson.Member) bool { return m.Name == "text" })].Value
			var text Text
			text.Add(at.Of(o.Src), at)
			var template Template
			template.Learn("e", &o, []byte(row.out), &text, row.number)
			next, ok := template.Match(row.event, []byte(row.data))
			got := next.Of([]byte(row.data))
			if ok != row.matches || ok && string(got) != row.text {
				t.Fatalf("got %q, %t, want %q, %t", got, ok, row.text, row.matches)
			}
			want := strings.Replace(strings.Replace(row.out, `"one"`, `"`+row.text+`"`, 1), `"n":7`, `"n":9`, 1)
			want = strings.Replace(want, `"abc"`, string(rawjson.Lookup([]byte(row.data), padding)), 1)
			if sent := string(template.Append(nil, []byte(row.data), 9)); ok && sent != want {
				t.Errorf("the client gets %s, want %s", sent, want)
			}
		})
	}
}

// FuzzReadNested has it say the same as two passes, one after the other.
func FuzzReadNested(f *testing.F) {
	for _, event := range []string{
		`{"type":"x","response":{"id":"a","output":[{"content":[{"text":"one"}],"encrypted_content":"QUJDREVG"}],"usage":{"output_tokens":1}},"n":1}`,
		`{"response":null,"response":{"output":[]}}`, `{"response":{"usage":1},"response":{"usage":2}}`, `{"\u0072esponse" : { "usage" : { } } }`,
		`{"delta":"text","response":[{"output":1}]}`, `{"response":{"output":[}}`, `{"response":{"a":1}`, `[]`, ``, ` {"response":{}} x`,
	} {
		f.Add([]byte(event))
	}
	item := []Part{{Name: "content", As: AsList, Parts: []Part{{Name: "text"}}}, {Name: "encrypted_content", As: AsEncrypted}}
	outer := []Part{{Name: "delta"}, {Name: "item", As: AsObject, Parts: item}}
	inner := []Part{{Name: "output", As: AsList, Parts: item}, {Name: "usage", As: AsUsage}}
	f.Fuzz(func(t *testing.T, event []byte) {
		var got, want Scan
		var object, first, second rawjson.Object
		nested, err := got.ReadNested(&object, event, outer, "response", inner)
		wantErr := want.Read(&first, event, outer)
		if raw := first.Raw("response"); wantErr == nil && len(raw) > 0 && raw[0] == '{' {
			if wantErr = want.Read(&second, raw, inner); nested == nil {
				t.Fatalf("%s has no response", event)
			}
		} else if nested != nil && err == nil {
			t.Fatalf("%s has a response", event)
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%s: %v, want %v", event, err, wantErr)
		}
		if err != nil {
			return
		}
		if got.Text.Quarters != want.Text.Quarters || got.Encrypted != want.Encrypted || string(got.Usage) != string(want.Usage) || (got.Usage == nil) != (want.Usage == nil) {
			t.Errorf("%s: %+v, want %+v", event, got, want)
		}
		if !slices.Equal(object.Members, first.Members) {
			t.Errorf("%s: %v, want %v", event, object.Members, first.Members)
		}
		if nested != nil && (string(nested.Src) != string(second.Src) || !slices.Equal(nested.Members, second.Members)) {
			t.Errorf("%s: %s %v, want %s %v", event, nested.Src, nested.Members, second.Src, second.Members)
		}
	})
}

func TestATemplateNeedsAllTextInOneString(t *testing.T) {
	src := []byte(`{"a":"one","b":"two"}`)
	var text Text
	for _, at := range []rawjson.Span{{Start: 5, End: 10}, {Start: 15, End: 20}} {
		text.Add(at.Of(src), at)
	}
	var template Template
	template.Learn("", &rawjson.Object{Src: src}, src, &text, "")
	if _, ok := template.Match("", []byte(`{"a":"one","b":"six"}`)); ok {
		t.Error("the first string of the next event would not be counted")
	}
}

func TestTextAfterTheUpstreamsCountIsCharged(t *testing.T) {
	counted := billing.Usage{Input: 9, Output: 1}
	estimated := billing.Usage{Input: 9, Output: 5, Estimated: true}
	for _, row := range []struct {
		name string
		feed func(m *DeliveredText)
		want billing.Usage
	}{
		{"counted after the text", func(m *DeliveredText) { m.Wrote(20); m.Counted() }, counted},
		{"text after the count", func(m *DeliveredText) { m.Counted(); m.Wrote(20) }, estimated},
		{"nothing after the count", func(m *DeliveredText) { m.Wrote(20); m.Counted(); m.Wrote(0) }, counted},
		{"less text than was counted", func(m *DeliveredText) { m.Wrote(3) }, counted},
	} {
		tap := Tap{Report: Report{Report: tokencount.Report{Has: [tokencount.Fields]bool{Input: true, Output: true}, N: [tokencount.Fields]int64{Input: 9, Output: 1}}}}
		row.feed(&tap.DeliveredText)
		if got := tap.Usage(); got != row.want {
			t.Errorf("%s: got %+v, want %+v", row.name, got, row.want)
		}
	}
}

func TestACountIsReadOrRefused(t *testing.T) {
	for sent, want := range map[string]int64{`{"input_tokens":42}`: 42, `{"input_tokens":"4.15e1"}`: 42, ` { "x":1.0, "input_tokens":0 } `: 0} {
		body, tokens, err := ReadCount([]byte(sent))
		if string(body) != sent || tokens != want || err != nil {
			t.Errorf("%s: %s, %d, %v", sent, body, tokens, err)
		}
	}
	for _, sent := range []string{``, `{}`, `[]`, `{"input_tokens":-1}`, `{"input_tokens":"few"}`, `{"input_tokens":null}`, `{"input_tokens":1,"error":{"type":"odd_error"}}`, `{"input_tokens":1`} {
		if _, _, err := ReadCount([]byte(sent)); !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s: %v", sent, err)
		}
	}
}

func TestWhatAsksForReasoningThatMayBeHidden(t *testing.T) {
	hidden := map[string]bool{
		`"reasoning":{"exclude":true}`: true, `"reasoning":{"type":"disabled","effort":"high","exclude":true}`: true,
		`"include_reasoning":false`: true, `"reasoning_format":"hidden"`: true,
	}
	for members, want := range map[string]bool{
		`"temperature":1`:                                                   false,
		`"reasoning_effort":"low"`:                                          true,
		`"reasoning_effort":"none"`:                                         false,
		`"reasoning":{"effort":"none"}`:                                     false,
		`"reasoning":{"enabled":false}`:                                     false,
		`"reasoning":{}`:                                                    false,
		`"thinking":null`:                                                   false,
		`"thinking":{"type":"enabled"}`:                                     true,
		`"thinking":{"type":"disabled"}`:                                    false,
		`"thinking":{"type":"disabled"},"reasoning_effort":"high"`:          true,
		`"reasoning":{"exclude":true}`:                                      true,
		`"reasoning":{"type":"disabled","effort":"high","exclude":true}`:    true,
		`"reasoning":{"effort":"none","effort":"high"}`:                     true,
		`"include_reasoning":false`:                                         true,
		`"include_reasoning":null`:                                          false,
		`"reasoning_format":"hidden"`:                                       true,
		`"think":true`:                                                      true,
		`"think":false`:                                                     false,
		`"reasoning_budget":1024`:                                           true,
		`"output_config":{"effort":"high"}`:                                 true,
		`"output_config":{"format":{"type":"json_schema"}}`:                 false,
		`"include":["reasoning.encrypted_content"]`:                         true,
		`"include":["message.output_text.logprobs"]`:                        false,
		`"extra_body":{"google":{"thinking_config":{"thinking_budget":9}}}`: true,
	} {
		o, err := rawjson.Index([]byte("{"+members+"}"), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := &Parsed{Object: o}
		if got := p.AsksForReasoning(); got != want {
			t.Errorf("%s: %t, want %t", members, got, want)
		}
		if got := p.HidesReasoning(); got != hidden[members] {
			t.Errorf("%s hides it: %t", members, got)
		}
	}
}
