package translate

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// withBody is a chat request with its body: in that alone is found what has no field.
func withBody(c *chat.Request) (*chat.Request, error) {
	if c.Body.IsObject() {
		return c, nil
	}
	encoded, err := chatapi.Encode(c)
	if err != nil {
		return nil, err
	}
	return encoded.Request, nil
}

// oneCandidate refuses to ask for more.
func oneCandidate[B any](_ B, raw []byte) error {
	if n, _ := rawjson.Int(raw); n > 1 {
		return refusal("n", "1: this model gives one candidate per call")
	}
	return nil
}

// chatFunction is a function that a chat request offers.
type chatFunction struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      bool           `json:"strict"`
	Extra       jsontext.Value `json:",embed"`
}

// carriedTools is a list of the tools that carry makes of a chat request's functions, and
// of what stands beside a function in its tool; nil if there are none. Tools of other types
// are dropped. carry is false for parameters that are no schema.
func carriedTools[B, T any](m *fieldMapper[B], raw []byte, carry func(f *chatFunction, beside []byte) (T, bool)) (jsontext.Value, error) {
	var list []struct {
		Type     string         `json:"type"`
		Function chatFunction   `json:"function"`
		Extra    jsontext.Value `json:",embed"`
	}
	if err := json.Unmarshal(raw, &list, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, refusal("tools", `an array of objects such as {"type":"function","function":{"name":…,"parameters":…}}`)
	}
	var tools []T
	for i := range list {
		if list[i].Type != "function" {
			m.drop("tools.", list[i].Type)
			continue
		}
		f := &list[i].Function
		m.dropUnknown("tools.function.", f.Extra)
		m.dropUnknown("tools.", list[i].Extra)
		tool, ok := carry(f, list[i].Extra)
		if !ok {
			return nil, refusal(fmt.Sprintf("tools[%d].function.parameters", i), "a JSON Schema object without repeated names")
		}
		tools = append(tools, tool)
	}
	if len(tools) == 0 {
		return nil, nil
	}
	out, err := json.Marshal(tools)
	if err != nil {
		return nil, refusal("tools", "JSON without repeated names")
	}
	return out, nil
}

// isObject reports whether raw is one strict JSON object.
func isObject(raw jsontext.Value) bool { return raw.IsValid() && raw.Kind() == '{' }

// toolChoices are the words of Messages for the words of tool_choice, and for a function.
var toolChoices = map[string]string{"none": "none", "auto": "auto", "required": "any", "function": "tool"}

// chatChoice reads tool_choice: its word, which is function for one that is named. What
// needs a tool is refused where there are none.
func chatChoice(raw []byte, hasTools bool) (word, name string, err error) {
	word, ok := rawjson.String(raw)
	if !ok && stringMember(raw, "type") == "function" {
		word, name = "function", stringMember(member(raw, "function"), "name")
	}
	switch {
	case toolChoices[word] == "" || (word == "function") != (name != ""):
		err = refusal("tool_choice", `"none", "auto", "required" or {"type":"function","function":{"name":…}} for this model`)
	case !hasTools && (word == "required" || word == "function"):
		err = refusal("tool_choice", `"none" or "auto" where there is no tool of type "function"`)
	}
	return word, name, err
}
