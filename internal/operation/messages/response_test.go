package messages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
)

const said = `"type":"message","role":"assistant","content":[{"type":"text","text":"Hello, you."},{"type":"tool_use","id":"t","name":"look","input":{"q":1}}]`

func TestAnAnswerShowsThePublicModelAndIsElseUnchanged(t *testing.T) {
	r := asked(t)
	for sent, want := range map[string]string{
		`{"id":"a",` + said + `,"model":"v"}`:                              `{"id":"a",` + said + `,"model":"public"}`,
		"{ \"model\" : \"v\",\n" + said + ", \"x\": 1.0 }\n":               "{ \"model\" : \"public\",\n" + said + ", \"x\": 1.0 }\n",
		`{` + said + `,"big":12345678901234567890,"e":1e400,"error":null}`: `{` + said + `,"big":12345678901234567890,"e":1e400,"error":null}`,
		`{"type":"message","content":[],"usage":{"input_tokens":1}}`:       `{"type":"message","content":[],"usage":{"input_tokens":1}}`,
	} {
		a, err := r.ReadAnswer([]byte(sent), operation.AnswerOptions{})
		if diff := cmp.Diff(want, string(a.Body)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", sent, err, diff)
		}
	}
}

func TestA200ThatIsNoMessageIsABadGateway(t *testing.T) {
	for sent, message := range map[string]string{
		``: "not one JSON object", `[]`: "not one JSON object", `<html>`: "not one JSON object", `{` + said: "not one JSON object", `{` + said + `}{}`: "not one JSON object",
		`{}`: "not a message", `{"type":"message"}`: "not a message", `{"type":"message","content":"a"}`: "not a message", `{"type":"completion","content":[]}`: "not a message", `{"content":[]}`: "not a message", `{"type":"message","content":[]}`: "not a message",
		`{"type":"error","error":{"type":"odd_error","message":"secret"}}`: "reported an error", `{` + said + `,"error":"secret"}`: "reported an error",
	} {
		_, err := asked(t).ReadAnswer([]byte(sent), operation.AnswerOptions{})
		if !fault.Is(err, fault.BadGateway) || !strings.Contains(fault.From(err).Message, message) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", sent, err, message)
		}
	}
}

func TestTheUsageOfAnAnswerIsReadInDisjointBuckets(t *testing.T) {
	r := asked(t)
	estimate := r.InputEstimate(chat.MediaBound{})
	for usage, want := range map[string]billing.Usage{
		`{"input_tokens":10,"output_tokens":3}`: {Input: 10, Output: 3},
		`{"input_tokens":10,"output_tokens":3,"cache_creation_input_tokens":5,"cache_read_input_tokens":7,"output_tokens_details":{"thinking_tokens":2},"cache_creation":{"ephemeral_5m_input_tokens":5}}`: {Input: 10, CachedInput: 7, CacheWrite: 5, Output: 3, Reasoning: 2},
		`{"input_tokens":0,"output_tokens":0}`:   {Zero: true},
		`null`:                                   {Input: estimate, Output: 6, Estimated: true},
		`{"input_tokens":9}`:                     {Input: 9, Output: 6, Estimated: true},
		`{"input_tokens":"x","output_tokens":9}`: {Input: estimate, Output: 9, Estimated: true, Anomaly: true},
		`{"input_tokens":9,"output_tokens":-9}`:  {Input: 9, Output: 6, Estimated: true, Anomaly: true},
	} {
		a, err := r.ReadAnswer([]byte(`{`+said+`,"usage":`+usage+`}`), operation.AnswerOptions{})
		if diff := cmp.Diff(want, a.Usage); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", usage, err, diff)
		}
	}
}
