package sim

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
)

// whole is the answer as one completion object.
func (a *answer) whole(f Fault) ([]byte, error) {
	r := chat.Response{
		ID: a.id, Object: "chat.completion", Created: a.created, Model: a.model,
		Usage: a.report(f.Usage),
		Extra: jsontext.Value(`{"system_fingerprint":"sim"}`),
	}
	for i := range a.candidates {
		c := &a.candidates[i]
		r.Choices = append(r.Choices, chat.Choice{
			Index: int64(i), Message: c.message(), FinishReason: c.finish,
			Extra: jsontext.Value(`{"logprobs":null}`),
		})
	}
	return json.Marshal(r)
}

// report is the usage as the fault shows it; nil for none.
func (a *answer) report(r Report) *chat.Usage {
	switch r {
	case Withheld:
		return nil
	case ZeroUsage:
		return &chat.Usage{}
	}
	return a.usage
}

// message joins the candidate's tokens.
func (c *candidate) message() chat.Message {
	var text, thoughts strings.Builder
	m := chat.Message{Role: "assistant"}
	for i := range c.total {
		switch p := c.at(i); p.kind {
		case content:
			text.WriteString(p.text)
		case reasoning:
			thoughts.WriteString(p.text)
		case callBegin:
			m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: p.id, Type: "function", Function: chat.CalledFunction{Name: p.text}})
		case callArguments:
			m.ToolCalls[p.call].Function.Arguments += p.text
		}
	}
	m.ReasoningContent = thoughts.String()
	m.Content = chat.Text(text.String())
	if len(m.ToolCalls) > 0 {
		m.Content = chat.Content{}
		m.Extra = jsontext.Value(`{"content":null}`)
	}
	return m
}
