package chat

import "testing"

func TestHidesReasoning(t *testing.T) {
	for id, want := range map[string]bool{
		"o1": true, "o3-mini": true, "openai/o4-mini": true, "gpt-5": true, "gpt-5.1-codex": true, "grok-4-0709": true, "gemini-2.5-flash": true, "gemini-3-pro-preview": true,
		"models/gemini-2.5-pro": true, "Gemini-2.5-Pro": true, "perplexity/sonar-deep-research": true,
		"o1x": false, "gpt-4o": false, "gpt-5-chat-latest": false, "grok-3-mini": false, "grok-4-fast-non-reasoning": false, "gemini-2.0-flash": false, "sonar": false, "delta-k3": false, "": false,
	} {
		if got := HidesReasoning(id); got != want {
			t.Errorf("%q: %t, want %t", id, got, want)
		}
	}
}
