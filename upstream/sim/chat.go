package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// answer is one call's answer before it is written in either form.
type answer struct {
	id         string
	model      string
	created    int64
	candidates []candidate
	usage      *chat.Usage
	askedUsage bool // a stream is to end with the usage
}

// candidate is one choice: tokens in the order in which they are produced.
type candidate struct {
	pieces []piece
	filler []piece // repeated after pieces until there are total
	total  int64
	finish string
}

// piece is one token, and one event of a stream.
type piece struct {
	kind kind
	call int64 // which tool call it belongs to
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
	return c.filler[(i-int64(len(c.pieces)))%int64(len(c.filler))]
}

// answer reads the call and decides what to say.
func (u *Upstream) answer(call *upstream.Call) (*answer, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The request body cannot be read.", err)
	}
	r, err := chatapi.Parse(data)
	if err == nil {
		err = r.Validate()
	}
	model := call.Model
	if model == "" && err == nil {
		model = r.Model
	}
	if err := u.refusal(err, model); err != nil {
		return nil, err
	}
	hash := sha256.Sum256(data)
	a := &answer{id: u.id(hash[:]), model: model, created: u.now().Unix(), askedUsage: r.WantsUsage()}
	return a, u.complete(a, r, hex.EncodeToString(hash[:8]))
}

func (u *Upstream) id(hash []byte) string {
	if u.o.NewID != nil {
		return u.o.NewID()
	}
	return "chatcmpl-" + hex.EncodeToString(hash[:12])
}

func (u *Upstream) now() time.Time {
	if u.o.Now != nil {
		return u.o.Now()
	}
	return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
}

// complete makes the candidates and counts what they took.
func (u *Upstream) complete(a *answer, r *chatapi.Request, seed string) error {
	functions, err := functionsToCall(r.Request)
	if err != nil {
		return err
	}
	prompt, cached := promptTokens(r.Request)
	var produced, thought int64
	for i := range r.Candidates() {
		var c candidate
		if u.thinks(a.model) {
			c.add(reasoning, pieces(thoughts(r.Request)))
		}
		u.fill(&c, r, functions, fmt.Sprintf("%s%d", seed, i))
		c.limit(r.OutputBound())
		a.candidates = append(a.candidates, c)
		produced += c.total
		thought += c.thought()
	}
	a.usage = &chat.Usage{
		PromptTokens: prompt, CompletionTokens: produced, TotalTokens: prompt + produced,
		PromptTokensDetails:     &chat.PromptDetails{CachedTokens: cached},
		CompletionTokensDetails: &chat.CompletionDetails{ReasoningTokens: thought},
	}
	return nil
}

// fill appends what the candidate says, and why it stops.
func (u *Upstream) fill(c *candidate, r *chatapi.Request, functions []chat.Function, seed string) {
	c.finish = "stop"
	switch {
	case u.o.Fill && r.OutputBound() > 0:
		text := u.text(r.Request)
		c.add(content, pieces(text))
		var again candidate
		again.add(content, pieces(" "+text))
		c.filler = again.pieces
	case len(functions) > 0:
		c.call(functions, seed)
		c.finish = "tool_calls"
	case structuredText(r.Request) != "":
		c.add(content, pieces(cutAtStop(structuredText(r.Request), r.Stop)))
	default:
		c.add(content, pieces(cutAtStop(u.text(r.Request), r.Stop)))
	}
}

func (c *candidate) add(k kind, texts []string) {
	for _, t := range texts {
		c.pieces = append(c.pieces, piece{kind: k, text: t})
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

// thought is how many of the tokens are reasoning, which comes first.
func (c *candidate) thought() (n int64) {
	for n < int64(len(c.pieces)) && c.pieces[n].kind == reasoning {
		n++
	}
	return n
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
	o, err := rawjson.Index(r.ResponseFormat, nil, nil)
	if err != nil {
		return ""
	}
	switch kind, _ := rawjson.String(o.Raw("type")); kind {
	case "json_object":
		said := rawjson.Quote(nil, clip(last(r).Content.String()))
		return `{"simulated":true,"you_said":` + string(said) + `}`
	case "json_schema":
		described, err := rawjson.Index(o.Raw("json_schema"), nil, nil)
		if err == nil {
			return string(instance(described.Raw("schema")))
		}
	}
	return ""
}

const disclaimer = "This is a simulated answer: no model was called. "

// text is the text of an answer; never empty.
func (u *Upstream) text(r *chat.Request) string {
	text := ""
	if u.o.Text != nil {
		text = u.o.Text(r)
	}
	if strings.TrimSpace(text) == "" {
		text = disclaimer + quoted(r)
	}
	return text
}

// quoted repeats the last message.
func quoted(r *chat.Request) string {
	m := last(r)
	said := clip(m.Content.String())
	switch m.Role {
	case "tool":
		return fmt.Sprintf(`The tool answered: "%s"`, said)
	case "assistant":
		return fmt.Sprintf(`It goes on from: "%s"`, said)
	}
	text := fmt.Sprintf(`You said: "%s"`, said)
	if names := mediaNames(&m); names != "" {
		text += " With it came " + names + "."
	}
	return text
}

// mediaNames names the media of a message: "1 image and 2 other files".
func mediaNames(m *chat.Message) string {
	var parts []string
	images, others := media(m)
	for _, p := range []struct {
		n         int64
		one, many string
	}{{images, "image", "images"}, {others, "other file", "other files"}} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	return strings.Join(parts, " and ")
}

// thoughts is the reasoning of a model that thinks.
func thoughts(r *chat.Request) string {
	m := last(r)
	return fmt.Sprintf("This is simulated reasoning: nobody thinks here. The last message has %d tokens.", messageTokens(&m))
}

// last is the last message; Validate has seen that there is one.
func last(r *chat.Request) chat.Message { return r.Messages[len(r.Messages)-1] }

// clip bounds how much of a message is repeated.
func clip(s string) string {
	const most = 200
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most]) + "…"
}

// response is the answer as one completion object.
func (a *answer) response(f Fault) *chat.Response {
	r := &chat.Response{
		ID: a.id, Object: "chat.completion", Created: a.created, Model: a.model,
		Usage: a.report(f.Usage),
		Extra: jsontext.Value(`{"system_fingerprint":"sim"}`),
	}
	for i := range a.candidates {
		c := &a.candidates[i]
		r.Choices = append(r.Choices, chat.Choice{
			Index: int64(i), Message: c.message(), FinishReason: c.finish,
			Extra: jsontext.Value(`{"logprobs":null}`),
		})
	}
	return r
}

// report is the usage as the fault shows it; nil for none.
func (a *answer) report(r Report) *chat.Usage {
	switch r {
	case Withheld:
		return nil
	case ZeroUsage:
		return &chat.Usage{}
	}
	return a.usage
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
	m.ReasoningContent = thoughts.String()
	m.Content = chat.Text(text.String())
	if len(m.ToolCalls) > 0 {
		m.Content = nil
		m.Extra = jsontext.Value(`{"content":null}`)
	}
	return m
}

// functionsToCall are the functions that the answer calls. Where the model has
// the choice, these are the functions that the user's words name, one or, if
// parallel calls are allowed, all of them; a tool's result is answered in text.
func functionsToCall(r *chat.Request) ([]chat.Function, error) {
	functions, err := r.Functions()
	if err != nil {
		return nil, vendorError(400, fault.InvalidRequest, "tools", "The tools cannot be read: "+err.Error()+".")
	}
	choice, name := toolChoice(r)
	if len(functions) == 0 && (choice == "required" || choice == "function") {
		return nil, vendorError(400, fault.InvalidRequest, "tool_choice", "tool_choice asks for a call, but tools has no function.")
	}
	switch choice {
	case "none":
		return nil, nil
	case "function":
		return byName(functions, name)
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

// toolChoice is "auto", "none", "required", or "function" with a name.
func toolChoice(r *chat.Request) (choice, name string) {
	if word, ok := rawjson.String(r.ToolChoice); ok {
		return word, ""
	}
	o, err := rawjson.Index(r.ToolChoice, nil, nil)
	if err != nil {
		return "auto", ""
	}
	f, err := rawjson.Index(o.Raw("function"), nil, nil)
	if err != nil {
		return "auto", ""
	}
	name, _ = rawjson.String(f.Raw("name"))
	return "function", name
}

func byName(functions []chat.Function, name string) ([]chat.Function, error) {
	for i := range functions {
		if functions[i].Name == name {
			return functions[i : i+1], nil
		}
	}
	return nil, vendorError(400, fault.InvalidRequest, "tool_choice", fmt.Sprintf("tool_choice names the function %q, which tools does not have.", name))
}

// mentioned are the functions whose name, or a word of it that no other
// function has, is a word of the user's last message.
func mentioned(r *chat.Request, functions []chat.Function) (found []chat.Function) {
	m := last(r)
	if m.Role != "user" {
		return nil
	}
	said := make(map[string]bool)
	for _, w := range words(m.Content.String()) {
		said[w] = true
	}
	owners := make(map[string]int)
	for _, f := range functions {
		for _, w := range words(f.Name) {
			owners[w]++
		}
	}
	for _, f := range functions {
		for _, w := range append(words(f.Name), strings.ToLower(f.Name)) {
			if said[w] && owners[w] <= 1 {
				found = append(found, f)
				break
			}
		}
	}
	return found
}

// words are the words of a text in lower case, without those of one or two
// letters. A name with underscores counts as a whole and by its parts.
func words(text string) (all []string) {
	const shortest = 3
	add := func(parts []string) {
		for _, p := range parts {
			if len(p) >= shortest {
				all = append(all, p)
			}
		}
	}
	whole := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	for _, w := range whole {
		parts := strings.FieldsFunc(w, func(r rune) bool { return r == '_' || r == '-' })
		if len(parts) > 1 {
			add([]string{w})
		}
		add(parts)
	}
	return all
}

// call appends calls of the functions with the least arguments that they allow.
func (c *candidate) call(functions []chat.Function, seed string) {
	for i, f := range functions {
		n := int64(i)
		c.pieces = append(c.pieces, piece{kind: callBegin, call: n, text: f.Name, id: fmt.Sprintf("call_%s%d", seed, i)})
		for _, text := range pieces(arguments(f)) {
			c.pieces = append(c.pieces, piece{kind: callArguments, call: n, text: text})
		}
	}
}

func arguments(f chat.Function) string {
	if len(f.Parameters) == 0 {
		return "{}"
	}
	return string(instance(f.Parameters))
}
