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
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
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

// carriedTools makes a list of tools from those of a chat request; nil without tools. carry
// makes a tool of a function and of what stands beside it; custom makes one of a custom tool.
// Tools of other types are dropped. carry returns false if the parameters are not a schema.
func carriedTools[B, T any](m *fieldMapper[B], raw []byte, carry func(f *chatFunction, beside []byte) (T, bool), custom func(c *chatCustom) T) (jsontext.Value, error) {
	var list []chatTool
	if err := json.Unmarshal(raw, &list, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, refusal("tools", `an array of objects such as {"type":"function","function":{"name":…,"parameters":…}}`)
	}
	var tools []T
	for i := range list {
		f, c := &list[i].Function, &list[i].Custom
		switch list[i].Type {
		case "function":
			m.dropUnknown("tools.function.", f.Extra)
			m.dropUnknown("tools.", list[i].Extra)
			tool, ok := carry(f, list[i].Extra)
			if !ok {
				return nil, notSchema(fmt.Sprintf("tools[%d].function.parameters", i))
			}
			tools = append(tools, tool)
		case "custom":
			if c.Name == "" {
				return nil, refusal(fmt.Sprintf("tools[%d].custom.name", i), "a non-empty string")
			}
			m.dropUnknown("tools.custom.", c.Extra)
			m.dropUnknown("tools.custom.format.", c.Format.Extra)
			m.dropUnknown("tools.custom.format.grammar.", c.Format.Grammar.Extra)
			m.dropUnknown("tools.", list[i].Extra)
			tools = append(tools, custom(c))
		default:
			m.drop("tools.", list[i].Type)
		}
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

// toolChoices are the words of Messages for the words of tool_choice, and for a tool of
// either type.
var toolChoices = map[string]string{"none": "none", "auto": "auto", "required": "any", "function": "tool", "custom": "tool"}

// chatChoice reads tool_choice. It returns its word, which is the type of a named tool. It
// refuses a choice that needs a tool if there are none.
func chatChoice(raw []byte, hasTools bool) (word, name string, err error) {
	word, ok := rawjson.String(raw)
	if kind := rawjson.LookupString(raw, "type"); !ok && (kind == "function" || kind == "custom") {
		word, name = kind, rawjson.LookupString(raw, kind, "name")
	}
	isTool := word == "function" || word == "custom"
	switch {
	case toolChoices[word] == "" || isTool != (name != ""):
		err = refusal("tool_choice", `"none", "auto", "required" or an object such as {"type":"function","function":{"name":…}} for this model`)
	case !hasTools && (word == "required" || isTool):
		err = refusal("tool_choice", `"none" or "auto" where there is no tool of type "function" or "custom"`)
	}
	return word, name, err
}

// withBody is a chat request with its body: in that alone is found what has no field.
func withBody(c *chat.Request) (*chat.Request, error) {
	if c.Body.IsObject() {
		return c, nil
	}
	encoded, err := chatop.Encode(c)
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

// calledTool is a call of an assistant's message.
type calledTool struct {
	name      string
	arguments string // of a custom tool: its input
	custom    bool
}

// toolCall checks a call of an assistant's message. If another call has its id, taken says
// what the id must be.
func (m *fieldMapper[B]) toolCall(c *chat.ToolCall, param, taken string) (called calledTool, err error) {
	m.dropUnknown("messages.tool_calls.", c.Extra)
	switch {
	case c.ID == "":
		return called, refusal(param+".id", "a non-empty string")
	case taken != "":
		return called, refusal(param+".id", taken)
	case c.Type == "custom":
		return m.customCall(c, param)
	case c.Type != "" && c.Type != "function":
		return called, refusal(param+".type", `"function" or "custom" for this model`)
	case c.Function.Name == "":
		return called, refusal(param+".function.name", "a non-empty string")
	}
	m.dropUnknown("messages.tool_calls.function.", c.Function.Extra)
	called = calledTool{name: c.Function.Name, arguments: c.Function.Arguments}
	if blank(called.arguments) {
		called.arguments = "{}"
	}
	return called, nil
}

// customCall checks a call of a custom tool.
func (m *fieldMapper[B]) customCall(c *chat.ToolCall, param string) (called calledTool, err error) {
	var custom struct {
		Name  string         `json:"name"`
		Input string         `json:"input"`
		Extra jsontext.Value `json:",embed"`
	}
	if raw := rawjson.Lookup(c.Extra, "custom"); raw == nil || json.Unmarshal(raw, &custom, jsontext.AllowDuplicateNames(true)) != nil || custom.Name == "" {
		return called, refusal(param+".custom", `an object such as {"name":…,"input":…}`)
	}
	m.dropUnknown("messages.tool_calls.custom.", custom.Extra)
	return calledTool{custom.Name, custom.Input, true}, nil
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

// allowedPart refuses a part of a message whose type is not allowed.
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

// file reads a part that is a file. It refuses a file that is only named by its id at another
// vendor.
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
