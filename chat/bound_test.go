package chat

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

// filled is a body of head, about size bytes of elements, and tail.
func filled(size int, head, element, tail string) []byte {
	n := size/(len(element)+1) - 1
	return []byte(head + strings.Repeat(element+",", n) + element + tail)
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
		{"too many empty messages", filled(size, head, `{}`, `]}`), "", "1048576"},
		{"empty messages", filled(size, head, empty, `]}`), "messages[0].role", ""},
		{"one good message and empty ones", filled(size, head+user+",", empty, `]}`), "messages[1].role", ""},
		{"good messages", filled(size, head, user, `]}`), "messages", "16384"},
		{"messages that are no objects", filled(size, head, `1        `, `]}`), "messages[0]", ""},
		{"blocks", filled(size, head+`{"role":"user","content":[`, `{"type":"text","text":""}`, `]}]}`), "messages", "16384"},
		{"empty blocks", filled(size, head+`{"role":"user","content":[`, empty, `]}]}`), "messages[0].content[0].type", ""},
		{"tool calls", filled(size, head+`{"role":"assistant","tool_calls":[`, `{"id":"1"            }`, `]}]}`), "messages", "16384"},
		{"tools", filled(size, head+user+`],"tools":[`, `{"type":"x"            }`, `]}`), "tools", "16384"},
		{"tools that are no objects", filled(size, head+user+`],"tools":[`, `1`, `]}`), "", "1048576"},
		{"a schema", filled(size, head+user+`],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":[`, `{"a":"bcdefghi"}`, `]}}}}`), "response_format.json_schema.schema", "262144"},
		{"a small schema with much in it", filled(250<<10, head+user+`],"x":"`+strings.Repeat("a", size)+`","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":[`, `[]`, `]}}}}`), "response_format.json_schema.schema", "32768"},
		{"fields", append([]byte(head+user+`]`), manyFields(size)...), "", "1024"},
		{"fields of a message", filled(size, head+`{"role":"user","content":"","x":0,`, `"":1`, `}]}`), "", "16384"},
		{"values", filled(size, head+user+`],"x":[`, `1`, `]}`), "", "1048576"},
		{"stop", filled(size, head+user+`],"stop":[`, `"a"         `, `]}`), "stop", "4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := Parse(c.body)
			if err == nil {
				err = r.Validate()
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 4*uint64(len(c.body)) {
				t.Errorf("%d bytes took %d", len(c.body), took)
			}
			f := fault.From(err)
			switch {
			case c.param == "" && c.reason == "":
				if err != nil {
					t.Error(err)
				}
			case f == nil || f.HTTPStatus() != 400 || f.Param != c.param || !strings.Contains(f.Message, c.reason):
				t.Errorf("%v, want a refusal for %q that says %s", err, c.param, c.reason)
			}
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
	var b strings.Builder
	b.WriteString(`{"model":"m","tools":[`)
	for i := range 128 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"type":"function","function":{"name":"f%d","parameters":{"type":"object","properties":{`, i)
		for j := range 1500 {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"p%d":{}`, j)
		}
		b.WriteString(`}}}}`)
	}
	b.WriteString(`],"messages":[{"role":"system","content":"hi"}`)
	for i := range turns {
		fmt.Fprintf(&b, `,{"role":"user","content":"a"},{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"f1","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c%d","content":"b"}`, i, i)
	}
	b.WriteString(`]}`)
	r, err := Parse([]byte(b.String()))
	if err == nil {
		err = r.Validate()
	}
	if err != nil || len(r.Messages) != 1+3*turns {
		t.Errorf("%d messages: %v", len(r.Messages), err)
	}
}

func TestWhatTheGatewayReadsIsSpelledExactlyAndSaidOnce(t *testing.T) {
	const head = `{"model":"m","messages":[{"role":"user","content":"a"}],`
	rows := map[string]string{ // the member at fault, and the body
		`"MESSAGES"`:       head + `"MESSAGES":[]}`,
		`"Tools"`:          head + `"Tools":[]}`,
		`"STREAM_OPTIONS"`: head + `"STREAM_OPTIONS":{"include_usage":false}}`,
		`"meſſageſ"`:       head + `"meſſageſ":[]}`, // as encoding/json folds it
		`"Include_Usage"`:  head + `"stream":true,"stream_options":{"Include_Usage":false}}`,
		`"Functions"`:      head + `"Functions":[]}`,
		`"System"`:         head + `"System":"a"}`,
		`"Prompt"`:         head + `"Prompt":"a"}`,
		`"Json_schema"`:    head + `"response_format":{"type":"text","Json_schema":{}}}`,
		`"Content"`:        `{"model":"m","messages":[{"role":"user","content":"a","Content":"b"}]}`,
		`"Role"`:           `{"model":"m","messages":[{"role":"user","content":"a","Role":"b"}]}`,
		`"Tool_Calls"`:     `{"model":"m","messages":[{"role":"user","content":"a","Tool_Calls":[]}]}`,
		`"Text"`:           `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","Text":"b"}]}]}`,
		`"Image_url"`:      `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","Image_url":{}}]}]}`,
		`"URL"`:            `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a.example","URL":"b"}}]}]}`,
		`"Arguments"`:      `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"","Arguments":"b"}}]}]}`,
		`"Function"`:       `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":""},"Function":{}}]}]}`,
	}
	for _, f := range []struct{ name, body string }{
		{"content", `{"model":"m","messages":[{"role":"user","content":"a",%s:"b"}]}`},
		{"reasoning_content", `{"model":"m","messages":[{"role":"user","content":"a","reasoning_content":"c",%s:"b"}]}`},
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
		f := fault.From(err)
		if f == nil || f.HTTPStatus() != 400 || !strings.Contains(f.Message, fmt.Sprintf("at byte %d", offset)) {
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
