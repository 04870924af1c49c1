package operation_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/embeddings"
	"github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/operation/responses"
)

// passing are the members of a request that the channels pass.
type passing []string

func (p passing) Passes(name, _ string) bool { return slices.Contains(p, name) }

// All customers share the gateway's account at the vendor. Who learns the id of another's
// file must not read it, whatever the billing.
func TestAFileThatOnlyAnIDNamesIsRefusedOnEveryWire(t *testing.T) {
	const user, input = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[`, `{"model":"m","max_output_tokens":9,"input":[{"role":"user","content":[`
	chats := []func([]byte) (operation.Request, error){parsers["chat"]}
	message := []func([]byte) (operation.Request, error){parsers["messages"], messages.CountSpec.Parse}
	response := []func([]byte) (operation.Request, error){parsers["responses"], responses.CountSpec.Parse}
	for _, row := range []struct {
		parse      []func([]byte) (operation.Request, error)
		head, part string
		tail       string // of the body; ]}]} if empty
		param      string // empty if it is allowed
	}{
		{chats, user, `{"type":"file","file":{"file_id":"file-1"}}`, "", "messages[0].content[0].file.file_id"},
		{chats, user, `{"type":"file","file":{"File_ID":"file-1","file_data":"data:text/plain,a"}}`, "", "messages[0].content[0].file.File_ID"},
		{chats, user, `{"type":"text","text":"a"},{"type":"video_url","video_url":{"url":"ms://file-1"}}`, "", "messages[0].content[1].video_url.url"},
		{chats, user, `{"type":"image_url","image_url":{"url":"gs://bucket/file"}}`, "", "messages[0].content[0].image_url.url"},
		{chats, user, `{"type":"file","file":{"file_id":null,"file_data":"data:text/plain,a"}}`, "", ""},
		{message, user, `{"type":"document","source":{"type":"file","file_id":"file_1"}}`, "", "messages[0].content[0].source.file_id"},
		{message, user, `{"type":"image","source":{"type":"file","file_id":"file_1"}}`, "", "messages[0].content[0].source.file_id"},
		{message, user, `{"type":"container_upload","file_id":"file_1"}`, "", "messages[0].content[0].file_id"},
		{message, user, `{"type":"of_the_future","source":{"type":"file","file_id":"file_1"}}`, "", "messages[0].content[0].source.file_id"},
		{message, user, `{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"file","file_id":"file_1"}}]}`, "", "messages[0].content[0].content[0].source.file_id"},
		{message, user, `{"type":"text","text":"a"}`, `]},{"role":"assistant","content":[{"type":"code_execution_tool_result","tool_use_id":"t","content":{"type":"code_execution_result","content":[{"type":"code_execution_output","file_id":"file_1"}]}}]},{"role":"user","content":"b"}]}`, ""},
		{response, input, `{"type":"input_file","file_id":"file-1"}`, "", "input[0].content[0].file_id"},
		{response, input, `{"type":"input_image","file_id":"file-1"}`, "", "input[0].content[0].file_id"},
		{response, `{"model":"m","max_output_tokens":9,"input":[`, `{"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_id":"f"}]}`, `]}`, "input[0].output[0].file_id"},
		{response, `{"model":"m","max_output_tokens":9,"input":[`, `{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","file_id":"f"}}`, `]}`, "input[0].output.file_id"},
	} {
		for i, parse := range row.parse {
			r, err := parse([]byte(row.head + row.part + cmp.Or(row.tail, `]}]}`)))
			if err != nil {
				t.Fatal(row.part, err)
			}
			if err := r.Check(&operation.Facts{}, nil, passing{"file_id"}); err != nil {
				t.Errorf("%d of %s, passed: %v", i, row.part, err)
			}
			err = r.Check(&operation.Facts{}, nil, nothing{})
			if f := fault.From(err); row.param == "" && err != nil || row.param != "" && (f == nil || f.HTTPStatus() != 400 || f.Param != row.param) {
				t.Errorf("%d of %s: %v, want a refusal of %q", i, row.part, err, row.param)
			}
		}
	}
}

// unpriced are the parsers of the endpoints that leave out what they do not know.
var unpriced = map[string]func([]byte) (operation.Request, error){"chat": parsers["chat"], "messages": parsers["messages"], "embeddings": embeddings.Spec.Parse}

const said = `"messages":[{"role":"user","content":"hi"}]`

// A vendor may charge for a field of its own, or answer by something that no client can read.
// What the gateway does not know is therefore left out unless the channels pass it.
func TestFieldsThatAreNotKnownAreLeftOutUnlessTheyPass(t *testing.T) {
	for _, wire := range []struct {
		endpoint string
		body     string // the members that are known
		extra    string // those that are not
		names    []string
	}{
		{"chat", `"model":"m","max_tokens":9,` + said, `"deferred":true,"web_search":{"enable":true},"enable_enhancement":true,"safety_model":"m","num_completions":3`, []string{"deferred", "web_search", "enable_enhancement", "safety_model", "num_completions"}},
		{"messages", `"model":"m","max_tokens":9,` + said, `"fallback_credit_token":"t","user_profile_id":"p"`, []string{"fallback_credit_token", "user_profile_id"}},
		{"messages", `"model":"m","max_tokens":9,"stream":true,` + said, `"web_search":true`, []string{"web_search"}},
		{"embeddings", `"model":"m","input":"hi","input_type":"query","dimensions":1`, `"embedding_types":["int8","float"],"output_dtype":"binary"`, []string{"embedding_types", "output_dtype"}},
	} {
		all := `{` + wire.body + `,` + wire.extra + `}`
		for _, c := range []struct {
			pass []string
			sent string // empty where it is not looked at
			left []string
		}{
			{nil, `{` + wire.body + `}`, wire.names},
			{wire.names, all, nil},
			{wire.names[:1], "", wire.names[1:]},
		} {
			r, err := unpriced[wire.endpoint]([]byte(all))
			if err != nil {
				t.Fatal(err)
			}
			if r.Unpriced(nil, nil) == nil {
				t.Errorf("%s: nothing of it may cost money", wire.endpoint)
			}
			if err := r.Unpriced(nil, func(name, spelled string) bool { return slices.Contains(c.pass, spelled) }); err != nil {
				t.Fatal(err)
			}
			out := r.Outgoing(0)
			if data, err := out.Body.Bytes(); err != nil || c.sent != "" && string(data) != c.sent || fmt.Sprint(out.Omitted) != fmt.Sprint(c.left) {
				t.Errorf("%s, passing %q: sent %s, left out %q, %v, want %s, %q", wire.endpoint, c.pass, data, out.Omitted, err, c.sent, c.left)
			}
		}
	}
}

// What SDKs and agents send besides the fields that have rules reaches the vendor, byte for
// byte.
func TestFieldsThatCostNothingMoreAreSent(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint, body string
	}{
		"OpenAI": {"chat", `{"model":"m",` + said + `,"temperature":1,"top_p":1,"n":1,"max_completion_tokens":9,"stop":["END"],"presence_penalty":0,"frequency_penalty":0,` +
			`"seed":7,"logprobs":false,"top_logprobs":0,"logit_bias":{},"tools":[],"tool_choice":"auto","parallel_tool_calls":true,"functions":[],"function_call":"auto","response_format":{"type":"text"},` +
			`"reasoning_effort":"low","verbosity":"low","service_tier":"auto","store":false,"metadata":{"k":"v"},"prompt_cache_retention":"24h","modalities":["text"],"prediction":{"type":"content","content":"a"}}`},
		"vLLM":      {"chat", `{"model":"m",` + said + `,"max_tokens":9,"top_k":1,"min_p":0.1,"repetition_penalty":1.1,"chat_template_kwargs":{"enable_thinking":false},"guided_json":{},"structured_outputs":{},"stop_token_ids":[1],"ignore_eos":false}`},
		"DashScope": {"chat", `{"model":"m",` + said + `,"max_tokens":9,"enable_thinking":true,"thinking_budget":5,"enable_search":false,"translation_options":{"source_lang":"auto","target_lang":"English"},"vl_high_resolution_images":true}`},
		"Gemini":    {"chat", `{"model":"m",` + said + `,"max_tokens":9,"extra_body":{"google":{"thinking_config":{"thinking_budget":0}}}}`},
		"Anthropic": {"messages", `{"model":"m",` + said + `,"max_tokens":2000,"system":"s","temperature":1,"top_p":1,"top_k":1,"stop_sequences":["END"],"tools":[],"tool_choice":{"type":"auto"},` +
			`"thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"low"},"output_format":{"type":"json_schema","schema":{}},"service_tier":"auto","cache_control":{"type":"ephemeral"},` +
			`"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]},"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["interleaved-thinking-2025-05-14"]}`},
		"Voyage": {"embeddings", `{"model":"m","input":"hi","encoding_format":"float","dimensions":1,"input_type":"query","truncation":true,"truncate":"END","task":"retrieval.query"}`},
	} {
		r, err := unpriced[c.endpoint]([]byte(c.body))
		if err != nil {
			t.Fatal(name, err)
		}
		if err := r.Unpriced(nil, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		out := r.Outgoing(0)
		if data, err := out.Body.Bytes(); err != nil || string(data) != c.body || len(out.Omitted) != 0 {
			t.Errorf("%s: sent %s, left out %q, %v", name, data, out.Omitted, err)
		}
	}
}

// with is a conversation with a member; the member may be the messages.
func with(member string, stream bool) string {
	if !strings.HasPrefix(member, `"messages":`) {
		member += "," + said
	}
	return fmt.Sprintf(`{"model":"m","max_tokens":20,"stream":%t,%s}`, stream, member)
}

// Package rule has the table of the members; here are one of them, and where the endpoints look
// below the top level. pass is the name by which a channel lets them through.
func TestWhatCostsMoneyWithoutAPriceIsRefusedUnlessItPasses(t *testing.T) {
	for _, c := range []struct{ endpoint, member, param, pass string }{
		{"both", `"models":["dear"]`, "models", "models"},
		{"both", `"web_search_options":{}`, "web_search_options", "web_search_options"},
		{"both", `"cache_control":{"type":"ephemeral","ttl":"1h"}`, "cache_control.ttl", "cache_control"},

		{"chat", `"tools":[{"type":"web_search"}]`, "tools[0]", "tools"},
		{"chat", `"tools":[{"type":"web_search","web_search":{"enable":true}}]`, "tools[0]", "tools"},
		{"chat", `"tools":[{"type":"openrouter:web_search"}]`, "tools[0]", "tools"},
		{"chat", `"tools":[{"type":"browser_search"}]`, "tools[0]", "tools"},
		{"chat", `"tools":[{"type":"builtin_function","function":{"name":"$web_search"}}]`, "tools[0]", "tools"},
		{"chat", `"tools":[{"type":"function","function":{"name":"f"},"google_search":{}}]`, "tools[0]", "tools"},
		{"chat", `"tools":[{"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral","ttl":"1h"}}]`, "tools[0].cache_control.ttl", "cache_control"},
		{"chat", `"messages":[{"role":"system","tools":[{"type":"web_search"}]},{"role":"user","content":"hi"}]`, "messages[0].tools[0]", "tools"},
		{"chat", `"messages":[{"role":"user","content":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}}]`, "messages[0].cache_control.ttl", "cache_control"},
		{"chat", `"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"ttl":"1\u0068"}}]}]`, "messages[0].content[0].cache_control.ttl", "cache_control"},

		{"messages", `"service_tier":"default"`, "service_tier", "service_tier"},
		{"messages", `"tools":[{"type":"web_search_20250305","name":"web_search"}]`, "tools[0]", "tools"},
		{"messages", `"tools":[{"name":"f","input_schema":{}},{"type":"web_fetch_20250910","name":"web_fetch"}]`, "tools[1]", "tools"},
		{"messages", `"tools":[{"type":"code_execution_20250825","name":"code_execution"}]`, "tools[0]", "tools"},
		{"messages", `"tools":[{"name":"f","input_schema":{},"cache_control":{"type":"ephemeral","ttl":"1h"}}]`, "tools[0].cache_control.ttl", "cache_control"},
		{"messages", `"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]`, "system[0].cache_control.ttl", "cache_control"},
		{"messages", `"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral","TTL":"1h"}}]}]`, "messages[0].content[0].cache_control.ttl", "cache_control"},
		{"messages", `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a","cache_control":{"ttl":"1h"}}]}]}]`,
			"messages[2].content[0].content[0].cache_control.ttl", "cache_control"},
	} {
		for _, endpoint := range []string{"chat", "messages"} {
			if c.endpoint != "both" && c.endpoint != endpoint {
				continue
			}
			for _, stream := range []bool{false, true} {
				r := parse(t, endpoint, with(c.member, stream))
				err := r.Unpriced(nil, func(string, string) bool { return false })
				if f := fault.From(err); f == nil || f.Code != fault.InvalidRequest || f.HTTPStatus() != 400 || f.Param != c.param || !strings.Contains(f.Message, "eave ") || r.Unpriced(nil, nil) == nil {
					t.Errorf("%s with %s: %v, want a refusal of %q", endpoint, c.member, err, c.param)
				}
				if err := r.Unpriced(nil, func(name, _ string) bool { return name == c.pass }); err != nil {
					t.Errorf("%s with %s, passed: %v", endpoint, c.member, err)
				}
			}
		}
	}
}

func TestWhatCostsNothingMoreIsNotRefused(t *testing.T) {
	for endpoint, members := range map[string][]string{
		"chat": {
			`"service_tier":"auto"`, `"service_tier":"default"`, `"service_tier":"flex"`, `"models":[]`, `"prediction":{"type":"content","content":"a"}`,
			`"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"ttl":{"type":"string"}}}}}]`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]`,
		},
		"messages": {
			`"service_tier":"auto"`, `"service_tier":"standard_only"`,
			`"tools":[{"type":"bash_20250124","name":"bash"},{"type":"custom","name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object"}}]`,
			`"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"5m"}}]`,
		},
	} {
		for _, member := range members {
			if err := parse(t, endpoint, with(member, false)).Unpriced(nil, nil); err != nil {
				t.Errorf("%s with %s: %v", endpoint, member, err)
			}
		}
	}
}
