package translate

import (
	"errors"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

// FuzzAStreamIsWellFormedOrFails: whatever an upstream sends, the events are in
// order, and only a whole message ends without an error.
func FuzzAStreamIsWellFormedOrFails(f *testing.F) {
	for _, row := range streamRows {
		f.Add([]byte(chunks(append(row.stream, done)...)))
		f.Add([]byte(chunks(append(row.stream, counts)...)))
	}
	f.Add([]byte(`data: {"error":{"message":"x"}}` + "\n\n"))
	f.Add([]byte("event: error\ndata: {}\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, r := range []*messages.Request{thinker(), {Model: "public"}} {
			out, err := streamed(r, strings.NewReader(string(body)))
			c, wrong := follow([]byte(out))
			if wrong != nil {
				t.Fatalf("%v\n%s", wrong, out)
			}
			var broken *fault.Error
			if c.over != (err == nil) || err != nil && (!errors.As(err, &broken) || broken.Code != fault.BadGateway) {
				t.Fatalf("over: %t, %v", c.over, err)
			}
		}
	})
}

// FuzzAnAnswerIsOneMessageOrFails: the same for whole answers.
func FuzzAnAnswerIsOneMessageOrFails(f *testing.F) {
	for _, row := range answerRows {
		f.Add([]byte(`{"id":"a","choices":[{"message":` + row.message + `,"finish_reason":` + row.finish + `}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		out, err := fromChatAnswer(thinker(), body)
		if err != nil {
			if !fault.Is(err, fault.BadGateway) {
				t.Fatal(err)
			}
			return
		}
		o, err := rawjson.Index(out, nil, nil)
		if err != nil || string(o.Raw("type")) != `"message"` || string(o.Raw("model")) != `"public"` || o.Raw("content")[0] != '[' {
			t.Fatalf("%s, %v", out, err)
		}
	})
}

// FuzzARequestIsTranslatedOrRefused: a request that Parse and Validate take is
// translated or refused, and never makes chat's own reader fail.
func FuzzARequestIsTranslatedOrRefused(f *testing.F) {
	for _, row := range outbounds {
		f.Add([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}],` + row.members + `}`))
		f.Add([]byte(`{"model":"m","max_tokens":9,` + row.members + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := messagesapi.Parse(body)
		if err != nil || r.Validate() != nil {
			return
		}
		c, _, err := messagesToChat(r.Request)
		if err != nil {
			if !fault.Is(err, fault.InvalidRequest) {
				t.Fatal(err)
			}
			return
		}
		if c.Model != r.Model {
			t.Fatalf("%q became %q", r.Model, c.Model)
		}
	})
}
