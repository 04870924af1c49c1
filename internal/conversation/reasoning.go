package conversation

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// reasoningMembers are the members by which a request switches reasoning on, of all three
// dialects and of the vendors that speak them. What is in "include" asks for reasoning that
// only its vendor can read.
var reasoningMembers = []string{"reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "include_reasoning"}

// AsksForReasoning reports whether the request switches the model's reasoning on. A vendor
// bills all of that, and may show a summary or nothing of it.
func (p *Parsed) AsksForReasoning() bool {
	for _, name := range reasoningMembers {
		if raw := p.Object.Raw(name); len(raw) > 0 && !switchedOff(raw) {
			return true
		}
	}
	return bytes.Contains(p.Object.Raw("include"), []byte("reasoning.")) || bytes.Contains(p.Object.Raw("extra_body"), []byte("thinking"))
}

// switchedOff reports whether the value of a member switches reasoning off.
func switchedOff(raw []byte) bool {
	for _, name := range []string{"type", "effort", "enabled"} {
		if raw[0] == '{' {
			if inner := rawjson.Lookup(raw, name); len(inner) > 0 && switchedOff(inner) {
				return true
			}
		}
	}
	switch string(raw) {
	case "null", "false", "0", `""`, `"none"`, `"disabled"`, "{}":
		return true
	}
	return false
}
