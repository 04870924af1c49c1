package chat

import "github.com/tollhouse-ai/gateway/internal/rule"

// freeTiers are the service tiers that cost no more than the price says.
var freeTiers = []string{"auto", "default", "flex", "standard_only"}

// Unpriced refuses the first member that costs money without a price, or chooses
// another model or account, unless pass lets it through. pass gets the name as the
// table spells it, "tools" and "cache_control" included, and as the caller does.
func (r *Request) Unpriced(pass func(name, spelled string) bool) error {
	if err := rule.CheckUnpriced(&r.parsed.object, freeTiers, pass); err != nil {
		return err
	}
	return r.parsed.paid.Check(pass)
}

// clientTool reports a type of tools that the client runs. Vendors charge for
// each call of those that they run themselves.
func clientTool(kind string) bool { return kind == "function" || kind == "custom" }
