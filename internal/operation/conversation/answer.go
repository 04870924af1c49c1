package conversation

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Form is what a vendor's answers look like.
type Form struct {
	Parts []Part              // the list among them must be there
	Type  string              // that an answer must have; empty for none
	In    string              // the member that says the type; empty for "type"
	Usage []tokencount.Member // of a usage object
	Wrong string              // the message of what is no such answer
	Needs string              // the member that each element of the list must have to say anything; empty for none
	// Failed is the error that a sound JSON object is, which says so many quarters of tokens;
	// nil for one in its member "error".
	Failed func(o *rawjson.Object, said int64) error
	// Error is what becomes of an error that Failed lets pass; nil for no change.
	Error func(raw []byte) []byte
	// DropsError says that `"error": null` is left out, which makes clients fail.
	DropsError bool
}

// ReadAnswer checks an upstream's 200 answer to the request, which called its model id,
// and reads its usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The answer may lie in data.
func (p *Parsed) ReadAnswer(id string, data []byte, f *Form, m operation.Media) (operation.Answer, error) {
	if p.CountOnly {
		body, _, err := ReadCount(data)
		return operation.Answer{Body: body}, err
	}
	var s Scan
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if err := f.whole(o, &s, s.Read(o, data, f.Parts)); err != nil {
		return operation.Answer{}, err
	}
	if !s.Listed && f.Failed == nil && answer.IsError(o) {
		return operation.Answer{}, answer.ErrorFrame(data)
	}
	if kind, _ := rawjson.String(o.Raw(cmp.Or(f.In, "type"))); !s.Listed || f.Type != "" && kind != f.Type {
		return operation.Answer{}, upstream.BadAnswer(f.Wrong, nil)
	}
	var r Report
	r.Read(o.Raw("usage"), f.Usage)
	r.Read(s.Usage, f.Usage)
	if s.Text.Quarters == 0 && !slices.Contains(r.Has[:], true) && f.IsEmpty(o) {
		return operation.Answer{}, upstream.BadAnswer(f.Wrong, nil)
	}
	var few [2]rawjson.Edit
	edits := p.PublicEdits(few[:0], id, o, f)
	body := o.ApplyInPlace(edits...)
	return operation.Answer{Body: body, Usage: r.Usage(p, chat.MediaBound(m), s.Text.Quarters), Said: tokencount.Tokens(s.Text.Quarters - s.Encrypted)}, nil
}

// IsEmpty reports whether an answer without text and usage has nothing in its list. Such an
// answer delivers nothing and costs nothing, and clients fail at it. A response that is not
// complete can be empty.
func (f *Form) IsEmpty(o *rawjson.Object) bool {
	if status, _ := rawjson.String(o.Raw("status")); status != "" && status != "completed" {
		return false
	}
	for i := range f.Parts {
		if f.Parts[i].As != AsList {
			continue
		}
		for _, element := range rawjson.Elements(o.Raw(f.Parts[i].Name)) {
			if f.Needs == "" || !rawjson.IsNull(rawjson.Lookup(element, f.Needs)) {
				return false
			}
		}
	}
	return true
}

// Decode reads a whole answer into a typed one, except for its counts, which vendors spell in
// many ways. wrong is the message of the error for anything else.
func Decode[T any](o *rawjson.Object, wrong string) (*T, error) {
	r := new(T)
	plain := o.Apply(nil, rawjson.Delete("usage"), rawjson.Delete("error"))
	if err := json.Unmarshal(plain, r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, upstream.BadAnswer(wrong, err)
	}
	return r, nil
}

// ReadCount checks an upstream's 200 answer to a request to count tokens, and
// returns it with the count. It fails as [Parsed.ReadAnswer] does. The body
// does not refer to data.
func ReadCount(data []byte) (body []byte, tokens int64, err error) {
	o, err := rawjson.Index(data, nil, nil)
	if err := answer.Whole(&o, err); err != nil {
		return nil, 0, err
	}
	tokens, ok, _ := tokencount.Count(o.Raw("input_tokens"))
	if !ok {
		return nil, 0, upstream.BadAnswer("The upstream's answer has no count of input tokens.", nil)
	}
	return o.Apply(nil), tokens, nil
}

// whole returns what is wrong with an answer; err is the error of its index.
func (f *Form) whole(o *rawjson.Object, s *Scan, err error) error {
	if err == nil && f.Failed != nil {
		return f.Failed(o, s.Text.Quarters)
	}
	return answer.Whole(o, err)
}

// PublicEdits are the edits that every answer gets, and every chunk: the public model id,
// as the request spells it.
func (p *Parsed) PublicEdits(edits []rawjson.Edit, id string, o *rawjson.Object, f *Form) []rawjson.Edit {
	if o.Raw("model") != nil {
		edits = append(edits, rawjson.Set("model", p.Spelled(id)))
	}
	edits = p.OwnNames(edits, o)
	if raw := o.Raw("error"); f.Error != nil && !rawjson.IsNull(raw) {
		edits = append(edits, rawjson.Set("error", f.Error(raw)))
	}
	if f.DropsError && o.Raw("error") != nil {
		edits = append(edits, rawjson.Delete("error"))
	}
	return edits
}

// Part is a member of an answer or an event that is read. It says where the model's text
// stands in it, and what else is read.
type Part struct {
	Name  string
	As    Kind
	Parts []Part // of an object, or of each object in a list; of a text nil if it is no list
}

// Kind is what a [Part] is. A value of another JSON type than the kind's is passed over.
type Kind int

// The kinds of parts.
const (
	AsText      Kind = iota // a string that the model wrote, or a list of objects of parts
	AsArguments             // those of a call: a string that the model wrote, or JSON itself
	AsJSON                  // any value that the model wrote, but an empty one
	AsObject                // an object of parts
	AsList                  // a list of objects of parts
	AsCalls                 // the same, noted in [Scan.Calls]
	AsType                  // kept in [Scan.Type]
	AsUsage                 // kept in [Scan.Usage]
	AsStop                  // noted in [Scan.Stopped]
	AsEncrypted             // reasoning of the object's that only the vendor can read
)

// Scan is what one answer or event holds, gathered in the one pass that checks it. The
// zero Scan is ready.
type Scan struct {
	Text      Text
	Listed    bool   // there is a list of parts
	Type      []byte // the last that was met
	Usage     []byte // the last inside of a part that is not null
	Calls     bool   // there is a list of tool calls
	Stopped   bool   // there is a reason why the model stopped that is not null
	Encrypted int64  // quarters of Text that are encrypted reasoning, which nothing shows

	encrypted int64          // quarters of what the object at hand has encrypted
	objects   []rawjson.Span // arguments that are no string
}

// encryptedQuarters estimates the tokens of encrypted reasoning, in quarters. It is the base64
// of an encryption, which has a few more bytes than its text. A token is four bytes.
func encryptedQuarters(raw []byte) int64 {
	if raw[0] != '"' {
		return 0
	}
	return int64(len(raw)-len(`""`)) * 3 / 4
}

// Read indexes an answer, an event or an object within it into o and reads the parts of it.
// Halves of characters pass as they came, and bytes that are no UTF-8 become U+FFFD.
// Arguments of a call that are JSON become the text of it, for which clients look: o is then
// of other bytes than data.
func (s *Scan) Read(o *rawjson.Object, data []byte, parts []Part) error {
	text := data
	err := s.read(o, data, parts)
	if err != nil {
		if mended, decodable, broken := rawjson.Mend(data); broken {
			*s = Scan{}
			text, data = mended, decodable
			err = s.read(o, data, parts)
		}
	}
	if err != nil {
		return err
	}
	if s.objects == nil {
		o.Src = text
		return nil
	}
	quoted, at := make([]byte, 0, len(data)+64), 0
	for _, span := range s.objects {
		quoted = rawjson.Quote(append(quoted, data[at:span.Start]...), string(span.Of(data)))
		at = span.End
	}
	*s = Scan{}
	return s.read(o, append(quoted, data[at:]...), parts)
}

func (s *Scan) read(o *rawjson.Object, data []byte, parts []Part) error {
	return rawjson.IndexInto(o, data, nil, func(rd *rawjson.Reader, name []byte) error {
		return s.member(rd, data, parts, name)
	})
}

// ReadNested is [Scan.Read] of an event that can have an object with parts of its own. If the
// first member called inner is an object, the same pass indexes it and ReadNested returns it.
// The caller gives it back, even with an error. Otherwise it is nil.
func (s *Scan) ReadNested(o *rawjson.Object, data []byte, parts []Part, inner string, innerParts []Part) (nested *rawjson.Object, err error) {
	nested, err = s.readNested(o, data, parts, inner, innerParts)
	if err == nil {
		return nested, nil
	}
	if text, decodable, broken := rawjson.Mend(data); broken {
		if nested != nil {
			rawjson.GiveBack(nested)
		}
		*s = Scan{}
		if nested, err = s.readNested(o, decodable, parts, inner, innerParts); err == nil {
			if o.Src = text; nested != nil {
				nested.Src = o.Raw(inner)
			}
		}
	}
	return nested, err
}

func (s *Scan) readNested(o *rawjson.Object, data []byte, parts []Part, inner string, innerParts []Part) (nested *rawjson.Object, err error) {
	err = rawjson.IndexInto(o, data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) != inner || rd.Kind() != '{' || o.Raw(inner) != nil {
			return s.member(rd, data, parts, name)
		}
		nested = rawjson.Borrow()
		return rd.Index(nested, func(rd *rawjson.Reader, name []byte) error { return s.member(rd, data, innerParts, name) })
	})
	return nested, err
}

// member reads the value of a member by its part. A member without a part is passed over.
func (s *Scan) member(rd *rawjson.Reader, src []byte, parts []Part, name []byte) error {
	var p *Part
	for i := range parts {
		if parts[i].Name == string(name) {
			p = &parts[i]
			break
		}
	}
	switch {
	case p == nil:
		_, err := rd.Skip()
		return err
	case p.As == AsObject:
		return s.object(rd, src, p.Parts)
	case (p.As == AsList || p.As == AsCalls || p.As == AsText && p.Parts != nil) && rd.Kind() == '[':
		s.Listed, s.Calls = s.Listed || p.As == AsList, s.Calls || p.As == AsCalls
		return rd.Array(func(int) error { return s.object(rd, src, p.Parts) })
	}
	span, err := rd.Skip()
	if err != nil {
		return err
	}
	switch raw := span.Of(src); p.As {
	case AsText:
		s.Text.Add(raw, span)
	case AsArguments:
		if raw[0] == '{' || raw[0] == '[' {
			s.objects = append(s.objects, span)
		}
		s.Text.Add(raw, span)
	case AsJSON:
		if len(raw) > len("{}") {
			s.Text.Quarters += tokencount.Quarters(raw)
		}
	case AsType:
		s.Type = raw
	case AsUsage:
		if !rawjson.IsNull(raw) {
			s.Usage = raw
		}
	case AsEncrypted:
		s.encrypted += encryptedQuarters(raw)
	case AsStop:
		s.Stopped = s.Stopped || !rawjson.IsNull(raw)
	}
	return nil
}

// object reads the parts of an object; what is none is passed over. What it shows is a part
// of what it has encrypted, so that it counts as the larger of both.
func (s *Scan) object(rd *rawjson.Reader, src []byte, parts []Part) error {
	if rd.Kind() != '{' {
		_, err := rd.Skip()
		return err
	}
	outer, before := s.encrypted, s.Text.Quarters
	s.encrypted = 0
	err := rd.Object(func(name []byte, _ rawjson.Span) error { return s.member(rd, src, parts, name) })
	if unseen := s.encrypted - (s.Text.Quarters - before); unseen > 0 {
		s.Text.Quarters += unseen
		s.Encrypted += unseen
	}
	s.encrypted = outer
	return err
}
