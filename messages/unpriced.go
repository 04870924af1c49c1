package messages

import (
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rule"
)

// freeTiers are the service tiers that cost no more than the price says.
var freeTiers = []string{"auto", "standard_only"}

// Unpriced refuses the first member, and the first beta feature of the header,
// that costs money without a price, or chooses another model or account, unless
// pass lets it through. pass gets the name as the table spells it, "tools",
// "cache_control" and "anthropic-beta" included, and as the caller does. A count of
// tokens costs nothing, and so may only not choose another model or account.
func (r *Request) Unpriced(h http.Header, pass func(name, spelled string) bool) error {
	if r.parsed.count {
		return rule.CheckRouting(&r.parsed.object, rule.Count, pass)
	}
	if err := rule.CheckUnpriced(&r.parsed.object, freeTiers, pass); err != nil {
		return err
	}
	if err := r.parsed.paid.Check(pass); err != nil {
		return err
	}
	return rule.Betas(h, pass)
}

// clientTool reports a type of tools that the client runs, or that searches the
// client's own tools, which costs nothing but tokens.
func clientTool(kind string) bool {
	if kind == "custom" {
		return true
	}
	for _, prefix := range [...]string{"bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_"} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}
