// Package responsestest holds streams of /v1/responses against the order of events that
// all known clients take. Tests of every layer use it, over streams of the gateway's own
// and over those that it passes on.
package responsestest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/responses"
)

// End says how a stream must end.
type End int

// The ends of streams.
const (
	Done   End = iota // as a client of the gateway gets it: a last event, and [DONE]
	Vendor            // as a vendor or a translation makes it: [DONE] may be missing
	Cut               // anywhere
)

// Check reads a stream as the strictest client does, and returns the first rule that it
// breaks; nil if it is sound.
func Check(stream []byte, end End) error {
	_, err := read(stream, end)
	return err
}

// Accumulate is the response that a client makes of a sound stream: what the deltas add
// up to, which is what the last event has. A response that failed is an error.
func Accumulate(stream []byte) (*responses.Response, error) {
	c, err := read(stream, Vendor)
	if err != nil {
		return nil, err
	}
	r := new(responses.Response)
	if err := json.Unmarshal(c.last, r); err != nil {
		return nil, err
	}
	r.Raw = c.last
	if r.Status == "failed" {
		return r, fmt.Errorf("the response failed: %+v", r.Error)
	}
	return r, nil
}

func read(stream []byte, end End) (*checker, error) {
	events := sse.NewReader(bytes.NewReader(stream), 64<<20)
	defer events.Release()
	c := new(checker)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = c.take(e.Name, e.Data)
		}
		if err != nil {
			return c, fmt.Errorf("%w\nin: %s", err, e.Data)
		}
	}
	switch {
	case end == Cut:
	case c.last == nil:
		return c, errors.New("the stream has no last event")
	case end == Done && !c.done:
		return c, errors.New("the stream does not end with [DONE]")
	}
	return c, nil
}

// event is any event of a stream.
type event struct {
	Type         string         `json:"type"`
	Sequence     *int64         `json:"sequence_number"`
	OutputIndex  *int           `json:"output_index"`
	ItemID       string         `json:"item_id"`
	ContentIndex *int           `json:"content_index"`
	SummaryIndex *int           `json:"summary_index"`
	AnnotationAt *int           `json:"annotation_index"`
	Annotation   jsontext.Value `json:"annotation"`
	Item         jsontext.Value `json:"item"`
	Part         jsontext.Value `json:"part"`
	Delta        jsontext.Value `json:"delta"`
	Text         *string        `json:"text"`
	Refusal      *string        `json:"refusal"`
	Name         *string        `json:"name"`
	Arguments    *string        `json:"arguments"`
	Input        *string        `json:"input"`
	Logprobs     jsontext.Value `json:"logprobs"`
	Response     jsontext.Value `json:"response"`
	Error        jsontext.Value `json:"error"`
}

// item is an item of the output, as its events have it.
type item struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	Status    string         `json:"status"`
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Arguments jsontext.Value `json:"arguments"`
	Input     *string        `json:"input"`
	Content   []part         `json:"content"`
	Summary   []part         `json:"summary"`

	raw    jsontext.Value
	parts  [2][]part // of the content, and of the summary, until now
	stream text      // the arguments or the input
	done   bool
}

// part is a part of an item's content or summary.
type part struct {
	Type        string           `json:"type"`
	Text        string           `json:"text"`
	Refusal     string           `json:"refusal"`
	Annotations []jsontext.Value `json:"annotations"`
	Logprobs    []jsontext.Value `json:"logprobs"`

	stream text
	closed bool
}

// text is what deltas add up to.
type text struct {
	got  strings.Builder
	over bool
}

// checker is what a client knows of a stream until now.
type checker struct {
	sequence      int64
	id, model     string
	lifecycle     []string // the events of the response itself
	items         []*item
	ids           []string // of items and of calls
	failing, done bool
	last          jsontext.Value // the response of the last event
}

// take takes an event.
func (c *checker) take(name string, data []byte) error {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		if c.last == nil || c.done || name != "" {
			return errors.New("[DONE] must come once, without a name, after the last event")
		}
		c.done = true
		return nil
	}
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("an event is not what it should be: %w", err)
	}
	switch {
	case e.Type != name:
		return fmt.Errorf("the event line says %q and the data %q", name, e.Type)
	case e.Sequence == nil || *e.Sequence != c.sequence:
		return fmt.Errorf("sequence_number must be %d", c.sequence)
	case c.last != nil:
		return errors.New("an event comes after the last one")
	case !slices.Contains(strings.Fields(known), e.Type):
		return fmt.Errorf("clients do not know the type %q", e.Type)
	case e.Error != nil && e.Type != "error":
		return errors.New("only the event error may have a member error")
	case c.failing && e.Type != "response.failed":
		return errors.New("the event error must be followed by response.failed")
	}
	c.sequence++
	return c.dispatch(&e)
}

// dispatch takes an event by its type.
func (c *checker) dispatch(e *event) error {
	switch e.Type {
	case "response.created", "response.in_progress", "response.queued", "response.completed", "response.incomplete", "response.failed":
		return c.response(e)
	case "error":
		c.failing = true
		if len(e.Error) == 0 || e.Error[0] != '{' {
			return errors.New("the event error must have an object error")
		}
		return nil
	case "keepalive":
		return nil
	}
	switch {
	case len(c.lifecycle) < 2:
		return errors.New("response.created and response.in_progress must come first")
	case e.OutputIndex == nil:
		return errors.New("the event has no output_index")
	case e.Type == "response.output_item.added":
		return c.added(e)
	}
	i := *e.OutputIndex
	if i < 0 || i >= len(c.items) || c.items[i].done {
		return fmt.Errorf("output_index %d is no open item", i)
	}
	it := c.items[i]
	if e.Type == "response.output_item.done" {
		return it.close(e)
	}
	if e.ItemID != it.ID {
		return fmt.Errorf("item_id must be %q", it.ID)
	}
	if of := owner(e.Type); of != "" && of != it.Type {
		return fmt.Errorf("the event is of a %s, and the item is a %s", of, it.Type)
	}
	return it.take(e)
}

// response takes an event of the response itself.
func (c *checker) response(e *event) error {
	var r struct {
		ID         string                    `json:"id"`
		Object     string                    `json:"object"`
		Model      string                    `json:"model"`
		Status     string                    `json:"status"`
		Output     []jsontext.Value          `json:"output"`
		Usage      map[string]jsontext.Value `json:"usage"`
		Incomplete *responses.Incomplete     `json:"incomplete_details"`
		Error      *responses.Error          `json:"error"`
	}
	if err := json.Unmarshal(e.Response, &r); err != nil {
		return fmt.Errorf("the response cannot be read: %w", err)
	}
	n := len(c.lifecycle)
	status := strings.TrimPrefix(e.Type, "response.")
	if status == "created" {
		status = "in_progress"
	}
	first := n == 0
	if first {
		c.id, c.model = r.ID, r.Model
	}
	switch {
	case first != (e.Type == "response.created"):
		return errors.New("response.created must come first, and once")
	case n == 1 && e.Type != "response.in_progress" && e.Type != "response.failed":
		return errors.New("response.in_progress must follow response.created")
	case n > 1 && (e.Type == "response.in_progress" || e.Type == "response.queued"):
		return errors.New("response.in_progress must come once")
	case r.ID == "" || r.ID != c.id || r.Model != c.model:
		return fmt.Errorf("the response must have the id %q and the model %q", c.id, c.model)
	case r.Object != "response" || r.Status != status:
		return fmt.Errorf("the response must have the object response and the status %s", status)
	case r.Output == nil:
		return errors.New("the response has no output")
	}
	c.lifecycle = append(c.lifecycle, e.Type)
	if status == "in_progress" {
		if len(r.Output) > 0 {
			return errors.New("the output must be empty at the beginning")
		}
		return nil
	}
	c.last = e.Response
	switch {
	case status == "failed" && r.Error == nil:
		return errors.New("a response that failed must have an error")
	case status == "incomplete" && (r.Incomplete == nil || r.Incomplete.Reason != "max_output_tokens" && r.Incomplete.Reason != "content_filter"):
		return errors.New("a response that is incomplete must say why")
	}
	if err := usage(r.Usage); err != nil {
		return err
	}
	return c.output(status, r.Output)
}

// output checks the final output: the items that are done, in order. A response that
// failed may lack some; an item that was cut may be left open where there is no more.
func (c *checker) output(status string, output []jsontext.Value) error {
	finished := len(c.items)
	if n := len(c.items); n > 0 && !c.items[n-1].done {
		if finished--; status == "completed" {
			return errors.New("the response is completed, and an item is not done")
		}
	}
	if len(output) > finished || len(output) < finished && status != "failed" {
		return fmt.Errorf("the output must have the %d items that are done", finished)
	}
	for i, raw := range output {
		if !same(raw, c.items[i].raw) {
			return fmt.Errorf("item %d of the output is not that which was done: %s", i, c.items[i].raw)
		}
	}
	return nil
}

// usage checks a usage, which may be null: all of its numbers are there.
func usage(u map[string]jsontext.Value) error {
	if u == nil {
		return nil
	}
	numbers := map[string]jsontext.Value{}
	for _, name := range []string{"input_tokens", "output_tokens", "total_tokens"} {
		numbers[name] = u[name]
	}
	for _, d := range [][2]string{{"input_tokens_details", "cached_tokens"}, {"output_tokens_details", "reasoning_tokens"}} {
		var details map[string]jsontext.Value
		_ = json.Unmarshal(u[d[0]], &details) // what is no object has no numbers
		numbers[d[0]+"."+d[1]] = details[d[1]]
	}
	for name, raw := range numbers {
		var n uint64
		if json.Unmarshal(raw, &n) != nil {
			return fmt.Errorf("%s of the usage must be an integer", name)
		}
	}
	return nil
}

// same reports whether two JSON values are equal, whatever the order of members.
func same(a, b jsontext.Value) bool {
	a, b = a.Clone(), b.Clone()
	return a.Canonicalize() == nil && b.Canonicalize() == nil && bytes.Equal(a, b)
}

// known are the types of events that clients know: others make some of them fail.
const known = `error keepalive
response.audio.delta response.audio.done response.audio.transcript.delta response.audio.transcript.done
response.code_interpreter_call.completed response.code_interpreter_call.in_progress response.code_interpreter_call.interpreting
response.code_interpreter_call_code.delta response.code_interpreter_call_code.done
response.compaction.compacting response.completed response.content_part.added response.content_part.done response.created
response.custom_tool_call_input.delta response.custom_tool_call_input.done response.failed
response.file_search_call.completed response.file_search_call.in_progress response.file_search_call.searching
response.function_call_arguments.delta response.function_call_arguments.done
response.image_generation_call.completed response.image_generation_call.generating response.image_generation_call.in_progress response.image_generation_call.partial_image
response.in_progress response.incomplete
response.mcp_call.completed response.mcp_call.failed response.mcp_call.in_progress response.mcp_call_arguments.delta response.mcp_call_arguments.done
response.mcp_list_tools.completed response.mcp_list_tools.failed response.mcp_list_tools.in_progress
response.output_item.added response.output_item.done
response.output_text.annotation.added response.output_text.delta response.output_text.done response.queued
response.reasoning_summary_part.added response.reasoning_summary_part.done response.reasoning_summary_text.delta response.reasoning_summary_text.done
response.reasoning_text.delta response.reasoning_text.done response.refusal.delta response.refusal.done
response.shell_call_command.added response.shell_call_command.delta response.shell_call_command.done
response.shell_call_output_content.delta response.shell_call_output_content.done
response.web_search_call.completed response.web_search_call.in_progress response.web_search_call.searching`
