package chat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
)

// What else is refused is shown by the tests of package rawjson.
func TestABodyThatIsNotOneStrictObjectIsRefusedWithItsOffset(t *testing.T) {
	const start = `{"model":"m","messages":[]`
	for body, at := range map[string]int{
		``:                                     0,
		`[]`:                                   0,
		`{"model":`:                            9,
		start + `} {}`:                         28,
		start + `,"mod\u0065l":"n"}`:           27,
		start + `,"x":1,"x":1}`:                33,
		start + `,"ſtream":true}`:              27,
		start + `,"parameters":{"a":1,"a":2}}`: 47,
		start + `,"parameters":{"Audio":1}}`:   41,
		start + `,"user":"\ud800"}`:            35,
	} {
		_, err := Parse([]byte(body))
		f := fault.From(err)
		if f == nil || f.Code != fault.InvalidRequest || f.HTTPStatus() != 400 || !strings.HasSuffix(f.Message, fmt.Sprintf(" (byte %d).", at)) {
			t.Errorf("%q: %v, want byte %d", body, err, at)
		}
	}
}

func TestDeeperObjectsPassAsSent(t *testing.T) {
	for _, members := range []string{
		`"tools":[{"type":"function","function":{"name":"f","parameters":{"a":1,"a":2,"Type":3}}}]`,
		`"metadata":{"a":1,"a":2,"Model":3}`,
		`"parameters":{"deep":{"a":1,"a":2,"Size":3}}`,
		`"parameters":[{"a":1,"a":2}]`,
		`"Topic":9,"X-USER":1`,
		`"user":"\ud83d\ude00"`,
	} {
		if param, message := problem(t, ask("m", members)); message != "" {
			t.Errorf("%s: refused for %q: %s", members, param, message)
		}
	}
	twice := `{"model":"m","messages":[{"role":"user","content":"a","x":1,"x":2,"Model":"n"}]}`
	if _, message := problem(t, twice); message != "" {
		t.Error(message)
	}
}

func TestMessagesCountForTheDepthToo(t *testing.T) {
	for inner, ok := range map[int]bool{61: true, 62: false} { // body, messages, message
		deep := strings.Repeat("[", inner) + strings.Repeat("]", inner)
		if _, message := problem(t, `{"model":"m","messages":[{"role":"user","content":"a","deep":`+deep+`}]}`); (message == "") != ok {
			t.Errorf("%d levels: %q", inner, message)
		}
	}
}

// turns are messages, and the field of the last one that is refused.
var turns = []row{
	{`{"role":"system","content":"a"}`, ""},
	{`{"role":"user","content":"a","name":"pat"}`, ""},
	{`{"role":"tool","content":"a","tool_call_id":"c"}`, ""},
	{`{"role":"us\u0065r","content":"a"}`, ""},
	{`{"role":"user","content":"a","name":null,"tool_call_id":null,"tool_calls":null,"tools":null}`, ""},
	{`{"role":"user","content":"a","unknown":{"x":[1]}}`, ""},
	{`{"content":"a"}`, "role"},
	{`{"role":null,"content":"a"}`, "role"},
	{`{"role":"function","content":"a"}`, "role"},
	{`{"role":1,"content":"a"}`, "role"},
	{`{"role":"user"}`, "content"},
	{`{"role":"user","content":null}`, "content"},
	{`{"role":"user","content":[]}`, "content"},
	{`{"role":"user","content":"a","name":1}`, "name"},
	{`{"role":"user","content":"a","tool_call_id":"c"}`, "tool_call_id"},
	{`{"role":"assistant","content":"a","tool_call_id":"c"}`, "tool_call_id"},
	{`{"role":"tool","content":null,"tool_call_id":"c"}`, "content"},

	{`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`, ""},
	{`{"role":"assistant","content":null,"tool_calls":[]}`, ""},
	{`{"role":"assistant","content":null}`, ""},
	{`{"role":"assistant"}`, ""},
	{`{"role":"assistant","content":[]}`, ""},
	{`{"role":"assistant","content":null,"refusal":"I will not."}`, ""},
	{`{"role":"assistant","reasoning_content":"hm"}`, ""},
	{`{"role":"assistant","content":null,"reasoning":"hm","reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]}`, ""},
	{`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`, ""},
	{`{"content":null,"audio":{"id":"audio_1"},"role":"assistant"}`, ""},
	{`{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, ""},
	{`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}],"role":"assistant"}`, ""},
	{`{"role":"assistant","content":[{"type":"reference","reference_ids":[1]},{"x":1}]}`, ""},
	{`{"role":"assistant","content":[{"type":"thinking","image_url":{"url":"https://a.test/p.png"}}]}`, "content[0].image_url"},
	{`{"role":"assistant","content":[{"type":"text","text":1}]}`, "content[0].text"},
	{`{"content":[{"type":"thinking","thinking":[]}],"role":"user"}`, "content[0].type"},
	{`{"role":"assistant","content":7}`, "content"},
	{`{"role":"user","tool_calls":[{"id":"c"}]}`, "content"},
	{`{"role":"assistant","tool_calls":{}}`, "tool_calls"},
	{`{"role":"assistant","tool_calls":["c"]}`, "tool_calls[0]"},

	{`{"role":"system","tools":[{"type":"function","function":{"name":"late"}}]}`, ""},
	{`{"role":"system","tools":[],"content":null}`, ""},
	{`{"role":"system","tools":{}}`, "content"},
	{`{"role":"user","tools":[]}`, "content"},

	{`{"role":"user","content":[null]}`, "content[0]"},
}

// blocks are content blocks, and the field of the block that is refused.
var blocks = []row{
	{`{"type":"text","text":"a"}`, ""},
	{`{"type":"text"}`, ".text"},
	{`{"type":"text","text":1}`, ".text"},
	{`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`, ""},
	{`{"image_url":{"url":"https:\/\/example.com\/a.png"},"type":"image_url"}`, ""},
	{`{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0"}}`, ""},
	{`{"type":"image_url","image_url":{"url":"DATA:image/png;base64,iVBORw0"}}`, ""},
	{`{"type":"image_url","image_url":{"url":"ms://file-1"}}`, ""},
	{`{"type":"image_url","image_url":{"url":"/a.png"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":"https://example.com/\u0000"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":"https://example.com/a.png"}`, ".image_url.url"},
	{`{"type":"image_url"}`, ".image_url.url"},
	{`{"type":"image_url","video_url":{}}`, ".video_url"},
	{`{"type":"text","text":"hi","image_url":{"url":"https://a.test/p.png"}}`, ".image_url"},
	{`{"type":"text","text":"hi","image_url":null}`, ""},
	{`{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}`, ""},
	{`{"type":"audio_url","audio_url":{"url":"https://example.com/a.mp3"}}`, ""},
	{`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`, ""},
	{`{"type":"input_audio","input_audio":"AAAA"}`, ".input_audio"},
	{`{"type":"file","file":{"file_id":"f"}}`, ""},
	{`{"type":"file","file":null}`, ".file"},
	{`{"type":"refusal","refusal":"no"}`, ".type"},
	{`{}`, ".type"},
}

func TestEveryMessageIsChecked(t *testing.T) {
	for _, row := range turns {
		want := row.param
		if want != "" {
			want = "messages[1]." + want
		}
		got, message := problem(t, `{"model":"m","messages":[{"role":"user","content":"hi"},`+row.members+`]}`)
		if got != want {
			t.Errorf("%s: refused for %q (%s), want %q", row.members, got, message, want)
		}
	}
}

func TestEveryContentBlockIsChecked(t *testing.T) {
	for _, row := range blocks {
		want := row.param
		if want != "" {
			want = "messages[0].content[1]" + want
		}
		got, message := problem(t, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},`+row.members+`]}]}`)
		if got != want {
			t.Errorf("%s: refused for %q (%s), want %q", row.members, got, message, want)
		}
	}
}

func TestALinkIsAtMostEightKiBLongUnlessItHoldsTheData(t *testing.T) {
	for url, want := range map[string]string{
		"https://example.com/" + strings.Repeat("a", 8192-20): "",
		"https://example.com/" + strings.Repeat("a", 8192):    "messages[0].content[0].image_url.url",
		"data:image/png;base64," + strings.Repeat("a", 9000):  "",
	} {
		got, _ := problem(t, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"`+url+`"}}]}]}`)
		if got != want {
			t.Errorf("%d bytes: refused for %q, want %q", len(url), got, want)
		}
	}
}

func TestMessagesAreReadAsTheyStand(t *testing.T) {
	r := parse(t, `{"model":"m","messages":[
		{"role":"system","content":"Be brief.","name":"ops"},
		{"role":"user","content":[{"type":"text","text":"What "},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},{"type":"text","text":"is it?"}]},
		{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c:0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
		{"role":"tool","tool_call_id":"c:0","content":"r\u00e9sult"}]}`)
	want := []chat.Message{
		{Role: "system", Name: "ops", Content: chat.Text("Be brief.")},
		{Role: "user", Content: chat.Parts(chat.Part{Type: "text", Text: "What "}, chat.Part{Type: "image_url", ImageURL: &chat.Link{URL: "https://example.com/a.png"}}, chat.Part{Type: "text", Text: "is it?"})},
		{Role: "assistant", Content: chat.Content("null"), ReasoningContent: "hm", ToolCalls: []chat.ToolCall{{ID: "c:0", Type: "function", Function: chat.CalledFunction{Name: "f", Arguments: `{"a":1}`}}}},
		{Role: "tool", ToolCallID: "c:0", Content: chat.Content(`"r\u00e9sult"`)},
	}
	if diff := cmp.Diff(want, r.Messages); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadingABodyTakesASmallMultipleOfItsSize(t *testing.T) {
	const size = 4 << 20
	const head, user = `{"model":"m","messages":[`, `{"role":"user","content":""}`
	const empty = `{         }` // so long that the bound on brackets is not met before
	for _, c := range []struct {
		name          string
		body          []byte
		param, reason string // of the refusal
	}{
		{"too many empty messages", capabilitytest.Filled(size, head, `{}`, `]}`), "", "1048576"},
		{"empty messages", capabilitytest.Filled(size, head, empty, `]}`), "messages[0].role", ""},
		{"good messages", capabilitytest.Filled(size, head, user, `]}`), "messages", "16384"},
		{"blocks", capabilitytest.Filled(size, head+`{"role":"user","content":[`, `{"type":"text","text":""}`, `]}]}`), "messages", "16384"},
		{"tool calls", capabilitytest.Filled(size, head+`{"role":"assistant","tool_calls":[`, `{"id":"1"            }`, `]}]}`), "messages", "16384"},
		{"tools", capabilitytest.Filled(size, head+user+`],"tools":[`, `{"type":"x"            }`, `]}`), "tools", "16384"},
		{"a schema", capabilitytest.Filled(size, head+user+`],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":[`, `{"a":"bcdefghi"}`, `]}}}}`), "response_format.json_schema.schema", "262144"},
		{"a small schema with much in it", capabilitytest.Filled(250<<10, head+user+`],"x":"`+strings.Repeat("a", size)+`","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":[`, `[]`, `]}}}}`), "response_format.json_schema.schema", "32768"},
		{"fields", append([]byte(head+user+`]`), manyFields(size)...), "", "1024"},
		{"stop", capabilitytest.Filled(size, head+user+`],"stop":[`, `"a"         `, `]}`), "stop", "4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			capabilitytest.RefusedInProportion(t, c.body, c.param, c.reason, func(body []byte) error {
				r, err := Parse(body)
				if err != nil {
					return err
				}
				return r.Validate()
			})
		})
	}
}

// manyFields are the rest of a body that has many.
func manyFields(size int) []byte {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `,"x%06d":1`, i)
	}
	b.WriteByte('}')
	return []byte(b.String())
}

func TestALongConversationIsRead(t *testing.T) {
	const turns = 4000 // of three: what is asked, a call, its result
	properties := strings.Repeat(`,"pa":{},"pb":{},"pc":{}`, 500)[1:]
	tool := `{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{` + properties + `}}}}`
	turn := `,{"role":"user","content":"a"},{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f1","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"b"}`
	body := `{"model":"m","tools":[` + tool + strings.Repeat(","+tool, 127) + `],"messages":[{"role":"system","content":"hi"}` + strings.Repeat(turn, turns) + `]}`
	if r := valid(t, body); len(r.Messages) != 1+3*turns {
		t.Errorf("%d messages", len(r.Messages))
	}
}

func TestWhatTheGatewayReadsIsSpelledExactlyAndSaidOnce(t *testing.T) {
	const head = `{"model":"m","messages":[{"role":"user","content":"a"}],`
	rows := map[string]string{ // the member at fault, and the body
		`"MESSAGES"`:       head + `"MESSAGES":[]}`,
		`"STREAM_OPTIONS"`: head + `"STREAM_OPTIONS":{"include_usage":false}}`,
		`"meſſageſ"`:       head + `"meſſageſ":[]}`, // as encoding/json folds it
		`"Include_Usage"`:  head + `"stream":true,"stream_options":{"Include_Usage":false}}`,
		`"Json_schema"`:    head + `"response_format":{"type":"text","Json_schema":{}}}`,
		`"Content"`:        `{"model":"m","messages":[{"role":"user","content":"a","Content":"b"}]}`,
		`"Tool_Calls"`:     `{"model":"m","messages":[{"role":"user","content":"a","Tool_Calls":[]}]}`,
		`"Text"`:           `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","Text":"b"}]}]}`,
		`"URL"`:            `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a.example","URL":"b"}}]}]}`,
		`"Arguments"`:      `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"","Arguments":"b"}}]}]}`,
	}
	for _, f := range []struct{ name, body string }{
		{"content", `{"model":"m","messages":[{"role":"user","content":"a",%s:"b"}]}`},
		{"text", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a",%s:"b"}]}]}`},
		{"url", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a.example",%s:"b"}}]}]}`},
		{"arguments", `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"",%s:"b"}}]}]}`},
	} {
		rows["twice "+f.name] = fmt.Sprintf(f.body, `"`+f.name+`"`)
	}
	for at, body := range rows {
		name, twice := strings.CutPrefix(at, "twice ")
		offset := strings.Index(body, at)
		if twice {
			offset = strings.LastIndex(body, `"`+name+`"`)
		}
		_, err := Parse([]byte(body))
		if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || !strings.Contains(f.Message, fmt.Sprintf("(byte %d)", offset)) {
			t.Errorf("%s: %v, want a refusal that names byte %d", body, err, offset)
		}
	}
	for _, f := range fields {
		variant := strings.ToUpper(f.Name[:1]) + f.Name[1:]
		if _, err := Parse([]byte(head + `"` + variant + `":null}`)); err == nil {
			t.Errorf("%q is taken", variant)
		}
	}
}

func TestAFewMessagesCostNoAllocationEach(t *testing.T) {
	allocations := func(messages int) float64 {
		list := strings.Repeat(`{"role":"user","content":"hello"},`, messages)
		body := []byte(`{"model":"m","messages":[` + strings.TrimSuffix(list, ",") + `]}`)
		return testing.AllocsPerRun(100, func() {
			if _, err := Parse(body); err != nil {
				t.Fatal(err)
			}
		})
	}
	if one, four := allocations(1), allocations(4); four > one+3 { // the list of their contents grows
		t.Errorf("one message takes %v allocations, four take %v", one, four)
	}
}
