package responsesapi

import (
	"slices"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/word"
)

// clientTool reports a type of tools that the client runs, or that only holds or finds
// such tools: they cost nothing but tokens. Vendors charge for each call of all others.
func clientTool(kind string) bool {
	return slices.Contains([]string{"function", "custom", "namespace", searchTool, "apply_patch", "local_shell"}, kind)
}

// searchTool is the type of a tool that finds others. The vendor runs it, unless its
// execution says that the client does.
const searchTool = "tool_search"

// hostedTool reports whether the vendor runs a declared tool, and what it is called.
func hostedTool(o *rawjson.Object) (kind string, hosted bool) {
	if kind, hosted = rule.HostedTool(o, clientTool); hosted {
		return kind, true
	}
	kind, _ = rawjson.String(o.Raw("type"))
	by, _ := rawjson.String(o.Raw("execution"))
	return kind, kind == searchTool && by != "client"
}

// hosted is what a request has of tools that the vendor runs itself.
type hosted struct {
	kinds   []string // the types of them, each once
	clients int      // how many other tools there are
}

// mostKinds bounds the types that are reported by name.
const mostKinds = 32

// note notes a hosted tool.
func (h *hosted) note(kind string) {
	const longest = 64
	if kind = word.Truncate(kind, longest); len(h.kinds) < mostKinds && !slices.Contains(h.kinds, kind) {
		h.kinds = append(h.kinds, kind)
	}
}
