package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
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
	r, err := chat.Parse(data)
	if err == nil {
		err = r.Validate()
	}
	model := call.Model
	if model == "" && err == nil {
		model = r.Model
	}
	if err := u.unfit(err, model); err != nil {
		return nil, err
	}
	hash := sha256.Sum256(data)
	a := &answer{id: u.id(hash[:]), model: model, created: u.now().Unix(), askedUsage: r.WantsUsage()}
	return a, u.speak(a, r, hex.EncodeToString(hash[:8]))
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

// speak makes the candidates and counts what they took.
func (u *Upstream) speak(a *answer, r *chat.Request, seed string) error {
	functions, err := called(r)
	if err != nil {
		return err
	}
	prompt, cached := promptTokens(r)
	var produced, thought int64
	for i := range r.Candidates() {
		var c candidate
		if u.thinks(a.model) {
			c.add(reasoning, pieces(thoughts(r)))
		}
		u.say(&c, r, functions, fmt.Sprintf("%s%d", seed, i))
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

// say appends what the candidate says, and why it stops.
func (u *Upstream) say(c *candidate, r *chat.Request, functions []chat.Function, seed string) {
	c.finish = "stop"
	switch {
	case u.o.Fill && r.OutputBound() > 0:
		text := u.text(r)
		c.add(content, pieces(text))
		var again candidate
		again.add(content, pieces(" "+text))
		c.filler = again.pieces
	case len(functions) > 0:
		c.call(functions, seed)
		c.finish = "tool_calls"
	case formatted(r) != "":
		c.add(content, pieces(stopped(formatted(r), r.Stop)))
	default:
		c.add(content, pieces(stopped(u.text(r), r.Stop)))
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

// stopped is text up to the first stop sequence in it.
func stopped(text string, stop []string) string {
	end := len(text)
	for _, s := range stop {
		if i := strings.Index(text, s); i >= 0 && s != "" {
			end = min(end, i)
		}
	}
	return text[:end]
}

// formatted is the answer that response_format asks for; empty for plain text.
func formatted(r *chat.Request) string {
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
