package translate

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

// askedByMessage parses a request with the given members beside the required ones.
func askedByMessage(t *testing.T, members string) *messagesapi.Request {
	t.Helper()
	given, err := rawjson.Index([]byte("{"+members+"}"), nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", members, err)
	}
	base, err := rawjson.Index([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var edits []rawjson.Edit
	for i := range given.Members {
		edits = append(edits, rawjson.Set(given.Members[i].Name, given.Members[i].Value.Of(given.Src)))
	}
	data := base.Apply(nil, edits...)
	r, err := messagesapi.Parse(data)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return r
}

// sent is the chat request that upstreams get, as JSON.
func sent(t *testing.T, c *chat.Request) map[string]any {
	t.Helper()
	encoded, err := chatapi.Encode(c)
	if err == nil {
		err = encoded.Validate()
	}
	if err != nil {
		t.Fatalf("chat refuses what was made of the request: %v", err)
	}
	var members map[string]any
	if err := json.Unmarshal(encoded.Source(), &members); err != nil {
		t.Fatal(err)
	}
	return members
}

func decoded(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

const (
	textTool = `"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}]`
	chatTool = `"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]`
	png      = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aaaa"}}`
	chatPNG  = `{"type":"image_url","image_url":{"url":"data:image/png;base64,aaaa"}}`
)

// outbounds are requests and what chat gets of them beside model, max_tokens and
// the default conversation.
var outbounds = []struct {
	name, members, want string
	dropped             string // joined by blanks
}{
	{"nothing more than needed", ``, ``, ""},
	{"sampling", `"temperature":0.5,"top_p":0.25,"stream":true,"stop_sequences":["a","b","c","d"]`,
		`"temperature":0.5,"top_p":0.25,"stream":true,"stop":["a","b","c","d"]`, ""},
	{"hints without a word in chat", `"top_k":4,"service_tier":"auto","container":"c","cache_control":{"type":"ephemeral"},"mcp_servers":[]`, ``,
		"top_k service_tier container cache_control mcp_servers"},
	{"a name that is no plain word", `"a,b":1,"c\nd":2`, ``, "others"},
	{"null is absent", `"top_k":null,"thing":null,"thinking":null,"tool_choice":null,"tools":null,"system":null`, ``, ""},
	{"another dialect's field", `"n":2,"logprobs":true,"reasoning_effort":"max"`, ``, "n logprobs reasoning_effort"},
	{"the end user", `"metadata":{"user_id":"u","x":1}`, `"user":"u"`, "metadata.x"},
	{"an end user just short enough", `"metadata":{"user_id":"` + strings.Repeat("u", 64) + `"}`, `"user":"` + strings.Repeat("u", 64) + `"`, ""},
	{"a long end user", `"metadata":{"user_id":"` + strings.Repeat("u", 65) + `"}`, ``, "metadata.user_id"},

	{"system as a string", `"system":"S"`, `"messages":[{"role":"system","content":"S"},{"role":"user","content":"Hi"}]`, ""},
	{"system as one block", `"system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}]`,
		`"messages":[{"role":"system","content":"S"},{"role":"user","content":"Hi"}]`, "cache_control"},
	{"system as two blocks", `"system":[{"type":"text","text":"S"},{"type":"text","text":"T"}]`,
		`"messages":[{"role":"system","content":[{"type":"text","text":"S"},{"type":"text","text":"T"}]},{"role":"user","content":"Hi"}]`, ""},
	{"an empty system", `"system":[]`, ``, ""},
	{"a system message within", `"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"}]`,
		`"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"}]`, ""},

	{"pictures", `"messages":[{"role":"user","content":[` + png + `,{"type":"image","source":{"type":"url","url":"https://a.example/p.png"}},{"type":"text","text":"?"}]}]`,
		`"messages":[{"role":"user","content":[` + chatPNG + `,{"type":"image_url","image_url":{"url":"https://a.example/p.png"}},{"type":"text","text":"?"}]}]`, ""},
	{"documents", `"messages":[{"role":"user","content":[
		{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"aaaa"},"title":"t","context":"about it","citations":{"enabled":true}},
		{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"bbbb"}},
		{"type":"document","source":{"type":"text","media_type":"text/plain","data":"body"},"title":"u"}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"about it"},
		{"type":"file","file":{"filename":"t.pdf","file_data":"data:application/pdf;base64,aaaa"}},
		{"type":"file","file":{"filename":"document.pdf","file_data":"data:application/pdf;base64,bbbb"}},
		{"type":"text","text":"u"},{"type":"text","text":"body"}]}]`, "citations"},

	{"a turn of the assistant's", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[
		{"type":"thinking","thinking":"T1","signature":"gateway-reasoning"},{"type":"text","text":"x","citations":null},
		{"type":"thinking","thinking":"T2","signature":"theirs"},{"type":"text","text":"y","citations":[]},
		{"type":"redacted_thinking","data":"zz"},{"type":"server_tool_use","id":"s","name":"web_search","input":{}},
		{"type":"web_search_tool_result","tool_use_id":"s","content":[]}]}]`,
		`"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"T1T2","content":"xy"}]`,
		"messages.content.signature citations messages.content.redacted_thinking messages.content.server_tool_use messages.content.web_search_tool_result"},
	{"an empty turn of the assistant's", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[]},{"role":"user","content":"b"}]`,
		`"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]`, ""},
	{"parallel calls and their results", `"messages":[{"role":"user","content":"a"},
		{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"1","name":"f","input":{"q": [1, 2]}},{"type":"tool_use","id":"2","name":"g","input":{}}]},
		{"role":"user","content":[{"type":"text","text":"before"},{"type":"tool_result","tool_use_id":"1","content":"r1"},
			{"type":"tool_result","tool_use_id":"2","is_error":true,"content":[{"type":"text","text":"r"},{"type":"text","text":"2"}]},{"type":"text","text":"after"}]}]`,
		`"messages":[{"role":"user","content":"a"},
		{"role":"assistant","content":"x","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"q\": [1, 2]}"}},{"id":"2","type":"function","function":{"name":"g","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"1","content":"r1"},{"role":"tool","tool_call_id":"2","content":"Error: r\n\n2"},
		{"role":"user","content":[{"type":"text","text":"before"},{"type":"text","text":"after"}]}]`, ""},
	{"turns of one role that stand together", `"messages":[{"role":"user","content":"a"},
		{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"assistant","content":[{"type":"tool_use","id":"2","name":"f","input":{}},{"type":"text","text":"x"}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"text","text":"b"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"2","is_error":true}]}]`,
		`"messages":[{"role":"user","content":"a"},
		{"role":"assistant","content":"x","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"1","content":""},{"role":"tool","tool_call_id":"2","content":"Error"},{"role":"user","content":"b"}]`, ""},
	{"a picture as a result", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[` + png + `]},{"type":"text","text":"b"}]}]`,
		`"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"1","content":"The result is attached to the next message."},
		{"role":"user","content":[{"type":"text","text":"Attachments of the result of tool call 1:"},` + chatPNG + `,{"type":"text","text":"b"}]}]`, ""},

	{"tools", `"tools":[{"type":"custom","name":"f","description":"d","input_schema":{"type":"object"},"strict":true,"cache_control":{"type":"ephemeral"},"defer_loading":true},{"type":"web_search_20250305","name":"web_search","max_uses":2}]`,
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}]`,
		"cache_control tools.defer_loading tools.web_search_20250305"},
	{"a tool that says it is not strict", `"tools":[{"name":"f","strict":false},{"name":"g","strict":null}]`,
		`"tools":[{"type":"function","function":{"name":"f","strict":false}},{"type":"function","function":{"name":"g"}}]`, ""},
	{"only a tool that the vendor runs", `"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"auto"}`, ``, "tools.web_search_20250305"},
	{"choice auto", textTool + `,"tool_choice":{"type":"auto"}`, chatTool + `,"tool_choice":"auto"`, ""},
	{"choice any", textTool + `,"tool_choice":{"type":"any","disable_parallel_tool_use":true}`, chatTool + `,"tool_choice":"required","parallel_tool_calls":false`, ""},
	{"choice none", textTool + `,"tool_choice":{"type":"none"}`, chatTool + `,"tool_choice":"none"`, ""},
	{"choice of one", textTool + `,"tool_choice":{"type":"tool","name":"f"}`, chatTool + `,"tool_choice":{"type":"function","function":{"name":"f"}}`, ""},

	{"thinking", `"max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":1024,"display":"omitted"}`, `"max_tokens":4096`, "thinking.budget_tokens thinking.display"},
	{"effort", `"output_config":{"effort":"max"}`, `"reasoning_effort":"max"`, ""},
	{"effort of a family that has the word", `"model":"delta-k3","output_config":{"effort":"max"}`, `"model":"delta-k3","reasoning_effort":"max"`, ""},
	{"effort of a family that has not", `"model":"delta-k3","output_config":{"effort":"low"}`, `"model":"delta-k3"`, "output_config.effort"},
	{"format", `"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"type":"object"}}}`, ""},
	{"a model that always thinks", `"model":"delta-k3",` + textTool + `,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]}]`,
		`"model":"delta-k3","tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":false}}],
		"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"r"}]`, ""},
}

func TestARequestForAMessageBecomesOneForAChatCompletion(t *testing.T) {
	for _, row := range outbounds {
		t.Run(row.name, func(t *testing.T) {
			r := askedByMessage(t, row.members)
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			c, dropped, err := messagesToChat(r.Request)
			if err != nil {
				t.Fatal(err)
			}
			want := decoded(t, "{"+row.want+"}")
			for name, value := range decoded(t, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`) {
				if want[name] == nil {
					want[name] = value
				}
			}
			if diff := cmp.Diff(want, sent(t, c)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := strings.Join(dropped, " "); got != row.dropped {
				t.Errorf("dropped %q, want %q", got, row.dropped)
			}
		})
	}
}

func TestATypedRequestIsTranslatedAsOneFromTheWire(t *testing.T) {
	var typed messages.Request
	if err := json.Unmarshal([]byte(`{"model":"m","max_tokens":9,"top_k":3,"speed":"fast","messages":[{"role":"user","content":"Hi","name":"n"}]}`), &typed); err != nil {
		t.Fatal(err)
	}
	c, dropped, err := messagesToChat(&typed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"top_k", "speed", "messages.name"}, dropped); diff != "" {
		t.Error(diff)
	}
	if got := sent(t, c); len(got) != 3 {
		t.Errorf("chat gets %v", got)
	}
}

func TestWhatWouldChangeTheAnswerIsRefused(t *testing.T) {
	user := func(block string) string { return `"messages":[{"role":"user","content":[` + block + `]}]` }
	for members, param := range map[string]string{
		`"stop_sequences":["a","b","c","d","e"]`:               "stop_sequences",
		`"tool_choice":{"type":"any"}`:                         "tool_choice.type",
		textTool + `,"tool_choice":{"type":"tool","name":"g"}`: "tool_choice.name",
		`"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}`:         "tool_choice.name",
		`"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}`:                              "tool_choice.type",
		user(`{"type":"document","source":{"type":"url","url":"https://a.example/d.pdf"}}`):                                      "messages[0].content[0].source.type",
		user(`{"type":"document","source":{"type":"file","file_id":"f"}}`):                                                       "messages[0].content[0].source.type",
		user(`{"type":"document","source":{"type":"content","content":"c"}}`):                                                    "messages[0].content[0].source.type",
		user(`{"type":"text","text":"a"},{"type":"image","source":{"type":"file","file_id":"f"}}`):                               "messages[0].content[1].source.type",
		user(`{"type":"container_upload","file_id":"f"}`):                                                                        "messages[0].content[0].type",
		user(`{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"a"},{"type":"tool_reference"}]}`):        "messages[0].content[0].content[1].type",
		user(`{"type":"tool_result","tool_use_id":"1","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]}`):     "messages[0].content[0].content[0].source.type",
		`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` + png + `]}]`:                                "messages[1].content[0].type",
		`"output_config":{"format":{"type":"grammar"}}`:                                                                          "output_config.format.type",
		`"output_config":{"format":{"type":"json_schema","schema":{"type":"banana"}}}`:                                           "output_config.format.schema",
		`"model":"delta-k3","output_config":{"format":{"type":"json_schema","schema":{"properties":{"a":{"minLength":-1}}}}}`:    "output_config.format.schema",
		`"messages":[{"role":"user","content":"a"},{"role":"system","content":[` + png + `]},{"role":"assistant","content":""}]`: "messages[1].content[0].type",
	} {
		c, _, err := messagesToChat(askedByMessage(t, members).Request)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.InvalidRequest || f.Param != param || c != nil {
			t.Errorf("%s: %v, want a refusal of %s", members, err, param)
			continue
		}
		if !strings.Contains(f.Message, `"`+param+`" must be `) || strings.Contains(f.Message, "response_format") {
			t.Errorf("%s: %s", members, f.Message)
		}
	}
}

// TestEveryFieldOfTheMessagesTypesHasARow fails when a type gains a field, or a table keeps a
// row of a field that is gone.
func TestEveryFieldOfTheMessagesTypesHasARow(t *testing.T) {
	const message, block = "messages.", "messages.content."
	unnamed := map[string]bool{block + "context": true, "tools.strict": true} // found in Extra
	rows := map[string]bool{}
	for _, f := range messagesFields {
		if rows[f.name] {
			t.Errorf("%s has two rows", f.name)
		}
		rows[f.name] = true
		if f.note == "" || f.action != carried && f.action != leftOut && f.action != refused {
			t.Errorf("%s: %q, %q", f.name, f.action, f.note)
		}
	}
	seen := map[string]bool{}
	for path, v := range map[string]any{
		"": messages.Request{}, message: messages.Message{}, block: messages.Block{}, block + "source.": messages.MediaSource{}, "tools.": messages.Tool{}, "tool_choice.": messages.ToolChoice{},
		"thinking.": messages.Thinking{}, "output_config.": messages.OutputConfig{}, "output_config.format.": messages.OutputFormat{}, "metadata.": messages.Metadata{},
	} {
		for i := range reflect.TypeOf(v).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if name == "" || name == "-" { // Extra and what has no place on the wire
				continue
			}
			seen[path+name] = true
			if !rows[path+name] {
				t.Errorf("%s%s has no row", path, name)
			}
		}
	}
	for field := range rows {
		if !seen[field] && !unnamed[field] {
			t.Errorf("the row %s is of no field", field)
		}
	}
}

func TestTheTableOfMessagesFieldsReadsLikeThis(t *testing.T) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	b.WriteString("What becomes of a Messages request at an upstream that speaks chat completions.\nA field that is not listed is dropped and reported; a block or source that is not listed is refused.\n\nFields\n")
	for _, f := range messagesFields {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.name, f.action, f.note)
	}
	_ = w.Flush()
	for _, title := range []string{"Blocks", "Blocks of a tool result"} {
		fmt.Fprintf(&b, "\n%s\n", title)
		for _, f := range messageBlocks {
			role, inTurn := strings.CutSuffix(f.place, " turn")
			if inTurn != (title == "Blocks") {
				continue
			}
			if !inTurn {
				role = "user"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", role, f.block, f.action, f.note)
		}
		_ = w.Flush()
	}
	b.WriteString("\nSources\n")
	for _, f := range messageSources {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", f.block, f.source, f.action, f.note)
	}
	_ = w.Flush()
	capabilitytest.Golden(t, *update, "tochat_fates.golden", b.Bytes())
}

func TestWhatATableCarriesHasAWayToGo(t *testing.T) {
	for _, f := range messageBlocks {
		if (f.carry != nil) != (f.action == carried) || f.action == refused {
			t.Errorf("%s %s is %s", f.place, f.block, f.action)
		}
	}
	for _, f := range messageSources {
		if (f.parts != nil) != (f.action == carried) || f.action == leftOut {
			t.Errorf("%s %s is %s", f.block, f.source, f.action)
		}
	}
}
