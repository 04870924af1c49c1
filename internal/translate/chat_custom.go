package translate

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Custom tools of chat take any text. An upstream of Responses has such tools too. One of
// Messages gets a function whose one argument is input, as for a custom tool of a response.
// Inside the bridge each call of a custom tool has the arguments of that function, and the
// writers of chat take the input out again.

// chatTool is a tool that a chat request offers.
type chatTool struct {
	Type     string         `json:"type"`
	Function chatFunction   `json:"function"`
	Custom   chatCustom     `json:"custom"`
	Extra    jsontext.Value `json:",embed"`
}

// chatCustom is a custom tool.
type chatCustom struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Format      chatFormat     `json:"format"`
	Extra       jsontext.Value `json:",embed"`
}

// chatFormat is what the input of a custom tool must look like: a text, or a grammar.
type chatFormat struct {
	Type    string `json:"type"`
	Grammar struct {
		Syntax     string         `json:"syntax"`
		Definition string         `json:"definition"`
		Extra      jsontext.Value `json:",embed"`
	} `json:"grammar"`
	Extra jsontext.Value `json:",embed"`
}

// flat returns the format as a response has it, with the grammar not nested; nil if there is
// no format.
func (f *chatFormat) flat() jsontext.Value {
	switch f.Type {
	case "":
		return nil
	case "grammar":
		out := rawjson.Quote([]byte(`{"type":"grammar","syntax":`), f.Grammar.Syntax)
		return append(rawjson.Quote(append(out, `,"definition":`...), f.Grammar.Definition), '}')
	}
	return append(rawjson.Quote([]byte(`{"type":`), f.Type), '}')
}

// customFunction returns the function that stands for a custom tool. Its description has the
// whole grammar, since a model cannot keep to one that was cut. It returns false for an
// unknown format.
func customFunction(description, format, syntax, definition string) (f chat.Function, known bool) {
	f = chat.Function{Description: description, Parameters: jsontext.Value(customSchema)}
	switch format {
	case "", "text":
	case "grammar":
		f.Description = paragraphs(description, "Its input must match this "+syntax+" grammar:\n"+definition)
	default:
		return f, false
	}
	return f, true
}

// customArguments are the arguments of the function that stands for a custom tool.
func customArguments(input string) []byte {
	return append(rawjson.Quote([]byte(`{"input":`), input), '}')
}

// customNames returns the names of the functions that stand for the custom tools of a chat
// request; nil if it has no such tools.
func customNames(c *chat.Request) *toolNames {
	if !bytes.Contains(c.Tools, []byte(`"custom"`)) { // as mostly
		return nil
	}
	names, custom := namesOfTools(c)
	if !custom {
		return nil
	}
	return names
}

// namesOfTools are the names of a chat request's tools; custom says that some are custom.
// The functions keep theirs.
func namesOfTools(c *chat.Request) (names *toolNames, custom bool) {
	names = new(toolNames)
	var tools []chatTool
	_ = json.Unmarshal(c.Tools, &tools, jsontext.AllowDuplicateNames(true)) // carriedTools refuses what is no list
	for i := range tools {
		if tools[i].Type == "function" {
			names.add(toolName{name: tools[i].Function.Name, kind: functionTool})
		}
	}
	for i := range tools {
		if tools[i].Type == "custom" {
			custom = true
			names.add(toolName{name: tools[i].Custom.Name, kind: customTool})
		}
	}
	return names, custom
}

// customName is the name of the custom tool that a call is of, as the caller knows it. It is
// false for a function, and for a caller who knows functions only.
func (p *piece) customName(names *toolNames) (string, bool) {
	if names == nil || p.custom {
		return p.name, names != nil
	}
	tool, _ := names.original(p.name)
	return tool.name, tool.kind == customTool
}

// unwrappedCall is a call of a custom tool on its way out.
type unwrappedCall struct {
	index     int64
	input     customInput
	arguments []byte // decoded, all until now
}

// read takes a piece of the arguments, a JSON string, and returns what of the input is new,
// as it stands within one.
func (c *unwrappedCall) read(text []byte) []byte {
	decoded, _ := rawjson.String(text)
	c.arguments = append(c.arguments, decoded...)
	from := len(c.input.text)
	c.input.read(decoded)
	return c.input.text[from:]
}

// rest returns the input of a finished call if none was found in its arguments.
func (c *unwrappedCall) rest() []byte {
	if c.input.closed || len(c.input.text) > 0 || len(c.arguments) == 0 {
		return nil
	}
	quoted := rawjson.Quote(nil, string(c.arguments))
	return quoted[1 : len(quoted)-1]
}

// customChunk appends a piece of a call of a custom tool; head says that the call begins.
func customChunk(dst []byte, index int64, id, name string, head bool, input []byte) []byte {
	dst = appendIndex(dst, index)
	if head {
		dst = rawjson.Quote(append(dst, `,"id":`...), id)
		dst = rawjson.Quote(append(dst, `,"type":"custom","custom":{"name":`...), name)
		dst = append(dst, `,"input":"`...)
	} else {
		dst = append(dst, `,"custom":{"input":"`...)
	}
	return append(append(dst, input...), `"}}]`...)
}

// customPiece appends the piece of a call if it is of a custom tool. ok says that it is.
// Nothing is appended while none of the input is known.
func (w *chunkWriter) customPiece(dst []byte, p *piece) (delta []byte, ok bool) {
	if p.name != "" {
		name, is := p.customName(w.names)
		if !is {
			return dst, false
		}
		c := &unwrappedCall{index: p.index}
		w.customs = append(w.customs, c)
		return customChunk(dst, p.index, p.id, name, true, c.read(p.text)), true
	}
	i := slices.IndexFunc(w.customs, func(c *unwrappedCall) bool { return c.index == p.index })
	if i < 0 {
		return dst, false
	}
	if input := w.customs[i].read(p.text); len(input) > 0 {
		dst = customChunk(dst, p.index, "", "", false, input)
	}
	return dst, true
}

// customToolCall returns a whole call of a custom tool. c has its arguments.
func customToolCall(c *chat.ToolCall) chat.ToolCall {
	var in unwrappedCall
	in.read(rawjson.Quote(nil, c.Function.Arguments))
	input := append(slices.Clip(in.input.text), in.rest()...)
	custom := append(append(rawjson.Quote([]byte(`{"name":`), c.Function.Name), `,"input":`...), quotedText(input)...)
	return chat.ToolCall{ID: c.ID, Type: "custom", Extra: rawjson.Apply([]byte("{}"), rawjson.Set("custom", append(custom, '}')))}
}
