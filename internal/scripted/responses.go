package scripted

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// fromItems reads the input of Responses.
func (a *answer) fromItems() *script {
	s := &script{}
	var items []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Output  json.RawMessage `json:"output"`
	}
	if json.Unmarshal(a.Input, &items) != nil {
		s.user(text(a.Input))
		return s
	}
	for _, item := range items {
		switch {
		case strings.HasSuffix(item.Type, "_output"):
			s.output(text(item.Output))
			continue
		case item.Role == "user":
			s.user(text(item.Content))
		}
		s.open = false
	}
	return s
}

// responsesWire writes Responses (https://platform.openai.com/docs/api-reference/responses-streaming).
type responsesWire struct {
	sequence int
	items    []object
}

func (w *responsesWire) event(a *answer, kind string, members object) {
	members["type"], members["sequence_number"] = kind, w.sequence
	if !a.mute {
		w.sequence++
	}
	a.write("event: " + kind + "\ndata: " + quoted(members) + "\n\n")
}

// response is the answer, which repeats what the request said.
func (w *responsesWire) response(a *answer, status string) object {
	r := object{
		"id": a.id("resp", 0), "object": "response", "created_at": 1795300000, "completed_at": nil, "status": status, "background": false,
		"error": nil, "incomplete_details": nil, "instructions": nil, "max_output_tokens": nil, "max_tool_calls": nil, "model": a.Model,
		"output": slices.Clone(w.items), "parallel_tool_calls": true, "previous_response_id": nil, "prompt_cache_key": nil,
		"reasoning": object{"effort": nil, "summary": nil}, "safety_identifier": nil, "service_tier": "default", "store": false, "temperature": 1,
		"text": object{"format": object{"type": "text"}}, "tool_choice": "auto", "tools": []any{}, "top_logprobs": 0, "top_p": 1,
		"presence_penalty": 0, "frequency_penalty": 0, "truncation": "disabled", "usage": nil, "user": nil, "metadata": object{},
	}
	if w.items == nil {
		r["output"] = []any{}
	}
	maps.DeleteFunc(a.Echo, func(name string, _ any) bool { _, known := r[name]; return !known || name == "store" })
	maps.Copy(r, a.Echo)
	tools, _ := r["tools"].([]any)
	for _, tool := range tools {
		if tool, ok := tool.(object); ok && tool["type"] == "function" {
			maps.Copy(tool, object{"description": tool["description"], "parameters": tool["parameters"]})
			if tool["strict"] == nil {
				tool["strict"] = true // what OpenAI makes of a tool that does not say
			}
		}
	}
	if status == "completed" || status == "incomplete" {
		r["completed_at"] = 1795300001
		r["usage"] = object{
			"input_tokens": Input, "input_tokens_details": object{"cached_tokens": Cached},
			"output_tokens": a.output, "output_tokens_details": object{"reasoning_tokens": a.thoughts}, "total_tokens": Input + a.output,
		}
	}
	return r
}

func (w *responsesWire) begin(a *answer) {
	w.event(a, "response.created", object{"response": w.response(a, "in_progress")})
	w.event(a, "response.in_progress", object{"response": w.response(a, "in_progress")})
}

func (w *responsesWire) part(a *answer, i int, p part) {
	namespace, name := p.names()
	switch p.verb {
	case "call", "custom":
		item := object{"type": "function_call", "id": a.id("fc", i), "call_id": a.id("call", i), "name": name, "status": "completed"}
		member, event := "arguments", "response.function_call_arguments"
		if p.verb == "custom" {
			item["type"], item["id"] = "custom_tool_call", a.id("ctc", i)
			member, event = "input", "response.custom_tool_call_input"
		}
		if namespace != "" {
			item["namespace"] = namespace
		}
		w.item(a, item, func(at object) {
			w.deltas(a, event, at, member, p)
		}, member, "", p.text)
	case "think":
		item := object{"type": "reasoning", "id": a.id("rs", i), "summary": []any{}, "content": []any{}, "encrypted_content": nil, "status": "completed"}
		if slices.Contains(a.Include, "reasoning.encrypted_content") {
			item["encrypted_content"] = "opaque"
		}
		if a.Reasoning.Summary != "" {
			whole := object{"type": "summary_text", "text": p.text}
			w.item(a, item, func(at object) {
				at["summary_index"] = 0
				w.event(a, "response.reasoning_summary_part.added", with(at, "part", object{"type": "summary_text", "text": ""}))
				w.deltas(a, "response.reasoning_summary_text", at, "text", p)
				w.event(a, "response.reasoning_summary_part.done", with(at, "part", whole))
			}, "summary", []any{}, []any{whole})
			return
		}
		w.content(a, item, "response.reasoning_text", p, object{"type": "reasoning_text"}, "text")
	default:
		item := object{"type": "message", "id": a.id("msg", i), "role": "assistant", "status": "completed", "content": []any{}}
		if p.verb == "refuse" {
			w.content(a, item, "response.refusal", p, object{"type": "refusal"}, "refusal")
			return
		}
		w.content(a, item, "response.output_text", p, object{"type": "output_text", "annotations": []any{}, "logprobs": []any{}}, "text")
	}
}

// with is an object and one more member.
func with(o object, name string, value any) object {
	o = maps.Clone(o)
	o[name] = value
	return o
}

// item announces an item without the value of a member, has its content written, and
// ends it with the value.
func (w *responsesWire) item(a *answer, item object, write func(at object), member string, empty, value any) {
	index := len(w.items)
	started := with(item, member, empty)
	started["status"] = "in_progress"
	w.event(a, "response.output_item.added", object{"output_index": index, "item": started})
	write(object{"item_id": item["id"], "output_index": index})
	item = with(item, member, value)
	w.event(a, "response.output_item.done", object{"output_index": index, "item": item})
	if !a.mute {
		w.items = append(w.items, item)
	}
}

// content writes an item of one content part, whose text is a member of it.
func (w *responsesWire) content(a *answer, item object, event string, p part, content object, member string) {
	whole := with(content, member, p.text)
	w.item(a, item, func(at object) {
		at["content_index"] = 0
		w.event(a, "response.content_part.added", with(at, "part", with(content, member, "")))
		if event == "response.output_text" {
			at["logprobs"] = []any{}
		}
		w.deltas(a, event, at, member, p)
		delete(at, "logprobs")
		w.event(a, "response.content_part.done", with(at, "part", whole))
	}, "content", []any{}, []any{whole})
}

// deltas writes a text in pieces, and then whole.
func (w *responsesWire) deltas(a *answer, event string, at object, member string, p part) {
	for _, delta := range p.deltas() {
		w.event(a, event+".delta", with(with(at, "delta", delta), "obfuscation", "x"))
	}
	a.mute = a.breaks
	at = with(at, member, p.text)
	if member == "arguments" {
		_, at["name"] = p.names()
	}
	w.event(a, event+".done", at)
}

func (w *responsesWire) fail(a *answer) {
	r := w.response(a, "failed")
	r["error"] = object{"code": "server_error", "message": "The vendor failed."}
	w.event(a, "response.failed", object{"response": r})
}

func (w *responsesWire) end(a *answer) object {
	r := w.response(a, "completed")
	if a.length {
		r = w.response(a, "incomplete")
		r["incomplete_details"] = object{"reason": "max_output_tokens"}
	}
	w.event(a, "response."+r["status"].(string), object{"response": r})
	return r
}
