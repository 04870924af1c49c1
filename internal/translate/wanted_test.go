package translate

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/seal"
	"github.com/tollhouse-ai/gateway/upstream"
)

// atVendor is an upstream that says who its vendor is.
type atVendor struct {
	*scripted
	vendor string
}

func (a *atVendor) Vendor() string { return a.vendor }

// The members that a vendor of chat puts beside its calls and its message.
const (
	signedCall   = `"extra_content":{"google":{"thought_signature":"SIG"}}`
	secondCall   = `"extra_content":{"google":{"thought_signature":"OTHER"}}`
	wholeDetails = `{"type":"reasoning.text","text":"hm","signature":"S1","index":0,"format":"x"},{"type":"reasoning.encrypted","data":"BLOB","id":"rs_1","index":1}`
	callMembers  = `"id":"%s","type":"function","function":{"name":"f","arguments":"{}"}`
)

// wantingAnswers are answers of chat, whole and streamed, and what its request must have
// again.
var wantingAnswers = []struct {
	name, whole string
	stream      []string
	back        []string
}{
	{
		"signed calls", `"message":{"role":"assistant","content":null,"tool_calls":[{` + fmt.Sprintf(callMembers, "c1") + `,` + signedCall + `},{` + fmt.Sprintf(callMembers, "c2") + `,` + secondCall + `}]}`,
		[]string{delta(`"tool_calls":[{"index":0,` + fmt.Sprintf(callMembers, "c1") + `,` + signedCall + `}]`), delta(`"tool_calls":[{"index":1,` + fmt.Sprintf(callMembers, "c2") + `,` + secondCall + `}]`)},
		[]string{`"id":"c1","type":"function","function":{"name":"f","arguments":"{}"},` + signedCall, `"id":"c2","type":"function","function":{"name":"f","arguments":"{}"},` + secondCall},
	},
	{
		"a signature that comes late", `"message":{"content":"let me","tool_calls":[{` + fmt.Sprintf(callMembers, "c1") + `,` + signedCall + `},{` + fmt.Sprintf(callMembers, "c2") + `}]}`,
		[]string{delta(`"content":"let me"`), callPiece(0, "c1", "f", "{"), delta(`"tool_calls":[{"index":0,"function":{"arguments":"}"},` + signedCall + `}]`), callPiece(1, "c2", "f", "{}")},
		[]string{`"id":"c1","type":"function","function":{"name":"f","arguments":"{}"},` + signedCall},
	},
	{
		"details of the reasoning", `"message":{"reasoning":"hm","content":"let me","reasoning_details":[{"type":"reasoning.summary","summary":"read by all"},` + wholeDetails + `],"tool_calls":[{` + fmt.Sprintf(callMembers, "c1") + `},{` + fmt.Sprintf(callMembers, "c2") + `}]}`,
		[]string{
			delta(`"reasoning":"h","reasoning_details":[{"type":"reasoning.text","text":"h","index":0,"format":"x"}]`), delta(`"reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m","index":0}]`),
			delta(`"reasoning_details":[{"type":"reasoning.text","signature":"S1","index":0}]`), delta(`"reasoning_details":[{"type":"reasoning.encrypted","data":"BLOB","id":"rs_1","index":1}]`),
			delta(`"content":"let me"`), callPiece(0, "c1", "f", "{}"), callPiece(1, "c2", "f", "{}"),
		},
		[]string{`"reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"S1","index":0,"format":"x"},{"type":"reasoning.encrypted","data":"BLOB","index":1,"id":"rs_1"}]`},
	},
	{
		"a signed message", `"message":{"content":"let me","extra_content":{"google":{"thought_signature":"SIG"}},"tool_calls":[{` + fmt.Sprintf(callMembers, "c1") + `},{` + fmt.Sprintf(callMembers, "c2") + `}]}`,
		[]string{delta(`"content":"let me","extra_content":{"google":{"thought":true}}`), delta(`"extra_content":{"google":{"thought_signature":"SIG"}}`), callPiece(0, "c1", "f", "{}"), callPiece(1, "c2", "f", "{}")},
		[]string{signedCall},
	},
}

// TestAVendorAloneGetsBackWhatItWants has clients of messages and responses go on with an
// answer of chat: at the same vendor, at another one, and as another account.
func TestAVendorAloneGetsBackWhatItWants(t *testing.T) {
	bridge := Bridge(Options{Now: func() time.Time { return time.Unix(77, 0) }, Secrets: seal.New(nil)})
	up := &atVendor{scripted: &scripted{op: upstream.ChatCompletion}}
	bridged := bridge(up)
	for _, c := range clients {
		if c.op == upstream.ChatCompletion {
			continue
		}
		for _, asksForThoughts := range []bool{true, false} {
			send := func(account, vendor string, stream bool, history ...string) string {
				t.Helper()
				up.vendor = vendor
				ask := c.ask(history)
				if !asksForThoughts {
					ask = strings.NewReplacer(`"thinking":{"type":"adaptive"},`, "", `"include":["reasoning.encrypted_content"],`, "").Replace(ask)
				}
				body, err := c.parse(ask)
				if err != nil {
					t.Fatal(err)
				}
				reply, err := bridged.Do(t.Context(), &upstream.Call{Op: c.op, Model: "m", Account: account, Stream: stream, MaxOutput: 4096, Body: body})
				if err != nil {
					t.Fatal(err)
				}
				data, err := io.ReadAll(reply.Body)
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}
			for _, row := range wantingAnswers {
				completion := `{"id":"chatcmpl-7","choices":[{"index":0,` + row.whole + `,"finish_reason":"tool_calls"}],` + chatUsage + `}`
				up.whole, up.stream = completion, chunks(append(slices.Clone(row.stream), finish("tool_calls"), done)...)
				whole, stream := send("alice", "a.example", false, c.says), send("alice", "a.example", true, c.says)
				for how, r := range map[string]read{"whole": c.reads(whole, ""), "streamed": c.reads("", stream)} {
					at := fmt.Sprintf("%s, %s, %s, %t", c.op, row.name, how, asksForThoughts)
					if r.err != nil || !strings.Contains(r.text, "c1:f({})") {
						t.Errorf("%s: %s, %v", at, r.text, r.err)
						continue
					}
					second := strings.Replace(c.sends, "c1", "c2", 1)
					history := slices.Concat([]string{c.says}, r.back, []string{c.sends, second})
					_ = send("alice", "a.example", false, history...)
					for _, want := range row.back {
						if strings.Count(up.got, want) != 1 {
							t.Errorf("%s: no %s in %s", at, want, up.got)
						}
					}
					for _, other := range [][2]string{{"alice", "b.example"}, {"bob", "a.example"}} {
						_ = send(other[0], other[1], false, history...)
						for _, foreign := range []string{"SIG", "OTHER", "BLOB", "extra_content", reasoningDetails, wantedPrefix, reasoningSignature, "gateway-reasoning"} {
							if strings.Contains(up.got, foreign) {
								t.Errorf("%s: %s gets %s: %s", at, other, foreign, up.got)
							}
						}
					}
					for _, op := range []upstream.Op{upstream.Messages, upstream.Responses} {
						up.op = op
						up.whole = vendors[op].whole
						_ = send("alice", "a.example", false, history...)
						if strings.Contains(up.got, "SIG") || strings.Contains(up.got, wantedPrefix) || strings.Contains(up.got, sealedPrefix) || !strings.Contains(up.got, "c1") {
							t.Errorf("%s: a vendor of %s gets %s", at, op, up.got)
						}
					}
					up.op, up.whole = upstream.ChatCompletion, completion
				}
			}
		}
	}
}

func TestWhatAVendorWantsBackIsFoundByTheCallsIDOrItsPlace(t *testing.T) {
	k := &keeper{seal.New(nil), "a", "v"}
	signed := func(w wanted) string {
		text, _ := rawjson.String(k.seal(w))
		return string(appendSigned(nil, &piece{kind: wantedBack, text: []byte(quoted(text))}))
	}
	member := func(value string) []byte { return []byte(`{"extra_content":{"v":` + value + `},"role":"user"}`) }
	pieces := signed(wanted{Call: "b", Number: 1, Members: member("1")}) + signed(wanted{Number: 3, Members: member("2")}) + "e1.x"
	got, changed := k.giveBack([]byte(`[{"role":"user","content":"` + reasoningSignature + `"},{"role":"assistant","` + reasoningSignature + `":` + quoted(pieces) + `},` +
		`{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b"},{"id":"c"}]},{"role":"tool","tool_call_id":"b"},{"role":"assistant","tool_calls":[{"id":"b"}]}]`))
	const want = `[{"role":"user","content":"` + reasoningSignature + `"},{"role":"assistant"},` +
		`{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b","extra_content":{"v":1}},{"id":"c","extra_content":{"v":2}}]},{"role":"tool","tool_call_id":"b"},{"role":"assistant","tool_calls":[{"id":"b"}]}]`
	if !changed || string(got) != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	for _, other := range []*keeper{nil, {k.secrets, "b", "v"}, {k.secrets, "a", "w"}, {seal.New(nil), "a", "v"}} {
		if got, _ := other.giveBack([]byte(`[{"role":"assistant","` + reasoningSignature + `":` + quoted(pieces) + `,"tool_calls":[{"id":"b"}]}]`)); string(got) != `[{"role":"assistant","tool_calls":[{"id":"b"}]}]` {
			t.Errorf("%+v: %s", other, got)
		}
	}
}
