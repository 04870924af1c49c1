package responses

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/responses"
)

// parse reads a body that must be JSON.
func parse(t testing.TB, body string) *Request {
	t.Helper()
	r, err := Parse([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// with is a request with more fields.
func with(fields string) string { return `{"model":"m","input":"x",` + fields + `}` }

// of is a request with an input of these items.
func of(items string) string { return `{"model":"m","input":[` + items + `]}` }

func TestTheFirstBadFieldIsNamed(t *testing.T) {
	for body, param := range map[string]string{
		`{"input":"x"}`:                                              "model",
		`{"model":"m"}`:                                              "input",
		`{"model":"m","input":null}`:                                 "input",
		`{"model":"m","input":""}`:                                   "input",
		`{"model":"m","input":[]}`:                                   "input",
		`{"model":"m","input":7}`:                                    "input",
		with(`"instructions":["x"]`):                                 "instructions",
		with(`"max_output_tokens":0`):                                "max_output_tokens",
		with(`"max_output_tokens":1.5`):                              "max_output_tokens",
		with(`"stream":"yes"`):                                       "stream",
		with(`"stream_options":true`):                                "stream_options",
		with(`"temperature":2.1`):                                    "temperature",
		with(`"top_p":-0.1`):                                         "top_p",
		with(`"top_logprobs":21`):                                    "top_logprobs",
		with(`"parallel_tool_calls":1`):                              "parallel_tool_calls",
		with(`"reasoning":"high"`):                                   "reasoning",
		with(`"reasoning":{"effort":1}`):                             "reasoning.effort",
		with(`"text":{"verbosity":"loud"}`):                          "text.verbosity",
		with(`"text":{"format":"json"}`):                             "text.format",
		with(`"text":{"format":{}}`):                                 "text.format.type",
		with(`"text":{"format":{"type":"xml"}}`):                     "text.format.type",
		with(`"text":{"format":{"type":"json_schema","schema":{}}}`): "text.format.name",
		with(`"text":{"format":{"type":"json_schema","name":"n"}}`):  "text.format.schema",
		with(`"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"odd"}}}`): "text.format.schema",
		with(`"include":"x"`):                                             "include",
		with(`"store":1`):                                                 "store",
		with(`"truncation":"some"`):                                       "truncation",
		with(`"service_tier":1`):                                          "service_tier",
		with(`"prompt_cache_key":1`):                                      "prompt_cache_key",
		with(`"max_tool_calls":0`):                                        "max_tool_calls",
		with(`"metadata":[]`):                                             "metadata",
		with(`"metadata":{"a":1}`):                                        "metadata",
		with(`"metadata":{"` + strings.Repeat("k", 65) + `":"v"}`):        "metadata",
		with(`"metadata":{"k":"` + strings.Repeat("v", 513) + `"}`):       "metadata",
		with(`"metadata":{` + pairs(17) + `}`):                            "metadata",
		with(`"tools":{}`):                                                "tools",
		with(`"tools":[1]`):                                               "tools[0]",
		with(`"tools":[{"name":"f"}]`):                                    "tools[0].type",
		with(`"tools":[{"type":""}]`):                                     "tools[0].type",
		with(`"tools":[{"type":"function"}]`):                             "tools[0].name",
		with(`"tools":[{"type":"function","name":"f","parameters":"x"}]`): "tools[0].parameters",
		with(`"tools":[{"type":"function","name":"f","name":"g"}]`):       "tools[0]",
		with(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"custom"}]}]`):               "tools[0].tools[0].name",
		with(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"namespace","name":"o"}]}]`): "tools[0].tools[0].type",
		with(`"tool_choice":"maybe"`):      "tool_choice",
		with(`"tool_choice":{"name":"f"}`): "tool_choice",
		with(`"background":true`):          "background",
		with(`"conversation":"conv_1"`):    "conversation",
		with(`"prompt":{"id":"p"}`):        "prompt",
		with(`"context_management":[]`):    "context_management",
		with(`"moderation":{}`):            "moderation",

		of(`7`):                             "input[0]",
		of(`{}`):                            "input[0].type",
		of(`{"role":"tool","content":"x"}`): "input[0].role",
		of(`{"role":"user"}`):               "input[0].content",
		of(`{"role":"user","content":7}`):   "input[0].content",
		of(`{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"f"}`):     "input[1].arguments",
		of(`{"type":"function_call","name":"f","arguments":"{}"}`):                                "input[0].call_id",
		of(`{"type":"function_call","call_id":"c","name":"f","arguments":1}`):                     "input[0].arguments",
		of(`{"type":"function_call_output","call_id":"c"}`):                                       "input[0].output",
		of(`{"type":"custom_tool_call","call_id":"c","name":"f"}`):                                "input[0].input",
		of(`{"type":"reasoning","summary":"x"}`):                                                  "input[0].summary",
		of(`{"type":"additional_tools","tools":[{"type":"function"}]}`):                           "input[0].tools[0].name",
		of(`{"type":"item_reference"}`):                                                           "input[0].id",
		of(`{"role":"user","content":[{"type":"input_text"}]}`):                                   "input[0].content[0].text",
		of(`{"role":"user","content":[{"type":"input_text","text":7}]}`):                          "input[0].content[0].text",
		of(`{"role":"user","content":[{"type":"input_image"}]}`):                                  "input[0].content[0].image_url",
		of(`{"role":"user","content":[{"type":"input_image","image_url":"file:///etc/passwd"}]}`): "input[0].content[0].image_url",
		of(`{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"wav"}}]}`):   "input[0].content[0].input_audio",
		of(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_file"}]}`):      "input[0].output[0].file_data",
	} {
		err := parse(t, body).Validate()
		f := fault.From(err)
		if f == nil || f.Param != param || f.HTTPStatus() != 400 || f.Message == "" {
			t.Errorf("%s: %v (%+v), want a 400 about %s", body, err, f, param)
		}
	}
}

func pairs(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return strings.Join(all, ",")
}

func TestWhatIsAllowedIsNotRefused(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","input":"x","instructions":"y","max_output_tokens":1,"temperature":2,"top_p":0,"top_logprobs":20,"stream":true,"store":true,"user":"u","truncation":"auto","include":["a"],"metadata":{` + pairs(16) + `}}`,
		`{"model":"m","input":null,"previous_response_id":"resp_1"}`,
		with(`"background":false,"conversation":null,"prompt":null,"context_management":null,"moderation":null`),
		with(`"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object"}},"verbosity":"low"}`),
		with(`"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]},"tools":[]`),
		with(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"exec","format":{"type":"grammar"}}]},{"type":"tool_search","execution":"client","description":"d","parameters":{}},{"type":"web_search","external_web_access":false}]`),
		with(`"x_new":{"a":1},"client_metadata":{"thread_id":"t"}`),
		of(`{"role":"developer","content":"x"},{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}`),
		of(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null},{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"","status":"completed"},{"type":"function_call_output","id":"fco_1","call_id":"c","output":""}`),
		of(`{"type":"tool_search_call","call_id":"c","execution":"client","arguments":{"q":1}},{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AAAA"}},{"type":"odd","x":[1]}`),
		of(`{"type":"image_generation_call","id":"ig_1","status":"completed","result":"AAAA"}`),
		of(`{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{"name":"f","input_schema":{}}]},{"type":"mcp_call","id":"mcp_1","name":"f","arguments":"{}","output":"x","server_label":"s"}`),
		of(`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"x"}},{"type":"shell_call_output","call_id":"c","output":[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}]},{"type":"tool_search_call","call_id":null,"execution":"server","arguments":{}}`),
		of(`{"type":"message","role":"assistant","id":"msg_1","status":"completed","phase":"final_answer","content":[{"type":"output_text","text":"x","annotations":[{"type":"file_citation","file_id":"f"}],"logprobs":[]},{"type":"refusal","refusal":"no"}]}`),
		of(`{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"https://x.example/a.png"}]}`),
	} {
		if err := parse(t, body).Validate(); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if err := must(ParseCount([]byte(body))).Validate(); err != nil {
			t.Errorf("to count, %s: %v", body, err)
		}
	}
	if r := must(ParseCount([]byte(with(`"stream":"yes"`)))); r.Validate() != nil || r.Stream {
		t.Error("a count of tokens streams")
	}
}

func must(r *Request, err error) *Request {
	if err != nil {
		panic(err)
	}
	return r
}

func TestWhatIsNotStoredIsRefusedWithAdvice(t *testing.T) {
	for _, c := range []struct {
		body  string
		code  fault.Code
		param string
	}{
		{`{"model":"m","previous_response_id":"resp_1"}`, fault.ResponseNotFound, "previous_response_id"},
		{of(`{"role":"user","content":"x"},{"type":"item_reference","id":"msg_1"}`), fault.ItemNotFound, "input[1].id"},
		{of(`{"type":"image_generation_call","id":"ig_1","status":"completed","result":null}`), fault.ItemNotFound, "input[0].id"},
		{of(`{"id":"msg_1"}`), fault.ItemNotFound, "input[0].id"},
	} {
		r := parse(t, c.body)
		r.RefuseState()
		f := fault.From(r.Validate())
		if f == nil || f.Code != c.code || f.HTTPStatus() != 400 || f.Param != c.param || f.Retry != fault.RetryNo || !strings.Contains(f.Message, "openai.store") {
			t.Errorf("%s: %+v", c.body, f)
		}
	}
	r := parse(t, `{"model":"m","input":"x","store":true}`)
	if r.RefuseState(); r.Validate() != nil {
		t.Error("store alone is refused, which SDKs send unasked")
	}
}

func TestBodiesAreStrict(t *testing.T) {
	for _, body := range []string{
		`[]`, `{"model":"m","model":"n","input":"x"}`, `{"model":"m","Input":"x"}`, `{"model":"m","input":"x","Max_Output_Tokens":5}`,
		`{"model":"m","input":"x","text":{"format":{},"format":{}}}`, of(`{"role":"user","role":"user","content":"x"}`),
		of(`{"role":"user","Content":"x"}`), of(`{"role":"user","content":[{"type":"input_image","image_url":"a","image_url":"b"}]}`),
		of(`{"role":"user","content":"x"}`) + "x", `{"model":"m","input":"x","Previous_Response_Id":"r"}`,
	} {
		if _, err := Parse([]byte(body)); fault.From(err).HTTPStatus() != 400 {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestWhatIsNotTextIsBoundedApart(t *testing.T) {
	const mebibyte = 1 << 20
	long := strings.Repeat("A", mebibyte)
	b := chat.MediaBound{Image: 1_000, Video: 10_000}
	user := func(part string) string { return of(`{"role":"user","content":[` + part + `]}`) }
	for name, c := range map[string]struct {
		body        string
		images      int64
		files       int64
		linkedAbove int64 // of the linked bound
	}{
		"a picture in the body":     {user(`{"type":"input_image","image_url":"data:image/png;base64,` + long + `"}`), 1, 0, 0},
		"a picture by its address":  {user(`{"type":"input_image","image_url":"https://x.example/a.png"}`), 1, 0, 19_000},
		"a picture by its id":       {user(`{"type":"input_image","file_id":"file-1"}`), 1, 0, 19_000},
		"a picture in an output":    {of(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:image/png;base64,` + long + `"}]}`), 1, 0, 0},
		"a screen":                  {of(`{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,` + long + `"}}`), 1, 0, 0},
		"a file in the body":        {user(`{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,` + long + `"}`), 0, 1, 190_000},
		"a file by its address":     {user(`{"type":"input_file","file_url":"https://x.example/a.pdf"}`), 0, 1, 190_000},
		"an address as a content":   {user(`{"type":"input_file","file_data":"https://x.example/a.pdf"}`), 0, 1, 190_000},
		"a sound":                   {user(`{"type":"input_audio","input_audio":{"data":"` + long + `","format":"wav"}}`), 0, 1, 38_000},
		"a sound by its address":    {user(`{"type":"input_audio","input_audio":{"data":"https://x.example/a.wav","format":"wav"}}`), 0, 1, 190_000},
		"a part of an unknown type": {user(`{"type":"input_video","video_url":"https://x.example/a.mp4"}`), 0, 1, 190_000},
	} {
		r := parse(t, c.body)
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, media := r.InputBound(b), c.images*b.Image+c.files*b.Video
		if got < media || got > media+1_000 {
			t.Errorf("%s: bound %d, want %d and what stands around it", name, got, media)
		}
		if got := r.LinkedBound(b); got != c.linkedAbove && c.linkedAbove != 38_000 || c.linkedAbove == 38_000 && got == 0 {
			t.Errorf("%s: linked bound %d, want %d", name, got, c.linkedAbove)
		}
	}
}

func TestAToolThatGrowsInTranslationIsBounded(t *testing.T) {
	without, b := parse(t, with(`"tools":[{"type":"custom","name":"a"}]`)), chat.MediaBound{}
	with := parse(t, with(`"tools":[{"type":"custom","name":"a"},{"type":"custom","name":"b"}]`))
	const schema = 40 // tokens of what a custom tool has in chat
	if more := with.InputBound(b) - without.InputBound(b); more < int64(len(`,{"type":"custom","name":"b"}`))+schema {
		t.Errorf("a second tool raises the bound by %d", more)
	}
}

func TestWhatATranslationAddsToAToolIsEstimated(t *testing.T) {
	b := chat.MediaBound{}
	estimate := func(tools string) int64 { return parse(t, with(`"tools":[`+tools+`]`)).InputEstimate(b) }
	tool := func(i int, rest string) string { return fmt.Sprintf(`{"name":"f%d"%s}`, i, rest) }
	for _, c := range []struct {
		rest, before, after string
		inChat              string // what it has there at the least
	}{
		{`,"type":"function"`, "", "", `{"type":"function","function":{"name":"f0","parameters":{"type":"object","properties":{}}}}`},
		{`,"type":"function","parameters":{"type":"object"}`, "", "", `{"type":"function","function":{"name":"f0","parameters":{"type":"object"}}}`},
		{`,"type":"custom"`, "", "", `{"type":"function","function":{"name":"f0","parameters":{"type":"object","properties":{"input":{"type":"string","description":"The raw input of this tool, verbatim."}},"required":["input"],"additionalProperties":false}}}`},
		{`,"type":"function","parameters":{"type":"object"}`, `{"type":"namespace","name":"a_long_name_of_a_namespace","tools":[`, `]}`, `{"type":"function","function":{"name":"a_long_name_of_a_namespace__f0","parameters":{"type":"object"}}}`},
	} {
		const many = 100
		var tools []string
		for i := range many {
			tools = append(tools, tool(i, c.rest))
		}
		got, want := estimate(c.before+strings.Join(tools, ",")+c.after), int64(many*len(c.inChat)/4)
		if got < want || got > want*3/2 {
			t.Errorf("%d tools %s are estimated as %d tokens, and have %d in chat", many, tools[0], got, want)
		}
	}
}

func TestTextIsCountedWhereverItStands(t *testing.T) {
	text := strings.Repeat("word ", 400) // 500 tokens
	for _, body := range []string{
		`{"model":"m","input":"` + text + `"}`,
		with(`"instructions":"` + text + `"`),
		with(`"tools":[{"type":"function","name":"f","description":"` + text + `"}]`),
		of(`{"role":"user","content":"` + text + `"}`),
		of(`{"role":"user","content":[{"type":"input_text","text":"` + text + `"}]}`),
		of(`{"type":"function_call","call_id":"c","name":"f","arguments":"` + text + `"}`),
		of(`{"type":"function_call_output","call_id":"c","output":"` + text + `"}`),
		of(`{"type":"custom_tool_call","call_id":"c","name":"f","input":"` + text + `"}`),
		of(`{"type":"reasoning","summary":[{"type":"summary_text","text":"` + text + `"}]}`),
		of(`{"type":"odd","something":{"a":"` + text + `"}}`),
	} {
		r := parse(t, body)
		if got := r.InputEstimate(chat.MediaBound{}); got < 500 || got > 550 {
			t.Errorf("%.60s: %d tokens", body, got)
		}
		if got := r.Summary().InputEstimate(chat.MediaBound{}); got != r.InputEstimate(chat.MediaBound{}) {
			t.Errorf("%.60s: %d tokens of the summary", body, got)
		}
	}
	if got := parse(t, with(`"prompt_cache_key":"`+text+`","metadata":{"a":"b"},"user":"`+text+`"`)).InputEstimate(chat.MediaBound{}); got > 10 {
		t.Errorf("%d tokens of what is no text", got)
	}
}

func TestElementsAreBounded(t *testing.T) {
	many := strings.Repeat(`{"role":"user","content":"x"},`, 16_385)
	f := fault.From(parse(t, of(strings.TrimSuffix(many, ","))).Validate())
	if f == nil || f.Param != "input" {
		t.Errorf("%+v", f)
	}
}

func TestATypedRequestIsReadAsItsBytes(t *testing.T) {
	half, yes := 0.5, true
	typed := &responses.Request{
		Model: "m", Input: responses.Items(responses.Item{Role: "user", Content: responses.ContentText("x")}), Instructions: responses.Text("y"),
		MaxOutputTokens: 7, Temperature: &half, ParallelToolCalls: &yes, Reasoning: &responses.Reasoning{Effort: "low"}, Include: []string{"a"},
		Text: &responses.TextConfig{Format: &responses.TextFormat{Type: "json_object"}},
	}
	r, err := Encode(typed)
	if err != nil || r.Validate() != nil || r.Instructions == nil || r.Reasoning.Effort != "low" || r.Text.Format.Type != "json_object" || r.MaxOutputTokens != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	decoded := parse(t, string(r.Source()))
	if decoded.Text.Format.Type != "json_object" || *decoded.Temperature != 0.5 || !slices.Equal(decoded.Include, typed.Include) || decoded.InputBound(chat.MediaBound{}) != r.InputBound(chat.MediaBound{}) {
		t.Errorf("%+v", decoded.Request)
	}
	typed.MaxOutputTokens = -1
	if r, err := Encode(typed); err != nil || fault.From(r.Validate()).Param != "max_output_tokens" {
		t.Errorf("%v", err)
	}
}
