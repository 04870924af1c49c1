package router

import (
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// aliased are the members of requests that name something of the caller's at the vendor. They
// say who its user is, or which cache or session a prompt belongs to. All accounts share the
// vendor's account. As they came, one account could read from its cache whether another has
// sent a prompt, or have the vendor block another's user.
var aliased = []string{
	"user", "user_id", "safety_identifier", // OpenAI's, Z.ai's
	"prompt_cache_key", "prompt_cache_isolation_key", "cache_salt", "session_id", // OpenAI's, Fireworks', vLLM's, OpenRouter's
}

// userID is the member of the metadata of messages that names a user.
const userID = "user_id"

// aliases are the edits that give the members of the call's body their aliases, but those
// that the channel passes.
func (c *channel) aliases(call *upstream.Call) (edits []rawjson.Edit) {
	if call.Alias == nil {
		return nil
	}
	for _, name := range aliased {
		raw := call.Body.Raw(name)
		if raw == nil {
			continue
		}
		if alias := c.alias(call, name, raw); alias != nil {
			edits = append(edits, rawjson.Set(name, alias))
		}
	}
	if !messages[call.Op] {
		return edits
	}
	metadata := call.Body.Raw("metadata")
	if alias := c.alias(call, userID, rawjson.Lookup(metadata, userID)); alias != nil {
		edits = append(edits, rawjson.Set("metadata", rawjson.Apply(metadata, rawjson.Set(userID, alias))))
	}
	return edits
}

// alias is the alias of a name, which is a JSON string or number; nil if there is none.
func (c *channel) alias(call *upstream.Call, member string, raw []byte) []byte {
	if rawjson.IsNull(raw) || c.passesField(member) {
		return nil
	}
	name, ok := rawjson.String(raw)
	if _, number := rawjson.Float(raw); number {
		name, ok = string(raw), true
	}
	if !ok || name == "" {
		return nil
	}
	return rawjson.Quote(nil, call.Alias(call.Account, name))
}
