package rule

import (
	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Body is what every JSON request body must obey (decisions.md, Bodies): names
// are unique, and those that the gateway reads, edits or counts are spelled
// exactly, at the top level and directly inside the objects that decide a price or
// a bound; and it holds no more than [rawjson.Bounds] say. It is read-only.
var Body = &rawjson.Rules{Unique: true, Billed: billed, Nested: nested, Bounds: rawjson.Bounds{
	TopMembers: 1024,
	Members:    16_384, // the properties of a schema
	Tokens:     1 << 20,
}}

// Small is [Body] of an operation whose body has few fields, though long ones: of
// pictures, videos and speech. It is read-only.
var Small = &rawjson.Rules{Unique: true, Billed: billed, Nested: nested, Bounds: rawjson.Bounds{
	TopMembers: Body.Bounds.TopMembers,
	Members:    1024,
	Tokens:     16_384,
}}

// nested are the objects whose members are read or edited one by one.
var nested = []string{"parameters", "stream_options", "response_format", "thinking", "output_config", "tool_choice"}

// billed are the members that some operation reads, edits, prices or counts. It is
// one list, since no vendor's API has a name in capital letters beside it. Those
// that have no price are [Unpriced], in any spelling.
var billed = []string{
	"model", "n", "max_tokens", "max_completion_tokens", "stream", "duration", "resolution",
	"aspect_ratio", "frames", "draft", "generate_audio", "size", "quality", "input", "parameters",
	"audio",
	// texts
	"messages", "system", "prompt", "content", "instructions", "negative_prompt", "tools",
	"functions", "response_format", "output_config", "json_schema", "schema", "format",
	// how much is made, and of what
	"stream_options", "include_usage", "function_call", "tool_choice", "parallel_tool_calls",
	"thinking", "budget_tokens", "reasoning", "reasoning_effort", "effort", "stop", "stop_sequences", "type",
	"temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "service_tier",
	"metadata", "user", "name",
	"encoding_format", "dimensions", "voice", "stream_format", "speed",
	"background", "output_format", "output_compression", "partial_images",
	"webhook_url", "callback_url", "wait", "execution_expires_after", "ratio", "seed",
	"camera_fixed", "watermark", "return_last_frame", "safety_identifier", "priority", "prompt_extend", "shot_type",
}

// Unacceptable is the refusal of a body that [Body] does not allow.
func Unacceptable(err error) error {
	return fault.Invalid("", "The request body is not acceptable: "+err.Error()+".")
}

// Read indexes a request body that obeys [Body]. visit, when it is not nil, is
// called at the value of the member called name, which it must consume. The error
// is the refusal of the body.
func Read(data []byte, name string, visit func(rd *rawjson.Reader) error) (rawjson.Object, error) {
	return read(Body, data, name, visit)
}

// ReadSmall is [Read] of a body that obeys [Small], without a visit.
func ReadSmall(data []byte) (rawjson.Object, error) { return read(Small, data, "", nil) }

// ReadNumbers is [Read] of a body that may hold long lists of token numbers.
func ReadNumbers(data []byte, name string, visit func(rd *rawjson.Reader) error) (rawjson.Object, error) {
	rules := *Body
	rules.Bounds.Tokens = 4 << 20 // more numbers than any vendor takes in one call
	return read(&rules, data, name, visit)
}

func read(rules *rawjson.Rules, data []byte, name string, visit func(rd *rawjson.Reader) error) (rawjson.Object, error) {
	var at func(*rawjson.Reader, []byte) error
	if visit != nil {
		at = func(rd *rawjson.Reader, member []byte) error {
			if string(member) == name {
				return visit(rd)
			}
			_, err := rd.Skip()
			return err
		}
	}
	o, err := rawjson.Index(data, rules, at)
	if err != nil {
		return o, Unacceptable(err)
	}
	return o, nil
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
