package embeddings

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

const (
	// tokensAround is what an upstream may put around each text, in tokens.
	tokensAround = 4
	// maxInputs bounds how many upstream calls one request can become, and how
	// large its answer: eight times what one call of OpenAI's takes.
	maxInputs = 16_384
)

// kinds of elements of an input.
const (
	text  = '"'
	token = '0'
	list  = '['
)

// readInput notes the elements of the input, whose rules checkInput checks.
func (r *Request) readInput(rd *rawjson.Reader, data []byte) error {
	switch rd.Kind() {
	case text:
		span, err := rd.Skip()
		r.items = append(r.items, span)
		if err == nil && span.End-span.Start == len(`""`) {
			r.noteEmptyInput()
		}
		return err
	case list:
		return r.readList(rd, data)
	}
	span, err := rd.Skip()
	if err == nil && !rawjson.IsNull(span.Of(data)) {
		r.noteInputKind()
	}
	return err
}

// readList reads an array: of texts, of tokens, or of arrays of tokens.
func (r *Request) readList(rd *rawjson.Reader, data []byte) error {
	var first byte
	var all rawjson.Span // from the first element to the last
	err := rd.Array(func(i int) error {
		kind := rd.Kind()
		span, ok, err := readElement(rd, data)
		if i == 0 {
			first, all.Start = kind, span.Start
		}
		all.End = span.End
		switch {
		case err != nil:
			return err
		case kind != first || !ok:
			r.noteInputKind()
		case kind == text && span.End-span.Start == len(`""`), kind == list && isEmptyArray(span.Of(data)):
			r.noteEmptyInput()
		}
		if kind != token {
			if r.listed++; r.listed <= maxInputs {
				r.items = append(r.items, span)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case first == 0:
		r.noteEmptyInput()
	case first == token:
		r.items = append(r.items, all)
	}
	r.tokens = first == token || first == list
	return nil
}

// isEmptyArray reports whether an array is empty.
func isEmptyArray(array []byte) bool { return len(bytes.Trim(array[1:len(array)-1], space)) == 0 }

// readElement consumes an element. It is not ok if it is none of the kinds.
func readElement(rd *rawjson.Reader, data []byte) (span rawjson.Span, ok bool, err error) {
	kind := rd.Kind()
	if kind != list {
		span, err = rd.Skip()
		return span, err == nil && (kind == text || kind == token && isToken(span.Of(data))), err
	}
	ok = true
	before := int(rd.Offset())
	err = rd.Array(func(int) error {
		token, err := rd.Skip()
		ok = ok && err == nil && isToken(token.Of(data))
		return err
	})
	start := before + max(bytes.IndexByte(data[before:], list), 0) // behind a comma and space
	return rawjson.Span{Start: start, End: int(rd.Offset())}, ok, err
}

// isToken reports whether raw is a token's number.
func isToken(raw []byte) bool {
	n, ok := rawjson.Int(raw)
	return ok && n >= 0
}

// uncounted are the top-level members that are no text which is embedded.
var uncounted = []string{"model", "input", "encoding_format", "user"}

// maxTokens is the most tokens that the items can be, and any other text that the
// request has, which a vendor may put before them.
func (r *Request) maxTokens() int64 {
	n := r.otherTextBound()
	for _, item := range r.items {
		raw := item.Of(r.Source())
		if r.tokens {
			n += int64(bytes.Count(raw, []byte{','})) + 1
		} else {
			n += int64(len(raw))
		}
		n += tokensAround
	}
	return n
}

// otherTextBound is the most tokens that the text outside of the input can be.
func (r *Request) otherTextBound() (n int64) {
	o := &r.object
	for i := range o.Members {
		m := &o.Members[i]
		if raw := m.Value.Of(o.Src); strings.IndexByte(`"[{`, raw[0]) >= 0 && !slices.Contains(uncounted, m.Name) {
			n += int64(len(raw))
		}
	}
	return n
}

// noteInputKind notes an input in an unknown form.
func (r *Request) noteInputKind() {
	r.problem.Note("input", "a string, an array of strings, an array of token numbers, or an array of arrays of them")
}

// noteEmptyInput notes an input without a text, or with an empty one.
func (r *Request) noteEmptyInput() {
	r.problem.Refuse("input", `"input" must not be empty, and neither may a text in it.`)
}

// checkInput is what can be said only when the model is known.
func (r *Request) checkInput() error {
	switch {
	case r.Count() == 0:
		return fault.Invalid("input", `"input" is missing: it holds the text, or the texts, to embed.`)
	case r.listed > maxInputs:
		return fault.Invalid("input", fmt.Sprintf(`"input" must hold at most %d texts; it has %d.`, maxInputs, r.listed))
	case r.tokens && r.family.Texts:
		return fault.Invalid("input", fmt.Sprintf("The model %q takes texts, not token numbers. "+
			"LangChain sends texts with check_embedding_ctx_length=False.", r.Model))
	}
	return nil
}
