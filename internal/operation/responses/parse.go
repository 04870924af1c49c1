package responses

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/responses"
)

// roles are what the role of a message may be.
var roles = []string{"user", "assistant", "system", "developer"}

// readInput reads the input member in the parser's one pass: a string, or items.
func (r *Request) readInput(rd *rawjson.Reader, src []byte) error {
	w := walker{r.Walker(rd, src), r}
	list := conversation.Top("input")
	kind := rd.Kind()
	if kind != '[' {
		span, err := rd.Skip()
		if err != nil || kind == 'n' {
			return err
		}
		raw := span.Of(src)
		if kind != '"' || len(raw) == len(`""`) {
			w.Must(list, "", "a non-empty string or a non-empty array of items")
		}
		r.setInput(raw)
		r.AddMessage(raw)
		return nil
	}
	from := valueStart(rd, src)
	items := 0
	err := w.Array(list, "", func(i int) error {
		items++
		return w.item(i, list.Element(i))
	})
	if err == nil && items == 0 {
		w.Must(list, "", "a non-empty string or a non-empty array of items")
	}
	if err == nil {
		r.setInput(src[from:rd.Offset()])
	}
	return err
}

func (r *Request) setInput(raw []byte) {
	r.hasInput = true
	if r.typed == nil {
		r.Input = responses.Input(raw)
	}
}

// valueStart is where the next value begins, behind white space and a colon or a comma.
func valueStart(rd *rawjson.Reader, src []byte) int {
	from := int(rd.Offset())
	return from + bytes.IndexAny(src[from:], "[{")
}

// walker reads items and the parts within them.
type walker struct {
	conversation.Walker
	request *Request
}

// itemFields are the members of items that are checked, and counted once.
var itemFields = rule.Table{
	{Name: "type", Check: rule.NonEmptyString()},
	{Name: "id", Check: rule.String()},
	{Name: "role", Check: rule.OneOf(roles...)},
	{Name: "call_id", Check: rule.NonEmptyString()},
	{Name: "name", Check: rule.NonEmptyString()},
	{Name: "namespace", Check: rule.String()},
	{Name: "arguments", Check: rule.Check{Text: "a string", OK: func(raw []byte) bool { return raw[0] == '"' || raw[0] == '{' }}},
	{Name: "input", Check: rule.String()},
	{Name: "summary", Check: rule.Array()},
	{Name: "encrypted_content", Check: rule.String()},
	{Name: "tools", Check: rule.Array()},
	{Name: "content"},
	{Name: "output"},
	{Name: "result"},
	{Name: "approval_request_id", Check: rule.String()},
	{Name: "container_id", Check: rule.String()},
	{Name: "environment"},
}

// itemNames are the names of itemFields.
var itemNames = rawjson.Names{
	"type", "id", "role", "call_id", "name", "namespace", "arguments", "input", "summary", "encrypted_content", "tools", "content", "output", "result",
	"approval_request_id", "container_id", "environment",
}

// itemTypes are the types of items that have rules, and the members that they need. An
// item of another type passes as it is.
var itemTypes = []struct {
	name  string
	needs []string
}{
	{"message", []string{"role", "content"}},
	{"function_call", []string{"call_id", "name", "arguments"}},
	{"function_call_output", []string{"call_id", "output"}},
	{"custom_tool_call", []string{"call_id", "name", "input"}},
	{"custom_tool_call_output", []string{"call_id", "output"}},
	{"additional_tools", []string{"tools"}},
	{reference, []string{"id"}},
}

// reference is the type of an item that names a stored one.
const reference = "item_reference"

// approvalRequest is the member of an approval that names what is approved.
const approvalRequest = "approval_request_id"

// item reads one item.
func (w walker) item(i int, at conversation.Path) error {
	var values [17][]byte // of itemFields
	from, count := valueStart(w.Reader, w.Src), 0
	err := w.Object(itemNames, func(name string) (read bool, err error) {
		if count++; name == "content" || name == "output" {
			var raw []byte
			raw, err = w.content(at.Member(name))
			values[slices.Index(itemNames, name)] = raw
			return true, err
		}
		return false, nil
	}, func(f conversation.Member) {
		if f.Index >= 0 {
			values[f.Index] = f.Raw
		} else {
			count++
			if name, _ := rawjson.String(f.Key.Of(w.Src)); sharedMembers[rule.Folded(name)] != "" {
				w.request.noteMember(name, f.Raw, at.String())
			}
		}
		if f.IsCache {
			w.Request.Paid.CacheControl(f.Raw, at.String())
		}
		switch f.Name {
		case "type", "id", "role", "call_id": // take no tokens of their own
		default:
			w.countText(f.Raw)
		}
	})
	if err == nil {
		w.check(values[:], i, count, at, w.Src[from:w.Reader.Offset()])
	}
	return err
}

// countText counts a member of an item besides its content. A vendor may bill its text,
// whatever the member is called.
func (w walker) countText(raw []byte) {
	if raw[0] == '"' {
		w.Request.Quarters += tokencount.StringQuarters(raw)
	} else if raw[0] == '[' || raw[0] == '{' {
		w.Request.Quarters += tokencount.Quarters(raw)
	}
}

// check checks one item, in which count members were given.
func (w walker) check(values [][]byte, index, count int, at conversation.Path, item []byte) {
	of := func(name string) []byte { return values[slices.Index(itemNames, name)] }
	for i, f := range itemFields {
		if raw := values[i]; f.Check.OK != nil && !rawjson.IsNull(raw) && !f.Check.OK(raw) {
			w.Must(at, "."+f.Name, f.Check.Text)
			return
		}
	}
	kind, _ := rawjson.String(of("type"))
	id, _ := rawjson.String(of("id"))
	switch {
	case kind != "":
	case !rawjson.IsNull(of("role")):
		kind = "message"
	case id != "" && count == 1:
		kind = reference
	default:
		w.Must(at, ".type", `a string such as "message"`)
		return
	}
	for _, known := range itemTypes {
		if known.name != kind {
			continue
		}
		for _, name := range known.needs {
			if i := slices.Index(itemNames, name); rawjson.IsNull(values[i]) {
				w.Must(at, "."+name, mustBe(itemFields[i].Check.Text))
				return
			}
		}
	}
	if kind == "image_generation_call" && isEmpty(of("result")) && id != "" { // the vendor would look it up
		kind = reference
	}
	switch {
	case kind == reference:
		w.request.References = append(w.request.References, Reference{Index: index, ID: id})
	case kind == "reasoning" && isEmpty(of("encrypted_content")) && isEmpty(of("content")), id != "" && namesOnly(kind, item):
		w.request.Named = append(w.request.Named, Reference{Index: index, ID: id, Type: kind, Named: true})
	case id != "":
		w.request.hasIDs = true
	}
	for _, member := range [...]string{approvalRequest, "container_id"} {
		if other, _ := rawjson.String(of(member)); other != "" {
			w.request.Links = append(w.request.Links, Reference{Index: index, ID: other, Member: member})
		}
	}
	if raw := of("environment"); !rawjson.IsNull(raw) && raw[0] == '{' { // of a shell that the vendor runs
		w.request.linkContainer(raw, index)
		w.request.noteInner(raw, at.String()+".environment")
	}
	if raw := of("tools"); !rawjson.IsNull(raw) && kind != "mcp_list_tools" { // which are a server's, and declare nothing
		w.request.checkTools(at.String()+".tools", raw, nil)
	}
	if kind != reference { // another item may take its place
		w.Request.AddMessage(of("content"))
		w.Request.AddMessage(of("output"))
	}
}

// isEmpty reports whether a value has nothing in it but the types of its parts.
func isEmpty(raw []byte) bool {
	if rawjson.IsNull(raw) {
		return true
	}
	switch raw[0] {
	case '"':
		return len(raw) == len(`""`)
	case '[':
		empty := true
		rawjson.EachUntil(raw, func(_ int, at rawjson.Span) bool {
			empty = isEmpty(at.Of(raw))
			return empty
		})
		return empty
	case '{':
		return hasOnly(raw, "type")
	}
	return false
}

// hasOnly reports whether all members of an object but these are empty.
func hasOnly(object []byte, names ...string) bool {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, object, nil, nil) != nil {
		return false
	}
	return !slices.ContainsFunc(o.Members, func(m rawjson.Member) bool {
		return !slices.Contains(names, m.Name) && !isEmpty(m.Value.Of(object))
	})
}

// namesOnly reports whether nothing is left of an item without what a vendor can look it up
// by. The output of a call says by its call_id alone that the call has ended.
func namesOnly(kind string, item []byte) bool {
	return !strings.HasSuffix(kind, "_output") && hasOnly(item, "type", "id", "status", "role", "phase", "call_id", "container_id", "environment")
}

// mustBe is what a member must be that is missing.
func mustBe(text string) string {
	if text == "" {
		return "a string or an array of parts"
	}
	return text
}

// content reads the content of an item, or the output of a call: a string, parts, or one
// object.
func (w walker) content(at conversation.Path) ([]byte, error) {
	if w.Reader.Kind() != '{' {
		return w.Content(at, func(i int) error { return w.part(at.Element(i)) })
	}
	from := valueStart(w.Reader, w.Src)
	if err := w.part(at); err != nil {
		return nil, err
	}
	return w.Src[from:w.Reader.Offset()], nil
}

// partNames are the members that are read of a part.
var partNames = rawjson.Names{"type", "text", "image_url", "file_url", "audio_url", "video_url", "file_data", "file_id", "filename", "input_audio", "annotations"}

// part reads one part, and counts what is not text by the members that hold it. A vendor may
// also read parts whose types are unknown here.
func (w walker) part(at conversation.Path) error {
	var values [11][]byte // of partNames
	err := w.Object(partNames, nil, func(f conversation.Member) {
		if f.Index >= 0 && !rawjson.IsNull(f.Raw) {
			values[f.Index] = f.Raw
		}
		if f.IsCache {
			w.Request.Paid.CacheControl(f.Raw, at.String())
		}
	})
	if err == nil {
		w.checkPart(values[:], at)
	}
	return err
}

// partNeeds are the members: a part of a type has one of them.
var partNeeds = map[string][]string{
	"input_text": {"text"}, "output_text": {"text"},
	"input_image": {"image_url", "file_id"},
	"input_file":  {"file_data", "file_url", "file_id"},
	"input_audio": {"input_audio", "audio_url"},
}

// checkPart checks one part by the members that it has.
func (w walker) checkPart(values [][]byte, at conversation.Path) {
	kind, _ := rawjson.String(values[0])
	if kind == "" && values[0] != nil {
		w.Must(at, ".type", `a string such as "input_text"`)
		return
	}
	given := func(name string) bool { return values[slices.Index(partNames, name)] != nil }
	if needs := partNeeds[kind]; len(needs) > 0 && !slices.ContainsFunc(needs, given) {
		w.Must(at, "."+needs[0], "given")
		return
	}
	for i, raw := range values {
		name := partNames[i]
		switch {
		case raw == nil || name == "type":
		case name == "annotations":
			w.request.cites = w.request.cites || slices.ContainsFunc(rawjson.Elements(raw), citesShared)
		case name == "input_audio":
			w.audio(raw, at)
		case raw[0] != '"':
			w.Must(at, "."+name, "a string")
			return
		case strings.HasSuffix(name, "_url"):
			w.link(name, raw, at)
		case name == "file_data":
			w.Media.AddFile(raw, conversation.MayLink(raw), tokencount.Document)
		case name == "file_id":
			if kind == "input_image" {
				w.Media.AddImage(raw, true)
			} else {
				w.Media.AddFile(raw, true, "")
			}
			w.Request.NoteFile(at, fileID)
		}
	}
}

// link counts what lies behind a URL, or in it.
func (w walker) link(name string, raw []byte, at conversation.Path) {
	linked := !tokencount.IsDataURL(raw)
	if linked && !conversation.IsWebURL(raw) {
		w.Must(at, "."+name, "an absolute http, https or data URL")
		return
	}
	switch {
	case name == "image_url" && (linked || tokencount.IsImageURL(raw)):
		w.Media.AddImage(raw, linked)
	case name == "file_url":
		w.Media.AddFile(raw, linked, tokencount.Document)
	default:
		w.Media.AddFile(raw, linked, "")
	}
}

// audio counts a sound in the body.
func (w walker) audio(raw []byte, at conversation.Path) {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if raw[0] != '{' || rawjson.IndexInto(o, raw, nil, nil) != nil || len(o.Raw("data")) < 2 || o.Raw("data")[0] != '"' {
		w.Must(at, ".input_audio", "an object of data and format")
		return
	}
	w.Media.AddFile(o.Raw("data"), conversation.MayLink(o.Raw("data")), "audio/")
}
