package scripted

import "fmt"

// fromChat reads the messages of a chat completion.
func (a *answer) fromChat() *script {
	s := &script{}
	for _, m := range a.Messages {
		if m.Role == "tool" {
			s.output(text(m.Content))
			continue
		}
		if m.Role == "user" {
			s.user(text(m.Content))
		}
		s.open = false
	}
	return s
}

// chatWire writes chat completions (https://platform.openai.com/docs/api-reference/chat-streaming).
type chatWire struct {
	message object
	calls   []object
}

func (w *chatWire) begin(a *answer) { w.message = object{"role": "assistant", "content": nil} }

func (w *chatWire) chunk(a *answer, delta object, finish any) {
	a.write(fmt.Sprintf("data: {\"id\":%q,\"object\":\"chat.completion.chunk\",\"created\":1795300000,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n",
		a.id("chatcmpl", 0), a.Model, quoted(delta), quoted(finish)))
}

func (w *chatWire) part(a *answer, i int, p part) {
	member := map[string]string{"say": "content", "think": "reasoning_content", "refuse": "refusal"}[p.verb]
	if member != "" {
		before, _ := w.message[member].(string)
		w.message[member] = before + p.text
		for _, delta := range p.deltas() {
			w.chunk(a, object{member: delta}, nil)
		}
		return
	}
	p = p.function()
	index := len(w.calls)
	call := object{"id": a.id("call", i), "type": "function", "function": object{"name": p.name, "arguments": p.text}}
	w.calls = append(w.calls, call)
	w.message["tool_calls"] = w.calls
	w.chunk(a, object{"tool_calls": []object{{"index": index, "id": call["id"], "type": "function", "function": object{"name": p.name, "arguments": ""}}}}, nil)
	for _, delta := range p.deltas() {
		w.chunk(a, object{"tool_calls": []object{{"index": index, "function": object{"arguments": delta}}}}, nil)
	}
}

func (w *chatWire) fail(a *answer) {
	a.write("data: {\"error\":{\"message\":\"The vendor failed.\",\"type\":\"server_error\",\"code\":null}}\n\n")
}

func (w *chatWire) end(a *answer) object {
	finish := "stop"
	switch {
	case a.length:
		finish = "length"
	case a.calls:
		finish = "tool_calls"
	}
	usage := object{
		"prompt_tokens": Input, "completion_tokens": a.output, "total_tokens": Input + a.output,
		"prompt_tokens_details": object{"cached_tokens": Cached}, "completion_tokens_details": object{"reasoning_tokens": a.thoughts},
	}
	w.chunk(a, object{}, finish)
	if a.StreamOptions.IncludeUsage {
		a.write(fmt.Sprintf("data: {\"id\":%q,\"object\":\"chat.completion.chunk\",\"created\":1795300000,\"model\":%q,\"choices\":[],\"usage\":%s}\n\n",
			a.id("chatcmpl", 0), a.Model, quoted(usage)))
	}
	a.write("data: [DONE]\n\n")
	return object{
		"id": a.id("chatcmpl", 0), "object": "chat.completion", "created": 1795300000, "model": a.Model, "usage": usage,
		"choices": []object{{"index": 0, "message": w.message, "finish_reason": finish}},
	}
}
