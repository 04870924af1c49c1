package translate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// oneCandidate refuses to ask for more.
func oneCandidate[B any](_ B, raw []byte) error {
	if n, _ := rawjson.Int(raw); n > 1 {
		return refusal("n", "1: this model gives one candidate per call")
	}
	return nil
}

// readFormat reads response_format.
func readFormat(raw []byte, into any) error {
	if json.Unmarshal(raw, into, jsontext.AllowDuplicateNames(true)) != nil {
		return refusal("response_format", `an object such as {"type":"json_schema","json_schema":{"name":…,"schema":…}}`)
	}
	return nil
}

// notSchema is the refusal of what is no schema.
func notSchema(param string) error {
	return refusal(param, "a JSON Schema object without repeated names")
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
			return nil, notSchema(fmt.Sprintf("tools[%d].function.parameters", i))
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

// toolChoices are the words of Messages for the words of tool_choice, and for a function.
var toolChoices = map[string]string{"none": "none", "auto": "auto", "required": "any", "function": "tool"}

// chatChoice reads tool_choice: its word, which is function for one that is named. What
// needs a tool is refused where there are none.
func chatChoice(raw []byte, hasTools bool) (word, name string, err error) {
	word, ok := rawjson.String(raw)
	if !ok && rawjson.LookupString(raw, "type") == "function" {
		word, name = "function", rawjson.LookupString(raw, "function", "name")
	}
	switch {
	case toolChoices[word] == "" || (word == "function") != (name != ""):
		err = refusal("tool_choice", `"none", "auto", "required" or {"type":"function","function":{"name":…}} for this model`)
	case !hasTools && (word == "required" || word == "function"):
		err = refusal("tool_choice", `"none" or "auto" where there is no tool of type "function"`)
	}
	return word, name, err
}

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

// inputSchema is the schema of a function's arguments. The upstream wants one, and its
// type. It is false if parameters are no schema.
func inputSchema(parameters jsontext.Value) (jsontext.Value, bool) {
	if rawjson.IsNull(parameters) {
		return jsontext.Value(`{"type":"object"}`), true
	}
	if !isObject(parameters) {
		return nil, false
	}
	if rawjson.Lookup(parameters, "type") != nil {
		return parameters, true
	}
	return rawjson.Apply(parameters, rawjson.Set("type", []byte(`"object"`))), true
}

// toolCall checks a call of an assistant's message and gives its arguments. taken says
// what its id must be, if it is one that another call has.
func (m *fieldMapper[B]) toolCall(c *chat.ToolCall, param, taken string) (arguments string, err error) {
	m.dropUnknown("messages.tool_calls.", c.Extra)
	m.dropUnknown("messages.tool_calls.function.", c.Function.Extra)
	switch {
	case c.ID == "":
		err = refusal(param+".id", "a non-empty string")
	case taken != "":
		err = refusal(param+".id", taken)
	case c.Type != "" && c.Type != "function":
		err = refusal(param+".type", `"function" for this model`)
	case c.Function.Name == "":
		err = refusal(param+".function.name", "a non-empty string")
	}
	if arguments = c.Function.Arguments; blank(arguments) {
		arguments = "{}"
	}
	return arguments, err
}

// plainID reports whether the upstream takes an id: letters, digits, - and _.
func plainID(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != ""
}

// hashedID stands for a call's id that an upstream does not take.
func hashedID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// allowedPart refuses a part of a message that has none of the allowed types.
func allowedPart(m *chat.Message, p *chat.Part, allowed []string, param string) error {
	if slices.Contains(allowed, p.Type) {
		return nil
	}
	return refusal(param+".type", rule.Words(allowed)+" in a message of role "+m.Role+" for this model")
}

// leavesOut reports whether a part of an assistant's turn is of a type that only an answer of
// its vendor has, and notes it. The turn is the caller's conversation: it must not be refused.
func (m *fieldMapper[B]) leavesOut(msg *chat.Message, p *chat.Part) bool {
	carried := []string{"text", "refusal", "image_url", "video_url", "audio_url", "input_audio", "file"} // or refused
	if msg.Role != "assistant" || slices.Contains(carried, p.Type) {
		return false
	}
	m.drop("messages.content.", cmp.Or(p.Type, "type"))
	return true
}

// chatFile is a file that a message holds.
type chatFile struct {
	Data  string         `json:"file_data"`
	Name  string         `json:"filename"`
	ID    string         `json:"file_id"`
	Extra jsontext.Value `json:",embed"`
}

// file is a part that is a file. One that lies at a vendor is another's.
func (m *fieldMapper[B]) file(p *chat.Part, param string) (f chatFile, err error) {
	if err := json.Unmarshal(p.File, &f, jsontext.AllowDuplicateNames(true)); err != nil {
		return f, refusal(param, `an object such as {"filename":…,"file_data":"data:application/pdf;base64,…"}`)
	}
	if f.ID != "" {
		return f, refusal(param+".file_id", `absent for this model, which takes "file_data"`)
	}
	m.dropUnknown("messages.content.file.", f.Extra)
	return f, nil
}
