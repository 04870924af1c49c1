package rerank

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
)

// ReadAnswer checks an upstream's 200 answer to the request, in the form that
// [upstream.Rerank] describes. Each document comes at most once, with a score that is a
// number, and there are as many as the caller wants. An empty, cut or malformed body and an
// error in a 200 body are a fault.BadGateway. What the price needs and the upstream did not
// report is estimated; id makes the answer's id where the upstream gave none. The answer does
// not refer to data.
func (r *Request) ReadAnswer(data []byte, o operation.AnswerOptions) (operation.Answer, error) {
	k, err := readRanking(data, len(r.documents))
	if err != nil {
		return operation.Answer{}, upstream.BadAnswer("The upstream's answer is not a ranking of the documents.", err)
	}
	if !rawjson.IsNull(k.failure) {
		return operation.Answer{}, answer.ErrorFrame(k.failure)
	}
	if err := r.complete(len(k.results)); err != nil {
		return operation.Answer{}, upstream.BadAnswer("The upstream's answer does not rank all documents.", err)
	}
	u := k.counts.usage(r, o.Price)
	if k.id == "" {
		k.id = o.NewID("rr_")
	}
	return operation.Answer{Body: r.render(k), Usage: u}, nil
}

// complete returns what is wrong with an answer of that many results. All documents must be
// there, unless the upstream was asked for the best of them; then it may return fewer.
func (r *Request) complete(results int) error {
	if n := len(r.documents); results < n && (r.TopN == 0 || r.TopN >= int64(n)) || results == 0 {
		return fmt.Errorf("%d results for %d documents", results, n)
	}
	return nil
}

// ranking is an answer as it was read, or several that were merged.
type ranking struct {
	id      string
	results []result
	failure []byte          // what stands under "error"; it may be null
	meta    *rawjson.Object // like usage empty where there is none
	billed  *rawjson.Object // the billed_units of meta
	usage   *rawjson.Object
	counts  counts
	merged  bool
}

// result is the score of one document.
type result struct {
	index int
	value float64
	score []byte // as the upstream spelled it
}

// readRanking parses an answer about so many documents.
func readRanking(data []byte, documents int) (*ranking, error) {
	k := &ranking{results: make([]result, 0, documents)}
	seen := make([]bool, documents)
	object, err := rawjson.Index(data, nil, func(rd *rawjson.Reader, name []byte) error {
		if string(name) == "results" && rd.Kind() == '[' {
			return rd.Array(func(int) error { return k.readResult(rd, data, seen) })
		}
		_, err := rd.Skip()
		return err
	})
	if err != nil {
		return nil, err
	}
	const longest = 256
	if id, ok := rawjson.String(object.Raw("id")); ok && len(id) <= longest {
		k.id = id
	}
	k.failure, k.meta, k.usage = object.Raw("error"), inner(object.Raw("meta")), inner(object.Raw("usage"))
	k.billed = inner(k.meta.Raw("billed_units"))
	k.counts = k.readCounts()
	return k, nil
}

// readResult reads one element of results.
func (k *ranking) readResult(rd *rawjson.Reader, data []byte, seen []bool) error {
	if rd.Kind() != '{' {
		return errors.New("a result is not an object")
	}
	at := result{index: -1}
	err := rd.Object(func(name []byte, _ rawjson.Span) error {
		span, err := rd.Skip()
		if err != nil {
			return err
		}
		switch raw := span.Of(data); string(name) {
		case "index":
			n, ok := rawjson.Int(raw)
			if !ok || n < 0 || n >= int64(len(seen)) {
				return errors.New("an index is none of a document")
			}
			at.index = int(n)
		case "relevance_score":
			var ok bool
			if at.value, ok = rawjson.Float(raw); !ok {
				return errors.New("a score is not a number")
			}
			at.score = raw
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case at.index < 0:
		return errors.New("a result has no index")
	case at.score == nil:
		return errors.New("a result has no score")
	case seen[at.index]:
		return fmt.Errorf("the document %d is ranked twice", at.index)
	}
	seen[at.index] = true
	k.results = append(k.results, at)
	return nil
}

// sort puts the most relevant first; of equal scores, the document that comes first.
func (k *ranking) sort() {
	slices.SortFunc(k.results, func(a, b result) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.index, b.index))
	})
}

// Join makes one answer of the parts' answers, in the order of [Request.Split] by the
// same facts, which were read by [Request.ReadAnswer]. The scores of one model can be compared
// across calls: it sees one document at a time.
func (r *Request) Join(m *operation.Facts, parts [][]byte) ([]byte, error) {
	var whole *ranking
	next, before := 0, 0
	for documents := range r.batches(m.Batch) {
		if next == len(parts) {
			return nil, errors.New("there are fewer answers than parts")
		}
		k, err := readRanking(parts[next], len(documents))
		if err != nil {
			return nil, err
		}
		for i := range k.results {
			k.results[i].index += before
		}
		if whole == nil {
			whole = k
		} else {
			whole.merge(k)
		}
		next, before = next+1, before+len(documents)
	}
	return r.render(whole), nil
}

// merge adds the results and the counts of the next part. It drops the first part's other
// counts in its usage and billed units: they would stand beside a sum.
func (k *ranking) merge(next *ranking) {
	k.results = append(k.results, next.results...)
	k.counts.add(next.counts)
	k.billed, k.usage, k.merged = inner(nil), inner(nil), true
}

// counts are what an answer says that was consumed.
type counts struct {
	tokens, units       int64
	hasTokens, hasUnits bool
	anomaly             bool // something in place of a count was no count
}

// readCounts reads the counts leniently: what is no count was not reported.
func (k *ranking) readCounts() (c counts) {
	tokens := inner(k.meta.Raw("tokens"))
	for _, raw := range [...][]byte{k.usage.Raw("total_tokens"), k.usage.Raw("prompt_tokens"), k.billed.Raw("input_tokens"), tokens.Raw("input_tokens")} {
		c.read(raw, &c.tokens, &c.hasTokens)
	}
	for _, raw := range [...][]byte{k.billed.Raw("search_units"), k.usage.Raw("search_units")} {
		c.read(raw, &c.units, &c.hasUnits)
	}
	return c
}

// inner is the index of an object in an answer; empty for anything else.
func inner(raw []byte) *rawjson.Object {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return &rawjson.Object{Src: []byte("{}")}
	}
	return &o
}

// read reads a count, unless one was read before.
func (c *counts) read(raw []byte, n *int64, has *bool) {
	if *has {
		return
	}
	var anomaly bool
	*n, *has, anomaly = tokencount.Count(raw)
	c.anomaly = c.anomaly || anomaly
}

func (c *counts) add(d counts) {
	c.tokens += d.tokens
	c.units += d.units
}

// usage completes the counts by estimates, as far as they are [Sold]: a vendor that sells by
// the unit need not count tokens.
func (c *counts) usage(r *Request, price *billing.Price) billing.Usage {
	estimate := r.Estimate()
	u := Sold(estimate, price)
	u.Estimated = !c.hasTokens && u.Input > 0 || !c.hasUnits && u.SearchUnits > 0
	u.Zero = !u.Estimated && (c.hasTokens && c.tokens == 0 || c.hasUnits && c.units == 0)
	u.Anomaly = c.anomaly
	if c.hasTokens {
		u.Input = c.tokens
	} else {
		c.tokens = estimate.Input
	}
	if c.hasUnits {
		u.SearchUnits = c.units
	} else {
		c.units = estimate.SearchUnits
	}
	return u
}

// Sold is u with the counts alone that a price is for. Without a price it has the tokens,
// for which there may be a limit.
func Sold(u billing.Usage, price *billing.Price) billing.Usage {
	if price != nil && !price.Covers(billing.Input) {
		u.Input = 0
	}
	if !price.Covers(billing.SearchUnit) {
		u.SearchUnits = 0
	}
	if !price.Covers(billing.Request) {
		u.Requests = 0
	}
	return u
}

// render writes a ranking in the form of the caller's dialect.
func (r *Request) render(k *ranking) []byte {
	k.sort()
	if r.TopN > 0 && !r.part {
		k.results = k.results[:min(int64(len(k.results)), r.TopN)]
	}
	size := r.repeated(k.results)
	if r.tei {
		return r.appendResults(make([]byte, 0, size), k.results, "score", document.appendText)
	}
	out := rawjson.Quote(append(make([]byte, 0, size), `{"id":`...), k.id)
	out = append(append(out, `,"object":"list","model":`...), r.object.Raw("model")...)
	out = r.appendResults(append(out, `,"results":`...), k.results, "relevance_score", document.appendDocument)
	if r.rows {
		out = r.appendResults(append(out, `,"data":`...), k.results, "relevance_score", document.appendVoyage)
	}
	edits := []rawjson.Edit{rawjson.Set("billed_units", k.billed.Apply(nil, rawjson.Set("search_units", strconv.AppendInt(nil, k.counts.units, 10))))}
	if rawjson.IsNull(k.meta.Raw("api_version")) {
		edits = append(edits, rawjson.Set("api_version", []byte(`{"version":"2"}`)))
	}
	if k.merged {
		edits = append(edits, rawjson.Delete("tokens"))
	}
	out = k.meta.Apply(append(out, `,"meta":`...), edits...)
	out = k.usage.Apply(append(out, `,"usage":`...), rawjson.Set("total_tokens", strconv.AppendInt(nil, k.counts.tokens, 10)))
	return append(out, '}')
}

// repeated is about how many bytes results have in the answer, above all their documents.
func (r *Request) repeated(results []result) (size int) {
	const around = 64
	for _, at := range results {
		size += around
		if d := r.documents[at.index]; r.ReturnDocuments {
			size += len(d.raw)
			if r.rows {
				size += len(d.text)
			}
		}
	}
	return size + 4*around
}

// appendResults appends the results as an array, with their documents if the request
// wants them.
func (r *Request) appendResults(dst []byte, results []result, score string, repeat func(document, []byte) []byte) []byte {
	dst = append(dst, '[')
	for i, at := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"index":`...), int64(at.index), 10)
		dst = append(append(append(dst, `,"`...), score...), `":`...)
		dst = append(dst, at.score...)
		if r.ReturnDocuments {
			dst = repeat(r.documents[at.index], dst)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// appendDocument appends the document as Cohere and Jina repeat it.
func (d document) appendDocument(dst []byte) []byte {
	return d.returned(append(dst, `,"document":`...))
}

// appendVoyage appends it as Voyage does: the text alone.
func (d document) appendVoyage(dst []byte) []byte {
	return append(append(dst, `,"document":`...), d.text...)
}

// appendText appends it as TEI does.
func (d document) appendText(dst []byte) []byte { return append(append(dst, `,"text":`...), d.text...) }
