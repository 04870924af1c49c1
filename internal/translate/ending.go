package translate

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
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
	case stringMember(incomplete, "reason") == "content_filter":
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

// usage is what an upstream reported, in disjoint buckets but for reasoning.
type usage struct{ tokencount.Report }

// The fields of a usage. An input that is known is known with all that a cache did.
const (
	input = iota
	cached
	cacheWrite
	output
	reasoning // part of output
)

// messageUsage are the members of a usage object.
var messageUsage = []tokencount.Member{
	{Name: "input_tokens", Field: input},
	{Name: "cache_read_input_tokens", Field: cached},
	{Name: "cache_creation_input_tokens", Field: cacheWrite},
	{Name: "output_tokens", Field: output},
	{Name: "output_tokens_details", Inner: []tokencount.Member{{Name: "thinking_tokens", Field: reasoning}}},
}

// read takes in one usage object.
func (u *usage) read(raw []byte) { u.Read(raw, messageUsage) }

// begin takes in the usage of message_start, before any other. Its output is a count
// so far, and an input of nothing at all means that the upstream does not know it yet.
func (u *usage) begin(raw []byte) {
	u.read(raw)
	u.Has[output] = false
	if u.N[input]+u.N[cached]+u.N[cacheWrite] == 0 {
		u.Has[input] = false
	}
}

// reported is what an upstream reported whose count of the input includes what a cache
// read and wrote.
func reported(p *conversation.Report) *usage {
	counts := p.Usage(&conversation.Parsed{}, chat.MediaBound{}, 0)
	var u usage
	if p.Has[conversation.Prompt] {
		u.Has = [tokencount.Fields]bool{input: true, cached: true, cacheWrite: true}
	}
	u.Has[output] = p.Has[conversation.Output]
	u.Has[reasoning] = u.Has[output] && counts.Reasoning > 0
	u.N = [tokencount.Fields]int64{input: counts.Input, cached: counts.CachedInput, cacheWrite: counts.CacheWrite, output: counts.Output, reasoning: counts.Reasoning}
	return &u
}

// count is a member of a usage object: a number, or an object of counts.
type count struct {
	name  string
	known bool // what is not is left out: a 0 would be taken for a count and charged as such
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
func appendChatUsage(dst []byte, u *usage) []byte {
	prompt, in, out := u.N[input]+u.N[cacheWrite]+u.N[cached], u.Has[input], u.Has[output]
	return appendCounts(dst, []count{
		{name: "prompt_tokens", known: in, n: prompt},
		{name: "completion_tokens", known: out, n: u.N[output]},
		{name: "total_tokens", known: in && out, n: prompt + u.N[output]},
		{name: "prompt_tokens_details", known: in, inner: []count{
			{name: "cached_tokens", known: true, n: u.N[cached]},
			{name: "cache_write_tokens", known: u.N[cacheWrite] > 0, n: u.N[cacheWrite]},
		}},
		{name: "completion_tokens_details", known: out && u.Has[reasoning], inner: []count{{name: "reasoning_tokens", known: true, n: u.N[reasoning]}}},
	})
}

// appendMessageUsage appends the usage object of the sides that were reported.
func appendMessageUsage(dst []byte, u *usage) []byte {
	in, out := u.Has[input], u.Has[output]
	return appendCounts(dst, []count{
		{name: "input_tokens", known: in, n: u.N[input]},
		{name: "cache_creation_input_tokens", known: in, n: u.N[cacheWrite]},
		{name: "cache_read_input_tokens", known: in, n: u.N[cached]},
		{name: "output_tokens", known: out, n: u.N[output]},
		{name: "output_tokens_details", known: out && u.Has[reasoning], inner: []count{{name: "thinking_tokens", known: true, n: u.N[reasoning]}}},
	})
}

// appendResponseUsage appends the usage of a response, whose input includes what the
// cache read and wrote. All of its details must be there: clients fail without them.
func appendResponseUsage(dst []byte, u *usage) []byte {
	in := u.N[input] + u.N[cacheWrite] + u.N[cached]
	return appendCounts(dst, []count{
		{name: "input_tokens", known: true, n: in},
		{name: "input_tokens_details", known: true, inner: []count{
			{name: "cached_tokens", known: true, n: u.N[cached]},
			{name: "cache_write_tokens", known: true, n: u.N[cacheWrite]},
		}},
		{name: "output_tokens", known: true, n: u.N[output]},
		{name: "output_tokens_details", known: true, inner: []count{{name: "reasoning_tokens", known: true, n: u.N[reasoning]}}},
		{name: "total_tokens", known: true, n: in + u.N[output]},
	})
}
