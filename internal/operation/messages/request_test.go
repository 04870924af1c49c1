package messages

import (
	"bytes"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/messages"
)

var update = flag.Bool("update", false, "write the golden files anew")

// full is the vendor's page: a request with every field.
const full = `{"model":"m-large","max_tokens":4096,` +
	`"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral","ttl":"5m"}}],` +
	`"messages":[{"role":"user","content":[` +
	`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBOR"}},` +
	`{"type":"image","source":{"type":"url","url":"https://files.example/p.png"}},` +
	`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi"},"title":"t"},` +
	`{"type":"text","text":"Compare."}]},` +
	`{"role":"assistant","content":[{"type":"thinking","thinking":"…","signature":"sig"},{"type":"tool_use","id":"toolu_1","name":"lookup","input":{"q":"cat"}}]},` +
	`{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"a small mammal","is_error":false}],"x":1.0}],` +
	`"temperature":1,"top_p":0.9,"top_k":40,"stop_sequences":["END"],"stream":true,` +
	`"tools":[{"name":"lookup","description":"find a fact","input_schema":{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}}],` +
	`"tool_choice":{"type":"auto","disable_parallel_tool_use":false},"thinking":{"type":"enabled","budget_tokens":2048},` +
	`"output_config":{"effort":"high"},"metadata":{"user_id":"u1"},"service_tier":"auto","betas":["a"]}`

func TestTheViewHasEveryField(t *testing.T) {
	r := valid(t, full)
	view, err := json.Marshal(r.Request)
	want := strings.NewReplacer(`,"betas":["a"]`, "", `,"disable_parallel_tool_use":false`, "").Replace(full)
	if diff := cmp.Diff(want, string(view)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if string(r.Field("betas")) != `["a"]` || r.Field("x") != nil || string(r.Source()) != full {
		t.Errorf("%s, %s", r.Field("betas"), r.Field("x"))
	}
}

func TestARequestMadeInGoObeysTheSameRules(t *testing.T) {
	zero, top := 0.5, int64(3)
	typed := &messages.Request{
		Model: "m", MaxTokens: 4096, System: messages.Text("s"), Temperature: &zero, TopK: &top, StopSequences: []string{"a"}, Stream: true,
		Messages: []messages.Message{
			{Role: "user", Content: messages.Blocks(messages.Block{Type: "text"}, messages.Block{Type: "search_result", Extra: jsontext.Value(`{"source":"https://a","title":"t","content":[]}`)})},
			{Role: "assistant", Content: messages.Blocks(messages.Block{Type: "thinking"}, messages.Block{Type: "tool_use", ID: "t", Name: "f"})},
		},
		Thinking: &messages.Thinking{Type: "adaptive"}, Extra: jsontext.Value(`{"betas":["a"]}`),
	}
	r, err := Encode(typed)
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"m","max_tokens":4096,"system":"s","messages":[` +
		`{"role":"user","content":[{"type":"text","text":""},{"type":"search_result","source":"https://a","title":"t","content":[]}]},` +
		`{"role":"assistant","content":[{"type":"thinking","thinking":""},{"type":"tool_use","id":"t","name":"f","input":{}}]}],` +
		`"temperature":0.5,"top_k":3,"stop_sequences":["a"],"stream":true,"thinking":{"type":"adaptive"},"betas":["a"]}`
	if diff := cmp.Diff(want, string(r.Source())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	typed.MaxTokens = 0
	if r, err = Encode(typed); err != nil || r.Validate() == nil {
		t.Errorf("no max_tokens: %v", err)
	}
	if r, err = EncodeCount(typed); err != nil || r.Validate() != nil {
		t.Errorf("a count without max_tokens: %v", err)
	}
	if typed.Field("betas") == nil {
		t.Error("the field of a typed request is not found")
	}
}

// ownedEdits are the edits that the gateway makes on the way to an upstream
// by itself. Those of the router are not among them.
var ownedEdits = []struct {
	name, body string
	most       int64
}{
	{"nothing", `{"model":"m","max_tokens":5000,"stream":true}`, 0},
	{"a cap on max_tokens", `{"max_tokens": 5000, "model":"m", "x":1.0}`, 100},
	{"nothing where less is asked", `{"max_tokens":50,"model":"m"}`, 100},
	{"nothing where as much is asked", `{"max_tokens":100,"model":"m"}`, 100},
	{"a cap in a stream", "{\n  \"stream\": true,\n  \"max_tokens\": 9\n}", 3},
	{"thinking left out where the cap is below the least budget", `{"max_tokens":5000, "thinking":{"type":"enabled","budget_tokens":1024}, "x":1.0}`, 100},
	{"thinking left out where the cap is the least budget", `{"max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":1024}}`, 1024},
	{"the least budget", `{"max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":1025}}`, 1025},
	{"a budget below the cap", `{"max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":1999}}`, 2000},
	{"a budget that is the cap", `{"thinking":{"type":"enabled", "budget_tokens" : 2000, "display":"omitted"}, "max_tokens":5000}`, 2000},
	{"a budget above the cap", `{"max_tokens":5000,"thinking":{"budget_tokens":4999,"type":"enabled"}}`, 2000},
	{"adaptive thinking", `{"max_tokens":5000,"thinking":{"type":"adaptive","budget_tokens":4999}}`, 100},
	{"thinking where nothing is capped", `{"max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":4999}}`, 5000},
}

func TestTheOwnedEditsAreTheseAndNoOther(t *testing.T) {
	var b bytes.Buffer
	for _, e := range ownedEdits {
		r := parse(t, e.body)
		data, err := r.Outgoing(e.most).Body.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s", e.name)
		if e.most > 0 {
			fmt.Fprintf(&b, " (balance affords %d)", e.most)
		}
		one := strings.NewReplacer("\n", "⏎")
		fmt.Fprintf(&b, "\ncaller   %s\nupstream %s\n\n", one.Replace(e.body), one.Replace(string(data)))
		sent, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		limited := r.Limited(e.most)
		if sent.MaxTokens != limited.MaxTokens || !cmp.Equal(sent.Thinking, limited.Thinking) {
			t.Errorf("%s: a model in Go is limited to %d tokens, thinking %+v", e.name, limited.MaxTokens, limited.Thinking)
		}
		var lost []string
		if r.Thinking != nil && sent.Thinking == nil {
			lost = []string{"thinking"}
		}
		if diff := cmp.Diff(lost, r.Outgoing(e.most).Omitted); diff != "" {
			t.Errorf("%s: left out (-want +got)\n%s", e.name, diff)
		}
		if th := sent.Thinking; th != nil && th.Type == "enabled" && (th.BudgetTokens < leastBudget || th.BudgetTokens >= sent.MaxTokens) {
			t.Errorf("%s: the vendor refuses a budget of %d", e.name, th.BudgetTokens)
		}
	}
	capabilitytest.Golden(t, *update, "owned_edits.golden", b.Bytes())
}

func TestTheInputBoundIsABodysBytesAndItsMedia(t *testing.T) {
	const link, data = `"https://example.com/a"`, `"AAAA"`
	image := `{"type":"image","source":{"type":"url","url":` + link + `}}`
	pdf := `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":` + data + `}}`
	for _, row := range []struct {
		blocks string
		b      chat.MediaBound
		hidden int // bytes that are not text
		more   int64
		linked int64 // what media by URL or id may be counted as beside that
	}{
		{`{"type":"text","text":"hi"}`, chat.MediaBound{}, 0, 0, 0},
		{image, chat.MediaBound{}, len(link), 2_000, 19 * 2_000},
		{image + "," + image, chat.MediaBound{Image: 7}, 2 * len(link), 14, 19 * 14},
		{pdf, chat.MediaBound{Image: 7}, len(data), 50_000, 0},
		{pdf, chat.MediaBound{Video: 9}, len(data), 9, 0},
		{`{"type":"image","source":{"type":"file","file_id":"f"}}`, chat.MediaBound{Image: 5}, 3, 5, 19 * 5},
		{`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"words"}}`, chat.MediaBound{}, 0, 0, 0},
		{`{"type":"document","source":{"type":"content","content":[` + image + `]}}`, chat.MediaBound{Image: 7}, len(link), 7, 19 * 7},
		{`{"type":"tool_result","tool_use_id":"t","content":[` + image + `,` + pdf + `]}`, chat.MediaBound{Image: 7, Video: 9}, len(link) + len(data), 16, 19 * 7},
		{`{"type":"novel","content":[` + image + `]}`, chat.MediaBound{Image: 7}, len(link), 7, 19 * 7},
		{`{"type":"tool_use","id":"t","name":"f","input":{"source":{"type":"base64","data":"AAAA"}}}`, chat.MediaBound{}, 0, 0, 0},
	} {
		body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[` + row.blocks + `]}]}`
		r := valid(t, body)
		capabilitytest.Bounded(t, row.blocks, r, row.b, int64(len(body)-row.hidden)+row.more, row.more)
		if got := r.LinkedBound(row.b); got != row.linked {
			t.Errorf("%s: %d tokens more, want %d", row.blocks, got, row.linked)
		}
	}
}

func TestAnEstimateCountsWhatThePromptHolds(t *testing.T) {
	count := func(content, members string) int64 {
		t.Helper()
		r := parse(t, `{"model":"m","messages":[{"role":"user","content":`+content+`}]`+members+`}`)
		return r.InputEstimate(chat.MediaBound{})
	}
	short := count(`"hi"`, "")
	for name, more := range map[string]int64{
		"longer text": count(`"`+strings.Repeat("word", 10)+`"`, ""),
		"a system":    count(`"hi"`, `,"system":"Be brief and to the point."`),
		"tools":       count(`"hi"`, `,"tools":[{"name":"lookup","description":"finds a fact"}]`),
		"a message":   count(`"hi"},{"role":"assistant","content":"hi"`, ""),
	} {
		if more <= short {
			t.Errorf("%s: %d tokens, without it %d", name, more, short)
		}
	}
	const tools, inChat = 100, `{"type":"function","function":{"name":"f"}}` // a translation puts each into an object
	many := strings.TrimSuffix(strings.Repeat(`{"name":"f"},`, tools), ",")
	if got, want := count(`"hi"`, `,"tools":[`+many+`]`), int64(tools*len(inChat)/4); got < want || got > want*3/2 {
		t.Errorf("%d tools are estimated as %d tokens, and have %d in chat", tools, got, want)
	}
	if got := string(CountAnswer(42)); got != `{"input_tokens":42}` {
		t.Error(got)
	}
}

func TestTheTextOfManyBlocksTakesMemoryInProportion(t *testing.T) {
	capabilitytest.TextInProportion(t, func(n int, text string) fmt.Stringer {
		return messages.Blocks(slices.Repeat([]messages.Block{{Type: "text", Text: text}}, n)...)
	})
}

// outlined are requests of every kind of content.
var outlined = []string{
	`{"model":"public","max_tokens":50,"stream":true,"system":"Be brief.","messages":[{"role":"user","content":"Wie spät ist es in 東京?"}]}`,
	`{"model":"public","max_tokens":50,"stream":true,"tools":[{"name":"f","description":"does it","input_schema":{"type":"object"}}],` +
		`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://a.test/p.png"}},{"type":"text","text":"What is it?"}]}]}`,
}

func TestASummaryCountsAsTheRequestDoes(t *testing.T) {
	for _, text := range outlined {
		r := parse(t, text)
		o, b := r.Summary(), chat.MediaBound{Image: 7, Video: 9}
		if r.InputBound(b) <= 0 || r.InputEstimate(b) <= 0 || o.InputBound(b) != r.InputBound(b) || o.InputEstimate(b) != r.InputEstimate(b) || o.LinkedBound(b) != r.LinkedBound(b) {
			t.Errorf("%s: %d and %d tokens, of the outline %d and %d", text, r.InputBound(b), r.InputEstimate(b), o.InputBound(b), o.InputEstimate(b))
		}
		if o.Model != r.Model || o.MaxTokens != r.MaxTokens || o.Stream != r.Stream || o.Source() != nil || o.Body.IsObject() || o.Messages != nil || o.Tools != nil {
			t.Errorf("%s: the outline is %+v", text, o)
		}
	}
}
