package translate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/operation"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/responsestest"
	"github.com/tollhouse-ai/gateway/internal/seal"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// client is a client of one wire, which asks for a tool's call and then sends its result.
type client struct {
	op    upstream.Op
	parse func(body string) (upstream.Body, error)
	// ask is a request that goes on with a conversation.
	ask   func(history []string) string
	says  string                           // the user's turn
	sends string                           // the result of c1
	reads func(answer, stream string) read // of a whole answer or of a stream
	usage func(answer string) (billing.Usage, error)
	tap   func() tapped
}

// read is what a client makes of an answer, and what it sends back of it.
type read struct {
	text string // in short
	back []string
	err  error
}

type tapped interface {
	Event(dst []byte, name string, data []byte) (out []byte, done bool, err error)
	Usage() billing.Usage
}

var update = flag.Bool("update", false, "write the golden files anew")

const askedTool = `{"name":"f","description":"d","parameters":{"type":"object"}}`

// clients are one of each wire; all send the same conversation.
var clients = []client{
	{
		op:    upstream.ChatCompletion,
		parse: parsedBody(chatop.Parse, func(r *chatop.Request) upstream.Body { return r.Body }),
		ask: func(history []string) string {
			return `{"model":"m","reasoning_effort":"low","tools":[{"type":"function","function":` + askedTool + `}],"messages":[` + strings.Join(history, ",") + `]}`
		},
		says:  `{"role":"user","content":"weather?"}`,
		sends: `{"role":"tool","tool_call_id":"c1","content":"18 degrees"}`,
		reads: func(whole, stream string) (r read) {
			var c chat.Response
			if stream != "" {
				m, _ := accumulatedChat(failing{&r.err}, stream)
				c.Choices = []chat.Choice{{Message: m}}
			} else if r.err = json.Unmarshal([]byte(whole), &c); r.err != nil {
				return r
			}
			m := c.Choices[0].Message
			raw, err := json.Marshal(m)
			m.Extra = nil // the signature is for the upstream
			return read{chatText(&m), []string{string(raw)}, err}
		},
		usage: func(answer string) (billing.Usage, error) {
			a, err := (&chatop.Request{Request: plainChat()}).ReadAnswer([]byte(answer), operation.AnswerOptions{})
			return a.Usage, err
		},
		tap: func() tapped {
			return (&chatop.Request{Request: plainChat()}).NewTap(operation.AnswerOptions{NewID: func(string) string { return "own" }})
		},
	},
	{
		op:    upstream.Messages,
		parse: parsedBody(messagesop.Parse, func(r *messagesop.Request) upstream.Body { return r.Body }),
		ask: func(history []string) string {
			return `{"model":"m","max_tokens":100,"thinking":{"type":"adaptive"},"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],"messages":[` + strings.Join(history, ",") + `]}`
		},
		says:  `{"role":"user","content":"weather?"}`,
		sends: `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"18 degrees"}]}`,
		reads: func(whole, stream string) (r read) {
			var m messages.Response
			if stream != "" {
				c, err := follow([]byte(stream))
				m, r.err = c.message, err
			} else {
				r.err = json.Unmarshal([]byte(whole), &m)
			}
			content, err := json.Marshal(m.Content)
			if r.err == nil {
				r.err = err
			}
			r.text, r.back = blocksText(m.Content), []string{`{"role":"assistant","content":` + string(content) + `}`}
			return r
		},
		usage: func(answer string) (billing.Usage, error) {
			a, err := (&messagesop.Request{Request: plain()}).ReadAnswer([]byte(answer), operation.AnswerOptions{})
			return a.Usage, err
		},
		tap: func() tapped {
			return (&messagesop.Request{Request: plain()}).NewTap(operation.AnswerOptions{})
		},
	},
	{
		op:    upstream.Responses,
		parse: parsedBody(responsesop.Parse, func(r *responsesop.Request) upstream.Body { return r.Body }),
		ask: func(history []string) string {
			return `{"model":"m","store":false,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"low","summary":"auto"},"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":false}],"input":[` + strings.Join(history, ",") + `]}`
		},
		says:  `{"type":"message","role":"user","content":"weather?"}`,
		sends: `{"type":"function_call_output","call_id":"c1","output":"18 degrees"}`,
		reads: func(whole, stream string) (r read) {
			o := new(responses.Response)
			if stream != "" {
				o, r.err = responsestest.Accumulate([]byte(stream))
			} else {
				r.err = json.Unmarshal([]byte(whole), o)
			}
			if r.err != nil {
				return r
			}
			for i := range o.Output {
				item := &o.Output[i]
				arguments, _ := rawjson.String(item.Arguments)
				switch item.Type {
				case "reasoning":
					r.text += "thinking(" + responses.Content(item.Summary).String() + ")"
				case "message":
					r.text += "text(" + item.Content.String() + ")"
				default:
					r.text += fmt.Sprintf("%s:%s(%s)", item.CallID, item.Name, arguments)
				}
				raw, err := json.Marshal(item)
				if err != nil {
					r.err = err
				}
				r.back = append(r.back, string(raw))
			}
			return r
		},
		usage: func(answer string) (billing.Usage, error) {
			a, err := (&responsesop.Request{Request: &responses.Request{Model: "m"}}).ReadAnswer([]byte(answer), operation.AnswerOptions{})
			return a.Usage, err
		},
		tap: func() tapped {
			return (&responsesop.Request{Request: &responses.Request{Model: "m"}}).NewTap(operation.AnswerOptions{})
		},
	},
}

// parsedBody is the body that a package reads.
func parsedBody[R any](parse func([]byte) (*R, error), body func(*R) upstream.Body) func(string) (upstream.Body, error) {
	return func(text string) (upstream.Body, error) {
		r, err := parse([]byte(text))
		if err != nil {
			return upstream.Body{}, err
		}
		return body(r), nil
	}
}

// failing is a test whose failure is an error.
type failing struct{ err *error }

func (f failing) Fatalf(format string, args ...any) { *f.err = fmt.Errorf(format, args...) }

// vendors are an upstream of each wire, which thinks, says something and calls f. Of all
// it says the same, but only some can read their thoughts again: thoughts is what must
// be in the request that has them.
var vendors = map[upstream.Op]struct {
	whole, stream string
	thoughts      string
}{
	upstream.ChatCompletion: {
		`{"id":"chatcmpl-7","choices":[{"index":0,"message":{"role":"assistant","reasoning_content":"hm","content":"let me","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}}]},"finish_reason":"tool_calls"}],` + chatUsage + `}`,
		chunks(delta(`"role":"assistant"`), delta(`"reasoning_content":"hm"`), delta(`"content":"let "`), delta(`"content":"me"`), callPiece(0, "c1", "f", `{"a"`), callPiece(0, "", "", `:1.0}`),
			finish("tool_calls"), `{"id":"chatcmpl-7","choices":[],`+chatUsage+`}`, done),
		`"reasoning_content":"hm"`,
	},
	upstream.Messages: {
		vendorAnswer(`"content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"text","text":"let me"},{"type":"tool_use","id":"c1","name":"f","input":{"a":1.0}}],"stop_reason":"tool_use",` + vendorUsage),
		vendorEvents(vendorStart, blockStart("0", `{"type":"thinking","thinking":"","signature":""}`), blockDelta("0", `{"type":"thinking_delta","thinking":"hm"}`), blockDelta("0", `{"type":"signature_delta","signature":"sig"}`), blockEnd("0"),
			blockStart("1", `{"type":"text","text":""}`), blockDelta("1", `{"type":"text_delta","text":"let "}`), vendorPing, blockDelta("1", `{"type":"text_delta","text":"me"}`), blockEnd("1"),
			blockStart("2", `{"type":"tool_use","id":"c1","name":"f","input":{}}`), blockDelta("2", `{"type":"input_json_delta","partial_json":"{\"a\":"}`), blockDelta("2", `{"type":"input_json_delta","partial_json":"1.0}"}`), blockEnd("2"), vendorEnd, vendorStop),
		`{"type":"thinking","thinking":"hm","signature":"sig"}`,
	},
	upstream.Responses: {
		richResponse, "", // made of it
		`"encrypted_content":"blob"`,
	},
}

var richResponse = vendorResponse(reasoningItem("rs_1", `"blob"`, "hm")+`,`+outputMessage("msg_1", "let me")+`,`+callItem("c1", "f", `{"a":1.0}`), completed)

// scripted is an upstream of one wire that gives one answer, and keeps the last request.
type scripted struct {
	op            upstream.Op
	whole, stream string
	body          io.Reader // an answer instead of these
	err           error     // no answer at all

	call *upstream.Call
	got  string // its body
}

func (s *scripted) Supports(op upstream.Op, _ string) bool { return op == s.op }

func (s *scripted) Do(_ context.Context, call *upstream.Call) (*upstream.Reply, error) {
	data, err := call.Body.Bytes()
	s.call, s.got = call, string(data)
	if err == nil {
		err = s.err
	}
	if err != nil {
		return nil, err
	}
	answer := s.body
	switch {
	case answer != nil:
	case call.Stream:
		answer = strings.NewReader(s.stream)
	default:
		answer = strings.NewReader(s.whole)
	}
	body, closes := answer.(io.ReadCloser)
	if !closes {
		body = io.NopCloser(answer)
	}
	return funcmodel.Reply("text/plain", body), nil
}

func TestTheBridgeAddsTheOtherWiresOfConversations(t *testing.T) {
	conversations := []upstream.Op{upstream.ChatCompletion, upstream.Messages, upstream.Responses}
	for _, c := range []struct {
		speaks   upstream.Op
		supports []upstream.Op
	}{
		{upstream.ChatCompletion, conversations},
		{upstream.Messages, conversations},
		{upstream.Responses, conversations},
		{upstream.CountTokens, []upstream.Op{upstream.CountTokens}},
		{upstream.CountInput, []upstream.Op{upstream.CountInput}},
		{upstream.Embeddings, []upstream.Op{upstream.Embeddings}},
	} {
		up := Bridge(Options{})(&scripted{op: c.speaks})
		var got []upstream.Op
		for _, op := range upstream.Ops() {
			if upstream.Supports(up, op, "m") {
				got = append(got, op)
			}
		}
		if !slices.Equal(got, c.supports) {
			t.Errorf("over %s: %v, want %v", c.speaks, got, c.supports)
		}
	}
}

// TestAConversationGoesOnOverEveryPairOfWires has a client of each wire talk to an
// upstream of each other one, whole and streamed.
func TestAConversationGoesOnOverEveryPairOfWires(t *testing.T) {
	const said = `thinking(hm)text(let me)c1:f({"a":1.0})`
	usage := billing.Usage{Input: 10, CachedInput: 6, CacheWrite: 4, Output: 5, Reasoning: 2}
	bridged := Bridge(Options{Now: func() time.Time { return time.Unix(77, 0) }, Secrets: seal.New(nil)})
	for _, c := range clients {
		for op, v := range vendors {
			if op == c.op {
				continue
			}
			if v.stream == "" {
				v.stream = vendorEvents(responseEvents(t, v.whole, 3)...)
			}
			up := &scripted{op: op, whole: v.whole, stream: v.stream}
			send := func(t *testing.T, account string, stream bool, history ...string) *upstream.Reply {
				t.Helper()
				body, err := c.parse(c.ask(history))
				if err != nil {
					t.Fatal(err)
				}
				reply, err := bridged(up).Do(t.Context(), &upstream.Call{Op: c.op, Model: "m", Account: account, Stream: stream, MaxOutput: 4096, Body: body})
				if err != nil {
					t.Fatal(err)
				}
				return reply
			}
			t.Run(fmt.Sprintf("%s at %s", c.op, op), func(t *testing.T) {
				whole, err := io.ReadAll(send(t, "alice", false, c.says).Body)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := c.usage(string(whole)); err != nil || got != usage {
					t.Errorf("usage %+v, %v", got, err)
				}
				tap := c.tap()
				stream, err := pass(t, tap.Event, send(t, "alice", true, c.says).Body, nil)
				if last, ok := tap.(interface{ Terminator() string }); ok { // is kept until the charge is recorded
					stream = append(stream, last.Terminator()...)
				}
				if err != io.EOF || tap.Usage() != usage {
					t.Errorf("streamed usage %+v, %v", tap.Usage(), err)
				}
				for how, r := range map[string]read{"whole": c.reads(string(whole), ""), "streamed": c.reads("", string(stream))} {
					if r.err != nil || r.text != said {
						t.Errorf("%s: %s, %v", how, r.text, r.err)
						continue
					}
					history := slices.Concat([]string{c.says}, r.back, []string{c.sends})
					_ = send(t, "alice", false, history...).Body.Close()
					for _, want := range []string{`weather?`, `let me`, `"c1"`, `18 degrees`, v.thoughts} {
						if !strings.Contains(up.got, want) {
							t.Errorf("%s: no %s in %s", how, want, up.got)
						}
					}
					if strings.Contains(up.got, "gateway-reasoning") || strings.Contains(up.got, sealedPrefix) || op == upstream.ChatCompletion && strings.Contains(up.got, reasoningSignature) {
						t.Errorf("%s: the upstream gets the gateway's own signature: %s", how, up.got)
					}
					for other := range vendors { // the conversation moves to a channel of another wire, or to one of its own
						if other == op || other == c.op && c.op == upstream.ChatCompletion {
							continue
						}
						up.op = other
						_ = send(t, "alice", false, history...).Body.Close()
						for _, foreign := range []string{`"sig"`, `blob`, "gateway-reasoning", sealedPrefix} {
							if strings.Contains(up.got, foreign) {
								t.Errorf("%s: %s gets %s of %s: %s", how, other, foreign, op, up.got)
							}
						}
						if other == upstream.ChatCompletion && strings.Contains(up.got, reasoningSignature) {
							t.Errorf("%s: an upstream of chat gets %s", how, up.got)
						}
					}
					up.op = op
					_ = send(t, "bob", false, history...).Body.Close()
					if c.op == upstream.Responses && strings.Contains(up.got, v.thoughts) {
						t.Errorf("%s: another account's thoughts are opened: %s", how, up.got)
					}
				}
			})
		}
	}
}

func TestARefusalOfTheUpstreamsWireIsInWordsOfTheCallers(t *testing.T) {
	for _, tt := range []struct {
		name          string
		op, spoken    upstream.Op
		body          string
		param, saying string
	}{
		{"a mode at messages", upstream.Responses, upstream.Messages, `{"model":"m","input":"hi","text":{"format":{"type":"json_object"}}}`, "text.format", `"text.format" must be`},
		{"a file at messages", upstream.Responses, upstream.Messages, `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","filename":"a.csv","file_data":"data:text/csv;base64,YQ=="}]}]}`, "input", `"input" must be`},
		{"instructions alone", upstream.Responses, upstream.Messages, `{"model":"m","input":[{"role":"developer","content":"s"}]}`, "input", `"input" must be`},
		{"a choice at messages", upstream.Responses, upstream.Messages, `{"model":"m","input":"hi","tools":[{"type":"web_search"}],"tool_choice":"required"}`, "tool_choice", `"tool_choice" must be`},
		{"a stop at responses", upstream.Messages, upstream.Responses, `{"model":"m","max_tokens":9,"stop_sequences":["x"],"messages":[{"role":"user","content":"hi"}]}`, "stop_sequences", `"stop_sequences" must be`},
		{"a stop of chat's own", upstream.ChatCompletion, upstream.Responses, `{"model":"m","stop":["x"],"messages":[{"role":"user","content":"hi"}]}`, "stop", `"stop" must be`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := &scripted{op: tt.spoken}
			_, err := bridged(t, up, upstream.Call{Op: tt.op}, tt.body)
			var f *fault.Error
			if !errors.As(err, &f) || f.Param != tt.param || !strings.HasPrefix(f.Message, tt.saying) || f.HTTPStatus() != 400 || up.got != "" {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestWhatAChannelDropsIsNotRefused(t *testing.T) {
	for _, tt := range []struct {
		name       string
		op, spoken upstream.Op
		drop       string
		body       string
		dropped    string // empty where it is refused all the same
	}{
		{"chat's stop at responses", upstream.ChatCompletion, upstream.Responses, "stop", `{"stop":["x"]}`, "stop"},
		{"another field", upstream.ChatCompletion, upstream.Responses, "user", `{"stop":["x"]}`, ""},
		{"a message's stop at responses", upstream.Messages, upstream.Responses, "stop", `{"stop_sequences":["x"]}`, "stop_sequences"},
		{"by the client's name", upstream.Messages, upstream.Responses, "stop_sequences", `{"stop_sequences":["x"]}`, "stop_sequences"},
		{"more than chat takes", upstream.Messages, upstream.ChatCompletion, "stop", `{"stop_sequences":["a","b","c","d","e"]}`, "stop_sequences"},
		{"a mode at messages", upstream.ChatCompletion, upstream.Messages, "response_format", `{"response_format":{"type":"json_object"}}`, "response_format"},
		{"a response's mode at messages", upstream.Responses, upstream.Messages, "response_format", `{"text":{"format":{"type":"json_object"}}}`, "text.format"},
		{"what is carried", upstream.ChatCompletion, upstream.Messages, "stop", `{"seed":1,"stop":["x"]}`, "seed"},
		{"several candidates", upstream.ChatCompletion, upstream.Messages, "n", `{"n":2}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := map[upstream.Op]string{
				upstream.ChatCompletion: `{"model":"m","messages":[{"role":"user","content":"hi"}],`,
				upstream.Messages:       `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],`,
				upstream.Responses:      `{"model":"m","input":"hi",`,
			}[tt.op] + tt.body[1:]
			up := &scripted{op: tt.spoken}
			reply, err := bridged(t, up, upstream.Call{Op: tt.op, Drop: []string{tt.drop}}, body)
			switch {
			case tt.dropped == "":
				if f, _ := upstream.FailureOf(err); err == nil || !f.Unasked {
					t.Errorf("error %v, want a refusal", err)
				}
			case err != nil || strings.Join(reply.Dropped, " ") != tt.dropped:
				t.Errorf("%+v, error %v, want %s dropped", reply, err, tt.dropped)
			}
		})
	}
}

func TestAskingAnUpstreamOfMessagesForThoughts(t *testing.T) {
	const chatAsk, responseAsk = `{"model":"m","messages":[{"role":"user","content":"hi"}],`, `{"model":"m","input":"hi","max_output_tokens":8000,`
	for _, tt := range []struct {
		name              string
		op                upstream.Op
		thinking          string // the channel's
		body              string
		sent, effort, out string // out are the fields that are dropped
	}{
		{"a summary", upstream.Responses, "", `"reasoning":{"summary":"auto"}}`, `{"type":"adaptive"}`, "", ""},
		{"a summary by its older name", upstream.Responses, "", `"reasoning":{"generate_summary":"auto"}}`, `{"type":"adaptive"}`, "", ""},
		{"sealed", upstream.Responses, "", `"include":["reasoning.encrypted_content"],"reasoning":{"effort":"high"}}`, `{"type":"adaptive"}`, "high", ""},
		{"an effort alone", upstream.Responses, "", `"reasoning":{"effort":"high"}}`, "", "high", ""},
		{"an effort at a channel that says how", upstream.Responses, "adaptive", `"reasoning":{"effort":"high"}}`, `{"type":"adaptive"}`, "high", ""},
		{"nothing, at such a channel", upstream.Responses, "adaptive", `"user":"u"}`, "", "", ""},
		{"no effort", upstream.Responses, "adaptive", `"reasoning":{"effort":"none","summary":"auto"},"include":["reasoning.encrypted_content"]}`, "", "", ""},
		{"an effort that the upstream does not have", upstream.Responses, "", `"reasoning":{"effort":"minimal","summary":"auto"}}`, "", "", "reasoning.effort reasoning.summary"},
		{"a budget", upstream.Responses, "enabled", `"reasoning":{"effort":"high","summary":"auto"}}`, `{"type":"enabled","budget_tokens":6400}`, "high", ""},
		{"a budget without an effort", upstream.Responses, "enabled", `"reasoning":{"summary":"auto"}}`, `{"type":"enabled","budget_tokens":4000}`, "", ""},
		{"a temperature", upstream.Responses, "", `"temperature":0.5,"reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content"]}`, "", "low", "reasoning.summary include"},
		{"the only temperature", upstream.Responses, "", `"temperature":1,"top_p":0.95,"reasoning":{"summary":"auto"}}`, `{"type":"adaptive"}`, "", ""},
		{"a demanded tool", upstream.Responses, "", `"tools":[{"type":"function","name":"f"}],"tool_choice":"required","reasoning":{"summary":"auto"}}`, "", "", "reasoning.summary"},
		{"chat's effort", upstream.ChatCompletion, "", `"reasoning_effort":"high"}`, "", "high", ""},
		{"chat's effort at a channel that says how", upstream.ChatCompletion, "adaptive", `"reasoning_effort":"high"}`, `{"type":"adaptive"}`, "high", ""},
		{"chat's least budget", upstream.ChatCompletion, "enabled", `"max_tokens":2000,"reasoning_effort":"low"}`, `{"type":"enabled","budget_tokens":1024}`, "low", ""},
		{"too few tokens for a budget", upstream.ChatCompletion, "enabled", `"max_tokens":1024,"reasoning_effort":"low"}`, "", "low", ""},
		{"chat's own thinking", upstream.ChatCompletion, "adaptive", `"reasoning_effort":"high","thinking":{"type":"disabled"}}`, `{"type":"disabled"}`, "high", ""},
		{"chat's none", upstream.ChatCompletion, "adaptive", `"reasoning_effort":"none"}`, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := &scripted{op: upstream.Messages}
			ask := chatAsk
			if tt.op == upstream.Responses {
				ask = responseAsk
			}
			reply, err := bridged(t, up, upstream.Call{Op: tt.op, Thinking: tt.thinking}, ask+tt.body)
			if err != nil {
				t.Fatal(err)
			}
			thinking, effort := string(rawjson.Lookup([]byte(up.got), "thinking")), rawjson.LookupString([]byte(up.got), "output_config", "effort")
			if out := strings.Join(reply.Dropped, " "); thinking != tt.sent || effort != tt.effort || out != tt.out {
				t.Errorf("thinking %s, effort %q, dropped %q; want %s, %q, %q", thinking, effort, out, tt.sent, tt.effort, tt.out)
			}
		})
	}
}

// TestABudgetNeedsTheThoughtOfTheTurnBefore sends the results of a call whose thought the
// client has left out.
func TestABudgetNeedsTheThoughtOfTheTurnBefore(t *testing.T) {
	for thinking, want := range map[string]string{"enabled": "", "adaptive": `{"type":"adaptive"}`} {
		up := &scripted{op: upstream.Messages}
		_, err := bridged(t, up, upstream.Call{Op: upstream.ChatCompletion, Thinking: thinking}, `{"model":"m","max_tokens":8000,"reasoning_effort":"low","messages":[{"role":"user","content":"hi"},`+
			`{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"a"}]}`)
		if got := string(rawjson.Lookup([]byte(up.got), "thinking")); err != nil || got != want {
			t.Errorf("%s: %s, error %v", thinking, got, err)
		}
	}
}

func TestWhatIsDroppedOnBothWaysHasTheCallersNames(t *testing.T) {
	for _, tt := range []struct {
		name       string
		op, spoken upstream.Op
		body       string
		want       []string
	}{
		{"a response at messages", upstream.Responses, upstream.Messages,
			`{"model":"m","truncation":"auto","reasoning":{"effort":"minimal"},"presence_penalty":1,"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://h.example/a.png","detail":"low"}]}]}`,
			[]string{"truncation", "input.content.image_url.detail", "presence_penalty", "reasoning.effort"}},
		{"a message at responses", upstream.Messages, upstream.Responses,
			`{"model":"m","max_tokens":9,"top_k":1,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"gateway-reasoning"},{"type":"text","text":"a"}]},{"role":"user","content":"hi"}]}`,
			[]string{"top_k", "messages.reasoning_content"}},
		{"a completion at responses", upstream.ChatCompletion, upstream.Responses, `{"model":"m","seed":1,"messages":[{"role":"user","name":"n","content":"hi"}]}`, []string{"messages.name", "seed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := bridged(t, &scripted{op: tt.spoken}, upstream.Call{Op: tt.op}, tt.body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, reply.Dropped); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestARefusalIsOneOfTheCallersWire has refusals with a body of the upstream's wire, which
// clients of another one do not get. A full context has the code by which these shorten theirs.
func TestARefusalIsOneOfTheCallersWire(t *testing.T) {
	const full = "context_length_exceeded"
	for _, tt := range []struct {
		op, spoken upstream.Op
		message    string
		want       fault.Code
	}{
		{upstream.Responses, upstream.Messages, "prompt is too long: 205000 tokens > 200000 maximum", full},
		{upstream.ChatCompletion, upstream.Messages, "Prompt is too long", full},
		{upstream.ChatCompletion, upstream.Messages, "input length and `max_tokens` exceed context limit: 9 + 9 > 10", full},
		{upstream.Responses, upstream.Messages, "messages: prompt is too long", fault.InvalidRequest},
		{upstream.Messages, upstream.Messages, "prompt is too long: 9 > 8", fault.InvalidRequest},
		{upstream.Responses, upstream.ChatCompletion, "prompt is too long: 9 > 8", fault.InvalidRequest},
	} {
		refusal := fault.Invalid("", tt.message).With(func(e *fault.Error) { e.Body = []byte(`{"error":{}}`) })
		_, err := bridged(t, &scripted{op: tt.spoken, err: refusal}, upstream.Call{Op: tt.op}, map[upstream.Op]string{
			upstream.Responses:      `{"model":"m","input":"x"}`,
			upstream.ChatCompletion: `{"model":"m","messages":[{"role":"user","content":"x"}]}`,
			upstream.Messages:       `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`,
		}[tt.op])
		if f := fault.From(err); f == nil || f.Code != tt.want || f.HTTPStatus() != 400 || f.Message != tt.message || (f.Body == nil) != (tt.op != tt.spoken) {
			t.Errorf("%s at %s, %q: %+v", tt.op, tt.spoken, tt.message, f)
		}
	}
}

// bridged sends a body through a bridge over an upstream, as the client of a call does.
func bridged(t *testing.T, up upstream.Upstream, call upstream.Call, body string) (*upstream.Reply, error) {
	t.Helper()
	call.Model, call.MaxOutput, call.Body = "m", 9, parsedAs(t, call.Op, body)
	return Bridge(Options{})(up).Do(t.Context(), &call)
}

// parsedAs is a body as the package of its wire reads it.
func parsedAs(t *testing.T, op upstream.Op, body string) upstream.Body {
	t.Helper()
	parsed, err := clients[slices.IndexFunc(clients, func(c client) bool { return c.op == op })].parse(body)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
