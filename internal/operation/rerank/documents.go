package rerank

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

const (
	// tokensAround is what a model may put around a query and a document, in tokens. A chat
	// model that ranks has a prompt of about a hundred (Qwen3-Reranker's model card).
	tokensAround = 128
	// A search unit is a query with up to unitDocuments documents. A document that
	// has, with the query, more than documentTokens tokens counts as several (Cohere's
	// page "Pricing").
	unitDocuments  = 100
	documentTokens = 500
	// longestName is how many bytes of a member's name an error repeats.
	longestName = 100
)

// document is one of the list.
type document struct {
	raw  []byte // as the caller gave it: a string or an object
	text []byte // what of it is ranked, as a JSON string
}

func (d document) isObject() bool { return d.raw[0] == '{' }

// returned is the document as a result repeats it: an object.
func (d document) returned(dst []byte) []byte {
	if d.isObject() {
		return append(dst, d.raw...)
	}
	dst = append(append(dst, `{"text":`...), d.text...)
	return append(dst, '}')
}

// array is the texts of documents as JSON.
func array(documents []document) []byte {
	size := len(`[]`)
	for _, d := range documents {
		size += len(d.text) + len(`,`)
	}
	out := append(make([]byte, 0, size), '[')
	for i, d := range documents {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, d.text...)
	}
	return append(out, ']')
}

// readDocuments notes where the documents stand; resolve looks into them.
func (r *Request) readDocuments(rd *rawjson.Reader, data []byte, name string) error {
	if rd.Kind() != '[' {
		span, err := rd.Skip()
		if err == nil && !rawjson.IsNull(span.Of(data)) {
			r.noteKind(name)
		}
		return err
	}
	before := r.listed
	err := rd.Array(func(int) error {
		span, err := rd.Skip()
		if r.listed++; err == nil && r.listed <= MaxDocuments {
			r.documents = append(r.documents, document{raw: span.Of(data)})
		}
		return err
	})
	if err == nil && r.listed == before {
		r.problem.Refuse(name, "invalid request: list of documents must not be empty") // Cohere's words, which clients know
	}
	return err
}

func (r *Request) noteKind(name string) {
	r.problem.Note(name, `an array of strings, or of objects with a "text"`)
}

// resolve finds what of each document is ranked.
func (r *Request) resolve() {
	for i := range r.documents {
		d := &r.documents[i]
		switch {
		case r.problem.Found():
			r.documents = nil
			return
		case d.raw[0] == '"':
			d.text = d.raw
		case d.isObject():
			d.text = r.textOf(i, d.raw)
		default:
			r.noteKind(r.list())
		}
		if len(d.text) == len(`""`) {
			r.problem.Refuse(r.list(), fmt.Sprintf(`"%s[%d]" is empty: leave it out.`, r.list(), i))
		}
	}
	if r.problem.Found() { // of the last document
		r.documents = nil
	}
}

// textOf is what is ranked of a document that is an object: its text, or the members
// that rank_fields names, in that order.
func (r *Request) textOf(i int, raw []byte) []byte {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	names := r.rankFields
	if len(names) == 0 {
		names = []string{"text"}
	}
	name := fmt.Sprintf(`"%s[%d]"`, r.list(), i)
	if err := rawjson.IndexInto(o, raw, nil, nil); err != nil { // it was read before
		r.problem.Refuse(r.list(), name+" cannot be read.")
		return nil
	}
	var one []byte // the value of the only member, a JSON string
	var all fieldsText
	for _, member := range names {
		values := 0
		for i := range o.Members {
			m := &o.Members[i]
			value := m.Value.Of(raw)
			if m.Name != member || rawjson.IsNull(value) {
				continue
			}
			if values++; values > 1 {
				r.problem.Refuse(r.list(), fmt.Sprintf("%s has %q twice.", name, safetext.Truncate(member, longestName)))
				return nil
			}
			switch {
			case len(names) > 1:
				all.add(member, value, len(raw))
			case value[0] == '"':
				one = value
			}
		}
	}
	switch {
	case one != nil:
		return one
	case all.Len() > 0:
		return all.quoted(len(raw))
	case !rawjson.IsNull(o.Raw("image")):
		r.problem.Refuse(r.list(), name+" is an image, for which this gateway has no price: documents are texts.")
	default:
		r.problem.Refuse(r.list(), fmt.Sprintf("%s must be a string, or an object with a string in %q.", name, safetext.Truncate(names[0], longestName)))
	}
	return nil
}

// fieldsText is the members of a document, as lines of YAML, as Cohere's page "Rerank" wants
// structured documents. Its members have different names, so it is not longer than the
// document. Quoted it is at most twice as long, except for quotes in values that are not
// strings.
type fieldsText struct {
	strings.Builder
	escaped int // bytes that quoting adds to values that are no strings
}

// add adds a member of a document of so many bytes.
func (t *fieldsText) add(name string, value []byte, document int) {
	if t.Len() == 0 {
		t.Grow(document)
	} else {
		t.WriteByte('\n')
	}
	t.WriteString(name)
	t.WriteString(": ")
	if text, ok := rawjson.String(value); ok {
		t.WriteString(text)
		return
	}
	t.Write(value)
	for _, c := range value {
		if c == '"' || c == '\\' || c < ' ' {
			t.escaped++
		}
	}
}

// quoted is the text of a document of so many bytes as a JSON string.
func (t *fieldsText) quoted(document int) []byte {
	return rawjson.Quote(make([]byte, 0, document+t.escaped), t.String())
}

// Bound is the most that the request can be counted as, split into parts of batch documents.
// No token is shorter than a byte. A model reads the query, and the other text of the request,
// with each document.
func (r *Request) Bound(batch int) (most billing.Usage) {
	query, other := r.object.Raw("query"), r.otherText()
	each, eachText := int64(len(query))+other, textBytes(query)+other
	for documents := range r.batches(batch) {
		var pieces int64
		for _, d := range documents {
			pieces += piecesOf(textBytes(d.text) + eachText)
			most.Input += int64(len(d.text)) + each + tokensAround
		}
		most.SearchUnits += unitsOf(pieces)
		most.Requests++
	}
	return most
}

// textBytes is the most bytes of UTF-8 that a JSON string stands for. An escape by a letter is
// one byte, and one by a number up to three.
func textBytes(raw []byte) int64 {
	n := len(raw) - len(`""`)
	for rest := raw; ; {
		at := bytes.IndexByte(rest, '\\')
		switch {
		case at < 0:
			return int64(n)
		case rest[at+1] == 'u':
			n -= len(`\uFFFF`) - len("\uFFFF")
			rest = rest[at+len(`\uFFFF`):]
		default:
			n -= len(`\n`) - len("\n")
			rest = rest[at+len(`\n`):]
		}
	}
}

// Estimate is about what the upstream counts of one call of all documents.
func (r *Request) Estimate() (u billing.Usage) {
	each := tokencount.Quarters(r.object.Raw("query")) + tokencount.ObjectQuarters(&r.object, known)
	var pieces, quarters int64
	for _, d := range r.documents {
		n := each + tokencount.Quarters(d.text)
		quarters += n
		pieces += piecesOf(tokencount.Tokens(n))
	}
	return billing.Usage{Input: tokencount.Tokens(quarters), SearchUnits: unitsOf(pieces), Requests: 1, Estimated: true}
}

// piecesOf is how many documents one of so many tokens, with the query, counts as.
func piecesOf(tokens int64) int64 { return max((tokens+documentTokens-1)/documentTokens, 1) }

// unitsOf is how many search units so many documents are.
func unitsOf(documents int64) int64 { return (documents + unitDocuments - 1) / unitDocuments }

// known are the top-level members that no model reads beside each document.
var known = []string{"model", "query", "documents", "texts", "rank_fields"}

// otherText is how many bytes of text there are that no rule knows: an instruction for
// instance.
func (r *Request) otherText() (n int64) {
	for i := range r.object.Members {
		m := &r.object.Members[i]
		if raw := m.Value.Of(r.object.Src); (raw[0] == '"' || raw[0] == '[' || raw[0] == '{') && !slices.Contains(known, m.Name) {
			n += int64(len(raw))
		}
	}
	return n
}
