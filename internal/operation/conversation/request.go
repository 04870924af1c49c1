// Package conversation holds what chat completions, messages and responses share: a model
// continues a conversation. It reads requests, bounds their input, and reads answers and
// streams, whose text and usage it counts.
package conversation

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Parsed is what a parser finds besides the typed fields of a request.
type Parsed struct {
	Object  rawjson.Object // the index of the body
	Problem rule.Problem   // the first rule that the request breaks
	Paid    rule.Paid      // what has no price, below the top level

	// CountOnly says that only the input is to be counted.
	CountOnly bool

	Unknown  rule.Unknown // members of the body that are left out
	Media    tokencount.Media
	Quarters int64 // of the tokens of what the messages hold besides content

	list      string    // the member that holds the conversation
	uncounted []string  // members of the body that are no part of a prompt
	contents  [][]byte  // of the messages
	few       [4][]byte // which most conversations need no more than
	elements  int       // messages, content blocks, tools and tool calls until now
	size      int64     // of the body, in bytes
	summary   *summary  // of a request whose bytes are gone
	file      string    // where the first file stands that only an id names

	own []rawjson.Edit // what the caller named; answers have its alias
}

// summary is what is kept of what [Parsed.Summarized] leaves out.
type summary struct {
	model    []byte // its id, as the request spells it
	quarters int64  // of the tokens of the text
}

// ReadBody indexes a body by the rules. In the same pass, read reads the member called list.
// uncounted are its members that are no part of a prompt, whatever they hold. The error is the
// refusal of the body.
func (p *Parsed) ReadBody(rules *rawjson.Rules, data []byte, list string, uncounted []string, read func(rd *rawjson.Reader, src []byte) error) error {
	p.list, p.uncounted, p.contents = list, uncounted, p.few[:0]
	err := rule.Read(&p.Object, rules, data, list, func(rd *rawjson.Reader) error { return read(rd, data) })
	if err != nil {
		return err
	}
	p.size += int64(len(data)) // beside what read has let it grow
	p.CacheControls(&p.Object, "")
	return nil
}

// Replace gives the request another index: of the same body with edits. A [Parsed.Walker] of
// its own reads what is new in the list.
func (p *Parsed) Replace(o rawjson.Object) {
	p.size += int64(len(o.Src)) - int64(len(p.Object.Src))
	p.Object = o
}

// NoteFile notes a file that only an id names, by the member that has the id.
func (p *Parsed) NoteFile(at Path, member string) {
	if p.file == "" {
		p.file = at.String() + "." + member
	}
}

// KeepNames keeps members of the body that vendors get aliases of, and say them again in
// their answers: see [Parsed.OwnNames].
func (p *Parsed) KeepNames(names ...string) {
	for _, name := range names {
		if raw := p.Object.Raw(name); !rawjson.IsNull(raw) {
			p.own = append(p.own, rawjson.Set(name, raw))
		}
	}
}

// OwnNames appends the edits that give an answer the names that the caller sent.
func (p *Parsed) OwnNames(edits []rawjson.Edit, o *rawjson.Object) []rawjson.Edit {
	for _, e := range p.own {
		if raw := o.Raw(e.Name); !rawjson.IsNull(raw) && !bytes.Equal(raw, e.Value) {
			edits = append(edits, e)
		}
	}
	return edits
}

// CacheControls notes those among the members of the object at param.
func (p *Parsed) CacheControls(o *rawjson.Object, param string) {
	for i := range o.Members {
		if m := &o.Members[i]; rule.IsCacheControl(m.Name) {
			p.Paid.CacheControl(m.Value.Of(o.Src), param)
		}
	}
}

// ReadStream reads whether the answer is to stream, which a count of tokens does not say.
func (p *Parsed) ReadStream(raw []byte, into *bool) {
	if check := rule.Bool(); p.CountOnly {
		return
	} else if !check.OK(raw) {
		p.Problem.Note("stream", check.Text)
	}
	*into = raw[0] == 't'
}

// Source is the body as the caller sent it; nil for a request that was not parsed. It
// must not be modified.
func (p *Parsed) Source() []byte { return p.Object.Src }

// Spelled is the request's own spelling of its model's id.
func (p *Parsed) Spelled(id string) []byte {
	if p.summary != nil {
		return p.summary.model
	}
	if raw := p.Object.Raw("model"); raw != nil {
		return raw
	}
	return rawjson.Quote(nil, id)
}

// Summarized returns what bounds, estimates and streams need of the request, and
// none of its bytes.
func (p *Parsed) Summarized(model string) Parsed {
	var own []rawjson.Edit
	for _, e := range p.own {
		own = append(own, rawjson.Set(e.Name, bytes.Clone(e.Value)))
	}
	return Parsed{
		size: p.size, Media: p.Media, own: own,
		summary: &summary{bytes.Clone(p.Spelled(model)), p.textQuarters()},
	}
}

// AddMessage notes a message by its content.
func (p *Parsed) AddMessage(content []byte) { p.contents = append(p.contents, content) }

// textQuarters are the quarters of the tokens of all that the request says. Any member
// may be text that a vendor puts into the prompt and bills.
func (p *Parsed) textQuarters() int64 {
	if p.summary != nil {
		return p.summary.quarters
	}
	const perMessage = 4 // tokens: role and separators
	quarters := p.Quarters + tokencount.ObjectQuarters(&p.Object, p.uncounted)
	for _, content := range p.contents {
		quarters += perMessage*4 + tokencount.Quarters(content)
	}
	return quarters
}

// InputEstimate is the likely number of input tokens, for a charge where the upstream
// reported nothing and for a count that no upstream makes.
func (p *Parsed) InputEstimate(b chat.MediaBound) int64 {
	m := p.Media
	return tokencount.Tokens(max(p.textQuarters()-m.Quarters, 0)+m.Text) + mediaTokens(b, m.Images, m.Files-m.TextFiles)
}

// Grow raises the bound of the input by so many tokens, for what a translation adds.
func (p *Parsed) Grow(tokens int64) { p.size += tokens }

// InputBound is an upper bound of the request's input tokens. A token is at least one byte of
// the body, and media count by the configured bound.
func (p *Parsed) InputBound(b chat.MediaBound) int64 {
	return p.size - p.Media.Bytes + mediaTokens(b, p.Media.Images, p.Media.Files)
}

// LinkedBound is how many input tokens above [Parsed.InputBound] a vendor may
// count, for media by URL or id and large files in the body.
func (p *Parsed) LinkedBound(b chat.MediaBound) int64 {
	m := p.Media
	inline := m.Files - m.LinkedFiles // which their bytes allow to be m.Largest tokens
	more := min(max(m.Largest-mediaTokens(b, 0, inline), 0), linkedTokens(b, 0, inline))
	return linkedTokens(b, m.LinkedImages, m.LinkedFiles) + more
}

// InputLimit is the most input tokens that a vendor can honestly report: the gateway sent
// so many bytes, and a token is at least one. A vendor may put a prompt of its own before
// them. Media in the body may be as large as linked ones. It is 0 where some are linked.
func (p *Parsed) InputLimit(b chat.MediaBound) int64 {
	const ownPrompt = 16_384
	m := p.Media
	if m.LinkedImages+m.LinkedFiles > 0 {
		return 0
	}
	return p.size + mediaTokens(b, m.Images, m.Files) + linkedTokens(b, m.Images, m.Files) + ownPrompt
}

// mediaTokens is the bound of so many images, and of videos, sounds and files.
func mediaTokens(b chat.MediaBound, images, files int64) int64 {
	return images*cmp.Or(b.Image, 2_000) + files*cmp.Or(b.Video, 50_000)
}

// linkedTokens is how many tokens above their bound media can be counted as, if they are not
// in the request's body. Their size is then not known.
func linkedTokens(b chat.MediaBound, images, files int64) int64 {
	const factor = 20 // of the configured bound
	return (factor - 1) * mediaTokens(b, images, files)
}

// CountElement counts one more message, content block, tool or tool call of the
// field called list. It is false if there are too many, or a rule was broken before:
// then nothing is made of what follows.
func (p *Parsed) CountElement(list string) bool { return p.countElement(&p.Problem, list) }

// countElement notes an element too many in problem.
func (p *Parsed) countElement(problem *rule.Problem, list string) bool {
	if problem.Found() {
		return false
	}
	if p.elements++; p.elements <= rule.MaxElements {
		return true
	}
	problem.Refuse(list, fmt.Sprintf("The request has more than %d messages, content blocks, tools and tool calls in all; %q has one too many.", rule.MaxElements, list))
	return false
}

// EachObject calls visit with each element of a list, and with its place. It stops at the
// first element that breaks a rule, or that is one too many. The elements must be objects.
func (p *Parsed) EachObject(name string, list []byte, visit func(raw []byte, param string)) {
	rawjson.EachUntil(list, func(i int, at rawjson.Span) bool {
		if !p.CountElement(name) {
			return false
		}
		param := name + "[" + strconv.Itoa(i) + "]"
		if raw := at.Of(list); raw[0] == '{' {
			visit(raw, param)
		} else {
			p.Problem.Note(param, "an object")
		}
		return !p.Problem.Found()
	})
}
