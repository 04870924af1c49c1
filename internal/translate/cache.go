package translate

import (
	"slices"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// breakpoint is the cache_control that marks a prompt up to it for the vendor's cache, for
// five minutes (https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching).
const breakpoint = `{"type":"ephemeral"}`

// withBreakpoints adds the marks for an agent whose conversation grows to the body of a
// request for a message. They stand after the tools, after the system text, and after the
// user's last two turns. The previous call put the earlier of these turns into the cache. A
// vendor takes these four at most, so a body that the client marked stays as it is.
func withBreakpoints(body upstream.Body) upstream.Body {
	for _, name := range [...]string{"tools", "system", "messages"} {
		if marked(body.Raw(name)) {
			return body
		}
	}
	turns := rawjson.Elements(body.Raw("messages"))
	done := 0
	for i := len(turns) - 1; i >= 0 && done < 2; i-- {
		if rawjson.LookupString(turns[i], "role") == "user" {
			turns[i] = rawjson.Apply(turns[i], rawjson.Set("content", markLast(rawjson.Lookup(turns[i], "content"))))
			done++
		}
	}
	body = body.Set("messages", rawjson.AppendArray(nil, turns))
	for _, name := range [...]string{"tools", "system"} {
		if list := body.Raw(name); list != nil {
			body = body.Set(name, markLast(list))
		}
	}
	return body
}

// marked reports whether a list of objects, or a list within one of them, has a breakpoint.
func marked(list []byte) bool {
	return slices.ContainsFunc(rawjson.Elements(list), func(element []byte) bool {
		return !rawjson.IsNull(rawjson.Lookup(element, "cache_control")) || marked(rawjson.Lookup(element, "content"))
	})
}

// markLast returns a list of objects with a breakpoint in the last one that is not an empty
// text: the vendor refuses a breakpoint there.
func markLast(list []byte) []byte {
	elements := rawjson.Elements(list)
	for i := len(elements) - 1; i >= 0; i-- {
		if rawjson.LookupString(elements[i], "type") != "text" || rawjson.LookupString(elements[i], "text") != "" {
			elements[i] = rawjson.Apply(elements[i], rawjson.Set("cache_control", []byte(breakpoint)))
			break
		}
	}
	return rawjson.AppendArray(nil, elements)
}
