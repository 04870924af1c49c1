package chat_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// events is a source of a stream's bytes.
type events struct{ io.Reader }

func (events) Close() error                     { return nil }
func (events) Receipt() (billing.Receipt, bool) { return billing.Receipt{}, false }

// streamOf is a stream of chunks with these choices, each a JSON list, and the end that is given.
func streamOf(end string, choices ...string) *chat.Stream {
	var all strings.Builder
	for _, c := range choices {
		all.WriteString(`data: {"id":"x","choices":[` + c + "]}\n\n")
	}
	return chat.NewStream("req_1", events{strings.NewReader(all.String() + end)})
}

const done = "data: [DONE]\n\n"

func TestAMessageIsJoinedOfItsChunks(t *testing.T) {
	for _, c := range []struct {
		name    string
		choices []string
		want    string
	}{
		{"text", []string{`{"index":0,"delta":{"role":"assistant","content":""}}`, `{"index":0,"delta":{"content":"Hel"}}`, `{"index":0,"delta":{"content":"lo."}}`, `{"index":0,"delta":{},"finish_reason":"stop"}`, ``},
			`{"role":"assistant","content":"Hello."}`},
		{"no text at all", []string{`{"index":0,"delta":{}}`}, `{"role":"assistant","content":null}`},
		{"reasoning", []string{`{"index":0,"delta":{"reasoning_content":"So"}}`, `{"index":0,"delta":{"reasoning_content":" what"}}`, `{"index":0,"delta":{"content":"Hi"}}`},
			`{"role":"assistant","reasoning_content":"So what","content":"Hi"}`},
		{"other candidates", []string{`{"index":1,"delta":{"content":"no"}}`, `{"index":0,"delta":{"content":"yes"}},{"index":1,"delta":{"content":"no"}}`},
			`{"role":"assistant","content":"yes"}`},
		{"calls", []string{
			`{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""},"extra_content":{"google":{"thought_signature":"s"}}}]}}`,
			`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}}`,
			`{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}}`,
			`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}`,
		}, `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"},"extra_content":{"google":{"thought_signature":"s"}}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}`},
		{"calls without an index", []string{`{"index":0,"delta":{"content":"Wait.","tool_calls":[{"id":"a","function":{"name":"f","arguments":"1"}},{"id":"b","function":{"name":"g","arguments":"2"}}]}}`},
			`{"role":"assistant","content":"Wait.","tool_calls":[{"id":"a","function":{"name":"f","arguments":"1"}},{"id":"b","function":{"name":"g","arguments":"2"}}]}`},
		{"members without a field", []string{
			`{"index":0,"delta":{"refusal":null,"annotations":[1]}}`, `{"index":0,"delta":{"refusal":"I will"}}`, `{"index":0,"delta":{"refusal":" not.","annotations":[1,2]}}`, `{"index":0,"delta":{"refusal":null}}`,
		}, `{"role":"assistant","content":null,"refusal":"I will not.","annotations":[1,2]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := streamOf(done, c.choices...).Message()
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(m)
			if diff := cmp.Diff(c.want, string(got)); diff != "" || err != nil {
				t.Errorf("%v: %s", err, diff)
			}
			after := streamOf(done, c.choices...)
			for _, err := range after.Text() {
				if err != nil {
					t.Fatal(err)
				}
			}
			if again, err := after.Message(); err != nil || cmp.Diff(m, again) != "" {
				t.Errorf("after a loop: %+v, %v", again, err)
			}
		})
	}
}

func TestTextIsThatOfTheFirstCandidate(t *testing.T) {
	var got []string
	for text, err := range streamOf(done, `{"index":0,"delta":{"content":""}}`, `{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"no"}}`, `{"index":0,"delta":{"content":"b"}}`).Text() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, text)
	}
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAMessageOfABrokenStreamIsAnError(t *testing.T) {
	broken := `data: {"error":{"message":"It broke.","code":"BadGateway"}}` + "\n\n"
	piece := `{"index":0,"delta":{"content":"a"}}`
	if m, err := streamOf(broken, piece).Message(); !errors.Is(err, fault.BadGateway) || m != nil {
		t.Errorf("at once: %+v, %v", m, err)
	}
	s := streamOf(broken, piece)
	var failed error
	for _, err := range s.Text() {
		failed = err
	}
	if m, err := s.Message(); !errors.Is(err, fault.BadGateway) || m != nil || !errors.Is(failed, fault.BadGateway) {
		t.Errorf("after a loop that failed with %v: %+v, %v", failed, m, err)
	}
	s = streamOf(done, piece, piece)
	for range s.Text() {
		break
	}
	if m, err := s.Message(); err == nil {
		t.Errorf("after a loop that was left: %+v", m)
	}
}

// The gateway's own streams, whose context ends in the middle.
func TestAStreamEndsWithTheErrorOfItsContext(t *testing.T) {
	for name, read := range map[string]func(s *chat.Stream) (last error){
		"Chunks": func(s *chat.Stream) (last error) {
			for _, err := range s.Chunks() {
				last = err
			}
			return last
		},
		"Text": func(s *chat.Stream) (last error) {
			for _, err := range s.Text() {
				last = err
			}
			return last
		},
		"Message": func(s *chat.Stream) error {
			_, err := s.Message()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gatewaytest.New(t, func(o *gateway.Options) {
					o.Upstream = sim.New(sim.Options{Pace: time.Second})
				})
				ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
				defer cancel()
				s, err := g.ChatStream(ctx, question())
				if err != nil {
					t.Fatal(err)
				}
				if err := read(s); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it ends with %v", err)
				}
				if r, ok := s.Receipt(); !ok || r.Charge == 0 {
					t.Errorf("what had come is charged: %+v, %t", r, ok)
				}
			})
		})
	}
}

// A message that was streamed goes back to the model as one that was not.
func TestAMessageThatWasStreamedGoesBack(t *testing.T) {
	asked, g := recorded(t, sim.Script(calls("toll", `{"horses":2}`), sim.Step{Text: "6 pence."}))
	req := question()
	for range 2 {
		s, err := g.ChatStream(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Message()
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, *m)
		for _, call := range m.ToolCalls {
			req.Messages = append(req.Messages, chat.Message{Role: "tool", ToolCallID: call.ID, Content: chat.Text("6")})
		}
	}
	if got := req.Messages[3].Content.String(); got != "6 pence." || len((*asked)[1].Messages[1].ToolCalls) != 1 {
		t.Errorf("the conversation is %+v", req.Messages)
	}
}
