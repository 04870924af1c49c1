package gateway_test

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// A vendor may charge for a field of its own, or answer by something that no client can
// read. What the gateway does not know is therefore not sent where billing is prepaid.
func TestFieldsThatAreNotKnownAreLeftOutInPrepaidOnly(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"hi"}]`
	message := strings.Join(messageEvents, "")
	for _, wire := range []struct {
		name   string
		op     upstream.Op
		speaks upstream.Op // the vendor's
		answer string
		body   string // the members that are known
		sent   string // what the vendor gets of these; empty for the body
		extra  string // those that are not known
		names  []string
	}{
		{
			name: "chat", op: upstream.ChatCompletion, answer: chatAnswer(reported), body: `"model":"m","max_tokens":9,` + messages,
			extra: `"deferred":true,"web_search":{"enable":true},"enable_enhancement":true,"safety_model":"m","num_completions":3`,
			names: []string{"deferred", "web_search", "enable_enhancement", "safety_model", "num_completions"},
		},
		{
			name: "messages", op: upstream.Messages, answer: messageAnswer, body: `"model":"m","max_tokens":9,` + messages,
			extra: `"fallback_credit_token":"t","user_profile_id":"p"`, names: []string{"fallback_credit_token", "user_profile_id"},
		},
		{
			name: "messages, streamed", op: upstream.Messages, answer: message, body: `"model":"m","max_tokens":9,"stream":true,` + messages,
			extra: `"web_search":true`, names: []string{"web_search"},
		},
		{
			name: "chat, translated", op: upstream.ChatCompletion, speaks: upstream.Messages, answer: messageAnswer, body: `"model":"m","max_tokens":9,` + messages,
			extra: `"deferred":true`, names: []string{"deferred"}, sent: `"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`,
		},
		{
			name: "embeddings", op: upstream.Embeddings, answer: `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1]}],"model":"v","usage":{"prompt_tokens":1,"total_tokens":1}}`,
			body: `"model":"m","input":"hi","input_type":"query","dimensions":1`, extra: `"embedding_types":["int8","float"],"output_dtype":"binary"`, names: []string{"embedding_types", "output_dtype"},
		},
	} {
		all := `{` + wire.body + `,` + wire.extra + `}`
		without := `{` + cmp.Or(wire.sent, wire.body) + `}`
		for _, c := range []struct {
			name    string
			edit    func(*gateway.Options)
			channel router.Channel
			sent    string // empty if it depends on the channel
			told    string
		}{
			{"in prepaid", inPrepaid, router.Channel{}, without, strings.Join(wire.names, ", ")},
			{"passed", inPrepaid, router.Channel{Pass: wire.names}, all, ""},
			{"one is passed", inPrepaid, router.Channel{Pass: wire.names[:1]}, "", strings.Join(wire.names[1:], ", ")},
			{"renamed", inPrepaid, router.Channel{Rename: map[string]string{wire.names[0]: "of_the_vendor"}}, "", strings.Join(wire.names[1:], ", ")},
			{"counted billing", func(*gateway.Options) {}, router.Channel{}, all, ""},
		} {
			up := &scriptedUpstream{text: wire.answer}
			if wire.speaks != "" && c.sent != without {
				continue // the translation itself leaves it out
			}
			c.channel.Name, c.channel.Upstream, c.channel.Models = "c", answering{cmp.Or(wire.speaks, wire.op), up}, map[string]string{"m": "m"}
			h := newTestGateway(t, newRouter(t, c.channel), "1.00", c.edit)
			r, _ := h.complete(t, wire.op, all)
			if got := up.sent(t); c.sent != "" && got != c.sent || r.Header.Get("X-Gateway-Dropped") != c.told {
				t.Errorf("%s, %s: sent %s, told %q, want %s, %q", wire.name, c.name, got, r.Header.Get("X-Gateway-Dropped"), c.sent, c.told)
			}
		}
	}
}

// A request that is split leaves them out of each part.
func TestFieldsThatAreNotKnownAreLeftOutOfEachPart(t *testing.T) {
	var mu sync.Mutex // parts are sent at once
	var sent []string
	up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		body, err := c.Body.Bytes()
		mu.Lock()
		sent = append(sent, string(body))
		mu.Unlock()
		must(t, err)
		return vectorsFor(ctx, c)
	})
	h := newTestGateway(t, up, "1", func(o *gateway.Options) { inPrepaid(o); inBatches(1)(o) })
	r, err := h.do(t.Context(), upstream.Embeddings, `{"model":"m","embedding_types":["int8"],"input":["a","b"]}`)
	if err != nil || len(sent) != 2 || strings.Contains(strings.Join(sent, ""), "embedding_types") || r.Header.Get("X-Gateway-Dropped") != "embedding_types" {
		t.Errorf("sent %q, told %q, %v", sent, r.Header.Get("X-Gateway-Dropped"), err)
	}
}

// What SDKs and agents send besides the fields that have rules reaches the vendor, byte for
// byte.
func TestFieldsThatCostNothingMoreReachTheVendorInPrepaid(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"hi"}]`
	for name, c := range map[string]struct {
		op           upstream.Op
		answer, body string
	}{
		"OpenAI": {upstream.ChatCompletion, chatAnswer(reported), `{"model":"m",` + messages + `,"temperature":1,"top_p":1,"n":1,"max_completion_tokens":9,"stop":["END"],"presence_penalty":0,"frequency_penalty":0,` +
			`"seed":7,"logprobs":false,"top_logprobs":0,"logit_bias":{},"tools":[],"tool_choice":"auto","parallel_tool_calls":true,"functions":[],"function_call":"auto","response_format":{"type":"text"},` +
			`"reasoning_effort":"low","verbosity":"low","service_tier":"auto","store":false,"metadata":{"k":"v"},"prompt_cache_retention":"24h","modalities":["text"],"prediction":{"type":"content","content":"a"}}`},
		"vLLM":      {upstream.ChatCompletion, chatAnswer(reported), `{"model":"m",` + messages + `,"max_tokens":9,"top_k":1,"min_p":0.1,"repetition_penalty":1.1,"chat_template_kwargs":{"enable_thinking":false},"guided_json":{},"structured_outputs":{},"stop_token_ids":[1],"ignore_eos":false}`},
		"DashScope": {upstream.ChatCompletion, chatAnswer(reported), `{"model":"m",` + messages + `,"max_tokens":9,"enable_thinking":true,"thinking_budget":5,"enable_search":false,"translation_options":{"source_lang":"auto","target_lang":"English"},"vl_high_resolution_images":true}`},
		"Gemini":    {upstream.ChatCompletion, chatAnswer(reported), `{"model":"m",` + messages + `,"max_tokens":9,"extra_body":{"google":{"thinking_config":{"thinking_budget":0}}}}`},
		"Anthropic": {upstream.Messages, messageAnswer, `{"model":"m",` + messages + `,"max_tokens":2000,"system":"s","temperature":1,"top_p":1,"top_k":1,"stop_sequences":["END"],"tools":[],"tool_choice":{"type":"auto"},` +
			`"thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"low"},"output_format":{"type":"json_schema","schema":{}},"service_tier":"auto","cache_control":{"type":"ephemeral"},` +
			`"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]},"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["interleaved-thinking-2025-05-14"]}`},
		"Voyage": {upstream.Embeddings, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1]}],"model":"v","usage":{"prompt_tokens":1,"total_tokens":1}}`,
			`{"model":"m","input":"hi","encoding_format":"float","dimensions":1,"input_type":"query","truncation":true,"truncate":"END","task":"retrieval.query"}`},
	} {
		up := &scriptedUpstream{text: c.answer}
		h := newTestGateway(t, answering{c.op, up}, "1.00", inPrepaid)
		r, _ := h.complete(t, c.op, c.body)
		if got := up.sent(t); got != c.body || r.Header.Get("X-Gateway-Dropped") != "" {
			t.Errorf("%s: sent %s, told %q", name, got, r.Header.Get("X-Gateway-Dropped"))
		}
	}
}
