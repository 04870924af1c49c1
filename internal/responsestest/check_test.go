package responsestest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/sse"
)

const (
	opening = `{"type":"response.created","response":{"id":"resp_1","object":"response","model":"m","status":"in_progress","output":[],"usage":null}}
{"type":"response.in_progress","response":{"id":"resp_1","object":"response","model":"m","status":"in_progress","output":[]}}
`
	thought = `{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","status":"in_progress","summary":[],"content":[]}}
{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}
{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"h"}
{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"m"}
{"type":"response.reasoning_summary_text.done","item_id":"rs_1","output_index":0,"summary_index":0,"text":"hm"}
{"type":"response.reasoning_summary_part.done","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":"hm"}}
{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","status":"completed","summary":[{"type":"summary_text","text":"hm"}],"content":[]}}
`
	message = `{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg_1","status":"in_progress","role":"assistant","content":[]}}
{"type":"response.content_part.added","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}
{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"Hi","logprobs":[{"token":"Hi"}]}
{"type":"response.output_text.annotation.added","item_id":"msg_1","output_index":1,"content_index":0,"annotation_index":0,"annotation":{"type":"url_citation"}}
{"type":"keepalive"}
{"type":"response.output_text.done","item_id":"msg_1","output_index":1,"content_index":0,"text":"Hi","logprobs":[{"token":"Hi"}]}
{"type":"response.content_part.done","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"Hi","annotations":[{"type":"url_citation"}],"logprobs":[{"token":"Hi"}]}}
{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[{"type":"url_citation"}],"logprobs":[{"token":"Hi"}]}]}}
`
	callAdded = `{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc_1","status":"in_progress","call_id":"c1","name":"f","namespace":"n","arguments":""}}
`
	call = callAdded + `{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{}"}
{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":2,"name":"f","arguments":"{}"}
{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"f","namespace":"n","arguments":"{}"}}
`
	custom = `{"type":"response.output_item.added","output_index":3,"item":{"type":"custom_tool_call","id":"ctc_1","status":"in_progress","call_id":"c2","name":"patch","input":""}}
{"type":"response.custom_tool_call_input.delta","item_id":"ctc_1","output_index":3,"delta":"abc"}
{"type":"response.custom_tool_call_input.done","item_id":"ctc_1","output_index":3,"input":"abc"}
{"type":"response.output_item.done","output_index":3,"item":{"type":"custom_tool_call","id":"ctc_1","status":"completed","call_id":"c2","name":"patch","input":"abc"}}
`
	search = `{"type":"response.output_item.added","output_index":4,"item":{"type":"tool_search_call","id":"tsc_1","status":"in_progress","call_id":"c3","execution":"client","arguments":{}}}
{"type":"response.output_item.done","output_index":4,"item":{"type":"tool_search_call","id":"tsc_1","status":"completed","call_id":"c3","execution":"client","arguments":{"q":"x"}}}
`
	output = `{"type":"reasoning","id":"rs_1","status":"completed","summary":[{"type":"summary_text","text":"hm"}],"content":[]},` +
		`{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[{"type":"url_citation"}],"logprobs":[{"token":"Hi"}]}]},` +
		`{"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"f","namespace":"n","arguments":"{}"},` +
		`{"type":"custom_tool_call","id":"ctc_1","status":"completed","call_id":"c2","name":"patch","input":"abc"},` +
		`{"arguments":{"q":"x"},"type":"tool_search_call","id":"tsc_1","status":"completed","call_id":"c3","execution":"client"}`
	ending = `{"type":"response.completed","response":{"id":"resp_1","object":"response","model":"m","status":"completed","output":[` + output + `],"usage":{"input_tokens":3,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":5}}}
`
	sound = opening + thought + message + call + custom + search + ending + "[DONE]\n"
)

// stream writes events, one in each line, as a stream, numbered where they are not.
func stream(lines string) []byte {
	var out []byte
	for n, line := range strings.Split(strings.TrimSuffix(lines, "\n"), "\n") {
		var e struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal([]byte(line), &e) // [DONE] has none
		if e.Type != "" && !strings.Contains(line, "sequence_number") {
			line = strings.TrimSuffix(line, "}") + `,"sequence_number":` + strconv.Itoa(n) + "}"
		}
		out = sse.AppendEvent(out, e.Type, []byte(line))
	}
	return out
}

func TestASoundStreamPasses(t *testing.T) {
	failed := `{"type":"error","error":{"type":"server_error","code":"x","message":"y"}}
{"type":"response.failed","response":{"id":"resp_1","object":"response","model":"m","status":"failed","output":[],"error":{"code":"server_error","message":"y"}}}
[DONE]
`
	cut := `{"type":"response.incomplete","response":{"id":"resp_1","object":"response","model":"m","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}
`
	for _, row := range []struct {
		name, lines string
		end         End
	}{
		{"everything", sound, Done},
		{"without [DONE]", strings.TrimSuffix(sound, "[DONE]\n"), Vendor},
		{"one that failed", opening + thought + message + failed, Done},
		{"one that failed in an item", opening + thought + strings.Split(message, "\n")[0] + "\n" + failed, Done},
		{"one that was cut in a call", opening + strings.Replace(callAdded, `"output_index":2`, `"output_index":0`, 1) + cut, Vendor},
		{"its beginning", opening + thought, Cut},
		{"nothing", "", Cut},
		{"hosted tools", opening + `{"type":"response.output_item.added","output_index":0,"item":{"type":"web_search_call","id":"ws_1","status":"in_progress"}}
{"type":"response.web_search_call.searching","output_index":0,"item_id":"ws_1"}
{"type":"response.output_item.done","output_index":0,"item":{"type":"web_search_call","id":"ws_1","status":"completed"}}
`, Cut},
	} {
		t.Run(row.name, func(t *testing.T) {
			var in []byte
			if row.lines != "" {
				in = stream(row.lines)
			}
			if err := Check(in, row.end); err != nil {
				t.Error(err)
			}
		})
	}
	r, err := Accumulate(stream(sound))
	if err != nil || r.Text() != "Hi" || len(r.Output) != 5 || r.Usage.TotalTokens != 5 {
		t.Errorf("accumulated: %+v, %v", r, err)
	}
	if _, err := Accumulate(stream(opening + failed)); err == nil || !strings.Contains(err.Error(), "failed") {
		t.Errorf("a response that failed: %v", err)
	}
}

func TestEveryRuleIsChecked(t *testing.T) {
	lines := strings.SplitAfter(sound, "\n")
	for _, row := range []struct {
		name, from, to, want string
	}{
		{"a missing number", `"type":"response.in_progress"`, `"type":"response.in_progress","sequence_number":2`, "sequence_number"},
		{"no event line", `{"type":"keepalive"}`, `{"kind":"keepalive"}`, "sequence_number"},
		{"an unknown type", `"keepalive"`, `"response.keep_alive"`, "do not know"},
		{"no JSON", `{"type":"keepalive"}`, `{"type":"keepalive","a":}`, "not what it should be"},
		{"a member twice", `{"type":"keepalive"}`, `{"type":"keepalive","a":1,"a":1}`, "not what it should be"},
		{"a member error", `{"type":"keepalive"}`, `{"type":"keepalive","error":null}`, "only the event error"},
		{"no beginning", lines[0], "", "must come first"},
		{"a beginning twice", lines[0], lines[0] + lines[0], "must come first, and once"},
		{"no in_progress", lines[1], "", "must come first"},
		{"in_progress twice", lines[1], lines[1] + lines[1], "must come once"},
		{"another id", `"response.completed","response":{"id":"resp_1"`, `"response.completed","response":{"id":"resp_2"`, "must have the id"},
		{"another model", `"model":"m","status":"completed"`, `"model":"n","status":"completed"`, "must have the id"},
		{"another status", `"status":"completed","output":[`, `"status":"incomplete","output":[`, "the status completed"},
		{"no reason", `"response.completed","response":{"id":"resp_1","object":"response","model":"m","status":"completed"`, `"response.incomplete","response":{"id":"resp_1","object":"response","model":"m","status":"incomplete"`, "must say why"},
		{"no output", `"status":"in_progress","output":[],"usage"`, `"status":"in_progress","usage"`, "has no output"},
		{"an output at the beginning", `"status":"in_progress","output":[]}`, `"status":"in_progress","output":[{}]}`, "must be empty"},
		{"a gap", `"output_index":1,"item":{"type":"message","id":"msg_1","status":"in_progress"`, `"output_index":2,"item":{"type":"message","id":"msg_1","status":"in_progress"`, "output_index must be 1"},
		{"no index", `"item_id":"msg_1","output_index":1,"content_index":0,"delta"`, `"item_id":"msg_1","content_index":0,"delta"`, "no output_index"},
		{"another index", `"item_id":"msg_1","output_index":1,"content_index":0,"delta"`, `"item_id":"msg_1","output_index":0,"content_index":0,"delta"`, "no open item"},
		{"another item_id", `"item_id":"msg_1","output_index":1,"content_index":0,"delta"`, `"item_id":"msg_2","output_index":1,"content_index":0,"delta"`, "item_id must be"},
		{"two items at once", lines[8], "", "two items are open"},
		{"no id", `{"type":"message","id":"msg_1","status":"in_progress"`, `{"type":"message","id":"","status":"in_progress"`, "must have a type, and an id"},
		{"an id twice", `{"type":"message","id":"msg_1","status":"in_progress"`, `{"type":"message","id":"rs_1","status":"in_progress"`, "must have a type, and an id"},
		{"a call_id twice", `"status":"in_progress","call_id":"c2"`, `"status":"in_progress","call_id":"c1"`, "a call_id that no other has"},
		{"no call_id", `"status":"in_progress","call_id":"c3"`, `"status":"in_progress"`, "a call_id that no other has"},
		{"no name", `"call_id":"c2","name":"patch","input":""`, `"call_id":"c2","input":""`, "must have its name"},
		{"arguments at the beginning", `"arguments":""}`, `"arguments":"{"}`, "must be empty when it begins"},
		{"done at the beginning", `"status":"in_progress","role"`, `"status":"completed","role"`, "must be in_progress"},
		{"an event of another type", `"response.custom_tool_call_input.delta"`, `"response.function_call_arguments.delta"`, "the item is a"},
		{"a part out of order", `"summary_index":0,"part":{"type":"summary_text","text":""}`, `"summary_index":1,"part":{"type":"summary_text","text":""}`, "a part begins as number"},
		{"a part of another type", `"part":{"type":"summary_text","text":""}`, `"part":{"type":"output_text","text":""}`, "cannot have a part"},
		{"a part that begins with text", `"part":{"type":"summary_text","text":""}`, `"part":{"type":"summary_text","text":"x"}`, "must be empty when it begins"},
		{"no part", lines[3], "", "is not open"},
		{"no part's number", `"content_index":0,"delta"`, `"delta"`, "which part"},
		{"a delta of another kind", `"type":"response.output_text.delta"`, `"type":"response.refusal.delta"`, "the part is a"},
		{"no logprobs", `"delta":"Hi","logprobs":[{"token":"Hi"}]`, `"delta":"Hi"`, "logprobs must be"},
		{"a delta that is no string", `"delta":"Hi"`, `"delta":{}`, "must be a string"},
		{"a delta after the text", lines[6], lines[6] + lines[5], "before the text is done"},
		{"a lost delta", lines[5], "", "add up to"},
		{"another text", `"summary_index":0,"text":"hm"`, `"summary_index":0,"text":"hmm"`, "add up to"},
		{"a part before its text", lines[6], "", "before its text"},
		{"another part", `"summary_index":0,"part":{"type":"summary_text","text":"hm"}`, `"summary_index":0,"part":{"type":"summary_text","text":"h"}`, "must have the text"},
		{"lost logprobs", `"annotations":[{"type":"url_citation"}],"logprobs":[{"token":"Hi"}]}}`, `"annotations":[{"type":"url_citation"}],"logprobs":[]}}`, "must have the text"},
		{"a lost annotation", `"annotations":[{"type":"url_citation"}],"logprobs":[{"token":"Hi"}]}}`, `"annotations":[],"logprobs":[{"token":"Hi"}]}}`, "must have the text"},
		{"an annotation out of order", `"annotation_index":0`, `"annotation_index":1`, "annotation_index must be"},
		{"a part that is not done", lines[7], "", "part 0 is not done"},
		{"an item without its part", `"status":"completed","summary":[{"type":"summary_text","text":"hm"}]`, `"status":"completed","summary":[]`, "must have 1 parts"},
		{"another item", `"item":{"type":"reasoning","id":"rs_1","status":"completed"`, `"item":{"type":"reasoning","id":"rs_2","status":"completed"`, "must keep its id"},
		{"another name", `"item":{"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"f"`, `"item":{"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"g"`, "must keep its id"},
		{"another namespace", `"status":"completed","call_id":"c1","name":"f","namespace":"n"`, `"status":"completed","call_id":"c1","name":"f"`, "must keep its id"},
		{"no status", `"item":{"type":"reasoning","id":"rs_1","status":"completed"`, `"item":{"type":"reasoning","id":"rs_1","status":"in_progress"`, "must not be in_progress"},
		{"no name in the end", `"name":"f","arguments":"{}"}` + "\n", `"arguments":"{}"}` + "\n", "the name must be"},
		{"no end of the arguments", lines[19], "", "which must be done"},
		{"other arguments", `"call_id":"c1","name":"f","namespace":"n","arguments":"{}"`, `"call_id":"c1","name":"f","namespace":"n","arguments":"{ }"`, "the arguments must be"},
		{"arguments that are no JSON", `{}"`, `{"`, "must be JSON"},
		{"another input", `"call_id":"c2","name":"patch","input":"abc"`, `"call_id":"c2","name":"patch","input":"ab"`, "the input must be"},
		{"a search by a string", `"execution":"client","arguments":{"q":"x"}}}`, `"execution":"client","arguments":"x"}}`, "must be an object"},
		{"another output", output, strings.Replace(output, `"text":"Hi"`, `"text":"Ho"`, 1), "is not that which was done"},
		{"too little output", output, strings.TrimSuffix(output, output[strings.LastIndex(output, `,{"arguments`):]), "the 5 items"},
		{"an item that is open at the end", lines[26], "", "an item is not done"},
		{"a usage without details", `"output_tokens_details":{"reasoning_tokens":1}`, `"output_tokens_details":{}`, "must be an integer"},
		{"a usage with a fraction", `"total_tokens":5`, `"total_tokens":5.5`, "must be an integer"},
		{"two ends", ending, ending + ending, "after the last one"},
		{"[DONE] before the end", ending, "", "[DONE] must come once"},
		{"[DONE] twice", "[DONE]\n", "[DONE]\n[DONE]\n", "[DONE] must come once"},
		{"no [DONE]", "[DONE]\n", "", "does not end with [DONE]"},
		{"no end", ending + "[DONE]\n", "", "no last event"},
		{"an error that is no object", ending, `{"type":"error","error":"x"}` + "\n", "must have an object"},
		{"an error alone", ending, `{"type":"error","error":{}}` + "\n" + ending, "must be followed by"},
		{"a failure without an error", ending, `{"type":"response.failed","response":{"id":"resp_1","object":"response","model":"m","status":"failed","output":[]}}` + "\n", "must have an error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			broken := strings.Replace(sound, row.from, row.to, 1)
			if row.from == `{}"` {
				broken = strings.ReplaceAll(sound, row.from, row.to)
			}
			if broken == sound {
				t.Fatal("nothing was changed")
			}
			if err := Check(stream(broken), Done); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}
