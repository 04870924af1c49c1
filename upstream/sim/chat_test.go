package sim

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// callOf makes the call that the gateway makes of a body.
func callOf(t testing.TB, body string) *upstream.Call {
	t.Helper()
	r, err := chatop.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Call{
		Op: upstream.ChatCompletion, Model: r.Model, Stream: r.Stream,
		Body: r.Outgoing(0).Body, Request: r.Request,
	}
}

// ask returns the whole answer to a body.
func ask(t testing.TB, o Options, body string) *chat.Response {
	t.Helper()
	reply, err := New(o).Do(t.Context(), callOf(t, body))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	var r chat.Response
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return &r
}

// spoken is what a streamed answer said, joined.
type spoken struct {
	chat.Response
	chunks []*chat.Chunk
	usages []*chat.Usage
	done   bool
}

// readStream reads a streamed answer to its end.
func readStream(t testing.TB, o Options, body string) (*spoken, error) {
	t.Helper()
	reply, err := New(o).Do(t.Context(), callOf(t, body))
	if err != nil {
		t.Fatal(err)
	}
	events := sse.NewReader(reply.Body, 0)
	defer events.Release()
	s := &spoken{}
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return s, nil
		case err != nil:
			return s, err
		case string(e.Data) == "[DONE]":
			s.done = true
			continue
		}
		var c chat.Chunk
		if err := json.Unmarshal(e.Data, &c); err != nil {
			return s, fmt.Errorf("%s: %w", e.Data, err)
		}
		s.add(&c)
	}
}

func (s *spoken) add(c *chat.Chunk) {
	s.chunks = append(s.chunks, c)
	s.ID, s.Created, s.Model = c.ID, c.Created, c.Model
	if c.Usage != nil {
		s.Usage = c.Usage
		s.usages = append(s.usages, c.Usage)
	}
	for _, piece := range c.Choices {
		for int64(len(s.Choices)) <= piece.Index {
			s.Choices = append(s.Choices, chat.Choice{Index: int64(len(s.Choices))})
		}
		choice := &s.Choices[piece.Index]
		m := &choice.Message
		m.Role += piece.Delta.Role
		m.Content = chat.Text(m.Content.String() + piece.Delta.Content.String())
		m.ReasoningContent += piece.Delta.ReasoningContent
		for _, call := range piece.Delta.ToolCalls {
			if int64(len(m.ToolCalls)) == *call.Index {
				m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: call.ID, Type: call.Type, Function: chat.CalledFunction{Name: call.Function.Name}})
			}
			m.ToolCalls[*call.Index].Function.Arguments += call.Function.Arguments
		}
		choice.FinishReason += piece.FinishReason
	}
}

const hello = `{"model":"m","messages":[{"role":"user","content":"Hello there, friend."}]}`

// with adds members to hello.
func with(members string) string { return strings.TrimSuffix(hello, "}") + "," + members + "}" }

// saying is a body whose last message is the user's text.
func saying(text, members string) string {
	quoted, _ := json.Marshal(text)
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%s}]%s}`, quoted, members)
}

func TestWhatAnAnswerSays(t *testing.T) {
	counting := Options{Text: func(*chat.Request) string { return "one two three" }}
	prefix := func(words int) string {
		return `{"model":"m","messages":[{"role":"system","content":"` + strings.Repeat(" word", words) + `"},{"role":"user","content":"one two"}]}`
	}
	for name, row := range map[string]struct {
		o              Options
		body, want     string
		prompt, cached int64 // tokens; 0 for any number
	}{
		"that it is simulated": {Options{}, hello, disclaimer + `You said: "Hello there, friend."`, 5, 0},
		"which media there are": {Options{}, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"Look"},
			{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},
			{"type":"file","file":{}},{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}]}]}`,
			disclaimer + `You said: "Look" Images with it: 1, other files: 2.`, 1 + imageTokens + 2*mediaTokens, 0},
		"what a tool said": {Options{}, `{"model":"m","messages":[{"role":"user","content":"weather"},
			{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":"21 degrees"}]` + twoTools + `}`, disclaimer + `The tool answered: "21 degrees"`, 0, 0},
		"an object in JSON mode":         {Options{}, with(`"response_format":{"type":"json_object"}`), `{"simulated":true,"you_said":"Hello there, friend."}`, 0, 0},
		"a prefix that is short":         {counting, prefix(256), "one two three", 258, 0},
		"a prefix that is cached":        {counting, prefix(257), "one two three", 259, 257},
		"up to a stop sequence":          {counting, with(`"stop":"two"`), "one ", 0, 0},
		"up to the first of two":         {counting, with(`"stop":["three"," two"]`), "one", 0, 0},
		"no stop sequence":               {counting, with(`"stop":["four",""]`), "one two three", 0, 0},
		"nothing before a stop sequence": {counting, with(`"stop":["one"]`), "", 0, 0},
		"a bound before a stop sequence": {counting, with(`"stop":["three"],"max_tokens":1`), "one", 0, 0},
		"a bound behind a stop sequence": {counting, with(`"stop":["three"],"max_tokens":1000`), "one two ", 0, 0},
	} {
		r := ask(t, row.o, row.body)
		if got := r.Choices[0].Message.Content.String(); got != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
		if u := r.Usage; row.prompt != 0 && (u.PromptTokens != row.prompt || u.PromptTokensDetails.CachedTokens != row.cached) {
			t.Errorf("%s: %d prompt tokens, %d of them cached", name, u.PromptTokens, u.PromptTokensDetails.CachedTokens)
		}
		if string(r.Extra) != `{"system_fingerprint":"sim"}` || r.Object != "chat.completion" || r.Model != "m" {
			t.Errorf("%s: the answer is %+v", name, r)
		}
	}
	o := Options{NewID: func() string { return "mine" }, Now: func() time.Time { return time.Unix(7, 0) }}
	if r := ask(t, o, hello); r.ID != "mine" || r.Created != 7 {
		t.Errorf("id %q, created %d", r.ID, r.Created)
	}
}

func TestTheSameRequestGetsTheSameAnswer(t *testing.T) {
	bodies := []string{hello, with(`"n":3`), with(`"stream":true`), with(`"seed":1`)}
	ids := make(map[string]bool)
	for _, body := range bodies {
		var answers [2]string
		for i := range answers {
			reply, err := New(Options{}).Do(t.Context(), callOf(t, body))
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(reply.Body)
			answers[i] = string(data)
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
		_, rest, _ := strings.Cut(answers[0], `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		ids[id] = true
	}
	if len(ids) != len(bodies) {
		t.Errorf("%d requests got the ids %v", len(bodies), ids)
	}
}

func TestAStreamSaysTheSameAsAWholeAnswer(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`
	for _, members := range []string{
		`"n":1`, `"n":3`, `"max_tokens":4`, `"n":2,"max_tokens":9`, `"stop":"called"`,
		`"response_format":{"type":"json_object"}`, tools + `,"tool_choice":"required"`,
		tools + `,"tool_choice":"required","max_tokens":3`, tools,
	} {
		for _, model := range []string{"m", "delta-k3"} {
			body := strings.Replace(with(members), `"model":"m"`, `"model":"`+model+`"`, 1)
			whole := ask(t, Options{}, body)
			s, err := readStream(t, Options{}, strings.TrimSuffix(body, "}")+`,"stream":true}`)
			if err != nil || !s.done {
				t.Fatalf("%s: done %t, %v", body, s.done, err)
			}
			if diff := cmp.Diff(gist(whole), gist(&s.Response)); diff != "" {
				t.Errorf("%s (-whole +stream):\n%s", body, diff)
			}
		}
	}
}

// gist is what has to be the same in both forms.
func gist(r *chat.Response) any {
	type choice struct {
		Role, Thoughts, Text, Finish string
		Calls                        []chat.CalledFunction
	}
	var all []choice
	for _, c := range r.Choices {
		g := choice{Role: c.Message.Role, Thoughts: c.Message.ReasoningContent, Text: c.Message.Content.String(), Finish: c.FinishReason}
		for _, call := range c.Message.ToolCalls {
			g.Calls = append(g.Calls, chat.CalledFunction{Name: call.Function.Name, Arguments: call.Function.Arguments})
		}
		all = append(all, g)
	}
	usage := *r.Usage
	return []any{all, usage}
}

func TestAStreamComesWordByWord(t *testing.T) {
	s, err := readStream(t, Options{Text: func(*chat.Request) string { return "one two three" }}, with(`"stream":true,"stream_options":{"include_usage":true}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range s.chunks {
		for _, choice := range c.Choices {
			got = append(got, choice.Delta.Content.String())
		}
	}
	if diff := cmp.Diff([]string{"", "one", " two", " three", ""}, got); diff != "" {
		t.Error(diff)
	}
	last := s.chunks[len(s.chunks)-1]
	if last.Choices == nil || len(last.Choices) != 0 || last.Usage == nil {
		t.Errorf("the last chunk is %+v", last)
	}
}

func TestUsageIsStreamedOnlyIfTheBodyAsksForIt(t *testing.T) {
	call := callOf(t, with(`"stream":true`))
	prepared, plain := call.Body, call.Request.(*chat.Request).Body
	for want, body := range map[bool]upstream.Body{false: plain, true: prepared} {
		call.Body = body
		reply, err := New(Options{}).Do(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(reply.Body)
		if got := strings.Contains(string(data), `"choices":[],"usage":{`); got != want {
			t.Errorf("usage reported: %t, want %t", got, want)
		}
	}
}

func TestOnlyTheDeltaFamilyReasonsBeforeItAnswers(t *testing.T) {
	for model, want := range map[string]bool{"delta-k3": true, "m": false} {
		r := ask(t, Options{}, strings.Replace(hello, `"m"`, `"`+model+`"`, 1))
		thoughts := r.Choices[0].Message.ReasoningContent
		if got := r.Usage.CompletionTokensDetails.ReasoningTokens; (thoughts != "") != want || got != tokens(thoughts) {
			t.Errorf("%s: %d reasoning tokens for %q", model, got, thoughts)
		}
	}
}

func TestReasoningCountsOneTokenInTheSingular(t *testing.T) {
	for text, want := range map[string]string{"Hi": "has 1 token.", "Hi there": "has 2 tokens."} {
		body := strings.Replace(saying(text, ""), `"m"`, `"delta-k3"`, 1)
		if got := ask(t, Options{}, body).Choices[0].Message.ReasoningContent; !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want it to end in %q", got, want)
		}
	}
}

func TestABoundCutsTheAnswerToExactlySoManyTokens(t *testing.T) {
	for _, model := range []string{"m", "delta-k3"} {
		body := strings.Replace(hello, `"m"`, `"`+model+`"`, 1)
		natural := ask(t, Options{}, body)
		length := natural.Usage.CompletionTokens
		for bound := int64(1); bound <= length+2; bound++ {
			for _, name := range []string{"max_tokens", "max_completion_tokens"} {
				r := ask(t, Options{}, fmt.Sprintf(`%s,%q:%d}`, strings.TrimSuffix(body, "}"), name, bound))
				finish := "stop"
				if bound < length {
					finish = "length"
				}
				m := r.Choices[0].Message
				produced := tokens(m.ReasoningContent) + tokens(m.Content.String())
				if r.Usage.CompletionTokens != min(bound, length) || produced != min(bound, length) || r.Choices[0].FinishReason != finish {
					t.Errorf("%s, %s %d of %d: %d tokens in usage, %d in the text, %q", model, name, bound, length, r.Usage.CompletionTokens, produced, r.Choices[0].FinishReason)
				}
			}
		}
	}
}

func TestFillMakesEveryAnswerAsLongAsItMayBe(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"hello"}}],"tool_choice":"required","stop":"a"`
	for _, members := range []string{`"n":1`, tools} {
		for _, bound := range []int64{1, 2, 30, 1000} {
			members := fmt.Sprintf(`%s,"max_tokens":%d`, members, bound)
			r := ask(t, Options{Fill: true}, with(members))
			if got := tokens(r.Choices[0].Message.Content.String()); got != bound || r.Usage.CompletionTokens != bound {
				t.Errorf("%s: %d tokens, %d in usage", members, got, r.Usage.CompletionTokens)
			}
			s, err := readStream(t, Options{Fill: true}, with(members+`,"stream":true`))
			if err != nil || s.Usage.CompletionTokens != bound || s.Choices[0].FinishReason != "length" {
				t.Errorf("%s: %+v, %v", members, s.Usage, err)
			}
		}
	}
	if r := ask(t, Options{Fill: true}, hello); r.Choices[0].FinishReason != "stop" {
		t.Errorf("without a bound the answer ends for %q", r.Choices[0].FinishReason)
	}
}

func TestPiecesJoinedAreTheTextAgain(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "one": 1, " one": 1, "one ": 2, "one, two.": 4, "  \n": 1, `{"a":1}`: 7,
		"café naïve": 2, "你好": 2, "aaaaaaaaaaaaaaaaa": 2, "e\u0301": 1, "\xff\xfe": 2, "😀 😀": 2,
	} {
		if got := tokens(text); got != want {
			t.Errorf("%q has %d pieces, want %d", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		all := pieces(text)
		if strings.Join(all, "") != text || int64(len(all)) != tokens(text) || len(all) > len(text) {
			t.Fatalf("%q became %q", text, all)
		}
		for n := range all {
			if prefix := strings.Join(all[:n], ""); tokens(prefix) != int64(n) {
				t.Fatalf("the first %d pieces of %q count as %d", n, text, tokens(prefix))
			}
		}
	})
}

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
		r := ask(t, Options{}, saying(row.text, twoTools+row.members))
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
		if c := r.Choices[0]; c.FinishReason != finish || (string(c.Message.Content) == "null") != (row.want != nil) || len(ids) != len(row.want) {
			t.Errorf("%s%s: %+v", row.text, row.members, c)
		}
	}
}

func TestAChoiceThatCannotBeMadeIsRefused(t *testing.T) {
	for _, members := range []string{
		twoTools + `,"tool_choice":{"type":"function","function":{"name":"other"}}`,
		`,"tool_choice":"required"`,
		`,"tool_choice":{"type":"function","function":{"name":"get_time"}}`,
		`,"tools":[{"type":"function","function":{"name":"a","strict":"yes"}}]`,
	} {
		_, err := New(Options{}).Do(t.Context(), callOf(t, saying("hi", members)))
		if !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", members, err)
		}
	}
}
