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

// Read indexes a request body that obeys [Body]. visit, when it is not nil, is
// called at the value of the member called name, which it must consume. The error
// is the refusal of the body.
func Read(data []byte, name string, visit func(rd *rawjson.Reader) error) (rawjson.Object, error) {
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
	o, err := rawjson.Index(data, Body, at)
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
