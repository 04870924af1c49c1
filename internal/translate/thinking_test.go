package translate

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/upstream"
)

func TestTheGatewaysOwnThoughtsDoNotReachANativeUpstream(t *testing.T) {
	const (
		own    = `{"type":"thinking","thinking":"hm","signature":"` + syntheticSignature + `"}`
		hers   = `{"type":"thinking","thinking":"hm","signature":"hers"}`
		word   = `{ "role" : "user", "content" : "what is \u0022` + syntheticSignature + `\u0022?", "z" : 1.0 }`
		image  = `{"role":"user","content":[ {"type":"image","x":1.0,"source":{"type":"base64","media_type":"image/png","data":"\/AAA"}} ]}`
		sealed = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"` + sealedPrefix + `AAAA"}`
		theirs = `{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gAAA"}`
		asks   = `{ "type":"message", "role":"user", "content":"what is \"` + sealedPrefix + `\"?" }`
	)
	body := func(turns string) string {
		return `{"model":"m","max_tokens":9,"x":1.0,"messages":[` + turns + `]}`
	}
	turn := func(blocks string) string {
		return body(word + `,{"role":"assistant", "content":[` + blocks + `],"y" : 2.0},` + image)
	}
	input := func(list string) string { return `{"model":"m","input":` + list + `}` }
	ofMessages := []upstream.Op{upstream.Messages, upstream.CountTokens}
	ofResponses := []upstream.Op{upstream.Responses, upstream.CountInput}
	for _, c := range []struct {
		name       string
		ops        []upstream.Op
		sent, want string // nothing if all of it passes
	}{
		{"one among others", ofMessages, turn(own + `,{"type":"text","text":"t"}`), turn(`{"type":"text","text":"t"}`)},
		{"two in one turn", ofMessages, turn(own + `, {"type":"text","text":"\u0061"} ,` + own), turn(`{"type":"text","text":"\u0061"}`)},
		{"nothing else", ofMessages, turn(own), body(word + `,` + image)},
		{"the vendor's own", ofMessages, turn(hers + `, {"type":"text","text":"t"}`), ""},
		{"a word of hers", ofMessages, turn(hers + `, { "type":"text", "text":"` + syntheticSignature + `" }`), ""},
		{"a word of hers in a thought", ofMessages, turn(`{"type":"thinking","thinking":"` + syntheticSignature + `","signature":"hers"}`), ""},
		{"a text as signed", ofMessages, turn(`{"type":"text","text":"t","signature":"` + syntheticSignature + `"}`), ""},
		{"no such turn", ofMessages, body(word + ` , ` + image), ""},
		{"one item among others", ofResponses, input(`[` + asks + `, ` + sealed + ` ,` + theirs + `]`), input(`[` + asks + `,` + theirs + `]`)},
		{"no such item", ofResponses, input(`[` + asks + ` , ` + theirs + `]`), ""},
		{"a word of theirs", ofResponses, input(`[` + asks + `,{"type":"reasoning","id":"rs_2","summary":[{"type":"summary_text","text":"` + sealedPrefix + `"}],"encrypted_content":"gAAA"}]`), ""},
		{"an item of another type", ofResponses, input(`[` + asks + `,{"type":"compaction","encrypted_content":"` + sealedPrefix + `AAAA"}]`), ""},
		{"a text of the user's", ofResponses, input(`"` + sealedPrefix + `"`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, op := range c.ops {
				up, call := &scripted{op: op}, &upstream.Call{Op: op, Model: "m", Body: parsedAs(t, c.ops[0], c.sent)}
				if _, err := Bridge(Options{})(up).Do(t.Context(), call); err != nil {
					t.Fatal(err)
				}
				want := c.want
				if want == "" {
					if want = c.sent; up.call != call {
						t.Error("the call was copied")
					}
				}
				if up.got != want {
					t.Errorf("%s: got %s\nwant %s", op, up.got, want)
				}
			}
		})
	}
}

func TestASignatureThatDoesNotFitItsThoughtIsNotSent(t *testing.T) {
	for _, tt := range []struct{ text, pieces string }{
		{"a", ""}, {"", "t1.0."}, {"a", "t2.0."}, {"ab", "t1.0."}, {"a", "t1.4.sig"}, {"a", "t1.3.sigx"}, {"a", "t-1.0."},
		{"a", "t1"}, {"a", "t1."}, {"a", "t1.."}, {"a", "t.0."}, {"a", "t99999999999999999999.0."}, {"", "r3.ab"}, {"", "x0."}, {"", "r"},
	} {
		if blocks, ok := thinkingBlocks(tt.text, tt.pieces); ok {
			t.Errorf("%q, %q: %+v", tt.text, tt.pieces, blocks)
		}
	}
}

func TestAnEmptyThoughtKeepsItsText(t *testing.T) {
	blocks, ok := thinkingBlocks("", "t0.1.s")
	raw, err := json.Marshal(blocks)
	if err != nil || !ok || !bytes.Contains(raw, []byte(`"thinking":""`)) {
		t.Errorf("%s, %v", raw, err)
	}
}
