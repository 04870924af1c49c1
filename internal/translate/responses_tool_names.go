package translate

import (
	"crypto/sha256"
	"encoding/hex"
)

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

// toolNames are the names that the tools of one request have in chat, which knows only
// functions and no namespaces. The zero value has none, and nil can be read.
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

// add gives a tool its name in chat; false if it has one already. The functions outside
// of namespaces must be added before all other tools, since they keep their names.
func (n *toolNames) add(tool toolName) (chatName string, added bool) {
	if name, has := n.chat[tool]; has {
		return name, false
	}
	if n.chat == nil {
		n.chat, n.originals = map[toolName]string{}, map[string]toolName{}
	}
	name := n.free(tool)
	n.chat[tool], n.originals[name] = name, tool
	return name, true
}

// called is the name in chat of the tool of an earlier call, which may be no longer
// declared.
func (n *toolNames) called(tool toolName) string {
	if tool.isPlain() { // nothing else is called like this, whatever took the name
		return tool.name
	}
	name, _ := n.add(tool)
	return name
}

// isPlain reports whether chat has such tools too.
func (t toolName) isPlain() bool { return t.kind == functionTool && t.namespace == "" }

// free is the name for a tool that has none: its own after that of its namespace, if
// vendors take it and no other tool has it, or else the beginning of it with a hash, which
// is the same in all requests of a conversation.
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
		if !isFunctionName(name[i : i+1]) {
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
	if s == "" || len(s) > longest {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
