package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/responses"
)

// toolRow says what becomes of a tool of one type.
type toolRow struct {
	tool   string
	action string
	note   string
	inner  bool // it may stand in a namespace; a namespace in another one is refused by the endpoint
	offer  func(b *responsesToChatBuilder, t *declaredTool) error
}

// responsesTools are the known tools. Any other tool is run by the vendor: it is dropped and
// reported by its type.
var responsesTools = []toolRow{
	{"function", carried, "function", true, (*responsesToChatBuilder).offerFunction},
	{"custom", carried, "function whose one argument is input; a grammar is a part of the description", true, (*responsesToChatBuilder).offerCustom},
	{"namespace", carried, "its tools, each as namespace__name if vendors take that name and no other tool has it, else with a hash", false, (*responsesToChatBuilder).offerNamespace},
	{"tool_search", carried, "function, if the client runs it; dropped else", false, (*responsesToChatBuilder).offerSearch},
}

// declaredTool is a tool as the request declares it.
type declaredTool struct {
	responses.Tool
	namespace string // in which it stands
	at        string // "tools[1].tools[0]"
}

// toolOffer is a tool that the client runs.
type toolOffer struct {
	tool toolName
	f    chat.Function // without its name, as long as not all tools are known
}

// offerTools gathers the tools that the client runs: those of the request, and those that its
// input adds. All of them must be known before one gets its name in chat.
func (b *responsesToChatBuilder) offerTools() error {
	b.types, b.choices = map[string]bool{}, map[toolName]string{}
	if err := b.offerList(b.r.Tools, "tools", ""); err != nil {
		return err
	}
	for _, item := range b.items {
		if item.Type != "additional_tools" && item.Type != "tool_search_output" {
			continue
		}
		if err := b.offerList(item.Tools, item.at+".tools", ""); err != nil {
			return err
		}
	}
	for _, plain := range []bool{true, false} {
		for i := range b.offers {
			if o := &b.offers[i]; o.tool.isPlain() == plain {
				o.f.Name = b.names.add(o.tool)
				b.choices[o.tool] = o.f.Name
			}
		}
	}
	for i := range b.offers {
		o := &b.offers[i]
		short := toolName{"", o.tool.name, o.tool.kind}
		if _, has := b.choices[short]; !has {
			b.choices[short] = o.f.Name
		}
	}
	return nil
}

// offerList offers the tools of a list that may be absent.
func (b *responsesToChatBuilder) offerList(raw jsontext.Value, at, namespace string) error {
	if rawjson.IsNull(raw) {
		return nil
	}
	var list []responses.Tool
	if err := decodeList(raw, &list, at); err != nil {
		return err
	}
	for i := range list {
		if err := b.offer(&declaredTool{list[i], namespace, fmt.Sprintf("%s[%d]", at, i)}); err != nil {
			return err
		}
	}
	return nil
}

// offer offers a tool, or drops it if the client does not run it.
func (b *responsesToChatBuilder) offer(t *declaredTool) error {
	b.types[t.Type] = true
	row := slices.IndexFunc(b.tools, func(r toolRow) bool { return r.tool == t.Type && (r.inner || t.namespace == "") })
	if row < 0 {
		b.drop("tools.", t.Type)
		return nil
	}
	b.dropUnknown("tools.", t.Extra)
	return b.tools[row].offer(b, t)
}

// add adds an offer. A tool may be declared again, where a search has found it again.
func (b *responsesToChatBuilder) add(t *declaredTool, kind toolKind, f chat.Function) {
	tool := toolName{t.namespace, t.Name, kind}
	if _, has := b.choices[tool]; !has {
		b.choices[tool] = ""
		b.offers = append(b.offers, toolOffer{tool, f})
	}
}

func (b *responsesToChatBuilder) offerFunction(t *declaredTool) error {
	return b.offerSchema(t, functionTool)
}

// offerSearch offers the tool that finds further tools. It has no name of its own.
func (b *responsesToChatBuilder) offerSearch(t *declaredTool) error {
	if t.Execution != "client" { // the vendor's is the default
		b.drop("tools.", t.Type)
		return nil
	}
	t.Name = searchName
	return b.offerSchema(t, searchTool)
}

// offerSchema offers a tool that takes JSON.
func (b *responsesToChatBuilder) offerSchema(t *declaredTool, kind toolKind) error {
	parameters := jsontext.Value(`{"type":"object","properties":{}}`)
	if !rawjson.IsNull(t.Parameters) {
		var ok bool
		if parameters, ok = inputSchema(t.Parameters); !ok {
			return notSchema(t.at + ".parameters")
		}
	}
	b.add(t, kind, chat.Function{Description: t.Description, Parameters: parameters, Strict: t.Strict})
	return nil
}

// searchName is the name in chat of the tool that finds others.
const searchName = string(searchTool)

// customSchema is the schema of a custom tool's arguments.
const customSchema = `{"type":"object","properties":{"input":{"type":"string","description":"The raw input of this tool, verbatim."}},"required":["input"],"additionalProperties":false}`

// offerCustom offers a tool that takes any text.
func (b *responsesToChatBuilder) offerCustom(t *declaredTool) error {
	var format struct {
		Type       string         `json:"type"`
		Syntax     string         `json:"syntax"`
		Definition string         `json:"definition"`
		Extra      jsontext.Value `json:",embed"`
	}
	if !rawjson.IsNull(t.Format) {
		if err := decodeList(t.Format, &format, t.at+".format"); err != nil {
			return err
		}
	}
	f, known := customFunction(t.Description, format.Type, format.Syntax, format.Definition)
	if !known {
		b.drop("tools.", "format")
	}
	b.dropUnknown("tools.format.", format.Extra)
	b.add(t, customTool, f)
	return nil
}

// offerNamespace offers the tools of a namespace.
func (b *responsesToChatBuilder) offerNamespace(t *declaredTool) error {
	first := len(b.offers)
	if err := b.offerList(t.Tools, t.at+".tools", t.Name); err != nil {
		return err
	}
	if first < len(b.offers) {
		f := &b.offers[first].f
		f.Description = paragraphs(t.Description, f.Description)
	}
	return nil
}

// offered appends the names in chat of the tools of a list that was offered.
func (b *responsesToChatBuilder) offered(names []string, raw jsontext.Value, namespace string) []string {
	var list []responses.Tool
	if !rawjson.IsNull(raw) && json.Unmarshal(raw, &list, jsontext.AllowDuplicateNames(true)) != nil {
		return names
	}
	for i := range list {
		t := &list[i]
		if t.Type == "namespace" {
			names = b.offered(names, t.Tools, t.Name)
		} else if name, has := b.choices[toolName{namespace, t.Name, toolKind(t.Type)}]; has {
			names = append(names, name)
		}
	}
	return names
}

// encodeTools puts the offers into the chat request.
func (b *responsesToChatBuilder) encodeTools() error {
	if len(b.offers) == 0 {
		return nil
	}
	functions := make([]chat.Function, len(b.offers))
	for i := range b.offers {
		functions[i] = b.offers[i].f
	}
	var err error
	if b.c.Tools, err = chat.Tools(functions...); err != nil {
		return refusal("tools", "an array of tool definitions")
	}
	return nil
}

// choice is a tool_choice that is an object, or a tool that one names.
type choice struct {
	Type      string         `json:"type"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Mode      string         `json:"mode"`
	Tools     jsontext.Value `json:"tools"`
	Extra     jsontext.Value `json:",embed"`
}

// toolChoice carries tool_choice. Without tools chat takes none, and a choice that forces a
// tool cannot be kept.
func (b *responsesToChatBuilder) toolChoice([]byte) error {
	raw := b.r.ToolChoice
	if rawjson.IsNull(raw) { // the gateway has left it out, with the tool that it names
		return nil
	}
	if word, ok := rawjson.String(raw); ok {
		return b.chooseWord(word, "tool_choice")
	}
	var c choice
	if err := decodeList(raw, &c, "tool_choice"); err != nil {
		return err
	}
	b.dropUnknown("tool_choice.", c.Extra)
	if c.Type == "allowed_tools" {
		return b.allowTools(&c)
	}
	name, ok := b.chosen(&c)
	if !ok {
		return refusal("tool_choice", `"auto", "none", "required" or an object that names a tool which the client runs: this model's upstream runs none itself`)
	}
	b.c.ToolChoice = choiceOf(name)
	return nil
}

// chooseWord carries a choice without a name.
func (b *responsesToChatBuilder) chooseWord(word, param string) error {
	switch {
	case word != "auto" && word != "none" && word != "required":
		return refusal(param, rule.Words([]string{"auto", "none", "required"}))
	case len(b.offers) > 0:
		b.c.ToolChoice = rawjson.Quote(nil, word)
	case word == "required":
		return refusal(param, `"auto" or "none" where no tool is left that this model's upstream can call`)
	}
	return nil
}

// chosen is the name in chat of the tool that a choice names.
func (b *responsesToChatBuilder) chosen(c *choice) (name string, ok bool) {
	tool := toolName{c.Namespace, c.Name, toolKind(c.Type)}
	if tool.kind == searchTool {
		tool.name = searchName
	}
	name, ok = b.choices[tool]
	return name, ok
}

// allowTools cuts the tools to the allowed ones, since chat has no such choice.
func (b *responsesToChatBuilder) allowTools(c *choice) error {
	var list []choice
	if err := decodeList(c.Tools, &list, "tool_choice.tools"); err != nil {
		return err
	}
	names, namespaces := map[string]bool{}, map[string]bool{}
	for i := range list {
		name, ok := b.chosen(&list[i])
		switch {
		case ok:
			names[name] = true
		case list[i].Type == "namespace":
			namespaces[list[i].Name] = true
		case list[i].Type == "function", list[i].Type == "custom":
			return refusal(fmt.Sprintf("tool_choice.tools[%d].name", i), "the name of a tool of the request")
		default:
			b.drop("tools.", list[i].Type)
		}
	}
	b.offers = slices.DeleteFunc(b.offers, func(o toolOffer) bool {
		return !names[o.f.Name] && (o.tool.namespace == "" || !namespaces[o.tool.namespace])
	})
	return b.chooseWord(c.Mode, "tool_choice.mode")
}

// parallelCalls carries parallel_tool_calls. Its default in chat is true.
func (b *responsesToChatBuilder) parallelCalls([]byte) error {
	if p := b.r.ParallelToolCalls; len(b.offers) > 0 && p != nil && !*p {
		b.extra = append(b.extra, rawjson.Set("parallel_tool_calls", []byte("false")))
	}
	return nil
}

// paragraphs joins two texts by an empty line. Either may be empty.
func paragraphs(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

// toolKind is how a tool of a request for a response is called.
type toolKind string

const (
	functionTool toolKind = "function"    // by JSON arguments
	customTool   toolKind = "custom"      // by any text
	searchTool   toolKind = "tool_search" // finds further tools
)

// toolName names a tool as the client does. The names of two namespaces, or of two
// kinds, are independent of each other.
type toolName struct {
	namespace, name string
	kind            toolKind
}

// toolNames are the names that the tools of one request have in chat, which has only functions
// and no namespaces. The zero value has no names, and a nil one can be read.
type toolNames struct {
	chat      map[toolName]string
	originals map[string]toolName // by the name in chat
}

// original is the tool that a function of chat stands for. A function that is not known
// is one of the same name: models call functions that were never declared.
func (n *toolNames) original(chatName string) (tool toolName, known bool) {
	if n != nil {
		if tool, known = n.originals[chatName]; known {
			return tool, true
		}
	}
	return toolName{name: chatName, kind: functionTool}, false
}

// add returns the name of a tool in chat, and gives the tool one if it has none. Add the
// functions outside of namespaces before all other tools, since they keep their names.
func (n *toolNames) add(tool toolName) (chatName string) {
	if name, has := n.chat[tool]; has {
		return name
	}
	if n.chat == nil {
		n.chat, n.originals = map[toolName]string{}, map[string]toolName{}
	}
	name := n.free(tool)
	n.chat[tool], n.originals[name] = name, tool
	return name
}

// called is the name in chat of the tool of an earlier call, which may be no longer
// declared.
func (n *toolNames) called(tool toolName) string {
	if tool.isPlain() { // no other kind of tool has such a name, even if an offer took it
		return tool.name
	}
	return n.add(tool)
}

// isPlain reports whether chat has such tools too.
func (t toolName) isPlain() bool { return t.kind == functionTool && t.namespace == "" }

// free returns a name for a tool without one. It is the tool's own name after that of its
// namespace, if vendors take it and no other tool has it. Otherwise it is the beginning of
// that name with a hash, the same in all requests of a conversation.
func (n *toolNames) free(tool toolName) string {
	name := tool.name
	if tool.namespace != "" {
		name = tool.namespace + "__" + name
	}
	if _, taken := n.originals[name]; tool.isPlain() || !taken && isFunctionName(name) {
		return name
	}
	const prefix, digits = 52, 10
	var safe []byte
	for i := 0; i < len(name) && i < prefix; i++ {
		c := name[i]
		if !plainID(name[i : i+1]) {
			c = '_'
		}
		safe = append(safe, c)
	}
	sum := sha256.Sum256([]byte(tool.namespace + "\x00" + tool.name))
	for {
		name = string(safe) + "_" + hex.EncodeToString(sum[:])[:digits]
		if _, taken := n.originals[name]; !taken {
			return name
		}
		sum = sha256.Sum256(sum[:]) // the tool has a twin of another kind, or a client chose this name
	}
}

// isFunctionName reports whether vendors take it as the name of a function.
func isFunctionName(s string) bool {
	const longest = 64
	return len(s) <= longest && plainID(s)
}
