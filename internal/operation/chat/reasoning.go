package chat

import (
	"slices"
	"strings"
)

// hidingModels are the beginnings of vendors' ids of models that hide their reasoning or show
// only a summary. Their vendors bill all of it as output, and say how much only at the end. A
// "|" ends an id.
//
//   - OpenAI: https://platform.openai.com/docs/guides/reasoning
//   - xAI: https://docs.x.ai/docs/guides/reasoning
//   - Google: https://ai.google.dev/gemini-api/docs/thinking
//   - Perplexity: https://docs.perplexity.ai/getting-started/models/models/sonar-deep-research
var hidingModels = []string{
	"o1|", "o1-", "o3|", "o3-", "o4-", "gpt-5", "codex-mini",
	"grok-4",
	"gemini-2.5-", "gemini-3", "gemini-flash-latest", "gemini-pro-latest",
	"sonar-deep-research",
}

// plainModels are words in the ids of those among them that do not reason.
var plainModels = []string{"non-reasoning", "gpt-5-chat"}

// HidesReasoning reports whether a vendor's id is that of a model which is known to hide its
// reasoning. What stands before a "/" is the name of a vendor, as routers of vendors write it.
// Letters count as lower-case ones.
func HidesReasoning(id string) bool {
	id = strings.ToLower(id[strings.LastIndexByte(id, '/')+1:]) + "|"
	if slices.ContainsFunc(plainModels, func(word string) bool { return strings.Contains(id, word) }) {
		return false
	}
	return slices.ContainsFunc(hidingModels, func(begins string) bool { return strings.HasPrefix(id, begins) })
}
