package responsestest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// owner is the type of the items that an event can be about; empty for any.
func owner(eventType string) string {
	for _, o := range [...][2]string{
		{"response.output_text.", "message"}, {"response.refusal.", "message"},
		{"response.reasoning_", "reasoning"},
		{"response.function_call_arguments.", "function_call"}, {"response.custom_tool_call_input.", "custom_tool_call"},
	} {
		if strings.HasPrefix(eventType, o[0]) {
			return o[1]
		}
	}
	return ""
}

// added takes an item that begins.
func (c *checker) added(e *event) error {
	it := new(item)
	if err := json.Unmarshal(e.Item, it); err != nil {
		return fmt.Errorf("the item cannot be read: %w", err)
	}
	n := len(c.items)
	switch {
	case *e.OutputIndex != n:
		return fmt.Errorf("output_index must be %d", n)
	case n > 0 && !c.items[n-1].done:
		return errors.New("two items are open at once")
	case it.Type == "" || it.ID == "" || slices.Contains(c.ids, it.ID):
		return errors.New("an item must have a type, and an id that no other has")
	case it.isCall() && (it.CallID == "" || slices.Contains(c.ids, "call "+it.CallID)):
		return errors.New("a call must have a call_id that no other has")
	case (it.Type == "function_call" || it.Type == "custom_tool_call") && it.Name == "":
		return errors.New("a call must have its name when it begins")
	case len(it.Content)+len(it.Summary) > 0 || it.Input != nil && *it.Input != "" || it.Type == "function_call" && string(it.Arguments) != `""`:
		return errors.New("an item must be empty when it begins")
	case it.Status != "" && it.Status != "in_progress":
		return errors.New("an item that begins must be in_progress")
	}
	c.items, c.ids = append(c.items, it), append(c.ids, it.ID)
	if it.isCall() {
		c.ids = append(c.ids, "call "+it.CallID)
	}
	return nil
}

// isCall reports whether the caller must answer the item by its call_id.
func (it *item) isCall() bool {
	return it.Type == "function_call" || it.Type == "custom_tool_call" || it.Type == "tool_search_call"
}

// take takes an event about the open item.
func (it *item) take(e *event) error {
	switch e.Type {
	case "response.content_part.added", "response.reasoning_summary_part.added":
		return it.addPart(e)
	case "response.content_part.done", "response.reasoning_summary_part.done":
		return it.closePart(e)
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		return it.stream.add(e.Delta)
	case "response.function_call_arguments.done":
		if e.Name == nil || *e.Name != it.Name {
			return fmt.Errorf("the name must be %q", it.Name)
		}
		return it.stream.end(e.Arguments)
	case "response.custom_tool_call_input.done":
		return it.stream.end(e.Input)
	case "response.output_text.annotation.added":
		p, err := it.part(e)
		if err != nil {
			return err
		}
		if e.AnnotationAt == nil || *e.AnnotationAt != len(p.Annotations) || len(e.Annotation) == 0 {
			return fmt.Errorf("annotation_index must be %d", len(p.Annotations))
		}
		p.Annotations = append(p.Annotations, e.Annotation)
		return nil
	}
	if o := owner(e.Type); o != "message" && o != "reasoning" {
		return nil // of a tool that the vendor runs
	}
	p, err := it.part(e)
	if err != nil {
		return err
	}
	want := map[string]string{"response.output_text": "output_text", "response.refusal": "refusal", "response.reasoning_text": "reasoning_text", "response.reasoning_summary_text": "summary_text"}
	point := strings.LastIndexByte(e.Type, '.')
	name, verb := e.Type[:point], e.Type[point+1:]
	if want[name] != p.Type {
		return fmt.Errorf("the part is a %s", p.Type)
	}
	if p.Type == "output_text" {
		var logprobs []jsontext.Value
		if json.Unmarshal(e.Logprobs, &logprobs) != nil || logprobs == nil {
			return errors.New("logprobs must be a list")
		}
		if verb == "delta" {
			p.Logprobs = append(p.Logprobs, logprobs...)
		}
	}
	switch {
	case verb == "delta":
		return p.stream.add(e.Delta)
	case p.Type == "refusal":
		return p.stream.end(e.Refusal)
	}
	return p.stream.end(e.Text)
}

// list is the list of parts that an event is about, and which of them.
func (it *item) list(e *event) (parts *[]part, index int, err error) {
	at, list := e.ContentIndex, &it.parts[0]
	if strings.HasPrefix(e.Type, "response.reasoning_summary_") {
		at, list = e.SummaryIndex, &it.parts[1]
	}
	if at == nil {
		return nil, 0, errors.New("the event does not say which part it is about")
	}
	return list, *at, nil
}

// part is the open part that an event is about.
func (it *item) part(e *event) (*part, error) {
	list, i, err := it.list(e)
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= len(*list) || (*list)[i].closed {
		return nil, fmt.Errorf("part %d is not open", i)
	}
	return &(*list)[i], nil
}

// addPart takes a part that begins.
func (it *item) addPart(e *event) error {
	list, i, err := it.list(e)
	if err != nil {
		return err
	}
	var p part
	if err := json.Unmarshal(e.Part, &p); err != nil {
		return fmt.Errorf("the part cannot be read: %w", err)
	}
	n := len(*list)
	kinds := []string{"output_text", "refusal"}
	if it.Type == "reasoning" {
		kinds = []string{"reasoning_text"}
		if list == &it.parts[1] {
			kinds = []string{"summary_text"}
		}
	}
	switch {
	case i != n || n > 0 && !(*list)[n-1].closed:
		return fmt.Errorf("a part begins as number %d, after %d others that must be done", i, n)
	case !slices.Contains(kinds, p.Type):
		return fmt.Errorf("a %s cannot have a part of type %q", it.Type, p.Type)
	case p.Text+p.Refusal != "" || len(p.Annotations)+len(p.Logprobs) > 0:
		return errors.New("a part must be empty when it begins")
	}
	*list = append(*list, p)
	return nil
}

// closePart takes a part that is done.
func (it *item) closePart(e *event) error {
	open, err := it.part(e)
	if err != nil {
		return err
	}
	var p part
	if err := json.Unmarshal(e.Part, &p); err != nil {
		return fmt.Errorf("the part cannot be read: %w", err)
	}
	if !open.stream.over {
		return errors.New("a part is done before its text")
	}
	open.closed = true
	return open.equals(&p)
}

// equals checks a part against what its deltas add up to.
func (p *part) equals(whole *part) error {
	raw, err := json.Marshal([]any{whole.Annotations, whole.Logprobs})
	if err != nil {
		return err
	}
	mine, err := json.Marshal([]any{p.Annotations, p.Logprobs})
	if err != nil {
		return err
	}
	if whole.Type != p.Type || whole.Text+whole.Refusal != p.stream.got.String() || !same(raw, mine) {
		return fmt.Errorf("the part must have the text %q, %s", p.stream.got.String(), mine)
	}
	return nil
}

// close takes the item as it is when it is done.
func (it *item) close(e *event) error {
	var whole item
	if err := json.Unmarshal(e.Item, &whole); err != nil {
		return fmt.Errorf("the item cannot be read: %w", err)
	}
	if whole.ID != it.ID || whole.Type != it.Type || whole.CallID != it.CallID || whole.Name != it.Name || whole.Namespace != it.Namespace {
		return fmt.Errorf("the item must keep its id, type, call_id, name and namespace: %+v", []string{it.ID, it.Type, it.CallID, it.Name, it.Namespace})
	}
	if whole.Status == "in_progress" {
		return errors.New("an item that is done must not be in_progress")
	}
	for k, parts := range [...][]part{whole.Content, whole.Summary} {
		if len(parts) != len(it.parts[k]) {
			return fmt.Errorf("the item must have %d parts", len(it.parts[k]))
		}
		for i := range parts {
			if p := &it.parts[k][i]; !p.closed {
				return fmt.Errorf("part %d is not done", i)
			} else if err := p.equals(&parts[i]); err != nil {
				return err
			}
		}
	}
	it.raw, it.done = e.Item, true
	return it.closeCall(&whole)
}

// closeCall checks what a call is called with.
func (it *item) closeCall(whole *item) error {
	got := it.stream.got.String()
	switch it.Type {
	case "function_call":
		var arguments string
		if err := json.Unmarshal(whole.Arguments, &arguments); err != nil || !it.stream.over || arguments != got {
			return fmt.Errorf("the arguments must be a string and %q, which must be done", got)
		}
		if v := jsontext.Value(arguments); whole.Status == "completed" && !v.IsValid(jsontext.AllowDuplicateNames(true)) {
			return errors.New("the arguments of a completed call must be JSON")
		}
	case "custom_tool_call":
		if whole.Input == nil || !it.stream.over || *whole.Input != got {
			return fmt.Errorf("the input must be %q, which must be done", got)
		}
	case "tool_search_call":
		if len(whole.Arguments) == 0 || whole.Arguments[0] != '{' {
			return errors.New("the arguments of a search for tools must be an object")
		}
	}
	return nil
}

// add takes a delta.
func (t *text) add(delta jsontext.Value) error {
	var s string
	if err := json.Unmarshal(delta, &s); err != nil || len(delta) == 0 || t.over {
		return errors.New("a delta must be a string, and come before the text is done")
	}
	t.got.WriteString(s)
	return nil
}

// end takes the whole text.
func (t *text) end(whole *string) error {
	if whole == nil || *whole != t.got.String() || t.over {
		return fmt.Errorf("the deltas add up to %q", t.got.String())
	}
	t.over = true
	return nil
}
