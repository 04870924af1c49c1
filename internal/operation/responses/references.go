package responses

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// What a request refers to by its id: stored responses and their items, and what lies in
// the vendor's account.

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

// AllReferences yields what the request refers to, but of shared things only the given ones.
// References that the request could do without come last.
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
					held[rawjson.LookupString(item, "id")] = true
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

// RefuseState has [Request.Validate] report that nothing is stored here, if the request
// refers to a stored response or to an item of one.
func (r *Request) RefuseState() {
	const advice = "This gateway stores no responses. Send the whole conversation: with the Vercel AI SDK set providerOptions.openai.store to false; with OpenAI's SDKs leave previous_response_id out."
	switch {
	case r.PreviousResponseID != "":
		r.Problem.Fail(&fault.Error{Code: fault.ResponseNotFound, Param: "previous_response_id", Message: advice, Retry: fault.RetryNo})
	case len(r.References) > 0:
		r.Problem.Fail(&fault.Error{Code: fault.ItemNotFound, Param: r.References[0].Param(), Message: advice, Retry: fault.RetryNo})
	}
	for _, ref := range r.OpenApprovals() {
		r.Problem.Fail(&fault.Error{Code: fault.ItemNotFound, Param: ref.Param(), Message: advice, Retry: fault.RetryNo})
	}
}

// RefuseMissing makes [Request.Validate] report that the account does not have what the
// request refers to. The words are the same if another account has it.
func (r *Request) RefuseMissing(ref Reference) {
	e := &fault.Error{Code: fault.ItemNotFound, Param: ref.Param(), Retry: fault.RetryNo}
	kind := "item"
	if ref.Response {
		e.Code, kind = fault.ResponseNotFound, "response"
	}
	e.Message = fmt.Sprintf("There is no stored %s %q: it was made with \"store\": false or elsewhere, has been deleted, or has expired. Send the whole conversation instead.", kind, safetext.Quoted(ref.ID))
	r.Problem.Fail(e)
}

// Expansion is what a request becomes that brings in stored items by reference.
type Expansion struct {
	Before [][]byte // the items of the conversation that it goes on from
	// Own are the request's own items, one for each of [Request.InputItems], with stored items
	// in place of references. An item that is left out is nil.
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
// no reasoning: a request would do without it.
func (r *Request) RefersHere() bool {
	return r.PreviousResponseID != "" || len(r.References)+len(r.Links)+len(r.Shared) > 0
}

// Expand inserts the stored conversation into the request, as if the client had sent it in
// full. It returns the client's own items as parts of the new body. Only what is new to the
// request is parsed, as Parse does, so [Request.Validate] reports errors of that. Expand fails
// if the body becomes larger than a body may be.
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
	own    bool         // it replaces one of the request's own
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
	return walker{r.Walker(rd, item), r}.item(i, conversation.Top("input").Element(i))
}

// appendStrings appends a list of strings as JSON.
func appendStrings(dst []byte, all []string) []byte {
	var quoted [][]byte
	for _, s := range all {
		quoted = append(quoted, rawjson.Quote(nil, s))
	}
	return rawjson.AppendArray(dst, quoted)
}

// sharedMembers are the members, in lower case, of a tool's declaration or of a tool's item
// that name something in the vendor's account. Each has the spelling for a channel's `pass`:
// https://platform.openai.com/docs/api-reference/responses/create#responses-create-tools.
var sharedMembers = map[string]string{
	"container": "container_id", "container_id": "container_id",
	"file_id": fileID, "file_ids": fileID,
	"vector_store_ids": "vector_store_ids", "vector_store_id": "vector_store_ids",
	"skill_id": "skill_id", "skill_ids": "skill_id",
}

// mostShared bounds how many of them a request has.
const mostShared = 128

// noteShared notes what the declaration of a tool that the vendor runs names of the vendor's
// account.
func (r *Request) noteShared(o *rawjson.Object, at string) {
	for i := range o.Members {
		m := &o.Members[i]
		r.noteMember(m.Name, m.Value.Of(o.Src), at)
	}
}

// noteMember is noteShared of one member. Letters of another case count too: a vendor may
// mind none.
func (r *Request) noteMember(name string, raw []byte, at string) {
	kind := sharedMembers[rule.Folded(name)]
	switch at += "." + name; {
	case rawjson.IsNull(raw):
	case kind != "" && raw[0] == '"':
		r.addShared(raw, kind, at)
	case raw[0] == '{':
		r.noteInner(raw, at)
	case raw[0] == '[':
		rawjson.Each(raw, func(i int, span rawjson.Span) {
			element, at := span.Of(raw), at+"["+strconv.Itoa(i)+"]"
			switch {
			case kind != "" && element[0] == '"':
				r.addShared(element, kind, at)
			case element[0] == '{':
				r.noteInner(element, at)
			}
		})
	}
}

// linkContainer notes the container in the environment of an item, as it does the one that
// stands in an item itself.
func (r *Request) linkContainer(environment []byte, index int) {
	o, err := rawjson.Index(environment, nil, nil)
	if err != nil {
		return
	}
	for i := range o.Members {
		m := &o.Members[i]
		if id, _ := rawjson.String(m.Value.Of(o.Src)); id != "" && rule.Folded(m.Name) == "container_id" {
			r.Links = append(r.Links, Reference{Index: index, ID: id, Member: "environment." + m.Name})
		}
	}
}

// noteInner is noteShared of an object within a declaration.
func (r *Request) noteInner(object []byte, at string) {
	if o, err := rawjson.Index(object, nil, nil); err == nil {
		r.noteShared(&o, at)
	}
}

// addShared notes one id, which is a JSON string and stands at a place.
func (r *Request) addShared(raw []byte, kind, at string) {
	id, _ := rawjson.String(raw)
	if len(r.Shared) == mostShared {
		r.Problem.Refuse(at, fmt.Sprintf("The tools of the request name more than %d files, containers and the like.", mostShared))
		return
	}
	r.Shared = append(r.Shared, Reference{ID: id, Kind: kind, at: at})
}

// DeclaresHosted reports whether the request declares a tool that the vendor runs.
func (r *Request) DeclaresHosted() bool { return len(r.hosted.kinds) > 0 }

// RefuseShared has [Request.Validate] report that a request names what lies in the vendor's
// account and is not known to be the caller's.
func (r *Request) RefuseShared(ref Reference) {
	r.Problem.Fail(&fault.Error{
		Code: fault.ItemNotFound, Param: ref.Param(), Retry: fault.RetryNo,
		Message: fmt.Sprintf("%q names something in the vendor's account of this gateway, which its customers share, that no stored response of yours has made. Leave it out; a container of your own comes with {\"type\":\"auto\"}.", ref.Param()),
	})
}

// Cites reports whether messages of the input cite files or containers.
func (r *Request) Cites() bool { return r.cites }

// citesShared reports whether an annotation names a file or a container.
func citesShared(annotation []byte) bool {
	return rawjson.LookupString(annotation, "file_id") != "" || rawjson.LookupString(annotation, "container_id") != ""
}

// eachCitation calls visit with the citations of files and containers in an item's content.
func eachCitation(item []byte, visit func(citation []byte)) {
	content := rawjson.Lookup(item, "content")
	rawjson.Each(content, func(_ int, span rawjson.Span) {
		list := rawjson.Lookup(span.Of(content), "annotations")
		rawjson.Each(list, func(_ int, span rawjson.Span) {
			if citesShared(span.Of(list)) {
				visit(span.Of(list))
			}
		})
	})
}

// withoutCitations is the content of a message without the citations of files and containers;
// false if it has none.
func withoutCitations(content []byte) (out []byte, changed bool) {
	parts := rawjson.Elements(content)
	for i, part := range parts {
		all := rawjson.Elements(rawjson.Lookup(part, "annotations"))
		if kept := slices.DeleteFunc(slices.Clone(all), citesShared); len(kept) < len(all) {
			parts[i], changed = rawjson.Apply(part, rawjson.Set("annotations", rawjson.AppendArray(nil, kept))), true
		}
	}
	if !changed {
		return content, false
	}
	return rawjson.AppendArray(nil, parts), true
}
