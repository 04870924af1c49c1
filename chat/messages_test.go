package chat

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// turns are messages, and the field of the last one that is refused.
var turns = []row{
	{`{"role":"system","content":"a"}`, ""},
	{`{"role":"developer","content":"a"}`, ""},
	{`{"role":"user","content":"a","name":"pat"}`, ""},
	{`{"role":"user","content":""}`, ""},
	{`{"role":"assistant","content":"a","reasoning_content":"b"}`, ""},
	{`{"role":"tool","content":"a","tool_call_id":"c"}`, ""},
	{`{"role":"tool","content":"a"}`, ""},
	{`{"role":"us\u0065r","content":"a"}`, ""},
	{`{"role":"user","content":"a","name":null,"tool_call_id":null,"tool_calls":null,"tools":null}`, ""},
	{`{"role":"user","content":"a","unknown":{"x":[1]}}`, ""},
	{`{"content":"a"}`, "role"},
	{`{"role":null,"content":"a"}`, "role"},
	{`{"role":"","content":"a"}`, "role"},
	{`{"role":"User","content":"a"}`, "role"},
	{`{"role":"function","content":"a"}`, "role"},
	{`{"role":1,"content":"a"}`, "role"},
	{`{"role":"user"}`, "content"},
	{`{"role":"user","content":null}`, "content"},
	{`{"role":"user","content":1}`, "content"},
	{`{"role":"user","content":{"type":"text","text":"a"}}`, "content"},
	{`{"role":"user","content":[]}`, "content"},
	{`{"role":"user","content":"a","name":1}`, "name"},
	{`{"role":"user","content":"a","tool_call_id":"c"}`, "tool_call_id"},
	{`{"role":"assistant","content":"a","tool_call_id":"c"}`, "tool_call_id"},
	{`{"role":"tool","content":"a","tool_call_id":1}`, "tool_call_id"},
	{`{"role":"tool","content":null,"tool_call_id":"c"}`, "content"},

	{`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`, ""},
	{`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`, ""},
	{`{"role":"assistant","content":"a","tool_calls":[]}`, ""},
	{`{"role":"assistant","content":null,"tool_calls":[]}`, "content"},
	{`{"role":"assistant","content":null}`, "content"},
	{`{"role":"assistant"}`, "content"},
	{`{"role":"user","tool_calls":[{"id":"c"}]}`, "content"},
	{`{"role":"assistant","tool_calls":{}}`, "tool_calls"},
	{`{"role":"assistant","tool_calls":["c"]}`, "tool_calls[0]"},

	{`{"role":"system","tools":[{"type":"function","function":{"name":"late"}}]}`, ""},
	{`{"role":"system","tools":[],"content":null}`, ""},
	{`{"role":"system","tools":{}}`, "content"},
	{`{"role":"system"}`, "content"},
	{`{"role":"user","tools":[]}`, "content"},

	{`{"role":"user","content":["a"]}`, "content[0]"},
	{`{"role":"user","content":[null]}`, "content[0]"},
}

// blocks are content blocks, and the field of the block that is refused.
var blocks = []row{
	{`{"type":"text","text":"a"}`, ""},
	{`{"type":"text","text":""}`, ""},
	{`{"type":"text"}`, ".text"},
	{`{"type":"text","text":null}`, ".text"},
	{`{"type":"text","text":1}`, ".text"},
	{`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`, ""},
	{`{"type":"image_url","image_url":{"url":"http://example.com/a.png","detail":"low"}}`, ""},
	{`{"image_url":{"url":"https:\/\/example.com\/a.png"},"type":"image_url"}`, ""},
	{`{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0"}}`, ""},
	{`{"type":"image_url","image_url":{"url":"DATA:image/png;base64,iVBORw0"}}`, ""},
	{`{"type":"image_url","image_url":{"url":"ms://file-1"}}`, ""},
	{`{"type":"image_url","image_url":{"url":"data:nothing"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":"/a.png"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":"https:///a.png"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":"javascript:1,2"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":"https://example.com/\u0000"}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":""}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{"url":null}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":{}}`, ".image_url.url"},
	{`{"type":"image_url","image_url":"https://example.com/a.png"}`, ".image_url.url"},
	{`{"type":"image_url"}`, ".image_url.url"},
	{`{"type":"image_url","video_url":{}}`, ".video_url"},
	{`{"type":"text","text":"hi","image_url":{"url":"https://a.test/p.png"}}`, ".image_url"},
	{`{"type":"text","text":"hi","image_url":null}`, ""},
	{`{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}`, ""},
	{`{"type":"video_url","video_url":{"url":1}}`, ".video_url.url"},
	{`{"type":"audio_url","audio_url":{"url":"https://example.com/a.mp3"}}`, ""},
	{`{"type":"audio_url","audio_url":{}}`, ".audio_url.url"},
	{`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`, ""},
	{`{"type":"input_audio"}`, ".input_audio"},
	{`{"type":"input_audio","input_audio":"AAAA"}`, ".input_audio"},
	{`{"type":"file","file":{"file_id":"f"}}`, ""},
	{`{"type":"file","file":null}`, ".file"},
	{`{"type":"refusal","refusal":"no"}`, ".type"},
	{`{"type":"Text","text":"a"}`, ".type"},
	{`{"type":1,"text":"a"}`, ".type"},
	{`{"text":"a"}`, ".type"},
	{`{}`, ".type"},
}

func TestEveryMessageIsChecked(t *testing.T) {
	for _, row := range turns {
		want := row.param
		if want != "" {
			want = "messages[1]." + want
		}
		got, message := problem(t, `{"model":"m","messages":[{"role":"user","content":"hi"},`+row.members+`]}`)
		if got != want {
			t.Errorf("%s: refused for %q (%s), want %q", row.members, got, message, want)
		}
	}
}

func TestEveryContentBlockIsChecked(t *testing.T) {
	for _, row := range blocks {
		want := row.param
		if want != "" {
			want = "messages[0].content[1]" + want
		}
		got, message := problem(t, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},`+row.members+`]}]}`)
		if got != want {
			t.Errorf("%s: refused for %q (%s), want %q", row.members, got, message, want)
		}
	}
}

func TestALinkIsAtMostEightKiBLongUnlessItHoldsTheData(t *testing.T) {
	for url, want := range map[string]string{
		"https://example.com/" + strings.Repeat("a", 8192-20): "",
		"https://example.com/" + strings.Repeat("a", 8192):    "messages[0].content[0].image_url.url",
		"data:image/png;base64," + strings.Repeat("a", 9000):  "",
	} {
		got, _ := problem(t, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"`+url+`"}}]}]}`)
		if got != want {
			t.Errorf("%d bytes: refused for %q, want %q", len(url), got, want)
		}
	}
}

func TestMessagesAreReadAsTheyStand(t *testing.T) {
	r, err := Parse([]byte(`{"model":"m","messages":[
		{"role":"system","content":"Be brief.","name":"ops"},
		{"role":"user","content":[{"type":"text","text":"What "},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},{"type":"text","text":"is it?"}]},
		{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c:0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
		{"role":"tool","tool_call_id":"c:0","content":"r\u00e9sult"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	type turn struct{ Role, Name, Text, Thoughts, CallID string }
	var got []turn
	for _, m := range r.Messages {
		got = append(got, turn{m.Role, m.Name, m.Content.String(), m.ReasoningContent, m.ToolCallID})
	}
	want := []turn{
		{"system", "ops", "Be brief.", "", ""},
		{"user", "", "What is it?", "", ""},
		{"assistant", "", "", "hm", ""},
		{"tool", "", "résult", "", "c:0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	call := []ToolCall{{ID: "c:0", Type: "function", Function: CalledFunction{Name: "f", Arguments: `{"a":1}`}}}
	if diff := cmp.Diff(call, r.Messages[2].ToolCalls); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	parts, err := r.Messages[1].Content.Parts()
	if err != nil || len(parts) != 3 || parts[1].ImageURL.URL != "https://example.com/a.png" {
		t.Errorf("%+v, %v", parts, err)
	}
}
