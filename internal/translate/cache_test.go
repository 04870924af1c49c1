package translate

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

func TestAPromptIsMarkedForTheCacheWhereItsChannelSaysSo(t *testing.T) {
	const (
		tools  = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
		system = `{"role":"system","content":"s"}`
		first  = `{"role":"user","content":"one"}`
		asks   = `{"role":"assistant","content":"so","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		result = `{"role":"tool","tool_call_id":"c1","content":"18"}`
		says   = `{"role":"assistant","content":"warm"}`
		last   = `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`

		mark      = `,"cache_control":{"type":"ephemeral"}}`
		toolsSent = `[{"name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object"}`
		firstSent = `{"role":"user","content":[{"type":"text","text":"one"`
		asksSent  = `{"role":"assistant","content":[{"type":"text","text":"so"},{"type":"tool_use","id":"c1","name":"f","input":{}}]}`
	)
	chat := func(tools string, messages ...string) string {
		return `{"model":"m",` + tools + `"messages":[` + strings.Join(messages, ",") + `]}`
	}
	for _, tt := range []struct {
		name                          string
		op                            upstream.Op
		off                           bool
		body                          string
		wantTools, wantSystem, wanted string
	}{
		{"all that can be", upstream.ChatCompletion, false, chat(tools+",", system, first, asks, result, says, last),
			toolsSent + mark + `]`, `[{"type":"text","text":"s"` + mark + `]`,
			`[` + firstSent + `}]},` + asksSent + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"18"}]` + mark + `]},` +
				`{"role":"assistant","content":[{"type":"text","text":"warm"}]},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"` + mark + `]}]`},
		{"one turn alone", upstream.ChatCompletion, false, chat("", first), "", "", `[` + firstSent + mark + `]}]`},
		{"a response", upstream.Responses, false, `{"model":"m","instructions":"s","input":"one"}`, "", `[{"type":"text","text":"s"` + mark + `]`, `[` + firstSent + mark + `]}]`},
		{"a channel that does not say so", upstream.ChatCompletion, true, chat("", first), "", "", `[` + firstSent + `}]}]`},
		{"what the caller marked", upstream.ChatCompletion, false, chat("", system, `{"role":"user","content":[{"type":"text","text":"one","cache_control":{"type":"ephemeral"}}]}`, says, first),
			"", `[{"type":"text","text":"s"}]`, `[` + firstSent + mark + `]},{"role":"assistant","content":[{"type":"text","text":"warm"}]},` + firstSent + `}]}]`},
		{"a word of the caller's", upstream.ChatCompletion, false, chat("", `{"role":"user","content":"\"cache_control\": {}"}`), "", "", `[{"role":"user","content":[{"type":"text","text":"\"cache_control\": {}"` + mark + `]}]`},
		{"a caller of messages", upstream.Messages, false, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"one"}]}`, "", "", `[{"role":"user","content":"one"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := &scripted{op: upstream.Messages}
			if _, err := bridged(t, up, upstream.Call{Op: tt.op, CachePrompts: !tt.off}, tt.body); err != nil {
				t.Fatal(err)
			}
			got, err := rawjson.Index([]byte(up.got), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"tools": tt.wantTools, "system": tt.wantSystem, "messages": tt.wanted} {
				if s := string(got.Raw(name)); s != want {
					t.Errorf("%s: %s\nwant %s", name, s, want)
				}
			}
		})
	}
}

func TestAnEmptyTextIsNotMarked(t *testing.T) {
	const one, empty = `{"type":"text","text":"one"`, `{"type":"text","text":""}`
	for list, want := range map[string]string{
		`[` + one + `},` + empty + `]`:    `[` + one + `,"cache_control":{"type":"ephemeral"}},` + empty + `]`,
		`[` + empty + `,{"name":"f"}]`:    `[` + empty + `,{"name":"f","cache_control":{"type":"ephemeral"}}]`,
		`[` + empty + `,` + empty + `]`:   `[` + empty + `,` + empty + `]`,
		`[{"type":"image","source":{} }]`: `[{"type":"image","source":{},"cache_control":{"type":"ephemeral"} }]`,
	} {
		if got := string(markLast([]byte(list))); got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
}

func TestAMarkOfTheCallersIsFoundHoweverItIsWritten(t *testing.T) {
	for list, want := range map[string]bool{
		`[{"type":"text","text":"one", "cache_control" : {"type":"ephemeral"}}]`:                                              true,
		`[{"role":"user","content":[{"type":"text","cache\u005fcontrol":{}}]}]`:                                               true,
		`[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a","cache_control":{}}]}]}, "x"]`: true,
		`[{"role":"user","content":"\"cache_control\":"}]`:                                                                    false,
		`[{"type":"text","text":"one","cache_control":null}]`:                                                                 false,
		`[{"name":"f","input_schema":{"properties":{"cache_control":{}}}}]`:                                                   false,
		``: false,
	} {
		if marked([]byte(list)) != want {
			t.Errorf("%s: %t", list, !want)
		}
	}
}
