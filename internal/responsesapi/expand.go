package responsesapi

import (
	"cmp"
	"slices"

	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Expansion is what a request becomes that brings in stored items by reference.
type Expansion struct {
	Before [][]byte // the items of the conversation that it goes on from
	// Own are the request's own items, one for each of [Request.InputItems], those that it
	// refers to in their places; nil for one that is left out.
	Own [][]byte
	// Include is the include of the request; nil for its own.
	Include []string
}

// Refers reports whether the request names anything that was stored, by which it is looked
// up here or at its vendor.
func (r *Request) Refers() bool {
	return r.RefersHere() || len(r.Named) > 0
}

// RefersHere is [Request.Refers] where the gateway itself looks up what is stored, which are
// no thoughts: a request would do without them.
func (r *Request) RefersHere() bool {
	return r.PreviousResponseID != "" || len(r.References)+len(r.Links)+len(r.Shared) > 0
}

// Expand makes the request the one that a client would have sent who keeps its own
// conversation, and returns its own items within its bytes. Only what is new to it is
// parsed, as Parse does, so that [Request.Validate] reports what is wrong with that. It fails
// with the refusal of a body that has more than a body may have.
func (r *Request) Expand(e Expansion) (own [][]byte, err error) {
	var edits []rawjson.Edit
	var items []expanded
	if r.PreviousResponseID != "" || len(r.References) > 0 {
		var list []byte
		list, items = r.expandedInput(e)
		edits = append(edits, rawjson.Set("input", list), rawjson.Delete("previous_response_id"))
	}
	if e.Include != nil {
		edits = append(edits, rawjson.Set("include", appendStrings(nil, e.Include)))
		r.Include = e.Include
	}
	if len(edits) == 0 {
		return e.Own, nil
	}
	var o rawjson.Object
	if err := rule.Read(&o, rule.Items, r.Object.Apply(nil, edits...), "", nil); err != nil {
		return nil, err
	}
	r.Replace(o)
	r.Body = upstream.ObjectBody(o)
	if items == nil {
		return e.Own, nil
	}
	input := o.Raw("input")
	r.Input, r.hasInput, r.PreviousResponseID = responses.Input(input), len(items) > 0, ""
	for i := range items {
		item := items[i].at.Of(input)
		if items[i].own {
			own = append(own, item)
		}
		if items[i].stored {
			if err := r.readItem(i, item); err != nil {
				return nil, rule.Unacceptable(err)
			}
		}
	}
	for _, refs := range [...][]Reference{r.References, r.Named, r.Links} { // which are found by their places
		slices.SortStableFunc(refs, func(a, b Reference) int { return cmp.Compare(a.Index, b.Index) })
	}
	return own, nil
}

// expanded is an item of the input that a request is given.
type expanded struct {
	at     rawjson.Span // in the input
	own    bool         // it stands in the place of one of the request's own
	stored bool         // it is new to the request
}

// expandedInput is the input with what is stored, and its items. What the request has noted
// of its own items by their places moves with them.
func (r *Request) expandedInput(e Expansion) (list []byte, items []expanded) {
	list, items = append(list, '['), make([]expanded, 0, len(e.Before)+len(e.Own))
	add := func(item []byte, own, stored bool) {
		if len(items) > 0 {
			list = append(list, ',')
		}
		from := len(list)
		list = append(list, item...)
		items = append(items, expanded{rawjson.Span{Start: from, End: len(list)}, own, stored})
	}
	for _, item := range e.Before {
		add(item, false, true)
	}
	moved, references := make([]int, len(e.Own)), r.References // in the order of their places
	for i, item := range e.Own {
		stored := len(references) > 0 && references[0].Index == i
		if stored {
			references = references[1:]
		}
		if moved[i] = len(items); item != nil {
			add(item, true, stored)
		}
	}
	for _, refs := range [...][]Reference{r.Named, r.Links} {
		for i := range refs {
			refs[i].Index = moved[refs[i].Index]
		}
	}
	r.References = nil
	return append(list, ']'), items
}

// readItem reads an item of the input that the parser has not seen.
func (r *Request) readItem(i int, item []byte) error {
	rd := rawjson.NewReader(item)
	defer rd.Close()
	if !r.CountElement("input") {
		return nil
	}
	return walker{r.Walker(rd, item), r}.item(i, completion.Top("input").Element(i))
}

// appendStrings appends a list of strings as JSON.
func appendStrings(dst []byte, all []string) []byte {
	var quoted [][]byte
	for _, s := range all {
		quoted = append(quoted, rawjson.Quote(nil, s))
	}
	return AppendItems(dst, quoted)
}
