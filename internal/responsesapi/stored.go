package responsesapi

import (
	"cmp"
	"iter"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// text is a member that is a string; empty if there is none.
func text(object []byte, name string) string {
	o, err := rawjson.Index(object, nil, nil)
	if err != nil {
		return ""
	}
	s, _ := rawjson.String(o.Raw(name))
	return s
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
}

// PreviousResponse is the reference to the response that a request goes on from.
func PreviousResponse(id string) Reference { return Reference{ID: id, Response: true} }

// Param is the field of the request that refers to it.
func (r Reference) Param() string {
	if r.Response {
		return "previous_response_id"
	}
	return "input[" + strconv.Itoa(r.Index) + "]." + cmp.Or(r.Member, "id")
}

// AllReferences yields what the request refers to: what it would do without after all else.
func (r *Request) AllReferences() iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		if r.PreviousResponseID != "" && !yield(PreviousResponse(r.PreviousResponseID)) {
			return
		}
		for _, list := range [...][]Reference{r.References, r.Links, r.Named} {
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
