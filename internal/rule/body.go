package rule

import "github.com/tollhouse-ai/gateway/internal/rawjson"

// Body is what every JSON request body must obey (decisions.md, Bodies): names
// are unique, and billed fields are spelled exactly, at the top level and
// directly inside `parameters`. It is read-only.
var Body = &rawjson.Rules{Unique: true, Billed: billed, Nested: []string{"parameters"}}

var billed = []string{
	"model", "n", "max_tokens", "max_completion_tokens", "stream", "duration", "resolution",
	"aspect_ratio", "frames", "draft", "generate_audio", "size", "quality", "input", "parameters",
	"audio",
}
