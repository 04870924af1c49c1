package rule

import (
	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Body is what every JSON request body must obey (decisions.md, Bodies): names
// are unique, and billed fields are spelled exactly, at the top level and
// directly inside `parameters`. It is read-only.
var Body = &rawjson.Rules{Unique: true, Billed: billed, Nested: []string{"parameters"}}

var billed = []string{
	"model", "n", "max_tokens", "max_completion_tokens", "stream", "duration", "resolution",
	"aspect_ratio", "frames", "draft", "generate_audio", "size", "quality", "input", "parameters",
	"audio",
}

// Unacceptable is the refusal of a body that [Body] does not allow.
func Unacceptable(err error) error {
	return fault.Invalid("", "The request body is not acceptable: "+err.Error()+".")
}

// Encode marshals a request that was made in Go and has it read as one that
// came over the wire, so that both obey the same rules.
func Encode[R any](typed *R, parse func([]byte) (*R, error)) (*R, error) {
	data, err := json.Marshal(typed)
	if err != nil {
		return nil, fault.Invalid("", "The request cannot be written as JSON: "+err.Error()+".")
	}
	return parse(data)
}
