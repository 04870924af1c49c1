package responses

import (
	"bytes"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Stored is what the gateway keeps of a response, whose bytes it refers to.
type Stored struct {
	Input    [][]byte // the items that the request brought, without those of responses before
	Response []byte   // as the client got it
}

// Encode is what [ReadStored] reads. It copies.
func (s Stored) Encode() []byte {
	n := len(s.Response) + len(`{"input":[],"response":}`)
	for _, item := range s.Input {
		n += len(item) + 1
	}
	dst := append(make([]byte, 0, n), `{"input":`...)
	dst = append(rawjson.AppendArray(dst, s.Input), `,"response":`...)
	return append(append(dst, s.Response...), '}')
}

// ReadStored reads what Encode has written; false if it is of another form.
func ReadStored(data []byte) (s Stored, ok bool) {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return s, false
	}
	s.Input, s.Response = rawjson.Elements(o.Raw("input")), o.Raw("response")
	return s, s.Response != nil
}

// Output are the items of the response's output.
func (s Stored) Output() [][]byte { return outputOf(s.Response) }

func outputOf(response []byte) [][]byte {
	return rawjson.Elements(rawjson.Lookup(response, "output"))
}

// Items yields the items of the output that have an id.
func (s Stored) Items() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, item := range s.Output() {
			if id := rawjson.LookupString(item, "id"); id != "" && !yield(id, item) {
				return
			}
		}
	}
}

// ItemIDs returns the ids of a response's output and of its containers, each once. It leaves
// out the id of the response, and ids that are too long or too many to look up. Containers
// that its text cites count too.
func ItemIDs(response []byte) (ids []string) {
	const most = 1024
	seen := map[string]bool{"": true, rawjson.LookupString(response, "id"): true}
	add := func(id string) {
		if !seen[id] && IsID(id) && len(ids) < most {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, item := range outputOf(response) {
		add(rawjson.LookupString(item, "id"))
		add(rawjson.LookupString(item, "container_id"))
		add(rawjson.LookupString(item, "environment", "container_id"))
		eachCitation(item, func(citation []byte) {
			if container := rawjson.LookupString(citation, "container_id"); container != "" { // whose files are the request's own
				add(container)
				add(rawjson.LookupString(citation, "file_id"))
			}
		})
	}
	return ids
}

// IsID reports whether a text can be the id of a response or an item that is stored.
func IsID(id string) bool {
	const most = 256
	return len(id) <= most && safetext.IsVisible(id)
}

// ownThoughts begins what the gateway itself has encrypted.
const ownThoughts = "th1."

// Again is an item of an output as part of an input. It lacks what only the vendor that made
// it could look up: its id, under which that vendor has stored nothing, and its status. The
// request for an approval keeps its id, by which it is approved. Reasoning that cannot be read
// again is left out; Again is then nil. That is all reasoning of another model, and reasoning
// without content of the same model. Encrypted content is left out unless sameVendor says that
// the vendor that made it gets it, by the same key.
func Again(item []byte, sameModel, sameVendor bool) []byte {
	o, err := rawjson.Index(item, nil, nil)
	if err != nil {
		return nil
	}
	edits := []rawjson.Edit{rawjson.Delete("id"), rawjson.Delete("status")}
	switch kind, _ := rawjson.String(o.Raw("type")); {
	case kind == "reasoning":
		encrypted := rawjson.LookupString(item, "encrypted_content")
		foreign := !sameVendor && !strings.HasPrefix(encrypted, ownThoughts)
		if !sameModel || (encrypted == "" || foreign) && isEmpty(o.Raw("content")) {
			return nil
		}
		if foreign {
			edits = append(edits, rawjson.Delete("encrypted_content"))
		}
	case kind == "mcp_approval_request":
		return o.Apply(nil, rawjson.Delete("status"))
	}
	return o.Apply(nil, edits...)
}

// EncryptedReasoning returns the include of the request with the reasoning in a form that a
// vendor can read again. It returns nil unless the request sets how the model reasons and does
// not ask for that form. A vendor that stores nothing would forget the reasoning. A model that
// does not reason refuses such a request.
func (r *Request) EncryptedReasoning() []string {
	const encrypted = "reasoning.encrypted_content"
	if r.Reasoning == nil || slices.Contains(r.Include, encrypted) {
		return nil
	}
	return append(slices.Clip(r.Include), encrypted)
}

// TokensOf are the tokens that a response and all that it goes on from add to the next
// request's input. They are what the vendor says, and at least the sum of input and what was
// made. input is the most that the response's own request may have had. A count above most is
// no count.
func TokensOf(response *rawjson.Object, input, most int64) int64 {
	made := int64(len(response.Raw("output"))) // a byte may be a token
	said := int64(0)
	if usage, err := rawjson.Index(response.Raw("usage"), nil, nil); err == nil {
		in, _, _ := tokencount.Count(usage.Raw("input_tokens"))
		out, _, _ := tokencount.Count(usage.Raw("output_tokens"))
		if out > 0 && out <= most {
			made = out
		}
		if in > 0 && in <= most {
			said = in
		}
	}
	return min(max(said, min(input, most))+min(made, most), most)
}

// ListedItem is an item in the list of what made a response.
type ListedItem struct {
	ID  string
	raw []byte
}

// ListedInput are the items of the input, each with an id: its own, or one by its place.
func (s Stored) ListedInput() []ListedItem { return s.listed(s.Input, "item_") }

// ListedOutput are the same for the output.
func (s Stored) ListedOutput() []ListedItem { return s.listed(s.Output(), "output_") }

// listed gives each item without an id one that says its place and its owner.
func (s Stored) listed(items [][]byte, prefix string) []ListedItem {
	response, all := rawjson.LookupString(s.Response, "id"), make([]ListedItem, len(items))
	for i, item := range items {
		all[i].raw = item
		o, err := rawjson.Index(item, nil, nil)
		if err != nil {
			continue
		}
		if all[i].ID, _ = rawjson.String(o.Raw("id")); all[i].ID == "" {
			all[i].ID = prefix + strconv.Itoa(i) + "_" + response
			all[i].raw = o.Apply(nil, rawjson.Set("id", rawjson.Quote(nil, all[i].ID)))
		}
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
			item = rawjson.Apply(item, rawjson.Delete(d.member))
			continue
		}
		raw := rawjson.Lookup(item, d.list)
		if rawjson.IsNull(raw) {
			continue
		}
		switch raw[0] {
		case '{':
			raw = rawjson.Apply(raw, rawjson.Delete(d.member))
		case '[':
			parts := rawjson.Elements(raw)
			for i, part := range parts {
				if d.part == "" || rawjson.LookupString(part, "type") == d.part {
					parts[i] = rawjson.Apply(part, rawjson.Delete(d.member))
				}
			}
			raw = rawjson.AppendArray(nil, parts)
		}
		item = rawjson.Apply(item, rawjson.Set(d.list, raw))
	}
	return item
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
		[]byte(`{"object":"list","data":`), rawjson.AppendArray(nil, page), []byte(`,"first_id":`), first, []byte(`,"last_id":`), last,
		[]byte(`,"has_more":`), strconv.AppendBool(nil, n < len(items)), []byte("}"),
	}, nil), true
}

// ReadShown checks a response that its vendor keeps, and returns it as the caller gets it,
// with the public id of its model. One that is no response, or has another id, is a
// fault.BadGateway.
func ReadShown(data []byte, id, model string) ([]byte, error) {
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		return nil, upstream.BadAnswer("The upstream's answer is not JSON.", err)
	}
	kind, _ := rawjson.String(o.Raw("object"))
	shown, _ := rawjson.String(o.Raw("id"))
	if kind != "response" || shown != id {
		return nil, upstream.BadAnswer("The upstream's answer is not the response that it was asked for.", nil)
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
		return nil, upstream.BadAnswer("The upstream's answer is not JSON.", err)
	}
	kind, _ := rawjson.String(o.Raw("object"))
	items, objects := o.Raw("data"), true
	count := rawjson.Each(items, func(_ int, at rawjson.Span) { objects = objects && at.Of(items)[0] == '{' })
	if kind != "list" || count < 0 || !objects {
		return nil, upstream.BadAnswer("The upstream's answer is not a list of items.", nil)
	}
	return data, nil
}
