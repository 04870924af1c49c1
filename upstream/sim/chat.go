package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// answer is the answer to one call, before it is written whole or as a stream.
type answer struct {
	id         string
	model      string
	created    int64
	candidates []candidate
	usage      *chat.Usage // nil where a fault leaves it out
	askedUsage bool        // a stream ends with the usage
}

// candidate is one choice: tokens in the order in which they are produced.
type candidate struct {
	pieces []piece
	filler []string // text that is repeated after pieces, up to total
	total  int64
	finish string
}

// piece is one token, and one event of a stream.
type piece struct {
	kind kind
	call int64 // the tool call that it belongs to
	text string
	id   string // of a call that begins; text is its function's name
}

// kind is what a piece is part of.
type kind uint8

const (
	content kind = iota
	reasoning
	callBegin
	callArguments
)

// at is the i-th token of the candidate.
func (c *candidate) at(i int64) piece {
	if i < int64(len(c.pieces)) {
		return c.pieces[i]
	}
	return piece{text: c.filler[(i-int64(len(c.pieces)))%int64(len(c.filler))]}
}

// chat answers a chat, whole or as a stream.
func (u *Upstream) chat(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, data, err := request(u, call, chatop.Parse, (*chatop.Request).Validate)
	if err != nil {
		return nil, err
	}
	functions, err := functionsToCall(r.Request)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(data)
	a := u.newAnswer(call, hash, r.WantsUsage())
	for i := range r.Candidates() {
		var c candidate
		if strings.HasPrefix(a.model, "delta-") { // the family that reasons
			c.add(reasoning, 0, thoughts(r.Request))
		}
		u.fill(&c, r.Request, functions, fmt.Sprintf("%x%d", hash[:8], i))
		c.limit(r.OutputBound())
		a.candidates = append(a.candidates, c)
	}
	switch {
	case f.NoUsage:
	case f.ZeroUsage:
		a.usage = &chat.Usage{}
	default:
		a.count(r.Request)
	}
	if call.Stream {
		return u.sendStream(ctx, a.events(), f), nil
	}
	return u.sendJSON(ctx, a.response(), f)
}

// newAnswer is an answer without candidates, of the call whose body has the hash.
func (u *Upstream) newAnswer(call *upstream.Call, hash [sha256.Size]byte, askedUsage bool) *answer {
	a := &answer{id: "chatcmpl-" + hex.EncodeToString(hash[:12]), model: call.Model, created: u.now().Unix(), askedUsage: askedUsage}
	if u.o.NewID != nil {
		a.id = u.o.NewID()
	}
	return a
}

// count reports the usage of the answer to r.
func (a *answer) count(r *chat.Request) {
	var produced, thought int64
	for i := range a.candidates {
		c := &a.candidates[i]
		produced += c.total
		for j := range min(c.total, int64(len(c.pieces))) {
			if c.pieces[j].kind == reasoning {
				thought++
			}
		}
	}
	prompt, cached := promptTokens(r)
	a.usage = &chat.Usage{
		PromptTokens: prompt, CompletionTokens: produced, TotalTokens: prompt + produced,
		PromptTokensDetails:     &chat.PromptDetails{CachedTokens: cached},
		CompletionTokensDetails: &chat.CompletionDetails{ReasoningTokens: thought},
	}
}

// fill appends what the candidate says, and why it stops.
func (u *Upstream) fill(c *candidate, r *chat.Request, functions []chat.Function, seed string) {
	c.finish = "stop"
	own, structured := u.ownText(r), structuredText(r)
	switch {
	case u.o.Fill && r.OutputBound() > 0:
		text := cmp.Or(own, simulatedText(r))
		c.add(content, 0, text)
		c.filler = pieces(" " + text)
	case own != "":
		c.add(content, 0, cutAtStop(own, r.Stop))
	case len(functions) > 0:
		for i, f := range functions { // with the fewest arguments that they allow
			arguments := "{}"
			if len(f.Parameters) > 0 {
				arguments = string(instance(f.Parameters))
			}
			c.call(int64(i), fmt.Sprintf("call_%s%d", seed, i), f.Name, arguments)
		}
	case structured != "":
		c.add(content, 0, cutAtStop(structured, r.Stop))
	default:
		c.add(content, 0, cutAtStop(simulatedText(r), r.Stop))
	}
}

// call appends a call of a function, which is why the candidate stops.
func (c *candidate) call(i int64, id, name, arguments string) {
	c.pieces = append(c.pieces, piece{kind: callBegin, call: i, text: name, id: id})
	c.add(callArguments, i, arguments)
	c.finish = "tool_calls"
}

// add appends a text, token by token.
func (c *candidate) add(k kind, call int64, text string) {
	for _, t := range pieces(text) {
		c.pieces = append(c.pieces, piece{kind: k, call: call, text: t})
	}
}

// limit cuts the candidate at the request's bound, or fills it up to it.
func (c *candidate) limit(bound int64) {
	c.total = int64(len(c.pieces))
	if bound > 0 && (c.total > bound || c.filler != nil) {
		c.pieces = c.pieces[:min(c.total, bound)]
		c.total, c.finish = bound, "length"
	}
}

// cutAtStop is text up to the first stop sequence in it.
func cutAtStop(text string, stop []string) string {
	end := len(text)
	for _, s := range stop {
		if i := strings.Index(text, s); i >= 0 && s != "" {
			end = min(end, i)
		}
	}
	return text[:end]
}

// structuredText is the answer that response_format asks for; empty for plain text.
func structuredText(r *chat.Request) string {
	switch rawjson.LookupString(r.ResponseFormat, "type") {
	case "json_object":
		said := rawjson.Quote(nil, safetext.Truncate(last(r).Content.String(), maxRepeated))
		return `{"simulated":true,"you_said":` + string(said) + `}`
	case "json_schema":
		return string(instance(rawjson.Lookup(r.ResponseFormat, "json_schema", "schema")))
	}
	return ""
}

// maxRepeated is how many bytes of a message or a prompt an answer repeats.
const maxRepeated = 200

const disclaimer = "This is a simulated answer: no model was called. "

// ownText is the text that the options give the answer; empty for none.
func (u *Upstream) ownText(r *chat.Request) string {
	if u.o.Text != nil {
		if text := u.o.Text(r); strings.TrimSpace(text) != "" {
			return text
		}
	}
	return ""
}

// simulatedText is the text of an answer that repeats the last message.
func simulatedText(r *chat.Request) string {
	m := last(r)
	said := safetext.Truncate(m.Content.String(), maxRepeated)
	switch m.Role {
	case "tool":
		return fmt.Sprintf(`%sThe tool answered: "%s"`, disclaimer, said)
	case "assistant":
		return fmt.Sprintf(`%sIt goes on from: "%s"`, disclaimer, said)
	}
	text := fmt.Sprintf(`%sYou said: "%s"`, disclaimer, said)
	if images, others := media(&m); images+others > 0 {
		text += fmt.Sprintf(" Images with it: %d, other files: %d.", images, others)
	}
	return text
}

// thoughts is the reasoning of a model that reasons.
func thoughts(r *chat.Request) string {
	m := last(r)
	count := "1 token"
	if n := messageTokens(&m); n != 1 {
		count = fmt.Sprintf("%d tokens", n)
	}
	return "This is simulated reasoning: nobody thinks here. The last message has " + count + "."
}

// last is the last message; Validate has seen that there is one.
func last(r *chat.Request) chat.Message { return r.Messages[len(r.Messages)-1] }

// response is the answer as one completion object.
func (a *answer) response() *chat.Response {
	r := &chat.Response{
		ID: a.id, Object: "chat.completion", Created: a.created, Model: a.model, Usage: a.usage,
		Extra: jsontext.Value(`{"system_fingerprint":"sim"}`),
	}
	for i := range a.candidates {
		c := &a.candidates[i]
		r.Choices = append(r.Choices, chat.Choice{
			Index: int64(i), Message: c.message(), FinishReason: c.finish, Extra: jsontext.Value(`{"logprobs":null}`),
		})
	}
	return r
}

// message joins the candidate's tokens.
func (c *candidate) message() chat.Message {
	var text, thoughts strings.Builder
	m := chat.Message{Role: "assistant"}
	for i := range c.total {
		switch p := c.at(i); p.kind {
		case content:
			text.WriteString(p.text)
		case reasoning:
			thoughts.WriteString(p.text)
		case callBegin:
			m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: p.id, Type: "function", Function: chat.CalledFunction{Name: p.text}})
		case callArguments:
			m.ToolCalls[p.call].Function.Arguments += p.text
		}
	}
	m.ReasoningContent, m.Content = thoughts.String(), chat.Text(text.String())
	if len(m.ToolCalls) > 0 && text.Len() == 0 {
		m.Content, m.Extra = chat.Content{}, jsontext.Value(`{"content":null}`)
	}
	return m
}

// events are the chunks of a streamed answer. The candidates take turns: the role,
// one token after the other, and the reason why they stop.
func (a *answer) events() iter.Seq[[]byte] {
	steps := int64(0)
	for i := range a.candidates {
		steps = max(steps, a.candidates[i].total+2)
	}
	noUsage := ""
	if a.askedUsage {
		noUsage = `,"usage":null`
	}
	return func(yield func([]byte) bool) {
		for step := range steps {
			for i := range a.candidates {
				c := &a.candidates[i]
				if step < c.total+2 && !yield(a.chunk(c.choice(i, step), noUsage)) {
					return
				}
			}
		}
		if a.askedUsage && a.usage != nil {
			usage, _ := json.Marshal(a.usage) // numbers marshal
			if !yield(a.chunk("", `,"usage":`+string(usage))) {
				return
			}
		}
		yield([]byte(sse.Done))
	}
}

func (a *answer) chunk(choice, usage string) []byte {
	const form = `data: {"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"system_fingerprint":"sim","choices":[%s]%s}` + "\n\n"
	return fmt.Appendf(nil, form, rawjson.Quote(nil, a.id), a.created, rawjson.Quote(nil, a.model), choice, usage)
}

// choice is the candidate's part of a chunk.
func (c *candidate) choice(i int, step int64) string {
	finish, delta := "null", ""
	switch step {
	case 0:
		delta = `"role":"assistant","content":""`
	case c.total + 1:
		finish = `"` + c.finish + `"`
	default:
		p := c.at(step - 1)
		delta = p.delta()
	}
	return fmt.Sprintf(`{"index":%d,"delta":{%s},"logprobs":null,"finish_reason":%s}`, i, delta, finish)
}

// delta is the members of a chunk's delta.
func (p *piece) delta() string {
	text := rawjson.Quote(nil, p.text)
	switch p.kind {
	case reasoning:
		return fmt.Sprintf(`"reasoning_content":%s`, text)
	case callBegin:
		return fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%s,"arguments":""}}]`, p.call, p.id, text)
	case callArguments:
		return fmt.Sprintf(`"tool_calls":[{"index":%d,"function":{"arguments":%s}}]`, p.call, text)
	}
	return fmt.Sprintf(`"content":%s`, text)
}

// functionsToCall are the functions that the answer calls. If the model has the choice, it
// calls those that the user's words name: one, or all of them if parallel calls are allowed.
// It answers a tool's result in text.
func functionsToCall(r *chat.Request) ([]chat.Function, error) {
	functions, err := r.Functions()
	if err != nil {
		return nil, vendorError(400, fault.InvalidRequest, "tools", "The tools cannot be read: "+err.Error()+".")
	}
	choice, _ := rawjson.String(r.ToolChoice)
	switch name := rawjson.LookupString(r.ToolChoice, "function", "name"); {
	case choice == "none":
		return nil, nil
	case name != "":
		i := slices.IndexFunc(functions, func(f chat.Function) bool { return f.Name == name })
		if i < 0 {
			return nil, vendorError(400, fault.InvalidRequest, "tool_choice", fmt.Sprintf("tool_choice names the function %q, which tools does not have.", name))
		}
		return functions[i : i+1], nil
	case choice == "required" && len(functions) == 0:
		return nil, vendorError(400, fault.InvalidRequest, "tool_choice", "tool_choice asks for a call, but tools has no function.")
	}
	found := mentioned(r, functions)
	if choice == "required" && len(found) == 0 {
		found = functions[:1]
	}
	if len(found) > 1 && string(r.Field("parallel_tool_calls")) == "false" {
		found = found[:1]
	}
	return found, nil
}

// mentioned are the functions that the user's last message names: by the whole name, or by
// a word of it that no other function has.
func mentioned(r *chat.Request, functions []chat.Function) (found []chat.Function) {
	m := last(r)
	if m.Role != "user" {
		return nil
	}
	said, owners := words(m.Content.String()), make(map[string]int)
	for _, f := range functions {
		for _, w := range words(f.Name) {
			owners[w]++
		}
	}
	for _, f := range functions {
		if slices.ContainsFunc(words(f.Name), func(w string) bool { return owners[w] == 1 && slices.Contains(said, w) }) {
			found = append(found, f)
		}
	}
	return found
}

// words are the words of a text in lower case, without those of one or two letters.
// A name with underscores counts as a whole and by its parts.
func words(text string) (all []string) {
	joint := func(r rune) bool { return r == '_' || r == '-' }
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !joint(r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		all = append(append(all, w), strings.FieldsFunc(w, joint)...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(w string) bool { return len(w) < 3 })
}
