package responsesapi

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// ListedItem is an item in the list of what made a response.
type ListedItem struct {
	ID  string
	raw []byte
}

// ListedInput are the items of the input, each with an id: its own, or one by its place.
func (s Stored) ListedInput() []ListedItem { return s.listed(s.Input, "item_") }

// ListedOutput are likewise those of the output.
func (s Stored) ListedOutput() []ListedItem { return s.listed(s.Output(), "output_") }

func (s Stored) listed(items [][]byte, prefix string) []ListedItem {
	response, all := text(s.Response, "id"), make([]ListedItem, len(items))
	for i, item := range items {
		id := text(item, "id")
		if o, err := rawjson.Index(item, nil, nil); err == nil && id == "" {
			id = prefix + strconv.Itoa(i) + "_" + response
			item = o.Apply(nil, rawjson.Set("id", rawjson.Quote(nil, id)))
		}
		all[i] = ListedItem{id, item}
	}
	return all
}

// onDemand is what items in a list have only where the caller asks for it:
// https://platform.openai.com/docs/api-reference/responses/input-items.
var onDemand = []struct {
	name   string
	kind   string // of the item
	list   string // the member that holds the parts, or the object, which has the member; empty for the item itself
	part   string // the type of the parts; empty for all
	member string
}{
	{"file_search_call.results", "file_search_call", "", "", "results"},
	{"web_search_call.results", "web_search_call", "", "", "results"},
	{"web_search_call.action.sources", "web_search_call", "action", "", "sources"},
	{"message.input_image.image_url", "message", "content", "input_image", "image_url"},
	{"computer_call_output.output.image_url", "computer_call_output", "output", "", "image_url"},
	{"code_interpreter_call.outputs", "code_interpreter_call", "", "", "outputs"},
	{"reasoning.encrypted_content", "reasoning", "", "", "encrypted_content"},
	{"message.output_text.logprobs", "message", "content", "output_text", "logprobs"},
}

// Includable are the words by which a list of items has more of them.
func Includable() (names []string) {
	for _, d := range onDemand {
		names = append(names, d.name)
	}
	return names
}

// withoutOnDemand is an item without what is not included.
func withoutOnDemand(item []byte, include []string) []byte {
	o, err := rawjson.Index(item, nil, nil)
	if err != nil {
		return item
	}
	kind, _ := rawjson.String(o.Raw("type"))
	if kind == "" && o.Raw("role") != nil {
		kind = "message"
	}
	for _, d := range onDemand {
		if d.kind != kind || slices.Contains(include, d.name) {
			continue
		}
		if d.list == "" {
			item = without(item, d.member)
			continue
		}
		o, err := rawjson.Index(item, nil, nil)
		raw := o.Raw(d.list)
		if err != nil || rawjson.IsNull(raw) {
			continue
		}
		switch raw[0] {
		case '{':
			raw = without(raw, d.member)
		case '[':
			parts := rawjson.Elements(raw)
			for i, part := range parts {
				if d.part == "" || text(part, "type") == d.part {
					parts[i] = without(part, d.member)
				}
			}
			raw = AppendItems(nil, parts)
		}
		item = o.Apply(nil, rawjson.Set(d.list, raw))
	}
	return item
}

// without is an object without a member.
func without(object []byte, member string) []byte {
	o, err := rawjson.Index(object, nil, nil)
	if err != nil || o.Raw(member) == nil {
		return object
	}
	return o.Apply(nil, rawjson.Delete(member))
}

// InputPage is a page of at most limit items as JSON. They follow the one whose id is after,
// unless that is empty; it is false if none has it.
func InputPage(items []ListedItem, limit int, after string, include []string) (list []byte, ok bool) {
	if after != "" {
		i := slices.IndexFunc(items, func(item ListedItem) bool { return item.ID == after })
		if i < 0 {
			return nil, false
		}
		items = items[i+1:]
	}
	n := min(limit, len(items))
	first, last := []byte("null"), []byte("null")
	if n > 0 {
		first, last = rawjson.Quote(nil, items[0].ID), rawjson.Quote(nil, items[n-1].ID)
	}
	page := make([][]byte, n)
	for i := range page {
		page[i] = withoutOnDemand(items[i].raw, include)
	}
	return bytes.Join([][]byte{
		[]byte(`{"object":"list","data":`), AppendItems(nil, page), []byte(`,"first_id":`), first, []byte(`,"last_id":`), last,
		[]byte(`,"has_more":`), strconv.AppendBool(nil, n < len(items)), []byte("}"),
	}, nil), true
}

// ReadShown checks a response that its vendor keeps, and returns it as the caller gets it,
// with the public id of its model. One that is no response, or has another id, is a
// fault.BadGateway.
func ReadShown(data []byte, id, model string) ([]byte, error) {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return nil, answer.Bad("The upstream's answer is not JSON.", err)
	}
	kind, _ := rawjson.String(o.Raw("object"))
	shown, _ := rawjson.String(o.Raw("id"))
	if kind != "response" || shown != id {
		return nil, answer.Bad("The upstream's answer is not the response that it was asked for.", nil)
	}
	edits := []rawjson.Edit{rawjson.Set("model", rawjson.Quote(nil, model))}
	if e := o.Raw("error"); !rawjson.IsNull(e) {
		edits = append(edits, rawjson.Set("error", publicError(e)))
	}
	return o.Apply(nil, edits...), nil
}

// ReadInputList checks a vendor's page of the items that made a response, and returns what
// the caller gets of it. One that is no list is a fault.BadGateway.
func ReadInputList(data []byte) ([]byte, error) {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return nil, answer.Bad("The upstream's answer is not JSON.", err)
	}
	kind, _ := rawjson.String(o.Raw("object"))
	items, objects := o.Raw("data"), true
	count := rawjson.Each(items, func(_ int, at rawjson.Span) { objects = objects && at.Of(items)[0] == '{' })
	if kind != "list" || count < 0 || !objects {
		return nil, answer.Bad("The upstream's answer is not a list of items.", nil)
	}
	return data, nil
}
