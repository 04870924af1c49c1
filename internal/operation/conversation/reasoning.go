package conversation

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// reasoningMembers are the members by which a request switches reasoning on, of all three
// dialects and of the vendors that speak them. What is in "include" asks for reasoning that
// only its vendor can read.
var reasoningMembers = []string{
	"reasoning_effort", "reasoning", "thinking", "think", "enable_thinking", "prompt_mode",
	"thinking_budget", "reasoning_budget", "thinking_token_budget", "min_thinking_tokens", "max_thinking_tokens",
}

// hidingMembers say whether the answer shows the reasoning of a model that reasons in any
// case. False hides it, and its vendor bills it all the same.
var hidingMembers = []string{"include_reasoning", "reasoning_format", "separate_reasoning", "stream_reasoning"}

// AsksForReasoning reports whether the request switches the model's reasoning on, or says how
// it is to be shown. A vendor bills all of that, and may show a summary or nothing of it.
func (p *Parsed) AsksForReasoning() bool {
	for _, name := range reasoningMembers {
		if raw := p.Object.Raw(name); len(raw) > 0 && !switchedOff(raw) {
			return true
		}
	}
	for _, name := range hidingMembers {
		if raw := p.Object.Raw(name); !rawjson.IsNull(raw) {
			return true
		}
	}
	if effort := rawjson.Lookup(p.Object.Raw("output_config"), "effort"); len(effort) > 0 && !switchedOff(effort) {
		return true
	}
	return bytes.Contains(p.Object.Raw("include"), []byte("reasoning.")) || bytes.Contains(p.Object.Raw("extra_body"), []byte("thinking"))
}

// HidesReasoning reports whether the request tells the vendor not to show its reasoning. Then
// only the end of a stream says how much there was.
func (p *Parsed) HidesReasoning() bool {
	raw := p.Object.Raw
	return string(raw("include_reasoning")) == "false" || string(raw("stream_reasoning")) == "false" || string(raw("reasoning_format")) == `"hidden"` ||
		string(rawjson.Lookup(raw("reasoning"), "exclude")) == "true" || string(rawjson.Lookup(raw("thinking"), "display")) == `"omitted"`
}

// switchedOff reports whether the value of a member switches reasoning off. An object switches
// it off if all of its members do. Vendors differ in which of two contradicting members
// counts, and in which of two with one name.
func switchedOff(raw []byte) bool {
	switch string(raw) {
	case "null", "false", "0", `""`, `"none"`, `"disabled"`:
		return true
	}
	if raw[0] != '{' {
		return false
	}
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return false
	}
	for _, value := range o.All() {
		if !switchedOff(value) {
			return false
		}
	}
	return true
}
