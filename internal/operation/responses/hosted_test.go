package responses

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
)

// refuses passes nothing, as billing by prices does without a word of the operator's.
func refuses(string, string) bool { return false }

// sent is what an upstream gets of a request that passes nothing without a price.
func sent(t *testing.T, body string, pass func(name, spelled string) bool) (out string, omitted []string, err error) {
	t.Helper()
	r := parse(t, body)
	if err := r.Validate(); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if r.Unpriced(nil, nil) != nil {
		if err := r.Unpriced(nil, pass); err != nil {
			return "", nil, err
		}
	}
	data, err := r.Outgoing(0).Body.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	view := r.Limited(0)
	again := parse(t, string(data))
	if string(view.Tools) != string(again.Tools) || string(view.ToolChoice) != string(again.ToolChoice) || string(view.Input) != string(again.Input) ||
		string(view.Field("tools")) != string(again.Field("tools")) || (view.ParallelToolCalls == nil) != (again.ParallelToolCalls == nil) || view.ServiceTier != again.ServiceTier || view.Store == nil || *view.Store {
		t.Errorf("the view %+v differs from %s", view, data)
	}
	return string(data), r.Omitted(), nil
}

func TestWhatHasNoPriceIsLeftOut(t *testing.T) {
	const search, f = `{"type":"web_search","external_web_access":false}`, `{"type":"function","name":"f"}`
	item := func(tools string) string {
		return `"input":[{"type":"additional_tools","role":"developer","tools":[` + tools + `]},{"role":"user","content":"x"}]`
	}
	for name, c := range map[string]struct {
		fields  string // of the request; the input is x if they have none
		want    string // likewise
		omitted []string
	}{
		"none of them":              {`"tools":[` + f + `]`, `"tools":[` + f + `]`, nil},
		"one beside a function":     {`"tools":[` + f + `,` + search + `],"tool_choice":"auto"`, `"tools":[` + f + `],"tool_choice":"auto"`, []string{"tools.web_search"}},
		"nothing is left":           {`"tools":[` + search + `,{"type":"file_search"}],"tool_choice":"auto","parallel_tool_calls":true,"temperature":1`, `"temperature":1`, []string{"tools.web_search", "tools.file_search"}},
		"in a namespace":            {`"tools":[{"type":"namespace","name":"n","tools":[` + search + `,` + f + `]}]`, `"tools":[{"type":"namespace","name":"n","tools":[` + f + `]}]`, []string{"tools.web_search"}},
		"a namespace of nothing":    {`"tools":[{"type":"namespace","name":"n","tools":[` + search + `]},` + f + `]`, `"tools":[` + f + `]`, []string{"tools.web_search"}},
		"in an item":                {item(search + `,` + f), item(f), []string{"tools.web_search"}},
		"the others are in an item": {item(f) + `,"tools":[` + search + `],"tool_choice":"required"`, item(f) + `,"tool_choice":"required"`, []string{"tools.web_search"}},
		"allowed, among others":     {`"tools":[` + f + `,` + search + `],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"},{"type":"function","name":"f"}]}`, `"tools":[` + f + `],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`, []string{"tools.web_search"}},
		"a function is demanded":    {`"tools":[` + f + `,` + search + `],"tool_choice":{"type":"function","name":"f"}`, `"tools":[` + f + `],"tool_choice":{"type":"function","name":"f"}`, []string{"tools.web_search"}},
		"a search of the vendor's":  {`"tools":[{"type":"tool_search"},` + f + `,{"type":"tool_search","execution":"server"}]`, `"tools":[` + f + `]`, []string{"tools.tool_search"}},
		"a search that is allowed":  {`"tools":[{"type":"tool_search","execution":"client"},` + search + `],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"tool_search"}]}`, `"tools":[{"type":"tool_search","execution":"client"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"tool_search"}]}`, []string{"tools.web_search"}},
		"a tier":                    {`"service_tier":"priority"`, ``, []string{"service_tier"}},
		"the usual tier":            {`"service_tier":"auto"`, `"service_tier":"auto"`, nil},
		"free tools":                {`"tools":[{"type":"tool_search","execution":"client"},{"type":"custom","name":"c"},{"type":"apply_patch"},{"type":"local_shell"}]`, `"tools":[{"type":"tool_search","execution":"client"},{"type":"custom","name":"c"},{"type":"apply_patch"},{"type":"local_shell"}]`, nil},

		// A vendor may make a field of its own cost more than the bound of the output allows.
		"subagents":            {`"multi_agent":{"enabled":true,"max_concurrent_subagents":500},"temperature":1`, `"temperature":1`, []string{"multi_agent"}},
		"another spelling":     {`"Multi_\u0061gent":{"enabled":true}`, ``, []string{"Multi_agent"}},
		"a mode of reasoning":  {`"reasoning":{"mode":"pro","effort":"max"}`, `"reasoning":{"effort":"max"}`, []string{"reasoning.mode"}},
		"both of one name":     {`"reasoning.mode":1,"reasoning":{"mode":"pro","Mode":"max"}`, `"reasoning":{}`, []string{"reasoning.mode", "reasoning.mode", "reasoning.Mode"}},
		"unknown ones of null": {`"multi_agent":null,"reasoning":{"mode":null}`, `"multi_agent":null,"reasoning":{"mode":null}`, nil},
		"what reasoning knows": {`"reasoning":{"effort":"low","summary":"auto","generate_summary":"auto","context":"all_turns"}`, `"reasoning":{"effort":"low","summary":"auto","generate_summary":"auto","context":"all_turns"}`, nil},
		"free fields": {`"client_metadata":{"a":"b"},"stream_options":{"include_obfuscation":false},"prompt_cache_retention":"24h","safety_identifier":"s","seed":1,"max_tool_calls":1`,
			`"client_metadata":{"a":"b"},"stream_options":{"include_obfuscation":false},"prompt_cache_retention":"24h","safety_identifier":"s","seed":1,"max_tool_calls":1`, nil},
	} {
		request := func(fields string) string {
			if !strings.Contains(fields, `"input"`) {
				fields = strings.TrimSuffix(`"input":"x",`+fields, ",")
			}
			return `{"model":"m","store":false,` + fields + `}`
		}
		got, omitted, err := sent(t, request(c.fields), refuses)
		if err != nil || got != request(c.want) || !slices.Equal(omitted, c.omitted) {
			t.Errorf("%s: %v, %v\ngot  %s\nwant %s", name, err, omitted, got, request(c.want))
		}
		all := request(c.fields)
		if got, omitted, err := sent(t, all, func(string, string) bool { return true }); got != all || omitted != nil || err != nil {
			t.Errorf("%s, passed: %s, %v, %v", name, got, omitted, err)
		}
	}
	var many strings.Builder
	for i := range 65 {
		many.WriteString(`,"x` + strconv.Itoa(i) + `":1`)
	}
	if _, _, err := sent(t, `{"model":"m","input":"x"`+many.String()+`}`, refuses); fault.From(err) == nil || fault.From(err).Param != "x64" {
		t.Errorf("too many: %v", err)
	}
}

func TestWhatDemandsSomethingWithoutAPriceIsRefused(t *testing.T) {
	const tools = `"tools":[{"type":"web_search"}]`
	for fields, param := range map[string]string{
		tools + `,"tool_choice":"required"`:                                                             "tool_choice",
		tools + `,"tool_choice":{"type":"web_search"}`:                                                  "tool_choice",
		tools + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}`: "tool_choice",
		`"tools":[{"type":"tool_search"}],"tool_choice":{"type":"tool_search"}`:                         "tool_choice",
		`"fallback_models":["x"]`:                                                                       "fallback_models",
		`"web_search_options":{}`:                                                                       "web_search_options",
	} {
		if !strings.Contains(fields, `"input"`) {
			fields = `"input":"x",` + fields
		}
		out, _, err := sent(t, `{"model":"m",`+fields+`}`, refuses)
		if f := fault.From(err); f == nil || f.Param != param || f.HTTPStatus() != 400 {
			t.Errorf("%s: sent %s, %v, want a 400 about %s", fields, out, err, param)
		}
	}
}

func TestACountCostsNothingSoThatToolsStay(t *testing.T) {
	r := must(ParseCount([]byte(with(`"tools":[{"type":"web_search"}],"service_tier":"priority"`))))
	if err := r.Unpriced(nil, nil); err != nil {
		t.Error(err)
	}
	if data, err := r.Outgoing(0).Body.Bytes(); err != nil || string(data) != with(`"tools":[{"type":"web_search"}],"service_tier":"priority"`) {
		t.Errorf("sent %s, %v", data, err)
	}
	if r := must(ParseCount([]byte(with(`"models":["x"]`)))); r.Unpriced(nil, nil) == nil {
		t.Error("a count may be of another model")
	}
}

// What an id names may be another caller's, whose length a count would show.
func TestACountHasNothingThatOnlyAnIDNames(t *testing.T) {
	const said = `{"role":"user","content":"x"}`
	r := must(ParseCount([]byte(of(`{"type":"reasoning","id":"rs_1","summary":[]},` + said))))
	if data, err := r.Outgoing(0).Body.Bytes(); err != nil || string(data) != of(said) {
		t.Errorf("a thought: sent %s, %v", data, err)
	}
}

func TestOnlyStoreAndTheBoundAreEdited(t *testing.T) {
	for _, c := range []struct {
		body string
		most int64
		want string
	}{
		{`{ "model":"m", "input":"x" }`, 0, `{ "model":"m", "input":"x","store":false }`},
		{`{"model":"m","input":"x","store":false}`, 0, `{"model":"m","input":"x","store":false}`},
		{`{"model":"m","store":true,"input":"x"}`, 0, `{"model":"m","store":false,"input":"x"}`},
		{`{"model":"m","input":"x","store":false}`, 5, `{"model":"m","input":"x","store":false,"max_output_tokens":5}`},
		{`{"model":"m","max_output_tokens":9,"input":"x","store":false}`, 5, `{"model":"m","max_output_tokens":5,"input":"x","store":false}`},
		{`{"model":"m","max_output_tokens":4,"input":"x","store":false}`, 5, `{"model":"m","max_output_tokens":4,"input":"x","store":false}`},
	} {
		r := parse(t, c.body)
		got, err := r.Outgoing(c.most).Body.Bytes()
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v, want %s", got, err, c.want)
		}
		if r.VendorState = true; r.Limited(0).Store != r.Store {
			t.Error("an upstream that keeps responses is not asked to")
		}
	}
}

// An upstream that stores nothing refuses an item of which it gets the id alone, and one
// that stores may show another caller's.
func TestAThoughtThatIsOnlyNamedIsLeftOut(t *testing.T) {
	const held = `{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"x"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"x"}]}`
	body := of(`{"type":"reasoning","id":"rs_1","summary":[]},` + held)
	got, omitted, err := sent(t, strings.Replace(body, `"model"`, `"store":false,"model"`, 1), refuses)
	if want := strings.Replace(of(held), `"model"`, `"store":false,"model"`, 1); err != nil || got != want || !slices.Equal(omitted, []string{"input.reasoning"}) {
		t.Errorf("%s, %v, %v, want %s", got, omitted, err, want)
	}
	r := parse(t, body)
	r.VendorState = true
	if got, err := r.Outgoing(0).Body.Bytes(); err != nil || string(got) != body || r.Omitted() != nil {
		t.Errorf("to an upstream that knows it: %s, %v", got, err)
	}
}

func TestAnItemGoesBackInAFormThatAnyVendorTakes(t *testing.T) {
	for _, row := range []struct {
		item                  string
		sameModel, sameVendor bool
		want                  string
	}{
		{`{"id":"m","status":"completed","type":"message","content":[]}`, false, false, `{"type":"message","content":[]}`},
		{`{"id":"a","status":"completed","type":"mcp_approval_request"}`, true, true, `{"id":"a","type":"mcp_approval_request"}`},
		{`{"id":"r","type":"reasoning","encrypted_content":"x"}`, true, true, `{"type":"reasoning","encrypted_content":"x"}`},
		{`{"id":"r","type":"reasoning","encrypted_content":"x"}`, true, false, ``},
		{`{"id":"r","type":"reasoning","encrypted_content":"x"}`, false, true, ``},
		{`{"id":"r","type":"reasoning","encrypted_content":"x","content":[{"text":"y"}]}`, true, false, `{"type":"reasoning","content":[{"text":"y"}]}`},
		{`{"id":"r","type":"reasoning","encrypted_content":"th1.x"}`, true, false, `{"type":"reasoning","encrypted_content":"th1.x"}`},
		{`{"id":"r","type":"reasoning","encrypted_content":"","content":[{"text":""}]}`, true, true, ``},
	} {
		if got := string(Again([]byte(row.item), row.sameModel, row.sameVendor)); got != row.want {
			t.Errorf("%+v: got %s", row, got)
		}
	}
}
