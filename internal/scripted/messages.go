package scripted

import "encoding/json"

// fromMessages reads the messages of Messages.
func (a *answer) fromMessages() *script {
	s := &script{}
	for _, m := range a.Messages {
		if m.Role != "user" {
			s.open = false
			continue
		}
		var blocks []struct {
			Type    string          `json:"type"`
			Text    string          `json:"text"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(m.Content, &blocks) != nil {
			s.user(text(m.Content))
			continue
		}
		for _, b := range blocks { // several messages of a user may be one here
			switch b.Type {
			case "tool_result":
				s.output(text(b.Content))
			case "text":
				s.user(b.Text)
			}
		}
	}
	return s
}

// messagesWire writes Messages (https://docs.anthropic.com/en/docs/build-with-claude/streaming).
type messagesWire struct{ blocks []object }

func (w *messagesWire) event(a *answer, kind string, members object) {
	members["type"] = kind
	a.write("event: " + kind + "\ndata: " + quoted(members) + "\n\n")
}

func (w *messagesWire) message(a *answer, stop any) object {
	return object{
		"id": a.id("msg", 0), "type": "message", "role": "assistant", "model": a.Model, "content": w.blocks, "stop_reason": stop, "stop_sequence": nil,
		"usage": object{"input_tokens": Input - Cached, "cache_read_input_tokens": Cached, "cache_creation_input_tokens": 0, "output_tokens": a.output},
	}
}

func (w *messagesWire) begin(a *answer) {
	w.blocks = []object{}
	w.event(a, "message_start", object{"message": w.message(a, nil)})
}

func (w *messagesWire) part(a *answer, i int, p part) {
	index := len(w.blocks)
	start, whole := object{"type": "text", "text": ""}, object{"type": "text", "text": p.text}
	kind, member := "text_delta", "text"
	switch p.verb {
	case "think":
		start, whole = object{"type": "thinking", "thinking": "", "signature": ""}, object{"type": "thinking", "thinking": p.text, "signature": "signed"}
		kind, member = "thinking_delta", "thinking"
	case "call", "custom":
		p = p.function()
		start = object{"type": "tool_use", "id": a.id("toolu", i), "name": p.name, "input": object{}}
		whole = with(start, "input", json.RawMessage(p.text))
		kind, member = "input_json_delta", "partial_json"
	}
	w.event(a, "content_block_start", object{"index": index, "content_block": start})
	for _, delta := range p.deltas() {
		w.event(a, "content_block_delta", object{"index": index, "delta": object{"type": kind, member: delta}})
	}
	a.mute = a.breaks
	if p.verb == "think" {
		w.event(a, "content_block_delta", object{"index": index, "delta": object{"type": "signature_delta", "signature": "signed"}})
	}
	w.event(a, "content_block_stop", object{"index": index})
	w.blocks = append(w.blocks, whole)
	a.refused = a.refused || p.verb == "refuse"
}

func (w *messagesWire) fail(a *answer) {
	w.event(a, "error", object{"error": object{"type": "api_error", "message": "The vendor failed."}})
}

func (w *messagesWire) end(a *answer) object {
	stop := "end_turn"
	switch {
	case a.refused:
		stop = "refusal"
	case a.length:
		stop = "max_tokens"
	case a.calls:
		stop = "tool_use"
	}
	w.event(a, "message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": a.output}})
	w.event(a, "message_stop", object{})
	return w.message(a, stop)
}
