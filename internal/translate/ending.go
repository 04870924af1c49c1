package translate

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// How an answer ends on each wire: why, and with which counts of tokens. The words between
// a reader and a writer are those of chat.

// finishReasons are chat's words for the stop reasons of messages. A word that is not
// known is "stop".
var finishReasons = map[string]string{
	"end_turn":                      "stop",
	"stop_sequence":                 "stop",
	"pause_turn":                    "stop",
	"max_tokens":                    "length",
	"model_context_window_exceeded": "length",
	"tool_use":                      "tool_calls",
	"refusal":                       "content_filter",
}

// finishReason is chat's word for a stop reason, which is JSON.
func finishReason(raw []byte) string {
	word, _ := rawjson.String(raw)
	if reason := finishReasons[word]; reason != "" {
		return reason
	}
	return "stop"
}

// responseFinishReason is chat's word for the end of a response.
func responseFinishReason(status string, incomplete []byte, calls bool) string {
	switch {
	case rawjson.LookupString(incomplete, "reason") == "content_filter":
		return "content_filter"
	case status != "completed":
		return "length"
	case calls:
		return "tool_calls"
	}
	return "stop"
}

// stopReasons are the words of messages for chat's finish reasons. Any other means that
// the turn is over.
var stopReasons = map[string]string{"length": "max_tokens", "content_filter": "refusal"}

// incomplete are the reasons why a response ends early, by chat's finish reasons.
var incomplete = map[string]string{"length": "max_output_tokens", "content_filter": "content_filter"}

// disjoint is what an upstream reported whose count of the input includes what a cache
// read and wrote.
func disjoint(p *conversation.Report) *conversation.Report {
	d := p.Disjoint()
	d.N[conversation.Reasoning] = min(d.N[conversation.Reasoning], d.N[conversation.Output])
	d.Has[conversation.Reasoning] = d.Has[conversation.Output] && d.N[conversation.Reasoning] > 0
	return &d
}

// count is a member of a usage object: a number, or an object of counts.
type count struct {
	name  string
	known bool // an unknown count is left out: a 0 would be taken for a count and charged as such
	n     int64
	inner []count
}

// appendCounts appends a usage object.
func appendCounts(dst []byte, counts []count) []byte {
	separator := byte('{')
	for i := range counts {
		c := &counts[i]
		if !c.known {
			continue
		}
		dst = append(append(append(dst, separator, '"'), c.name...), `":`...)
		if separator = ','; c.inner != nil {
			dst = appendCounts(dst, c.inner)
		} else {
			dst = strconv.AppendInt(dst, c.n, 10)
		}
	}
	if separator == '{' {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}

// appendChatUsage appends chat's usage object of the sides that were reported. The
// prompt there includes what the cache read and wrote.
func appendChatUsage(dst []byte, u *conversation.Report) []byte {
	prompt, in, out := u.N[conversation.Input]+u.N[conversation.CacheWrite]+u.N[conversation.Cached], u.Has[conversation.Input], u.Has[conversation.Output]
	return appendCounts(dst, []count{
		{name: "prompt_tokens", known: in, n: prompt},
		{name: "completion_tokens", known: out, n: u.N[conversation.Output]},
		{name: "total_tokens", known: in && out, n: prompt + u.N[conversation.Output]},
		{name: "prompt_tokens_details", known: in, inner: []count{
			{name: "cached_tokens", known: true, n: u.N[conversation.Cached]},
			{name: "cache_write_tokens", known: u.N[conversation.CacheWrite] > 0, n: u.N[conversation.CacheWrite]},
		}},
		{name: "completion_tokens_details", known: out && u.Has[conversation.Reasoning], inner: []count{{name: "reasoning_tokens", known: true, n: u.N[conversation.Reasoning]}}},
	})
}

// appendMessageUsage appends the usage object of the sides that were reported.
func appendMessageUsage(dst []byte, u *conversation.Report) []byte {
	in, out := u.Has[conversation.Input], u.Has[conversation.Output]
	return appendCounts(dst, []count{
		{name: "input_tokens", known: in, n: u.N[conversation.Input]},
		{name: "cache_creation_input_tokens", known: in, n: u.N[conversation.CacheWrite]},
		{name: "cache_read_input_tokens", known: in, n: u.N[conversation.Cached]},
		{name: "output_tokens", known: out, n: u.N[conversation.Output]},
		{name: "output_tokens_details", known: out && u.Has[conversation.Reasoning], inner: []count{{name: "thinking_tokens", known: true, n: u.N[conversation.Reasoning]}}},
	})
}

// appendResponseUsage appends the usage of a response, whose input includes cache reads and
// writes. It writes all details, since clients fail without them.
func appendResponseUsage(dst []byte, u *conversation.Report) []byte {
	in := u.N[conversation.Input] + u.N[conversation.CacheWrite] + u.N[conversation.Cached]
	return appendCounts(dst, []count{
		{name: "input_tokens", known: true, n: in},
		{name: "input_tokens_details", known: true, inner: []count{
			{name: "cached_tokens", known: true, n: u.N[conversation.Cached]},
			{name: "cache_write_tokens", known: true, n: u.N[conversation.CacheWrite]},
		}},
		{name: "output_tokens", known: true, n: u.N[conversation.Output]},
		{name: "output_tokens_details", known: true, inner: []count{{name: "reasoning_tokens", known: true, n: u.N[conversation.Reasoning]}}},
		{name: "total_tokens", known: true, n: in + u.N[conversation.Output]},
	})
}
