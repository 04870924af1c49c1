package faultlab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// chatRequest is a conversation as its vendor reads it.
type chatRequest struct {
	Model               string          `json:"model"`
	Messages            json.RawMessage `json:"messages"`
	System              json.RawMessage `json:"system"`
	Prompt              json.RawMessage `json:"prompt"`
	Tools               json.RawMessage `json:"tools"`
	Functions           json.RawMessage `json:"functions"`
	ResponseFormat      json.RawMessage `json:"response_format"`
	OutputConfig        json.RawMessage `json:"output_config"`
	MaxTokens           *float64        `json:"max_tokens"`
	MaxCompletionTokens *float64        `json:"max_completion_tokens"`
	N                   *float64        `json:"n"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	ServiceTier string          `json:"service_tier"`
	Speed       string          `json:"speed"`
	Search      json.RawMessage `json:"web_search_options"`
	Modalities  []string        `json:"modalities"`
	Models      []string        `json:"models"`
	Fallbacks   []any           `json:"fallbacks"`
	Plugins     []any           `json:"plugins"`
	Servers     []any           `json:"mcp_servers"`
	Container   any             `json:"container"`
	Provider    json.RawMessage `json:"provider"`
	Route       string          `json:"route"`
	APIBase     string          `json:"api_base"`
	BaseURL     string          `json:"base_url"`
	APIKey      string          `json:"api_key"`
}

// given reports whether a member is there and not null.
func given(data json.RawMessage) bool { return len(data) > 0 && string(data) != "null" }

// plannedOutput is what a vendor is going to make.
type plannedOutput struct {
	visible, unseen int64 // tokens of one candidate; unseen are not shown
	beside          bool  // what is unseen is in total_tokens only
	n               int64
	bound           int64 // of one candidate; 0 for none
}

func (s plannedOutput) output() int64 { return s.n * (s.visible + s.unseen) }

// excess is what is above the bound.
func (s plannedOutput) excess() int64 {
	if s.bound == 0 {
		return 0
	}
	return s.n * max(s.visible+s.unseen-s.bound, 0)
}

// content is all that the vendor counts as input.
func (a *chatRequest) content() *content {
	var t content
	for _, data := range []json.RawMessage{a.Messages, a.System, a.Prompt} {
		t.reads(data, false)
	}
	for _, data := range []json.RawMessage{a.Tools, a.Functions, a.ResponseFormat, a.OutputConfig} {
		t.reads(data, true)
	}
	return &t
}

// makes is what the vendor makes of a prompt.
func (a *chatRequest) makes(prompt string, bound *float64) plannedOutput {
	s := plannedOutput{n: 1, visible: 20 + int64(len(prompt)%100)}
	if a.N != nil {
		s.n = int64(*a.N)
	}
	if bound != nil {
		s.bound = min(int64(*bound), hostileOutput) // no model makes more than it can
	}
	switch {
	case strings.Contains(prompt, long):
		s.visible = longest
	case strings.Contains(prompt, hidden):
		s.visible, s.unseen = 6, 1_000
	case strings.Contains(prompt, beside):
		s.visible, s.unseen, s.beside = 9, 994, true
	}
	if s.bound > 0 {
		s.unseen = min(s.unseen, s.bound)
		s.visible = max(min(s.visible, s.bound-s.unseen), 1)
		switch {
		case strings.Contains(prompt, think):
			s.visible += 3_000
		case strings.Contains(prompt, disobey):
			s.visible = s.bound + 500
		}
	}
	const most = 400_000 // of all candidates: it is text that has to be made
	if s.visible*s.n > most {
		s.visible = most / s.n
	}
	return s
}

// surcharge puts on the bill what the request asks for besides tokens: what a
// vendor takes for it, at the rate of those that sell it.
func (c *vendorCall) surcharge(a *chatRequest, input int64, s plannedOutput) {
	model := c.bill.model
	in, out := cost(model, billing.Input, "", input), cost(model, billing.Output, "", s.output())
	once := map[string]bool{
		"web search":       given(a.Search) || strings.Contains(string(a.Tools), "web_search") || strings.Contains(string(a.Tools), "web_fetch"),
		"plugins":          len(a.Plugins) > 0,
		"code execution":   strings.Contains(string(a.Tools), "code_execution") || a.Container != nil,
		"servers of tools": len(a.Servers) > 0,
	}
	for what, is := range once {
		if is {
			c.owes(what, billing.One/100)
		}
	}
	if a.ServiceTier == "priority" || a.ServiceTier == "fast" {
		c.owes("service_tier priority", in+out)
	}
	if a.Speed == "fast" {
		c.owes("speed fast", 5*(in+out))
	}
	if slices.Contains(a.Modalities, "audio") {
		c.owes("output as audio", 8*out)
	}
	if strings.Contains(string(a.System)+string(a.Messages), `"ttl":"1h"`) {
		c.owes("cache written for an hour", in)
	}
	if c.r.Header.Get("Anthropic-Beta") == "context-1m-2025-08-07" {
		c.owes("context of a million", in)
	}
	if len(a.Models)+len(a.Fallbacks) > 0 || given(a.Provider) || a.Route != "" {
		c.owes("another model or provider", cost(dearChat, billing.Input, "", input)+cost(dearChat, billing.Output, "", s.output()))
	}
	if a.APIBase+a.BaseURL+a.APIKey != "" {
		c.owes("another address or account, which gets the operator's key", billing.One)
	}
}

// begins does what precedes every answer of a conversation; false if there is
// no answer.
func (c *vendorCall) begins(a *chatRequest, bound *float64) (input int64, s plannedOutput, ok bool) {
	t := a.content()
	c.bill.model = a.Model
	if hostilePrices[a.Model] == nil || a.N != nil && (*a.N < 1 || *a.N > 128) || bound != nil && *bound < 1 {
		c.fail(http.StatusBadRequest, "invalid_request_error", "no such model, n or bound")
		return 0, s, false
	}
	input = t.tokens()
	if t.far && c.firstFar() {
		const far = 300_000
		input += far
		c.bears(Tolerance{Media: cost(a.Model, billing.Input, "", far)})
	}
	prompt := t.text.String()
	if c.refuses(prompt, func() { c.costs(billing.Input, "", input) }) {
		return 0, s, false
	}
	s = a.makes(prompt, bound)
	c.costs(billing.Input, "", input)
	c.surcharge(a, input, s)
	return input, s, true
}

// firstFar is true once in a round.
func (c *vendorCall) firstFar() bool {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	was := c.v.huge
	c.v.huge = true
	return !was
}

// broken breaks the connection off in the middle of an answer.
func (c *vendorCall) broken() {
	if h, ok := c.w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			_ = conn.Close()
		}
	}
}

// made puts output on the bill; above is what of it is above the bound.
func (c *vendorCall) made(n, above int64) {
	if n <= 0 {
		return
	}
	c.costs(billing.Output, "", n)
	c.bears(Tolerance{Disobeyed: cost(c.bill.model, billing.Output, "", above)})
}

// generates waits as long as a whole answer takes, and bills it whether or not the gateway
// goes; false if it did.
func (c *vendorCall) generates(s plannedOutput) bool {
	const token, most = time.Millisecond, 20 * time.Second
	c.made(s.output(), s.excess())
	return c.wait(min(time.Duration(s.visible+s.unseen)*token, most))
}

// words are so many tokens of text.
func words(n int64) string { return strings.Repeat("abcd", int(n)) }

// pieces sends a stream's text in pieces, with pauses; false if it ended early.
func (c *vendorCall) pieces(s plannedOutput, prompt string, send func(candidate, tokens int64) bool) bool {
	const gap, event = 100 * time.Millisecond, 500 // tokens in one event
	count := max(12, s.visible/event)
	gone := func() bool { // what was not shown is not received, as nobody is told of it
		if c.bill.model != hidingChat {
			c.bears(Tolerance{Unreceived: cost(c.bill.model, billing.Output, "", s.n*s.unseen)})
		}
		return false
	}
	if s.unseen > 0 {
		c.costs(billing.Output, "", s.n*s.unseen)
		if !c.wait(time.Second) {
			return gone()
		}
	}
	above, given := s.excess(), int64(0)
	for at := range count {
		tokens := s.visible*(at+1)/count - s.visible*at/count
		if tokens == 0 {
			continue
		}
		if !c.wait(gap) {
			return gone()
		}
		for candidate := range s.n {
			given += tokens
			c.made(tokens, min(tokens, max(given-(s.n*s.visible-above), 0)))
			if !send(candidate, tokens) {
				return gone()
			}
		}
		if at == count/2 && strings.Contains(prompt, breaks) {
			c.broken()
			return gone()
		}
	}
	return true
}

// dialect is how a wire spells the answer of a conversation. An event is its name,
// which may be empty, and its data.
type dialect struct {
	whole      string
	start, end [][2]string
	piece      func(candidate, tokens int64) (name, data string)
}

// converse answers a conversation, whole or as a stream.
func (c *vendorCall) converse(a *chatRequest, bound *float64, spell func(input int64, s plannedOutput) dialect) {
	input, s, ok := c.begins(a, bound)
	if !ok {
		return
	}
	prompt, d := a.content().text.String(), spell(input, s)
	if !a.Stream {
		switch {
		case !c.generates(s):
		case strings.Contains(prompt, breaks):
			c.wasted()
			c.broken()
		default:
			c.answer("%s", d.whole)
		}
		return
	}
	c.w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range d.start {
		c.event(e[0], "%s", e[1])
	}
	whole := c.pieces(s, prompt, func(candidate, tokens int64) bool {
		name, data := d.piece(candidate, tokens)
		return c.event(name, "%s", data)
	})
	for _, e := range d.end {
		if whole {
			c.event(e[0], "%s", e[1])
		}
	}
}

// chat answers in OpenAI's wire.
func (c *vendorCall) chat() {
	var a chatRequest
	if !c.read(&a) {
		return
	}
	a.System, a.Prompt, a.OutputConfig = nil, nil, nil // which are not this wire's
	bound := a.MaxCompletionTokens                     // as most vendors read it, this one first
	if bound == nil {
		bound = a.MaxTokens
	}
	c.converse(&a, bound, func(input int64, s plannedOutput) dialect {
		const head = `{"id":"up","object":"chat.completion.chunk","created":7,"model":"m","choices":[`
		completion := s.output()
		if s.beside {
			completion = s.n * s.visible
		}
		usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"completion_tokens_details":{"reasoning_tokens":%d}}`,
			input, completion, input+s.output(), s.n*s.unseen)
		var d dialect
		var choices []string
		for i := range s.n {
			if !a.Stream { // of a stream it would be made for nothing
				choices = append(choices, fmt.Sprintf(`{"index":%d,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}`, i, words(s.visible)))
			}
			d.end = append(d.end, [2]string{"", fmt.Sprintf(head+`{"index":%d,"delta":{},"finish_reason":"stop"}]}`, i)})
		}
		d.whole = fmt.Sprintf(`{"id":"up","object":"chat.completion","created":7,"model":"m","choices":[%s],"usage":%s}`, strings.Join(choices, ","), usage)
		d.piece = func(candidate, tokens int64) (string, string) {
			return "", fmt.Sprintf(head+`{"index":%d,"delta":{"content":%q},"finish_reason":null}]}`, candidate, words(tokens))
		}
		if a.StreamOptions.IncludeUsage {
			d.end = append(d.end, [2]string{"", head + `],"usage":` + usage + `}`})
		}
		d.end = append(d.end, [2]string{"", "[DONE]"})
		return d
	})
}

// messages answers in Anthropic's wire.
func (c *vendorCall) messages() {
	var a chatRequest
	if !c.read(&a) {
		return
	}
	a.N = nil                                                                                     // it has none
	for _, kind := range []string{"image_url", "video_url", "audio_url", "input_audio", "file"} { // which are the other wire's
		if strings.Contains(string(a.Messages), `"type":"`+kind+`"`) {
			c.fail(http.StatusBadRequest, "invalid_request_error", "no such block")
			return
		}
	}
	c.converse(&a, a.MaxTokens, func(input int64, s plannedOutput) dialect {
		message := func(content, stop string, output int64) string {
			return fmt.Sprintf(`{"id":"msg","type":"message","role":"assistant","model":"m","content":[%s],"stop_reason":%s,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":%d}}`,
				content, stop, input, output)
		}
		return dialect{
			whole: message(fmt.Sprintf(`{"type":"text","text":%q}`, words(s.visible)), `"end_turn"`, s.output()),
			start: [][2]string{
				{"message_start", `{"type":"message_start","message":` + message("", "null", 1) + `}`},
				{"content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`},
			},
			piece: func(_, tokens int64) (string, string) {
				return "content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, words(tokens))
			},
			end: [][2]string{
				{"content_block_stop", `{"type":"content_block_stop","index":0}`},
				{"message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}}`, s.output())},
				{"message_stop", `{"type":"message_stop"}`},
			},
		}
	})
}

// count answers how many tokens a message has, for nothing.
func (c *vendorCall) count() {
	var a chatRequest
	if c.read(&a) && c.wait(20*time.Millisecond) {
		c.answer(`{"input_tokens":%d}`, a.content().tokens())
	}
}
