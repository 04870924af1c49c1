package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestAChannelThatSpeaksOnlyResponsesServesTheOtherWires has the calls paid as the vendor
// counted, whole and streamed.
func TestAChannelThatSpeaksOnlyResponsesServesTheOtherWires(t *testing.T) {
	const (
		completion = `{"model":"m","max_tokens":50,"seed":1,"messages":[{"role":"user","content":"hi"}]`
		message    = `{"model":"m","max_tokens":50,"top_k":1,"messages":[{"role":"user","content":"hi"}]`
	)
	for _, row := range []struct {
		name, path, body string
		want, dropped    string
	}{
		{"a completion", "/v1/chat/completions", completion + `}`, `"content":"Hé."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":7`, "seed"},
		{"a streamed completion", "/v1/chat/completions", completion + `,"stream":true,"stream_options":{"include_usage":true}}`, `"delta":{"content":"Hé."}`, "seed"},
		{"a message", "/v1/messages", message + `}`, `"content":[{"type":"text","text":"Hé."}],"stop_reason":"end_turn"`, "top_k"},
		{"a streamed message", "/v1/messages", message + `,"stream":true}`, `"delta":{"type":"text_delta","text":"Hé."}`, "top_k"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var path, sent string
			up, _ := responsesVendor(t, func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				if path, sent = r.URL.Path, string(data); strings.Contains(sent, `"stream":true`) {
					responds(200, eventsType, begunResponse+restOfResponse)(w, r)
				} else {
					responds(200, jsonType, wholeResponse)(w, r)
				}
			})
			s := newFixture(t, fixtureOptions{upstream: up})
			before := s.posted(t)
			a := s.do(t, "POST", row.path, row.body)
			if a.status != 200 || !strings.Contains(a.body, row.want) || a.header.Get("X-Gateway-Dropped") != row.dropped {
				t.Errorf("%d, dropped %q\n%s\nwant %s", a.status, a.header.Get("X-Gateway-Dropped"), a.body, row.want)
			}
			if path != "/v1/responses" || !strings.Contains(sent, `"max_output_tokens":50`) || !strings.Contains(sent, `"store":false`) {
				t.Errorf("the vendor got %s %s", path, sent)
			}
			if strings.Contains(a.body, "resp_") || strings.Contains(a.body, "vendor-m") {
				t.Errorf("the answer has what is of the other wire: %s", a.body)
			}
			if paid := before - s.posted(t); paid != 10*1000+7*2000 {
				t.Errorf("paid %s", paid)
			}
		})
	}
}

func TestARefusalOfAChannelThatSpeaksOnlyResponsesIsInTheCallersForm(t *testing.T) {
	for path, want := range map[string]string{"/v1/chat/completions": `{"error":{"message":`, "/v1/messages": `{"type":"error","error":{"type":`} {
		t.Run(path, func(t *testing.T) {
			up, asked := responsesVendor(t, responds(400, jsonType, `{"error":{"message":"no","type":"invalid_request_error","param":"input","code":null}}`))
			s := newFixture(t, fixtureOptions{upstream: up})
			before := s.posted(t)
			for body, calls := range map[string]int64{
				`{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`:                                       1,
				`{"model":"m","max_tokens":50,"stop":"END","stop_sequences":["END"],"messages":[{"role":"user","content":"hi"}]}`: 0, // which no vendor is asked for
			} {
				asked.Store(0)
				a := s.do(t, "POST", path, body)
				if a.status != 400 || !strings.HasPrefix(a.body, want) || asked.Load() != calls {
					t.Errorf("%d after %d calls: %s", a.status, asked.Load(), a.body)
				}
				if calls == 0 && !strings.Contains(a.body, "stop") {
					t.Errorf("it does not say what is wrong: %s", a.body)
				}
			}
			if paid := before - s.posted(t); paid != 0 {
				t.Errorf("paid %s", paid)
			}
		})
	}
}
