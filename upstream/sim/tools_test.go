package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tollhouse-ai/gateway/fault"
)

const twoTools = `,"tools":[
	{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":2}},"required":["city","days"]}}},
	{"type":"function","function":{"name":"get_time"}}]`

func TestTheUsersWordsAndToolChoiceSayWhichFunctionsAreCalled(t *testing.T) {
	weather, clock := `get_weather({"city":"simulated","days":2})`, `get_time({})`
	for _, row := range []struct {
		text, members string
		want          []string
	}{
		{"What's the weather?", "", []string{weather}},
		{"WEATHER", "", []string{weather}},
		{"Use get_time please", "", []string{clock}},
		{"the time and the weather", "", []string{weather, clock}},
		{"the time and the weather", `,"parallel_tool_calls":false`, []string{weather}},
		{"get me something", "", nil},
		{"sometimes it is weathered", "", nil},
		{"weather", `,"tool_choice":"auto"`, []string{weather}},
		{"weather", `,"tool_choice":null`, []string{weather}},
		{"weather", `,"tool_choice":"none"`, nil},
		{"hello", `,"tool_choice":"required"`, []string{weather}},
		{"the time", `,"tool_choice":"required"`, []string{clock}},
		{"weather", `,"tool_choice":{"type":"function","function":{"name":"get_time"}}`, []string{clock}},
	} {
		r := ask(t, Options{}, said(row.text, twoTools+row.members))
		var got []string
		ids := make(map[string]bool)
		for _, c := range r.Choices[0].Message.ToolCalls {
			got = append(got, c.Function.Name+"("+c.Function.Arguments+")")
			ids[c.ID] = true
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s%s (-want +got):\n%s", row.text, row.members, diff)
		}
		finish := "stop"
		if row.want != nil {
			finish = "tool_calls"
		}
		if c := r.Choices[0]; c.FinishReason != finish || c.Message.Content.IsNull() != (row.want != nil) || len(ids) != len(row.want) {
			t.Errorf("%s%s: %+v", row.text, row.members, c)
		}
	}
}

func TestAToolsResultIsAnsweredInText(t *testing.T) {
	r := ask(t, Options{}, `{"model":"m","messages":[{"role":"user","content":"weather"},
		{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":"21 degrees"}]`+twoTools+`}`)
	want := disclaimer + `The tool answered: "21 degrees"`
	if got := r.Choices[0].Message.Content.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAChoiceThatCannotBeMadeIsRefused(t *testing.T) {
	for _, members := range []string{
		twoTools + `,"tool_choice":{"type":"function","function":{"name":"other"}}`,
		`,"tool_choice":"required"`,
		`,"tool_choice":{"type":"function","function":{"name":"get_time"}}`,
		`,"tools":[{"type":"function","function":{"name":"a","strict":"yes"}}]`,
	} {
		_, err := New(Options{}).Do(t.Context(), callOf(t, said("hi", members)))
		if !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", members, err)
		}
	}
}
