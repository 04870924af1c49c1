package responsesapi

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/word"
)

// Stored is what the gateway keeps of a response, of which it refers to the bytes.
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
	dst = append(AppendItems(dst, s.Input), `,"response":`...)
	return append(append(dst, s.Response...), '}')
}

// AppendItems appends a list of items as JSON.
func AppendItems(dst []byte, items [][]byte) []byte {
	dst = append(dst, '[')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, item...)
	}
	return append(dst, ']')
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
	o, err := rawjson.Index(response, nil, nil)
	if raw := o.Raw("output"); err == nil && len(raw) > 0 && raw[0] == '[' {
		return rawjson.Elements(raw)
	}
	return nil
}

// Items yields the items of the output that have an id.
func (s Stored) Items() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, item := range s.Output() {
			if id := text(item, "id"); id != "" && !yield(id, item) {
				return
			}
		}
	}
}

// text is a member that is a string; empty if there is none.
func text(object []byte, name string) string {
	o, err := rawjson.Index(object, nil, nil)
	if err != nil {
		return ""
	}
	s, _ := rawjson.String(o.Raw(name))
	return s
}

// ItemIDs are the ids of the output of a response and of its containers, each once, without that of the response
// itself and without what is too long or too many to be looked up. What its text cites of
// its containers is among them.
func ItemIDs(response []byte) (ids []string) {
	const most = 1024
	seen := map[string]bool{"": true, text(response, "id"): true}
	add := func(id string) {
		if !seen[id] && IsID(id) && len(ids) < most {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, item := range outputOf(response) {
		add(text(item, "id"))
		add(text(item, "container_id"))
		eachCitation(item, func(citation []byte) {
			if container := text(citation, "container_id"); container != "" { // whose files are the request's own
				add(container)
				add(text(citation, "file_id"))
			}
		})
	}
	return ids
}

// IsID reports whether a text can be the id of a response or an item that is stored.
func IsID(id string) bool {
	const most = 256
	return len(id) <= most && word.IsVisible(id)
}

// ownThoughts begins what the gateway itself has encrypted.
const ownThoughts = "th1."

// Again is an item of an output as part of an input, without what only the vendor that made
// it could look up: its id, under which that vendor has stored nothing, and its status. The
// request for an approval keeps its id, by which it is approved.
// Thoughts that cannot be read again are left out, then it is nil: of what another model has
// made all of them, and of the same model those without content. What a vendor has encrypted
// is left out of them unless sameVendor says that this vendor gets it, by the same key.
func Again(item []byte, sameModel, sameVendor bool) []byte {
	o, err := rawjson.Index(item, nil, nil)
	if err != nil {
		return nil
	}
	edits := []rawjson.Edit{rawjson.Delete("id"), rawjson.Delete("status")}
	switch kind, _ := rawjson.String(o.Raw("type")); {
	case kind == "reasoning":
		encrypted := text(item, "encrypted_content")
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

// InputItems are the items of the request's input: those of an array, or the one message
// that a string stands for.
func (r *Request) InputItems() [][]byte {
	raw := []byte(r.Input)
	switch {
	case rawjson.IsNull(raw):
		return nil
	case raw[0] == '"':
		item := append([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":`), raw...)
		return [][]byte{append(item, "}]}"...)}
	}
	return rawjson.Elements(raw)
}

// Reference is what a request refers to by its id: a response, or an item of one.
type Reference struct {
	ID       string
	Index    int    // of an item, in the input
	Member   string // of the item, in which the id stands; empty for id
	Type     string // of the item, if it is Named
	Response bool   // it is the response that the request goes on from
	Named    bool   // an item that the request would do without
	Kind     string // of what is shared: the member by which it is named
	at       string // where that stands
}

// PreviousResponse is the reference to the response that a request goes on from.
func PreviousResponse(id string) Reference { return Reference{ID: id, Response: true} }

// Param is the field of the request that refers to it.
func (r Reference) Param() string {
	switch {
	case r.Response:
		return "previous_response_id"
	case r.at != "":
		return r.at
	}
	return "input[" + strconv.Itoa(r.Index) + "]." + cmp.Or(r.Member, "id")
}

// AllReferences yields what the request refers to, of what is shared those that are given:
// what it would do without after all else.
func (r *Request) AllReferences(shared []Reference) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		if r.PreviousResponseID != "" && !yield(PreviousResponse(r.PreviousResponseID)) {
			return
		}
		for _, list := range [...][]Reference{r.References, r.Links, shared, r.Named} {
			for _, ref := range list {
				if !yield(ref) {
					return
				}
			}
		}
	}
}

// OpenApprovals are the references to requests for an approval that are not in the input
// themselves, so that a vendor would look them up.
func (r *Request) OpenApprovals() (open []Reference) {
	var held map[string]bool
	for _, l := range r.Links {
		if l.Member != approvalRequest {
			continue
		}
		if held == nil {
			held = map[string]bool{}
			for i, item := range r.InputItems() {
				if !r.names(i) {
					held[text(item, "id")] = true
				}
			}
		}
		if !held[l.ID] {
			open = append(open, l)
		}
	}
	return open
}

// names reports whether an item of the input names what it does not hold.
func (r *Request) names(i int) bool {
	return slices.ContainsFunc([][]Reference{r.References, r.Named}, func(all []Reference) bool {
		_, found := slices.BinarySearchFunc(all, i, func(n Reference, i int) int { return n.Index - i })
		return found
	})
}

// RefuseMissing has [Request.Validate] report that the account has not what the request
// refers to: in the same words for what was never there and for what is another account's.
func (r *Request) RefuseMissing(ref Reference) {
	e := &fault.Error{Code: fault.ItemNotFound, Param: ref.Param(), Retry: fault.RetryNo}
	kind := "item"
	if ref.Response {
		e.Code, kind = fault.ResponseNotFound, "response"
	}
	e.Message = fmt.Sprintf("There is no stored %s %q: it was made with \"store\": false or elsewhere, has been deleted, or has expired. Send the whole conversation instead.", kind, word.Truncate(ref.ID, 100))
	r.Problem.Fail(e)
}

// EncryptedReasoning is the include of the request with the reasoning in a form that a vendor
// can read again, where the request sets how the model thinks and does not ask for them; else
// nil. A vendor that stores nothing would forget them, and a model that does not think
// refuses to be asked.
func (r *Request) EncryptedReasoning() []string {
	const encrypted = "reasoning.encrypted_content"
	if r.Reasoning == nil || slices.Contains(r.Include, encrypted) {
		return nil
	}
	return append(slices.Clip(r.Include), encrypted)
}

// TokensOf are the tokens that a response and all that it goes on from add to the next
// request's input: what the vendor says, and at least input, which is the most that the
// response's own request may have had, and what was made. A count above most is no count.
func TokensOf(response *rawjson.Object, input, most int64) int64 {
	made := int64(len(response.Raw("output"))) // a byte may be a token
	said := int64(0)
	if usage, err := rawjson.Index(response.Raw("usage"), nil, nil); err == nil {
		in, _ := rawjson.Int(usage.Raw("input_tokens"))
		out, _ := rawjson.Int(usage.Raw("output_tokens"))
		if out > 0 && out <= most {
			made = out
		}
		if in > 0 && in <= most {
			said = in
		}
	}
	return min(max(said, min(input, most))+min(made, most), most)
}
