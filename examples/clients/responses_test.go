package clients

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/scripted"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// responsesCase is what one case of a program sees of the gateway, as JSON. At says where
// it is otherwise: by the wire of the channel, with "/" and a program's name or alone; or
// by "vendor", which is the vendor of the tests without a gateway. What is "-" is not run.
type responsesCase struct {
	name string
	want string
	at   map[string]string
}

// Which prompt each case sends is in the programs. The vendor has 19 tokens for every
// input, 4 of them cached, and one for each word that it says or thinks.
const (
	hello      = `{"status":"completed","output":["reasoning: Let me see.","output_text: Hello there."],"usage":[19,4,5,3]}`
	helloDelta = `{"status":"completed","output":["reasoning: Let me see.","output_text: Hello there."],"usage":[19,4,5,3],"deltas":"Let me see.Hello there."}`
	streamed   = `{"status":"completed","output":["reasoning: Let me see.","output_text: Hello there."],"usage":[19,4,5,3],"deltas":"Let me see.Hello there.","last":"response.completed"}`
	city       = `{"city":"Oslo","degrees":7}`
	toolLoop   = `[["weather({\"city\":\"Oslo\"})","weather({\"city\":\"Rome\"})"],["reasoning: More.","weather({\"city\":\"Bern\"})"],["output_text: The tool said: sunny in Bern"]]`
	customLoop = `[["exec[echo \"a\\b\u00e9\ud83d\ude00\"\nls]"],["output_text: The tool said: ran echo \"a\\b\u00e9\ud83d\ude00\"\nls"]]`
	// What a program sees of a stream that breaks is an exception, also where the vendor
	// said in an event that it failed, which the SDKs take for a whole answer. The code is
	// that of the status which the vendor's error says.
	brokenOff   = `{"error":"APIError","status":null,"code":"BadGateway","param":null}`
	failed      = `{"error":"APIError","status":null,"code":"InternalServerError","param":null}`
	aiBrokenOff = `{"error":"StreamProviderError","status":500,"code":"BadGateway","param":null}`
	aiFailed    = `{"error":"StreamProviderError","status":500,"code":"InternalServerError","param":null}`
	notKept     = `{"error":"BadRequestError","status":400,"code":"previous_response_not_found","param":"previous_response_id"}`
	steps       = `[["tool-calls","sunny in Oslo"],["tool-calls","sunny in Rome"],["stop","Both are sunny."]]`
)

// notAtTheVendor are cases of what the gateway refuses.
var notAtTheVendor = map[string]string{"vendor": "-"}

// unthought are cases whose vendor says how much it thought, which Messages has no word for.
func unthought(want string) map[string]string {
	return map[string]string{"messages": strings.Replace(want, "[19,4,5,3]", "[19,4,5,0]", 1)}
}

// sdkCases are those of OpenAI's SDKs.
var sdkCases = []responsesCase{
	{name: "whole", want: hello, at: unthought(hello)},
	{name: "streamed", want: streamed, at: unthought(streamed)},
	{name: "helper", want: helloDelta, at: unthought(helloDelta)},
	{name: "summary", want: helloDelta, at: unthought(helloDelta)},
	{name: "resumed", want: `{"status":"completed","output":["output_text: One.","weather({\"city\":\"Oslo\"})","output_text: Two."],"usage":[19,4,4,0],"deltas":"One.{\"city\":\"Oslo\"}Two."}`},
	{name: "refusal", want: `{"status":"completed","output":["refusal: I will not."],"usage":[19,4,3,0],"deltas":"I will not."}`, at: map[string]string{
		// Of Messages it is known only that the answer was broken off for what it says,
		// for which the helper of Python has no answer at all.
		"messages":                  `{"status":"incomplete","output":["output_text: I will not."],"usage":[19,4,3,0],"deltas":"I will not."}`,
		"messages/openai_python.py": `{"error":"RuntimeError","status":null,"code":null,"param":null,"message":"Didn't receive a ` + "`response.completed`" + ` event."}`,
	}},
	{name: "length", want: `{"status":"incomplete","output":["output_text: Too long"],"usage":[19,4,2,0],"deltas":"Too long","last":"response.incomplete"}`},
	{name: "parsed", want: city},
	{name: "parsedHelper", want: city},
	{name: "loop", want: toolLoop},
	{name: "loopHelper", want: toolLoop},
	{name: "custom", want: customLoop},
	{name: "customHelper", want: customLoop},
	{name: "failed", want: failed, at: notAtTheVendor},
	{name: "failedHelper", want: failed, at: notAtTheVendor},
	{name: "cut", want: brokenOff, at: notAtTheVendor},
	{name: "wholeCut", want: `{"error":"InternalServerError","status":502,"code":"BadGateway","param":null}`, at: notAtTheVendor},
	{name: "session", want: `["completed","completed"]`},
	{name: "badField", want: `{"error":"BadRequestError","status":400,"code":"invalid_request_error","param":"temperature"}`, at: notAtTheVendor},
	{name: "wrongKey", want: `{"error":"AuthenticationError","status":401,"code":"unauthorized","param":null}`, at: notAtTheVendor},
	{name: "unknownModel", want: `{"error":"NotFoundError","status":404,"code":"model_not_found","param":"model"}`, at: notAtTheVendor},
	{name: "chained", want: notKept, at: notAtTheVendor},
	{name: "previous", want: notKept, at: notAtTheVendor},
}

// responsesPrograms are the programs of .ci/responses, and their cases.
var responsesPrograms = map[string][]responsesCase{
	"openai.mjs":       sdkCases,
	"openai_python.py": sdkCases,
	"agents.mjs": {
		{name: "tool", want: `{"output":"It is sunny.","usage":[2,38,5]}`},
		{name: "stream", want: `{"output":"It is sunny.","text":"It is sunny.","usage":[2,38,5]}`},
		{name: "typed", want: `{"city":"Oslo"}`},
	},
	"ai.mjs": {
		{name: "steps", want: steps},
		// It refers to what was said before, unless "store" is false.
		{name: "stored", want: `{"error":"APICallError","status":400,"code":"item_not_found","param":"input[1].id"}`, at: map[string]string{
			"vendor": `[["tool-calls","sunny in Oslo"],["stop","It is sunny."]]`,
		}},
		{name: "stream", want: `{"reasoning":"","steps":` + steps + `,"usage":[57,7]}`},
		{name: "resumed", want: `{"reasoning":"","steps":[["tool-calls","sunny in Oslo"],["stop","Two."]],"usage":[38,4]}`},
		{name: "thoughts", want: `{"reasoning":"Let me see.","steps":[["stop","Hello there."]],"usage":[19,5]}`},
		{name: "object", want: city},
		{name: "failed", want: aiFailed, at: notAtTheVendor},
		{name: "cut", want: aiBrokenOff, at: notAtTheVendor},
	},
	"open_responses.py": {
		{name: "basic", want: `"passed"`},
		{name: "streaming", want: `"passed"`},
		{name: "system prompt", want: `"passed"`},
		{name: "tool calling", want: `"passed"`},
		{name: "tool calling, streaming", want: `"passed"`},
		{name: "image input", want: `"passed"`},
		{name: "multi-turn", want: `"passed"`},
	},
}

// responsesChecks is the folder of the programs, whose packages .ci/responses/run installs.
func responsesChecks(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("RESPONSES_CHECKS")
	if dir == "" {
		t.Skip("RESPONSES_CHECKS and RESPONSES_NODE are not set: .ci/responses/run does it")
	}
	return dir
}

// runProgram runs cases of a program against a server, and returns what each saw.
func runProgram(t *testing.T, name, url, key string, cases ...string) map[string]json.RawMessage {
	t.Helper()
	dir := responsesChecks(t)
	interpreter := filepath.Join(dir, "venv", "bin", "python3")
	if strings.HasSuffix(name, ".mjs") {
		interpreter = os.Getenv("RESPONSES_NODE")
	}
	program := exec.CommandContext(t.Context(), interpreter, append([]string{filepath.Join(dir, name), url, key}, cases...)...)
	var complaints bytes.Buffer
	program.Stderr = &complaints
	out, err := program.Output()
	saw := map[string]json.RawMessage{}
	if err = cmp.Or(err, json.Unmarshal(out, &saw)); err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out, complaints.Bytes())
	}
	return saw
}

// vendorKeys are those of every channel.
var vendorKeys = []secret.String{secret.New("key-1"), secret.New("key-2"), secret.New("key-3"), secret.New("key-4")}

// channels are the wires that the channel of a gateway speaks.
var channels = map[string]struct {
	wire  scripted.Wire
	start func(url string) (upstream.Driver, error)
}{
	"responses": {scripted.Responses, func(url string) (upstream.Driver, error) {
		return openai.New(upstream.DriverOptions{BaseURL: url, Keys: vendorKeys, Wire: []upstream.Op{upstream.Responses}})
	}},
	"chat": {scripted.Chat, func(url string) (upstream.Driver, error) {
		return openai.New(upstream.DriverOptions{BaseURL: url, Keys: vendorKeys, Wire: []upstream.Op{upstream.ChatCompletion}})
	}},
	"messages": {scripted.Messages, func(url string) (upstream.Driver, error) {
		return anthropic.New(upstream.DriverOptions{BaseURL: strings.TrimSuffix(url, "/v1"), Keys: vendorKeys}) // to which it adds /v1 itself
	}},
}

// keysOf are the vendor's keys that calls came with, without repetition.
func keysOf(calls []scripted.Call) (keys []string) {
	for _, c := range calls {
		keys = append(keys, cmp.Or(c.Header.Get("X-Api-Key"), strings.TrimPrefix(c.Header.Get("Authorization"), "Bearer ")))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// responsesFixture is a gateway over a vendor of one wire, and what became of its requests.
type responsesFixture struct {
	*fixture
	vendor *scripted.Vendor
	mu     sync.Mutex
	ended  []*gateway.RequestEvent
}

// newResponsesFixture checks at the end of the test that every request was charged once:
// as the vendor counted, or, if its answer broke after some of it had come, for that.
func newResponsesFixture(t *testing.T, channel string, o options, broken int) *responsesFixture {
	t.Helper()
	s := &responsesFixture{vendor: scripted.New(t, channels[channel].wire)}
	t.Cleanup(func() { s.charged(t, broken) }) // runs when the gateway is closed
	driver, err := channels[channel].start(s.vendor.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.upstream = driver
	o.observe = []gateway.Observer{{End: func(_ context.Context, e *gateway.RequestEvent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = append(s.ended, e)
	}}}
	s.fixture = newFixture(t, o)
	return s
}

func (s *responsesFixture) charged(t *testing.T, broken int) {
	t.Helper()
	var want, got []billing.Money
	for _, c := range s.vendor.Calls() {
		if c.Output > 0 {
			want = append(want, chatCost(scripted.Input, c.Output))
		}
	}
	for _, e := range s.ended {
		switch {
		case e.Receipt == nil || e.Receipt.Charge == 0:
		case e.Outcome == "complete":
			got = append(got, e.Receipt.Charge)
		default:
			broken--
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || broken != 0 {
		t.Errorf("charged %v, want %v; %d more broken answers should have been", got, want, broken)
	}
}

func TestResponsesThatAreKept(t *testing.T) {
	responsesChecks(t)
	const chained = `{"second":["output_text: Both are sunny."],"kept":["output_text: Both are sunny."],"before":["message","function_call","function_call","function_call_output","function_call_output"],"after":404}`
	for channel := range channels {
		for program, c := range map[string]responsesCase{
			"openai.mjs":       {name: "chained", want: chained},
			"openai_python.py": {name: "chained", want: chained},
			"ai.mjs":           {name: "stored", want: `[["tool-calls","sunny in Oslo"],["stop","It is sunny."]]`},
		} {
			t.Run(channel+"/"+program, func(t *testing.T) {
				s := newResponsesFixture(t, channel, options{kept: gateway.ResponsesOn}, 0)
				if got := runProgram(t, program, s.url+"/v1", s.Key.Reveal(), c.name)[c.name]; !sameJSON(t, got, c.want) {
					t.Errorf("%s saw\n%s\nwant\n%s", c.name, got, c.want)
				}
			})
		}
	}
}

// brokenStreams is how many of the cases break after some of the answer was delivered.
func brokenStreams(cases map[string]string) (n int) {
	for _, name := range []string{"failed", "failedHelper", "cut"} {
		if cases[name] != "" {
			n++
		}
	}
	return n
}

func TestResponsesSDKsOfOtherLanguages(t *testing.T) {
	responsesChecks(t)
	for _, place := range []string{"vendor", "responses", "chat", "messages"} {
		for _, program := range slices.Sorted(maps.Keys(responsesPrograms)) {
			t.Run(place+"/"+program, func(t *testing.T) {
				want := map[string]string{}
				for _, c := range responsesPrograms[program] {
					if at := cmp.Or(c.at[place+"/"+program], c.at[place], c.want); at != "-" {
						want[c.name] = at
					}
				}
				names := slices.Sorted(maps.Keys(want))
				var url, key string
				if place == "vendor" {
					url, key = scripted.New(t, scripted.Responses).URL, "none"
				} else {
					s := newResponsesFixture(t, place, options{}, brokenStreams(want))
					url, key = s.url+"/v1", s.Key.Reveal()
				}
				saw := runProgram(t, program, url, key, names...)
				for _, name := range names {
					if got := saw[name]; !sameJSON(t, got, want[name]) {
						t.Errorf("%s saw\n%s\nwant\n%s", name, got, want[name])
					}
				}
			})
		}
	}
}

// sameJSON reports whether two documents hold the same.
func sameJSON(t *testing.T, got json.RawMessage, want string) bool {
	t.Helper()
	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Errorf("%s, %s: %v", got, want, err)
		return false
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
