package responsesapi

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// sharedMembers are the members of a tool's declaration that name what lies in the vendor's
// account, and how an operator spells that in a channel's `pass`:
// https://platform.openai.com/docs/api-reference/responses/create#responses-create-tools.
var sharedMembers = map[string]string{
	"container": "container_id", "container_id": "container_id",
	"file_id": fileID, "file_ids": fileID,
	"vector_store_ids": "vector_store_ids",
	"skill_id":         "skill_id",
}

// mostShared bounds how many of them a request has.
const mostShared = 128

// noteShared notes what the declaration of a tool that the vendor runs names of the vendor's
// account.
func (r *Request) noteShared(o *rawjson.Object, at string) {
	for i := range o.Members {
		m := &o.Members[i]
		raw, at := m.Value.Of(o.Src), at+"."+m.Name
		kind := sharedMembers[m.Name]
		switch {
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
}

func (r *Request) noteInner(object []byte, at string) {
	if o, err := rawjson.Index(object, nil, nil); err == nil {
		r.noteShared(&o, at)
	}
}

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

// CheckFiles refuses a file of the vendor's account that the input names, unless pass lets it
// through.
func (r *Request) CheckFiles(pass func(name, spelled string) bool) error { return r.checkFiles(pass) }

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
	return text(annotation, "file_id") != "" || text(annotation, "container_id") != ""
}

// eachCitation calls visit with the citations of files and containers in an item's content.
func eachCitation(item []byte, visit func(citation []byte)) {
	o, err := rawjson.Index(item, nil, nil)
	if err != nil {
		return
	}
	content := o.Raw("content")
	rawjson.Each(content, func(_ int, span rawjson.Span) {
		part, err := rawjson.Index(span.Of(content), nil, nil)
		if err != nil {
			return
		}
		list := part.Raw("annotations")
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
	if rawjson.IsNull(content) || content[0] != '[' {
		return content, false
	}
	parts := rawjson.Elements(content)
	for i, part := range parts {
		o, err := rawjson.Index(part, nil, nil)
		list := o.Raw("annotations")
		if err != nil || rawjson.IsNull(list) || list[0] != '[' {
			continue
		}
		all := rawjson.Elements(list)
		if kept := slices.DeleteFunc(slices.Clone(all), citesShared); len(kept) < len(all) {
			parts[i], changed = o.Apply(nil, rawjson.Set("annotations", AppendItems(nil, kept))), true
		}
	}
	if !changed {
		return content, false
	}
	return AppendItems(nil, parts), true
}
