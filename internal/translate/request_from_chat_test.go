package translate

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

const (
	hi     = `{"role":"user","content":"hi"}`
	hiTurn = `{"role":"user","content":[{"type":"text","text":"hi"}]}`
	weekly = `{"type":"function","function":{"name":"week","parameters":{"type":"object"}}}`
	// asksOnce is a conversation with one open call, to which a result is added.
	asksOnce = hi + `,{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	// openTurns are its turns.
	openTurns = hiTurn + `,{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]}`
)

// fromChatCase is one request and what comes of it. in are members of the
// request besides model and, unless it has its own, messages; want are those
// that the translation has besides model, max_tokens 4096 and messages of "hi".
type fromChatCase struct {
	field, in, want string
	dropped         string // joined by spaces
	refused         string // the field that a 400 names
}

// messagesCase is messages on their own: in and want are lists of them.
func messagesCase(field, in, want, dropped string) fromChatCase {
	return fromChatCase{field: field, in: `"messages":[` + in + `]`, want: `"messages":[` + want + `]`, dropped: dropped}
}

// refusedMessages is messages that are refused.
func refusedMessages(field, in, param string) fromChatCase {
	return fromChatCase{field: field, in: `"messages":[` + in + `]`, refused: param}
}

// partCase is a user's content block.
func partCase(field, part, want, dropped string) fromChatCase {
	return messagesCase(field, `{"role":"user","content":[`+part+`]}`, `{"role":"user","content":[`+want+`]}`, dropped)
}

// refusedPart is a user's content block that is refused.
func refusedPart(field, part, param string) fromChatCase {
	return refusedMessages(field, `{"role":"user","content":[`+part+`]}`, "messages[0].content[0]."+param)
}

// callCase is an assistant's call with its result.
func callCase(field, call, want, id, dropped string) fromChatCase {
	return messagesCase(field,
		hi+`,{"role":"assistant","tool_calls":[`+call+`]},{"role":"tool","tool_call_id":"`+id+`","content":"r"}`,
		hiTurn+`,{"role":"assistant","content":[`+want+`]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"r"}]}]}`, dropped)
}

// refusedCall is a call that is refused.
func refusedCall(field, call, param string) fromChatCase {
	return refusedMessages(field, hi+`,{"role":"assistant","tool_calls":[`+call+`]},{"role":"tool","tool_call_id":"c1","content":"r"}`, "messages[1].tool_calls[0]."+param)
}

func topLevelCases() []fromChatCase {
	return []fromChatCase{
		{field: "model", in: ``, want: ``},
		{field: "messages", in: `"messages":[` + hi + `]`, want: ``},
		{field: "messages", in: `"messages":[{"role":"system","content":"s"}]`, refused: "messages"},
		{field: "messages", in: `"messages":[{"role":"user","content":" \n"}]`, refused: "messages"},
		{field: "temperature", in: `"temperature":1`, want: `"temperature":1`},
		{field: "temperature", in: `"temperature":0`, want: `"temperature":0`},
		{field: "temperature", in: `"temperature":1.01,"top_p":0.5`, want: `"top_p":0.5`, dropped: "temperature"},
		{field: "top_p", in: `"top_p":0.9,"temperature":0.2`, want: `"temperature":0.2,"top_p":0.9`},
		{field: "max_tokens", in: `"max_tokens":7`, want: `"max_tokens":7`},
		{field: "max_completion_tokens", in: `"max_completion_tokens":9`, want: `"max_tokens":9`},
		{field: "max_completion_tokens", in: `"max_completion_tokens":8,"max_tokens":8`, want: `"max_tokens":8`},
		{field: "n", in: `"n":1`, want: ``},
		{field: "n", in: `"n":2`, refused: "n"},
		{field: "stream", in: `"stream":true`, want: `"stream":true`},
		{field: "stream_options", in: `"stream":true,"stream_options":{"include_usage":true}`, want: `"stream":true`},
		{field: "stop", in: `"stop":"END"`, want: `"stop_sequences":["END"]`},
		{field: "stop", in: `"stop":["\n\n","b"]`, want: `"stop_sequences":["b"]`, dropped: "stop"},
		{field: "presence_penalty", in: `"presence_penalty":0.5`, want: ``, dropped: "presence_penalty"},
		{field: "presence_penalty", in: `"presence_penalty":0.0`, want: ``},
		{field: "frequency_penalty", in: `"frequency_penalty":-1`, want: ``, dropped: "frequency_penalty"},
		{field: "frequency_penalty", in: `"frequency_penalty":0`, want: ``},
		{field: "reasoning_effort", in: `"reasoning_effort":"max"`, want: `"output_config":{"effort":"max"}`},
		{field: "reasoning_effort", in: `"reasoning_effort":"low"`, want: `"output_config":{"effort":"low"}`},
		{field: "reasoning_effort", in: `"reasoning_effort":"minimal"`, want: ``, dropped: "reasoning_effort"},
		{field: "reasoning_effort", in: `"reasoning_effort":5`, want: ``, dropped: "reasoning_effort"},
		{field: "user", in: `"user":"u1"`, want: `"metadata":{"user_id":"u1"}`},
		{field: "service_tier", in: `"service_tier":"standard_only"`, want: `"service_tier":"standard_only"`},
		{field: "service_tier", in: `"service_tier":"flex"`, want: ``, dropped: "service_tier"},
		{field: "thinking", in: `"thinking":{"type":"enabled","budget_tokens":1024}`, want: `"thinking":{"type":"enabled","budget_tokens":1024}`},
		{field: "thinking", in: `"thinking":{"type":"enabled","budget_tokens":4096}`, want: ``, dropped: "thinking"},
		{field: "thinking", in: `"thinking":{"type":"enabled"}`, want: ``, dropped: "thinking"},
		{field: "thinking", in: `"thinking":{"type":"adaptive"}`, want: `"thinking":{"type":"adaptive"}`},
		{field: "thinking", in: `"thinking":"on"`, want: ``, dropped: "thinking"},
		{field: "top_k", in: `"top_k":40`, want: `"top_k":40`},
		{field: "top_k", in: `"top_k":-1`, want: ``, dropped: "top_k"},
		{field: "seed", in: `"seed":0`, want: ``, dropped: "seed"},
		{field: "logprobs", in: `"logprobs":true`, want: ``, dropped: "logprobs"},
		{field: "logprobs", in: `"logprobs":false`, want: ``},
		{field: "top_logprobs", in: `"top_logprobs":3`, want: ``, dropped: "top_logprobs"},
		{field: "logit_bias", in: `"logit_bias":{"5":1}`, want: ``, dropped: "logit_bias"},
		{field: "metadata", in: `"metadata":{"a":"b"}`, want: ``, dropped: "metadata"},
		{field: "store", in: `"store":true`, want: ``, dropped: "store"},
		{field: "modalities", in: `"modalities":["text","audio"]`, want: ``, dropped: "modalities"},
		{field: "modalities", in: `"modalities":["text"]`, want: ``},
		{field: "", in: `"prompt_cache_key":"x","verbosity":null,"safety_identifier":"y"`, want: ``, dropped: "prompt_cache_key safety_identifier"},
		{field: "", in: `"a b":1,"c,d":1,"é":1`, want: ``, dropped: "others"},
	}
}

func toolCases() []fromChatCase {
	const out = `{"name":"week","input_schema":{"type":"object"}}`
	const one = `"tools":[` + weekly + `]`
	function := func(members string) string {
		return `"tools":[{"type":"function","function":{"name":"f"` + members + `}}]`
	}
	return []fromChatCase{
		{field: "tools", in: one, want: `"tools":[` + out + `]`},
		{field: "tools", in: `"tools":[{"type":"custom","custom":{"name":"x"}},` + weekly + `]`, want: `"tools":[` + out + `]`, dropped: "tools.custom"},
		{field: "tools", in: `"tools":[{"type":"custom"}],"tool_choice":"auto"`, want: ``, dropped: "tools.custom"},
		{field: "tools.function", in: `"tools":[{"type":"function","x":1,"function":{"name":"f","y":1}}]`, want: `"tools":[{"name":"f","input_schema":{"type":"object"}}]`, dropped: "tools.function.y tools.x"},
		{field: "tools.function.name", in: function(``), want: `"tools":[{"name":"f","input_schema":{"type":"object"}}]`},
		{field: "tools.function.description", in: function(`,"description":"d"`), want: `"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}]`},
		{field: "tools.function.parameters", in: function(`,"parameters":{"properties":{"b":{},"a":{}}}`), want: `"tools":[{"name":"f","input_schema":{"properties":{"b":{},"a":{}},"type":"object"}}]`},
		{field: "tools.function.parameters", in: function(`,"parameters":"no"`), refused: "tools[0].function.parameters"},
		{field: "tools.function.parameters", in: function(`,"parameters":{"a":1,"a":2}`), refused: "tools[0].function.parameters"},
		{field: "tools.function.strict", in: function(`,"strict":true`), want: `"tools":[{"name":"f","input_schema":{"type":"object"},"strict":true}]`},
		{field: "tools.function.strict", in: function(`,"strict":false`), want: `"tools":[{"name":"f","input_schema":{"type":"object"}}]`},
		{field: "tools.cache_control", in: `"tools":[{"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral"}}]`, want: `"tools":[{"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}]`},
		{field: "tool_choice", in: one + `,"tool_choice":"none"`, want: `"tools":[` + out + `],"tool_choice":{"type":"none"}`},
		{field: "tool_choice", in: one + `,"tool_choice":"auto"`, want: `"tools":[` + out + `],"tool_choice":{"type":"auto"}`},
		{field: "tool_choice", in: one + `,"tool_choice":"required"`, want: `"tools":[` + out + `],"tool_choice":{"type":"any"}`},
		{field: "tool_choice", in: one + `,"tool_choice":{"type":"function","function":{"name":"week"}}`, want: `"tools":[` + out + `],"tool_choice":{"type":"tool","name":"week"}`},
		{field: "tool_choice", in: one + `,"tool_choice":{"type":"allowed_tools"}`, refused: "tool_choice"},
		{field: "tool_choice", in: one + `,"tool_choice":"sometimes"`, refused: "tool_choice"},
		{field: "tool_choice", in: `"tool_choice":"required"`, refused: "tool_choice"},
		{field: "tool_choice", in: `"tool_choice":"none"`, want: ``},
		{field: "parallel_tool_calls", in: one + `,"parallel_tool_calls":false`, want: `"tools":[` + out + `],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`},
		{field: "parallel_tool_calls", in: one + `,"parallel_tool_calls":false,"tool_choice":"required"`, want: `"tools":[` + out + `],"tool_choice":{"type":"any","disable_parallel_tool_use":true}`},
		{field: "parallel_tool_calls", in: one + `,"parallel_tool_calls":false,"tool_choice":"none"`, want: `"tools":[` + out + `],"tool_choice":{"type":"none"}`},
		{field: "parallel_tool_calls", in: one + `,"parallel_tool_calls":true`, want: `"tools":[` + out + `]`},
		{field: "parallel_tool_calls", in: `"parallel_tool_calls":false`, want: ``},
		{field: "response_format", in: `"response_format":{"type":"text"}`, want: ``},
		{field: "response_format", in: `"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}},"reasoning_effort":"high"`, want: `"output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type":"object"}}}`},
		{field: "response_format", in: `"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":true}}`, refused: "response_format.json_schema.schema"},
		{field: "response_format", in: `"response_format":{"type":"json_object"}`, refused: "response_format.type"},
	}
}

func roleCases() []fromChatCase {
	const ok = `{"role":"assistant","content":"ok"}`
	const okTurn = `{"role":"assistant","content":[{"type":"text","text":"ok"}]}`
	return []fromChatCase{
		messagesCase("messages.role", hi+`,`+ok+`,`+hi, hiTurn+`,`+okTurn+`,`+hiTurn, ""),
		messagesCase("messages.role", hi+`,`+hi, `{"role":"user","content":[{"type":"text","text":"hi"},{"type":"text","text":"hi"}]}`, ""),
		messagesCase("messages.role", hi+`,`+ok+`,{"role":"user","content":""},`+ok, hiTurn+`,{"role":"assistant","content":[{"type":"text","text":"ok"},{"type":"text","text":"ok"}]}`, ""),
		{field: "messages.role", in: `"messages":[{"role":"system","content":"a"},` + hi + `,{"role":"developer","content":[{"type":"text","text":"b"}]},` + ok + `,{"role":"system","content":"c"}]`,
			want: `"system":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"text","text":"c"}],"messages":[` + hiTurn + `,` + okTurn + `]`},
		{field: "messages.role", in: `"messages":[{"role":"system","content":null,"tools":[{}]},` + hi + `]`, want: ``, dropped: "messages.tools"},
		refusedMessages("messages.role", `{"role":"system","content":"a"},`+ok+`,`+hi, "messages[1].role"),
		messagesCase("messages.role", asksOnce+`,{"role":"user","content":"u"},{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"r"}]},`+hi,
			openTurns+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"r"}]},{"type":"text","text":"u"},{"type":"text","text":"hi"}]}`, ""),
		messagesCase("messages.content", `{"role":"user","content":[{"type":"text","text":" "},{"type":"text","text":"a"}]}`, `{"role":"user","content":[{"type":"text","text":"a"}]}`, ""),
		messagesCase("messages.content", hi+`,{"role":"assistant","content":""},{"role":"assistant","content":"b","refusal":null,"annotations":[]}`, hiTurn+`,{"role":"assistant","content":[{"type":"text","text":"b"}]}`, ""),
		refusedMessages("messages.content", hi+`,{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"https://a.example/b.png"}}]}`, "messages[1].content[0].type"),
		messagesCase("messages.name", `{"role":"user","name":"ann","content":"hi","mood":"good"}`, hiTurn, "messages.mood messages.name"),
		messagesCase("messages.reasoning_content", hi+`,{"role":"assistant","reasoning_content":"hm","content":"ok"}`, hiTurn+`,`+okTurn, "messages.reasoning_content"),
		messagesCase("messages.reasoning_content", hi+`,{"role":"assistant","reasoning_content":"hm?","reasoning_signature":"t2.3.sig","content":"ok"}`, hiTurn+`,`+okTurn, "messages.reasoning_content"),
		messagesCase("messages.reasoning_signature", hi+`,{"role":"assistant","reasoning_content":"héa","reasoning_signature":"t3.3.sigr4.datat1.0.t0.1.s","content":"ok"}`,
			hiTurn+`,{"role":"assistant","content":[{"type":"thinking","thinking":"hé","signature":"sig"},{"type":"redacted_thinking","data":"data"},{"type":"thinking","thinking":"a","signature":""},{"type":"thinking","signature":"s","thinking":""},{"type":"text","text":"ok"}]}`, ""),
	}
}

func callCases() []fromChatCase {
	const call = `{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}`
	const use = `{"type":"tool_use","id":"c1","name":"f","input":{}}`
	call2 := strings.Replace(call, "c1", "c2", 1)
	changed := func(old, new string) string { return strings.Replace(call, old, new, 1) }
	weird := `{"type":"tool_result","tool_use_id":"`
	return []fromChatCase{
		callCase("messages.tool_call_id", call, use, "c1", ""),
		refusedMessages("messages.tool_call_id", asksOnce+`,{"role":"tool","tool_call_id":"c2","content":"r"}`, "messages[2].tool_call_id"),
		refusedMessages("messages.tool_call_id", asksOnce+`,{"role":"tool","tool_call_id":"c1","content":"r"},{"role":"tool","tool_call_id":"c1","content":"r"}`, "messages[3].tool_call_id"),
		refusedMessages("messages.tool_call_id", hi+`,{"role":"tool","tool_call_id":"c1","content":"r"}`, "messages[1].tool_call_id"),
		messagesCase("messages.tool_calls", hi+`,{"role":"assistant","content":"ok","tool_calls":[`+call+`,`+call2+`]},{"role":"tool","tool_call_id":"c2","content":"two"},{"role":"tool","tool_call_id":"c1","content":""},`+hi,
			hiTurn+`,{"role":"assistant","content":[{"type":"text","text":"ok"},`+use+`,`+strings.Replace(use, "c1", "c2", 1)+`]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"two"}]},{"type":"tool_result","tool_use_id":"c1"},{"type":"text","text":"hi"}]}`, ""),
		refusedMessages("messages.tool_calls", asksOnce, "messages[1].tool_calls"),
		refusedMessages("messages.tool_calls", asksOnce+`,`+hi+`,{"role":"assistant","content":"ok"}`, "messages[1].tool_calls"),
		refusedMessages("messages.tool_calls", hi+`,{"role":"assistant","tool_calls":[`+call+`,`+call+`]}`, "messages[1].tool_calls[1].id"),
		callCase("messages.tool_calls.index", changed(`{"id"`, `{"index":3,"id"`), use, "c1", ""),
		callCase("messages.tool_calls.id", call, use, "c1", ""),
		messagesCase("messages.tool_calls.id", asksOnce+`,{"role":"tool","tool_call_id":"c1","content":"r"},`+strings.TrimPrefix(asksOnce, hi+",")+`,{"role":"tool","tool_call_id":"c1","content":"r"}`,
			openTurns+`,{"role":"user","content":[`+weird+`c1","content":[{"type":"text","text":"r"}]}]},{"role":"assistant","content":[`+strings.Replace(use, "c1", "c1_2", 1)+`]},{"role":"user","content":[`+weird+`c1_2","content":[{"type":"text","text":"r"}]}]}`, ""),
		messagesCase("messages.tool_calls.id", strings.Replace(asksOnce, "c1", "functions.f:0", 1)+`,{"role":"tool","tool_call_id":"functions.f:0","content":"r"}`,
			strings.Replace(openTurns, "c1", "call_d6bdd4de328a22edd610f954", 1)+`,{"role":"user","content":[`+weird+`call_d6bdd4de328a22edd610f954","content":[{"type":"text","text":"r"}]}]}`, ""),
		refusedCall("messages.tool_calls.id", changed(`"c1"`, `""`), "id"),
		callCase("messages.tool_calls.type", changed(`"type":"function",`, ``), use, "c1", ""),
		refusedCall("messages.tool_calls.type", changed(`"type":"function"`, `"type":"custom"`), "type"),
		callCase("messages.tool_calls.function", changed(`"arguments":"{}"`, `"arguments":"{}","z":1`), use, "c1", "messages.tool_calls.function.z"),
		callCase("messages.tool_calls.function.name", changed(`"f"`, `"g"`), strings.Replace(use, `"f"`, `"g"`, 1), "c1", ""),
		refusedCall("messages.tool_calls.function.name", changed(`"f"`, `""`), "function.name"),
		callCase("messages.tool_calls.function.arguments", changed(`"{}"`, `""`), use, "c1", ""),
		callCase("messages.tool_calls.function.arguments", changed(`"{}"`, `"{\"b\":1.0,\"a\":\"é\"}"`), strings.Replace(use, `{}`, `{"b":1.0,"a":"é"}`, 1), "c1", ""),
		refusedCall("messages.tool_calls.function.arguments", changed(`"{}"`, `"[1]"`), "function.arguments"),
		refusedCall("messages.tool_calls.function.arguments", changed(`"{}"`, `"{\"a\":"`), "function.arguments"),
		refusedCall("messages.tool_calls.function.arguments", changed(`"{}"`, `"{\"a\":1,\"a\":2}"`), "function.arguments"),
		refusedCall("messages.tool_calls.function.arguments", changed(`"{}"`, `{"a":1}`), "function.arguments"),
	}
}

func partCases() []fromChatCase {
	image := func(url string) string { return `{"type":"image_url","image_url":{"url":"` + url + `"}}` }
	file := func(members string) string { return `{"type":"file","file":{` + members + `}}` }
	const text = `{"type":"text","text":"a"}`
	const far = `{"type":"image","source":{"type":"url","url":"https://a.example/b.png"}}`
	return []fromChatCase{
		partCase("messages.content.type", text, text, ""),
		partCase("messages.content.text", `{"type":"text","text":"\n a\t"}`, `{"type":"text","text":"\n a\t"}`, ""),
		partCase("messages.content.image_url", image("https://a.example/b.png"), far, ""),
		partCase("messages.content.image_url.url", image("data:image/png;base64,iVBORw0="), `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0="}}`, ""),
		partCase("messages.content.image_url.url", image("DATA:Image/JPG;base64,/9j/"), `{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"/9j/"}}`, ""),
		refusedPart("messages.content.image_url.url", image("data:image/tiff;base64,SUkq"), "image_url.url"),
		refusedPart("messages.content.image_url.url", image("data:image/png,raw"), "image_url.url"),
		refusedPart("messages.content.image_url.url", image("ms://file-1"), "image_url.url"),
		partCase("messages.content.image_url.detail", strings.Replace(image("https://a.example/b.png"), `"}}`, `","detail":"high","x":1}}`, 1), far, "messages.content.image_url.detail messages.content.image_url.x"),
		partCase("messages.content.image_url.detail", strings.Replace(image("https://a.example/b.png"), `"}}`, `","detail":"auto"}}`, 1), far, ""),
		partCase("messages.content.file", file(`"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="`), `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="},"title":"a.pdf"}`, ""),
		partCase("messages.content.file", file(`"file_data":"data:text/plain;charset=utf-8;base64,w6k="`), `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"é"}}`, ""),
		refusedPart("messages.content.file", file(`"file_data":"data:text/plain;base64,/w=="`), "file.file_data"),
		refusedPart("messages.content.file", file(`"file_data":"JVBERi0="`), "file.file_data"),
		refusedPart("messages.content.file", file(`"file_id":"file-1"`), "file.file_id"),
		refusedPart("messages.content.video_url", `{"type":"video_url","video_url":{"url":"https://a.example/b.mp4"}}`, "type"),
		refusedPart("messages.content.audio_url", `{"type":"audio_url","audio_url":{"url":"https://a.example/b.mp3"}}`, "type"),
		refusedPart("messages.content.input_audio", `{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}`, "type"),
		partCase("messages.content.cache_control", `{"type":"text","text":"a","cache_control":{"type":"ephemeral"},"y":1}`, `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`, "messages.content.y"),
		messagesCase("messages.content.image_url", asksOnce+`,{"role":"tool","tool_call_id":"c1","content":[`+image("https://a.example/b.png")+`]}`,
			openTurns+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[`+far+`]}]}`, ""),
	}
}

func fromChatCases() []fromChatCase {
	return slices.Concat(topLevelCases(), toolCases(), roleCases(), callCases(), partCases())
}

// body is the request of a case.
func (c fromChatCase) body() []byte {
	body := `{"model":"m"`
	if !strings.Contains(c.in, `"messages":`) {
		body += `,"messages":[` + hi + `]`
	}
	if c.in != "" {
		body += "," + c.in
	}
	return []byte(body + "}")
}

// translatedBody is a translation as the upstream gets it.
func translatedBody(t *testing.T, r *messages.Request) []byte {
	t.Helper()
	encoded, err := messagesapi.Encode(r)
	if err == nil {
		err = encoded.Validate()
	}
	if err != nil {
		t.Fatalf("the translation breaks a rule: %v", err)
	}
	return encoded.Source()
}

// besides leaves out what every case has.
func withoutBasics(body []byte) string {
	o, err := rawjson.Index(body, nil, nil)
	if err != nil {
		return err.Error()
	}
	var members []string
	for _, m := range o.Members {
		switch member := string(m.Key.Of(body)) + ":" + string(m.Value.Of(body)); member {
		case `"model":"m"`, `"max_tokens":4096`, `"messages":[` + hiTurn + `]`:
		default:
			members = append(members, member)
		}
	}
	return strings.Join(members, ",")
}

func TestEveryFieldOfAChatRequestIsMappedAsTheTableSays(t *testing.T) {
	tested := make(map[string]bool)
	for _, c := range fromChatCases() {
		tested[c.field] = true
		parsed, err := chatapi.Parse(c.body())
		if err != nil {
			t.Fatalf("%s: %v", c.body(), err)
		}
		r, dropped, err := chatToMessages(parsed.Request, 4096)
		if c.refused != "" {
			var f *fault.Error
			if !errors.As(err, &f) || f.HTTPStatus() != 400 || f.Param != c.refused || !strings.Contains(f.Message, c.refused) {
				t.Errorf("%s: want a refusal of %s, got %v", c.body(), c.refused, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.body(), err)
			continue
		}
		if got := withoutBasics(translatedBody(t, r)); got != strings.TrimSuffix(c.want, `"messages":[`+hiTurn+`]`) {
			t.Errorf("%s\n got %s\nwant %s", c.body(), got, c.want)
		}
		if got := strings.Join(dropped, " "); got != c.dropped {
			t.Errorf("%s: dropped %q, want %q", c.body(), got, c.dropped)
		}
	}
	for _, f := range chatFields {
		if !tested[f.name] {
			t.Errorf("no case for %s", f.name)
		}
	}
}

func TestEveryFieldOfTheChatTypesHasARow(t *testing.T) {
	for prefix, v := range map[string]any{
		"": chat.Request{}, "messages.": chat.Message{}, "messages.tool_calls.": chat.ToolCall{},
		"messages.tool_calls.function.": chat.CalledFunction{}, "messages.content.": chat.Part{},
		"messages.content.image_url.": chat.Link{}, "tools.function.": chat.Function{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "-" && (&fieldMapper[*messagesBuilder]{fields: chatFields}).find(prefix+name) == nil {
				t.Errorf("%s has no row", prefix+name)
			}
		}
	}
}

func TestTheTableOfChatFieldsReadsLikeThis(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("What becomes of the fields of a chat completion request at an upstream that speaks only Messages.\n")
	b.WriteString("A field that is not listed is dropped: left out, and reported in X-Gateway-Dropped.\n\n")
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, f := range chatFields {
		how := f.note
		if f.noop != "" {
			how = strings.TrimPrefix(how+"; silently if it is "+f.noop, "; ")
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", f.name, f.action, how)
	}
	_ = w.Flush()
	b.WriteString("\nfinish_reason\n\n")
	w = tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, reason := range slices.Sorted(func(yield func(string) bool) {
		for reason := range finishReasons {
			if !yield(reason) {
				return
			}
		}
	}) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", reason, finishReasons[reason])
	}
	_, _ = fmt.Fprintf(w, "another\t%s\n", finishReason(nil))
	_ = w.Flush()
	capabilitytest.Golden(t, *update, "fromchat_fates.golden", trimmedLines(b.Bytes()))
}

// trimmedLines takes the blanks off the lines' ends.
func trimmedLines(text []byte) []byte {
	lines := strings.Split(string(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return []byte(strings.Join(lines, "\n"))
}

func TestARequestMadeInGoIsTranslatedLikeOneFromTheWire(t *testing.T) {
	half := 0.5
	typed := &chat.Request{
		Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}},
		PresencePenalty: &half, Extra: jsontext.Value(`{"seed":1,"top_k":3}`),
	}
	r, dropped, err := chatToMessages(typed, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if got := withoutBasics(translatedBody(t, r)); got != `"top_k":3` || !slices.Equal(dropped, []string{"presence_penalty", "seed"}) {
		t.Errorf("%s, dropped %q", got, dropped)
	}
}

func TestBothTranslationsKeepTheSameNamesOutOfTheHeader(t *testing.T) {
	longest := strings.Repeat("n", 80)
	for name, want := range map[string]string{"short": "short", longest: longest, longest + "n": "others", "a,b": "others", "a b": "others", "others": "others"} {
		r, err := messagesapi.Parse([]byte(fmt.Sprintf(`{"model":"m","max_tokens":9,"messages":[%s],%q:1,"%s,":1}`, hi, name, name)))
		if err != nil {
			t.Fatal(err)
		}
		c, err := chatapi.Parse(r.Source())
		if err != nil {
			t.Fatal(err)
		}
		_, back, err := chatToMessages(c.Request, 9)
		if err != nil {
			t.Fatal(err)
		}
		_, forth, err := messagesToChat(r.Request)
		if err != nil {
			t.Fatal(err)
		}
		wants := []string{want, "others"}
		if want == "others" {
			wants = wants[:1]
		}
		if !slices.Equal(back, wants) || !slices.Equal(forth, wants) {
			t.Errorf("%q: from chat %q, to chat %q, want %q", name, back, forth, wants)
		}
	}
}

func TestTheMediaTypesOfPicturesAreThoseOfTheRules(t *testing.T) {
	for _, kind := range append([]string{"image/tiff"}, imageTypes...) {
		r, err := messagesapi.Encode(&messages.Request{Model: "m", MaxTokens: 9, Messages: []messages.Message{{Role: "user", Content: messages.Blocks(
			messages.Block{Type: "image", Source: &messages.MediaSource{Type: "base64", MediaType: kind, Data: "aaaa"}},
		)}}})
		if err == nil {
			err = r.Validate()
		}
		if (err == nil) != slices.Contains(imageTypes, kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
