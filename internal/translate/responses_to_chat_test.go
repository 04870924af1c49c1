package translate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/responses"
)

// asResponse is a request for a response as its endpoint takes it.
func asResponse(body []byte) (*responses.Request, error) {
	r, err := responsesop.Parse(body)
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("the endpoint refuses it: %w", err)
	}
	return r.Request, nil
}

// openMarked opens what stands between "th1." and "." as base64url would be.
func openMarked(sealed string) ([]byte, bool) {
	return []byte(strings.TrimPrefix(sealed, "th1.")), strings.HasPrefix(sealed, "th1.{")
}

// fromResponse is what a chat upstream gets of the body of a request for a response. It also
// returns the names of the tools that are not functions of the same name, and what is dropped.
func fromResponse(body []byte) (out []byte, names *toolNames, dropped []string, err error) {
	r, err := asResponse(body)
	if err != nil {
		return nil, nil, nil, err
	}
	c, names, dropped, err := responsesToChat(r, openMarked)
	if err != nil {
		return nil, nil, nil, err
	}
	return c.Source(), names, dropped, nil
}

// shownNames are the names of tools that chat calls otherwise, one a line.
func shownNames(names *toolNames) string {
	if names == nil {
		return ""
	}
	var lines []string
	for name, tool := range names.originals {
		if tool != (toolName{name: name, kind: functionTool}) {
			lines = append(lines, fmt.Sprintf("name %s is %s\n", name, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", tool.kind, tool.namespace, tool.name)), " ")))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// The requests have the shapes that Codex 0.169.0 sends: of a model that it does not know,
// and of one that it sends its tools to as an item.
func TestCodexRequestsAreTranslatedWhole(t *testing.T) {
	for _, name := range []string{"responses_codex", "responses_codex_lite"} {
		t.Run(name, func(t *testing.T) {
			body, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			out, names, dropped, err := fromResponse(body)
			if err != nil {
				t.Fatal(err)
			}
			shown := jsontext.Value(out)
			if err := shown.Indent(jsontext.WithIndent(" ")); err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%s\n\n%sdrop %s\n", shown, shownNames(names), strings.Join(dropped, " "))
			capabilitytest.Golden(t, *update, name+"_chat.golden", []byte(got))
		})
	}
}

// A chat request is checked by chat's rules, whose refusals name its own fields.
func TestRefusalsOfChatNameTheFieldsOfTheRequestForAResponse(t *testing.T) {
	for name, tt := range map[string]struct{ body, param string }{
		"a part of an item": {`[{"type":"additional_tools","tools":[]},{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:"}]}]`, "input[1].content[1].image_url"},
		"too many calls":    {"[" + repeated(5500, `{"type":"function_call","call_id":"a","name":"f","arguments":""},{"type":"function_call_output","call_id":"a","output":""}`) + "]", "input"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := asResponse([]byte(`{"model":"m","input":` + tt.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			_, _, _, err = responsesToChat(r, nil)
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.InvalidRequest || f.Param != tt.param || !strings.Contains(f.Message, `"`+tt.param+`"`) {
				t.Errorf("%v, want param %q", err, tt.param)
			}
		})
	}
}

func TestWhatTheGatewayHasLeftOutIsNotReportedAgain(t *testing.T) {
	r, err := asResponse([]byte(`{"model":"m","input":"Hi","service_tier":"flex","tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"},"parallel_tool_calls":false}`))
	if err != nil {
		t.Fatal(err)
	}
	r.ServiceTier, r.Tools, r.ToolChoice, r.ParallelToolCalls = "", nil, nil, nil // the body has them still
	c, _, dropped, err := responsesToChat(r, nil)
	if err != nil || len(dropped) > 0 || string(c.Source()) != `{"model":"m","messages":[{"role":"user","content":"Hi"}]}` {
		t.Errorf("%+v, dropped %q, %v", c, dropped, err)
	}
}

// answerItems are the items of the response that a chat upstream's message becomes.
func answerItems(t *rapid.T, r *responses.Request, names *toolNames, m *chat.Message) []responses.Item {
	message, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	completion := `{"id":"c","choices":[{"index":0,"message":` + string(message) + `,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`
	to := &responseWriter{request: r, names: names, id: "resp_1", now: time.Now, seal: func(thoughts []byte) string { return "th1." + string(thoughts) }, whole: true}
	data, err := io.ReadAll(newAnswerBody(context.Background(), io.NopCloser(strings.NewReader(completion)), readsChat, to, false, new(Options)))
	var response responses.Response
	if err == nil {
		err = json.Unmarshal(data, &response)
	}
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	return response.Output
}

func TestAnAnswerThatIsSentBackIsWhatAClientOfChatSendsBack(t *testing.T) {
	tools := []struct{ chat, arguments string }{
		{"f", `{ "a" : 1.0 }`}, {"f", `{"\u00e9":"\/"}`}, {"f", "{}"}, {"f", "no JSON"}, {"undeclared", "{}"},
		{"mcp__probe__echo_word", `{"word":"a"}`}, {"mcp__probe__exec", `{"input":"say \"hé\"\n"}`}, {"c", `{"input":""}`}, {"tool_search", `{"query":"é","most":1.0}`},
	}
	rapid.Check(t, func(t *rapid.T) {
		r := &responses.Request{
			Model: "m", Include: []string{"reasoning.encrypted_content"},
			Tools: jsontext.Value(`[{"type":"function","name":"f"},{"type":"custom","name":"c"},{"type":"tool_search","execution":"client"},{"type":"namespace","name":"mcp__probe","tools":[{"type":"function","name":"echo_word"},{"type":"custom","name":"exec"}]}]`),
		}
		var items []responses.Item
		var want []chat.Message
		say := func() {
			text := drawnText.Draw(t, "text")
			items = append(items, responses.Item{Type: "message", Role: "user", Content: responses.ContentText(text)})
			want = append(want, chat.Message{Role: "user", Content: chat.Text(text)})
		}
		say()
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			r.Input = responses.Items(items...)
			c, names, dropped, err := responsesToChat(r, openMarked)
			if err != nil || len(dropped) > 0 {
				t.Fatalf("%v, dropped %q", err, dropped)
			}
			sent, err := chatop.Encode(&chat.Request{Model: "m", Messages: want})
			if got, want := c.Field("messages"), sent.Field("messages"); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%v\ngot  %s\nwant %s", err, got, want)
			}
			m := chat.Message{Role: "assistant"}
			if rapid.Bool().Draw(t, "thinks") {
				m.ReasoningContent = "t" + drawnText.Draw(t, "thought")
			}
			calls := rapid.IntRange(0, 3).Draw(t, "calls")
			if text := drawnText.Draw(t, "text"); text != "" || calls == 0 {
				m.Content = chat.Text("a" + text)
			}
			for i := range calls {
				tool := rapid.SampledFrom(tools).Draw(t, "tool")
				m.ToolCalls = append(m.ToolCalls, chat.ToolCall{
					ID: fmt.Sprintf("%s:%d", drawnText.Draw(t, "id"), i), Type: "function", Function: chat.CalledFunction{Name: tool.chat, Arguments: tool.arguments},
				})
			}
			items, want = append(items, answerItems(t, r, names, &m)...), append(want, m)
			for _, call := range m.ToolCalls {
				output := responses.Item{Type: "function_call_output", ID: "fco_1", CallID: call.ID, Output: responses.ContentText("of " + call.ID)}
				result := "of " + call.ID
				switch tool, _ := names.original(call.Function.Name); tool.kind {
				case customTool:
					output.Type = "custom_tool_call_output"
				case searchTool:
					output = responses.Item{Type: "tool_search_output", CallID: call.ID, Execution: "client", Tools: jsontext.Value("[]")}
					result = "No tool was found."
				}
				items = append(items, output)
				want = append(want, chat.Message{Role: "tool", ToolCallID: call.ID, Content: chat.Text(result)})
			}
			if calls == 0 || rapid.Bool().Draw(t, "says") { // two answers do not follow each other
				say()
			}
		}
	})
}

// hostileInputs are requests of n of what a client may repeat.
var hostileInputs = map[string]func(n int) string{
	"tools": func(n int) string {
		return `"input":"Hi","tools":[` + repeated(n, `{"type":"function","name":"f%d"}`) + `]`
	},
	"the same tool": func(n int) string {
		return `"input":"Hi","tools":[` + repeated(n, `{"type":"custom","name":"f"}`) + `]`
	},
	"namespaces": func(n int) string {
		return `"input":"Hi","tools":[` + repeated(n, `{"type":"namespace","name":"`+longName+`%d","description":"d","tools":[{"type":"function","name":"f"}]}`) + `]`
	},
	"names that collide": func(n int) string {
		return `"input":"Hi","tools":[{"type":"namespace","name":"` + longName + `","tools":[` + repeated(n, `{"type":"custom","name":"a b%d"}`) + `]}]`
	},
	"hosted tools": func(n int) string { return `"input":"Hi","tools":[` + repeated(n, `{"type":"t%d"}`) + `]` },
	"allowed tools": func(n int) string {
		return `"input":"Hi","tools":[` + repeated(n, `{"type":"function","name":"f%d"}`) + `],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[` + repeated(n, `{"type":"function","name":"f%d"}`) + `]}`
	},
	"one call id": func(n int) string {
		return `"input":[` + repeated(n, `{"type":"function_call","call_id":"a","name":"f","arguments":""},{"type":"function_call_output","call_id":"a","output":""}`) + `]`
	},
	"calls of a turn": func(n int) string {
		return `"input":[` + repeated(n, `{"type":"function_call","call_id":"a%d","name":"f","namespace":"n%[1]d","arguments":""}`) + `,` + repeated(n, `{"type":"function_call_output","call_id":"a%d","output":""}`) + `]`
	},
	"searches": func(n int) string {
		return `"input":[` + repeated(n, `{"type":"tool_search_call","call_id":"a","execution":"client"},{"type":"tool_search_output","call_id":"a","execution":"client","tools":[{"type":"function","name":"f"}]}`) + `]`
	},
	"texts": func(n int) string { return `"input":[` + repeated(n, `{"role":"assistant","content":"x"}`) + `]` },
	"thoughts": func(n int) string {
		return `"input":[` + repeated(n, `{"type":"reasoning","encrypted_content":"th1.{\"model\":\"m\",\"reasoning_content\":\"a\"}"}`) + `]`
	},
	"parts": func(n int) string {
		return `"input":[{"role":"user","content":[` + repeated(n, `{"type":"input_text","text":"x","y%d":1}`) + `]}]`
	},
	"unknown members": func(n int) string { return `"input":"Hi",` + repeated(n, `"x%d":1`) },
}

var longName = strings.Repeat("n", 60)

// repeated is n elements of a list, with their numbers.
func repeated(n int, element string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = element
		if strings.Contains(element, "%") {
			all[i] = fmt.Sprintf(element, i)
		}
	}
	return strings.Join(all, ",")
}

func TestAHostileRequestForAResponseTakesWorkInProportionToItsSize(t *testing.T) {
	for name, body := range hostileInputs {
		t.Run(name, func(t *testing.T) {
			work := func(n int) float64 {
				r, err := asResponse([]byte(`{"model":"m",` + body(n) + `}`))
				if err != nil {
					t.Fatal(err)
				}
				return testing.AllocsPerRun(2, func() { _, _, _, err = responsesToChat(r, openMarked) })
			}
			if once, fourfold := work(250), work(1000); fourfold > 6*once {
				t.Errorf("%.0f allocations for 250, %.0f for 1000", once, fourfold)
			}
		})
	}
}

func TestToolNames(t *testing.T) {
	long := strings.Repeat("n", 60)
	tests := []struct {
		name  string
		tools []toolName // in this order
		want  []string
	}{
		{"a function keeps its name", []toolName{{"", "shell", functionTool}}, []string{"shell"}},
		{"even one that vendors refuse", []toolName{{"", "my tool", functionTool}}, []string{"my tool"}},
		{"a namespace is put before it", []toolName{{"mcp__probe", "echo_word", functionTool}}, []string{"mcp__probe__echo_word"}},
		{"64 bytes", []toolName{{"ab", long, functionTool}}, []string{"ab__" + long}},
		{"65 bytes", []toolName{{"abc", long, functionTool}}, []string{"abc__" + long[:47] + "_daeca17dad"}},
		{"bytes that vendors refuse", []toolName{{"a.b", "c d", functionTool}, {"a_b", "c_d", functionTool}},
			[]string{"a_b__c_d_822d6a8295", "a_b__c_d"}},
		{"a function has the name", []toolName{{"", "a__b", functionTool}, {"a", "b", functionTool}},
			[]string{"a__b", "a__b_59b271ae1b"}},
		{"two namespaces make one name", []toolName{{"a", "b__c", functionTool}, {"a__b", "c", functionTool}},
			[]string{"a__b__c", "a__b__c_a92700ced2"}},
		{"three kinds of one name", []toolName{{"", "x", functionTool}, {"", "x", customTool}, {"", "x", searchTool}},
			[]string{"x", "x_3c7e9bc930", "x_84f7397d1b"}},
		{"a function has the name with the hash", []toolName{{"", "x", functionTool}, {"", "x_3c7e9bc930", functionTool}, {"", "x", customTool}},
			[]string{"x", "x_3c7e9bc930", "x_84f7397d1b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var names toolNames
			for i, tool := range test.tools {
				if got := names.add(tool); got != test.want[i] {
					t.Errorf("%v: %q; want %q", tool, got, test.want[i])
				}
			}
			for i, tool := range test.tools {
				if got := names.add(tool); got != test.want[i] {
					t.Errorf("%v again: %q", tool, got)
				}
				if got := names.called(tool); got != test.want[i] {
					t.Errorf("%v called: %q", tool, got)
				}
				if got, known := names.original(test.want[i]); got != tool || !known {
					t.Errorf("%q is %v, %v", test.want[i], got, known)
				}
			}
		})
	}
}

func TestToolNamesThatAreNotDeclared(t *testing.T) {
	var none *toolNames
	invented := toolName{name: "invented", kind: functionTool}
	if got, known := none.original("invented"); got != invented || known {
		t.Errorf("nil: %v, %v", got, known)
	}
	var names toolNames
	names.add(toolName{"a", "b", functionTool})
	if got, known := names.original("invented"); got != invented || known {
		t.Errorf("%v, %v", got, known)
	}
	for tool, want := range map[toolName]string{
		{"gone", "tool", functionTool}: "gone__tool",
		{"", "exec", customTool}:       "exec",
		{"", "a__b", functionTool}:     "a__b", // a call of what was once a function of its own
	} {
		if got := names.called(tool); got != want {
			t.Errorf("%v: %q, want %q", tool, got, want)
		}
	}
	if got, known := names.original("a__b"); got != (toolName{"a", "b", functionTool}) || !known {
		t.Errorf("what was called took the name of a tool: %v, %v", got, known)
	}
}

// Names that a hostile client chose so that they all begin alike cost no more than others.
func TestToolNamesOfAHostileRequest(t *testing.T) {
	const tools = 100_000
	var names toolNames
	space := strings.Repeat("s", 60)
	for i := range tools {
		if name := names.add(toolName{space, fmt.Sprint(i), functionTool}); !isFunctionName(name) {
			t.Fatalf("tool %d is %q", i, name)
		}
	}
	if len(names.originals) != tools {
		t.Errorf("%d names for %d tools", len(names.originals), tools)
	}
	if name := names.called(toolName{"", strings.Repeat("x", 1<<20), customTool}); len(name) != 63 {
		t.Errorf("a name of %d bytes", len(name))
	}
}
