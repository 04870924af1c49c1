package gateway_test

import (
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// What a caller names its users and caches by is its account's own at the vendor, on each
// wire, translated too. Answers have the caller's own names again.
func TestANameOfTheCallersIsItsAccountsOwnAtTheVendor(t *testing.T) {
	const chat, message, response = `{"model":"m","max_tokens":9,"user":"u","messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","max_tokens":9,"metadata":{"user_id":"u"},"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"m","max_output_tokens":9,"user":"u","prompt_cache_key":"k","safety_identifier":"s","input":"hi"}`
	echoing := func(text string) string {
		return strings.ReplaceAll(text, `"model":"vendor-m"`, `"model":"vendor-m","user":"an alias","prompt_cache_key":"an alias","safety_identifier":"an alias"`)
	}
	for _, row := range []struct {
		name       string
		op, speaks upstream.Op
		body       string
		answer     string
		paths      []string // of what the vendor gets
	}{
		{"chat", upstream.ChatCompletion, upstream.ChatCompletion, chat, chatAnswer(reported), []string{"user"}},
		{"chat, translated", upstream.ChatCompletion, upstream.Messages, chat, messageAnswer, []string{"metadata.user_id"}},
		{"messages", upstream.Messages, upstream.Messages, message, messageAnswer, []string{"metadata.user_id"}},
		{"messages, translated", upstream.Messages, upstream.ChatCompletion, message, chatAnswer(reported), []string{"user"}},
		{"responses", upstream.Responses, upstream.Responses, response, echoing(responseAnswer), []string{"user", "prompt_cache_key", "safety_identifier"}},
		{"responses, streamed", upstream.Responses, upstream.Responses, strings.Replace(response, `"input"`, `"stream":true,"input"`, 1), echoing(strings.Join(responseEvents, "")), []string{"user", "prompt_cache_key", "safety_identifier"}},
		{"responses, translated", upstream.Responses, upstream.ChatCompletion, response, chatAnswer(reported), []string{"user"}},
	} {
		up := &scriptedUpstream{text: row.answer}
		h := newTestGateway(t, answering{row.speaks, up}, "9.00", func(o *gateway.Options) {})
		must(t, h.ledger.CreateAccount(t.Context(), "other", billing.One))
		sent := make(map[string][]string) // by path: what the vendor got, for each call
		for _, account := range []string{"local", "local", "other"} {
			r, err := h.do(asAccount(t, account), row.op, row.body)
			must(t, err)
			text, err := finish(r, nil)
			must(t, err)
			if strings.Contains(text, "an alias") || row.op == upstream.Responses && !strings.Contains(text, `"prompt_cache_key":"k"`) {
				t.Errorf("%s: answered %s", row.name, text)
			}
			for _, path := range row.paths {
				got := rawjson.LookupString([]byte(up.sent(t)), strings.Split(path, ".")...)
				if len(got) != 32 {
					t.Errorf("%s: %s is %q", row.name, path, got)
				}
				sent[path] = append(sent[path], got)
			}
		}
		for path, got := range sent {
			if got[0] != got[1] || got[0] == got[2] {
				t.Errorf("%s: %s of the calls of one account and another's is %q", row.name, path, got)
			}
		}
	}
}
