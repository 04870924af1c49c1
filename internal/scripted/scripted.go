// Package scripted is a vendor of models for tests of whole clients. It speaks the wires
// of Responses, of chat completions and of Messages, and the prompt says what it answers.
// So one table of prompts serves every wire and every client.
//
// A prompt is a script: its turns are separated by " || ", the parts of a turn by
// " | ". After each group of tool outputs comes the next turn; where the script has no
// more, the answer is "The tool said: " and the outputs. A part is a verb and its text:
//
//	say TEXT          text, in one delta for each word
//	think TEXT        thoughts
//	refuse TEXT       a refusal
//	call NAME JSON    a call of a function; NAME of a namespace is NAMESPACE.NAME
//	custom NAME TEXT  a call of a custom tool
//	length            the answer ends since it is too long
//	fail              the stream ends with the wire's error; a whole answer is a 500
//	cut               the connection breaks
//	silent            nothing more comes, until the caller has gone
//	status N [CODE]   the call is refused with that status, and a code of the vendor's
//
// A prompt that begins with no verb is answered "Hello there."
package scripted

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Wire is the path of a wire, below the vendor's URL.
type Wire string

// The wires.
const (
	Responses Wire = "/responses"
	Chat      Wire = "/chat/completions"
	Messages  Wire = "/messages"
)

// Input and Cached are the tokens of every call's input, and how many of them were
// cached. The output has one token for each delta.
const Input, Cached = 19, 4

// Vendor is the vendor. It is safe for concurrent use.
type Vendor struct {
	URL string

	wires []Wire
	mu    sync.Mutex
	calls []*Call
}

// Call is one that the vendor got.
type Call struct {
	Wire   Wire
	Header http.Header
	Body   []byte
	Output int64 // the tokens that were reported; 0 if none were
}

// New starts a vendor that speaks these wires alone, until the test ends.
func New(t testing.TB, wires ...Wire) *Vendor {
	t.Helper()
	v := &Vendor{wires: wires}
	s := httptest.NewServer(v)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	v.URL = s.URL + "/v1"
	return v
}

// Calls are those that it got so far, in their order.
func (v *Vendor) Calls() []Call {
	v.mu.Lock()
	defer v.mu.Unlock()
	calls := make([]Call, len(v.calls))
	for i, c := range v.calls {
		calls[i] = *c
	}
	return calls
}

// ServeHTTP implements [http.Handler].
func (v *Vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	wire := Wire(strings.TrimPrefix(r.URL.Path, "/v1"))
	if err != nil || r.Method != http.MethodPost || !slices.Contains(v.wires, wire) {
		refuse(w, http.StatusNotFound, "")
		return
	}
	c := &Call{Wire: wire, Header: r.Header, Body: body}
	v.mu.Lock()
	v.calls = append(v.calls, c)
	number := len(v.calls)
	v.mu.Unlock()

	var q request
	if err := json.Unmarshal(body, &q); err != nil {
		refuse(w, http.StatusBadRequest, "")
		return
	}
	a := answer{request: &q, number: number, gone: r.Context().Done()}
	switch wire {
	case Responses:
		a.play(w, a.fromItems(), &responsesWire{})
	case Chat:
		a.play(w, a.fromChat(), &chatWire{})
	case Messages:
		a.play(w, a.fromMessages(), &messagesWire{})
	}
	v.mu.Lock()
	c.Output = a.reported
	v.mu.Unlock()
}

func refuse(w http.ResponseWriter, status int, code string) {
	var said any
	if code != "" {
		said = code
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":{"message":"The vendor says %d.","type":"vendor_error","code":%s,"param":null}}`, status, quoted(said))
}

// object is a JSON object.
type object = map[string]any

// request has what the vendor reads of a request in any wire.
type request struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	Input    json.RawMessage `json:"input"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Reasoning struct {
		Summary string `json:"summary"`
	} `json:"reasoning"`
	Include []string       `json:"include"`
	Echo    map[string]any `json:"-"` // the request's own members, which an answer repeats
}

// UnmarshalJSON also fills Echo.
func (q *request) UnmarshalJSON(data []byte) error {
	type plain request
	if err := json.Unmarshal(data, (*plain)(q)); err != nil {
		return err
	}
	return json.Unmarshal(data, &q.Echo)
}

// script follows a conversation: the last prompt, and the tool outputs after it.
type script struct {
	prompt  string
	groups  int      // of outputs that stand together
	outputs []string // of the last group
	open    bool     // the last entry was an output
}

func (s *script) user(text string) { *s = script{prompt: text} }

func (s *script) output(text string) {
	if !s.open {
		s.groups, s.outputs, s.open = s.groups+1, nil, true
	}
	s.outputs = append(s.outputs, text)
}

// turn are the parts of the answer.
func (s *script) turn() (parts []part) {
	turns := strings.Split(s.prompt, " || ")
	if s.groups >= len(turns) {
		return []part{{"say", "", "The tool said: " + strings.Join(s.outputs, ", ")}}
	}
	for text := range strings.SplitSeq(turns[s.groups], " | ") {
		p := part{}
		p.verb, p.text, _ = strings.Cut(text, " ")
		switch p.verb {
		case "call", "custom":
			p.name, p.text, _ = strings.Cut(p.text, " ")
		case "say", "think", "refuse", "length", "fail", "cut", "silent", "status":
		default:
			return []part{{"say", "", "Hello there."}}
		}
		parts = append(parts, p)
	}
	return parts
}

// part is one part of a turn.
type part struct{ verb, name, text string }

// deltas are the pieces of the part's text.
func (p part) deltas() []string {
	if p.verb == "call" {
		half := len(p.text) / 2
		return []string{p.text[:half], p.text[half:]}
	}
	return strings.SplitAfter(p.text, " ")
}

// names are the namespace that a tool stands in, which may be empty, and its name there.
func (p part) names() (namespace, name string) {
	if i := strings.LastIndexByte(p.name, '.'); i >= 0 {
		return p.name[:i], p.name[i+1:]
	}
	return "", p.name
}

// function is the call as a vendor makes it that knows only functions. The namespace stands
// before the name, and the text of a custom tool is its one argument.
func (p part) function() part {
	p.name = strings.ReplaceAll(p.name, ".", "__")
	if p.verb == "custom" {
		text, _ := json.Marshal(p.text)
		p.verb, p.text = "call", `{"input":`+string(text)+`}`
	}
	return p
}

// answer is one answer on its way.
type answer struct {
	*request
	number   int             // which call of the vendor it is
	gone     <-chan struct{} // closed when the caller has gone
	output   int64
	thoughts int64
	reported int64
	length   bool
	calls    bool
	refused  bool
	breaks   bool              // the part is the last one before the answer breaks
	mute     bool              // so what would end it is not written
	write    func(text string) // to a stream
}

// id is unique within the vendor.
func (a *answer) id(prefix string, i int) string { return fmt.Sprintf("%s_%d_%d", prefix, a.number, i) }

// wire writes what is an answer in one wire. Of a stream it writes begin, part by part
// and end, or fail; of a whole answer only end, which returns the document.
type wire interface {
	begin(a *answer)
	part(a *answer, i int, p part)
	fail(a *answer)
	end(a *answer) object
}

// play writes the answer of a turn.
func (a *answer) play(w http.ResponseWriter, s *script, to wire) {
	a.write = func(text string) {
		if a.Stream && !a.mute {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
	}
	parts := s.turn()
	has := func(verb string) (part, bool) {
		i := slices.IndexFunc(parts, func(p part) bool { return p.verb == verb })
		if i < 0 {
			return part{}, false
		}
		return parts[i], true
	}
	_, fails := has("fail")
	if p, refused := has("status"); refused || fails && !a.Stream {
		number, code, _ := strings.Cut(p.text, " ")
		status, err := strconv.Atoi(number)
		if err != nil {
			status = http.StatusInternalServerError
		}
		refuse(w, status, code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if a.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	to.begin(a)
	for i, p := range parts {
		switch p.verb {
		case "length":
			a.length = true
		case "fail":
			to.fail(a)
			return
		case "cut":
			_, _ = io.WriteString(w, `{"id":`) // so that a whole answer has begun too
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "silent":
			_ = http.NewResponseController(w).Flush()
			<-a.gone
			panic(http.ErrAbortHandler)
		default:
			a.calls = a.calls || p.verb == "call" || p.verb == "custom"
			n := int64(len(p.deltas()))
			a.output += n
			if p.verb == "think" {
				a.thoughts += n
			}
			a.breaks = i+1 < len(parts) && slices.Contains([]string{"fail", "cut", "silent"}, parts[i+1].verb)
			to.part(a, i, p)
			a.mute = false
		}
	}
	a.reported = a.output
	document := to.end(a)
	if !a.Stream {
		_ = json.NewEncoder(w).Encode(document)
	}
}

// text is the text of content: a string, or parts that have text.
func text(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &parts)
	for _, p := range parts {
		s += p.Text
	}
	return s
}

// quoted is a value as JSON.
func quoted(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}
