package conversation

import (
	"slices"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

func TestATemplateMatchesWhatDiffersInItsTextAlone(t *testing.T) {
	const before, after = `{"a":1,"text":"`, `","b":2}`
	for _, row := range []struct {
		name, learned, out string // of one event
		event, data        string // the next one
		text               string
		matches            bool
	}{
		{"another text", "one", `data: {"text":"one"}`, "e", before + "two" + after, "two", true},
		{"an empty text", "one", `data: {"text":"one"}`, "e", before + after, "", true},
		{"an escape", "one", `data: {"text":"one"}`, "e", before + `\n` + after, `\n`, true},
		{"half of a character", "one", `data: {"text":"one"}`, "e", before + `\ud83d` + after, "", false},
		{"the end of the string", "one", `data: {"text":"one"}`, "e", before + `","c":"` + after, "", false},
		{"a control character", "one", `data: {"text":"one"}`, "e", before + "\n" + after, "", false},
		{"another event", "one", `data: {"text":"one"}`, "f", before + "two" + after, "", false},
		{"another member", "one", `data: {"text":"one"}`, "e", before + `two","b":3}`, "", false},
		{"a name that the client gets twice", "one", `data: {"id":{"text":"one"},"text":"one"}`, "e", before + "two" + after, "", false},
		{"a text that the client does not get", "one", `data: {}`, "e", before + "two" + after, "", false},
		{"no text", "", `data: {"text":""}`, "e", before + "two" + after, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			src := []byte(before + row.learned + after)
			at := rawjson.Span{Start: len(before) - 1, End: len(src) - len(after) + 1}
			var text Text
			text.Add(at.Of(src), at)
			var template Template
			template.Learn("e", &rawjson.Object{Src: src}, []byte(row.out), &text, "")
			next, ok := template.Match(row.event, []byte(row.data))
			got := next.Of([]byte(row.data))
			if ok != row.matches || ok && string(got) != row.text {
				t.Fatalf("got %q, %t, want %q, %t", got, ok, row.text, row.matches)
			}
			if want := `data: {"text":"` + row.text + `"}`; ok && string(template.Append(nil, []byte(row.data), 0)) != want {
				t.Errorf("the client gets %s, want %s", template.Append(nil, []byte(row.data), 0), want)
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
		tap := Tap{Report: Report{tokencount.Report{Has: [tokencount.Fields]bool{Input: true, Output: true}, N: [tokencount.Fields]int64{Input: 9, Output: 1}}}}
		row.feed(&tap.DeliveredText)
		if got := tap.Usage(); got != row.want {
			t.Errorf("%s: got %+v, want %+v", row.name, got, row.want)
		}
	}
}

func TestACountIsReadOrRefused(t *testing.T) {
	for sent, want := range map[string]int64{`{"input_tokens":42}`: 42, ` { "x":1.0, "input_tokens":0 } `: 0} {
		body, tokens, err := ReadCount([]byte(sent))
		if string(body) != sent || tokens != want || err != nil {
			t.Errorf("%s: %s, %d, %v", sent, body, tokens, err)
		}
	}
	for _, sent := range []string{``, `{}`, `[]`, `{"input_tokens":-1}`, `{"input_tokens":1.5}`, `{"input_tokens":null}`, `{"input_tokens":1,"error":{"type":"api_error"}}`, `{"input_tokens":1`} {
		if _, _, err := ReadCount([]byte(sent)); !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s: %v", sent, err)
		}
	}
}
