package scripted_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/responsestest"
	"github.com/tollhouse-ai/gateway/internal/scripted"
)

// post asks a vendor and returns what it answers, up to where the connection breaks.
func post(t *testing.T, v *scripted.Vendor, wire scripted.Wire, body string) (answer []byte, status int) {
	t.Helper()
	r, err := http.Post(v.URL+string(wire), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	answer, _ = io.ReadAll(r.Body)
	return answer, r.StatusCode
}

func TestTheStreamsOfResponsesAreSound(t *testing.T) {
	v := scripted.New(t, scripted.Responses)
	for _, tt := range []struct {
		prompt string
		end    responsestest.End
	}{
		{"Good day", responsestest.Vendor},
		{"think Let me see. | say One. | call f {} | custom g x y | say Two.", responsestest.Vendor},
		{"call ns.f {} | custom ns.g x", responsestest.Vendor},
		{"refuse I will not.", responsestest.Vendor},
		{"say Too long | length", responsestest.Vendor},
		{"say Not yet | fail", responsestest.Vendor},
		{"call f {} | cut", responsestest.Cut},
	} {
		for _, more := range []string{``, `,"reasoning":{"summary":"auto"}`} {
			stream, status := post(t, v, scripted.Responses, fmt.Sprintf(`{"model":"m","stream":true,"input":%q%s}`, tt.prompt, more))
			if i := strings.LastIndex(string(stream), `{"id":`); tt.end == responsestest.Cut {
				stream = stream[:i] // what a whole answer that is cut begins with
			}
			if err := responsestest.Check(stream, tt.end); status != http.StatusOK || err != nil {
				t.Errorf("%q%s: %v\n%s", tt.prompt, more, err, stream)
			}
		}
	}
}

func TestEveryWireFollowsTheScript(t *testing.T) {
	v := scripted.New(t, scripted.Responses, scripted.Chat, scripted.Messages)
	const script = `call f {\"a\":1} || say Two. || say Three.`
	for _, tt := range []struct {
		name string
		wire scripted.Wire
		body string
		want string
	}{
		{"the first turn", scripted.Responses, `{"input":"` + script + `"}`, `"arguments":"{\"a\":1}"`},
		{"the first turn", scripted.Chat, `{"messages":[{"role":"user","content":"` + script + `"}]}`, `"arguments":"{\"a\":1}"`},
		{"the first turn", scripted.Messages, `{"messages":[{"role":"user","content":"` + script + `"}]}`, `"input":{"a":1}`},
		{
			"the turn after two outputs", scripted.Responses,
			`{"input":[{"role":"user","content":"` + script + `"},{"type":"function_call_output","output":"x"},{"type":"function_call_output","output":"y"}]}`, `Two.`,
		},
		{"the turn after two outputs", scripted.Chat, `{"messages":[{"role":"user","content":"` + script + `"},{"role":"tool","content":"x"},{"role":"tool","content":"y"}]}`, `Two.`},
		{
			"the turn after two outputs", scripted.Messages,
			`{"messages":[{"role":"user","content":"` + script + `"},{"role":"user","content":[{"type":"tool_result","content":"x"},{"type":"tool_result","content":"y"}]}]}`, `Two.`,
		},
		{"after the script", scripted.Chat, `{"messages":[{"role":"user","content":"call f {}"},{"role":"tool","content":"x"},{"role":"tool","content":"y"}]}`, `The tool said: x, y`},
		{"a status", scripted.Chat, `{"messages":[{"role":"user","content":"status 429"}]}`, `The vendor says 429.`},
	} {
		if got, _ := post(t, v, tt.wire, tt.body); !strings.Contains(string(got), tt.want) {
			t.Errorf("%s of %s: %s, want %s", tt.name, tt.wire, got, tt.want)
		}
	}
	if _, status := post(t, scripted.New(t, scripted.Chat), scripted.Responses, `{"input":"x"}`); status != http.StatusNotFound {
		t.Errorf("a wire that the vendor does not speak is a %d", status)
	}
}
