package httpdo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/upstream"
)

// The bounds of a vendor's list of models. A longer one is an error and not cut short,
// since what was cut off would seem to have gone.
const (
	maxListBytes = 4 << 20
	maxModels    = 10_000
	maxModelID   = 200 // bytes
)

// Listing says how a vendor lists its models.
type Listing struct {
	URL    *url.URL
	Header http.Header
	Query  url.Values // of every page; may be nil
	Cursor string     // the parameter that has the last id of the page before ("after_id"); empty if there are no such pages
}

// ListModels reads all pages of a vendor's list. The key that it is asked with learns
// nothing: a vendor may refuse the list to a key that it takes for calls.
func (c *Client) ListModels(ctx context.Context, l Listing) (*upstream.ModelList, error) {
	list, known, left, entries := new(upstream.ModelList), make(map[string]bool), int64(maxListBytes), 0
	query := url.Values{}
	maps.Copy(query, l.Query)
	for {
		page, size, err := c.listPage(ctx, l, query, left)
		if err != nil {
			return nil, err
		}
		left -= size
		if entries += len(page.entries); entries > maxModels {
			return nil, c.Malformed(http.StatusOK, fmt.Errorf("the list has more than %d models", maxModels))
		}
		before := len(list.Models)
		for i := range page.entries {
			addModel(list, page.entries[i].model(), known)
		}
		name, value := page.next(l.Cursor)
		if name == "" || len(list.Models) == before { // a page that adds nothing would be asked for again and again
			break
		}
		query.Set(name, value)
	}
	if len(list.Models) == 0 {
		return nil, c.Malformed(http.StatusOK, errors.New("the list names no model"))
	}
	return list, nil
}

// addModel adds a model to a list. It leaves out an id that is listed already, empty,
// longer than maxModelID bytes, or not printable. known has the ids of the list.
func addModel(l *upstream.ModelList, m upstream.ListedModel, known map[string]bool) {
	switch {
	case !isModelID(m.ID):
		l.Invalid++
	case !known[m.ID]:
		known[m.ID] = true
		l.Models = append(l.Models, m)
	}
}

// isModelID refuses also what only changes how other characters are shown, such as the
// order of writing: an id could pass for another one.
func isModelID(id string) bool {
	if id == "" || id == "*" || len(id) > maxModelID || !utf8.ValidString(id) {
		return false
	}
	for _, c := range id {
		if !unicode.IsPrint(c) {
			return false
		}
	}
	return true
}

// listPage reads one page of a list.
func (c *Client) listPage(ctx context.Context, l Listing, query url.Values, most int64) (*modelPage, int64, error) {
	to := *l.URL
	to.RawQuery = query.Encode()
	call := &upstream.Call{Op: upstream.ListModels}
	resp, _, err := c.Get(ctx, call, &to, l.Header.Clone())
	if err != nil {
		return nil, 0, err
	}
	data, _, err := c.readDocument(ctx, call, resp, most)
	if err != nil {
		return nil, 0, err
	}
	page, err := parseModels(data)
	if err != nil {
		return nil, 0, c.Malformed(resp.StatusCode, err)
	}
	return page, int64(len(data)), nil
}

// modelPage is a page of a list, of whichever vendor.
type modelPage struct {
	entries       modelEntries
	hasMore       bool
	lastID        string
	nextPageToken string // Cohere's
	pageToken     string // Gemini's
}

// next returns the parameter of the query for the next page; empty after the last page.
func (p *modelPage) next(cursor string) (name, value string) {
	switch {
	case p.hasMore && p.lastID != "" && cursor != "":
		return cursor, p.lastID
	case p.nextPageToken != "":
		return "page_token", p.nextPageToken
	case p.pageToken != "":
		return "pageToken", p.pageToken
	}
	return "", ""
}

var errNoModelList = errors.New(`the answer is no list of models: neither {"data": [...]}, {"models": [...]}, an array, nor {"model_id": ...}`)

// parseModels reads {"data": [...]} (OpenAI, Anthropic), {"models": [...]} (Ollama, Gemini,
// Cohere), or both (llama.cpp). It also reads a bare array (Together), and what TEI says of
// its one model: {"model_id": ..., "model_type": {"reranker": ...}}.
func parseModels(data []byte) (*modelPage, error) {
	page := new(modelPage)
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '[' {
		if json.Unmarshal(trimmed, &page.entries) != nil {
			return nil, errNoModelList
		}
		return page, nil
	}
	var object struct {
		Data          *modelEntries `json:"data"`
		Models        *modelEntries `json:"models"`
		HasMore       loose[bool]   `json:"has_more"`
		LastID        loose[string] `json:"last_id"`
		NextPageToken loose[string] `json:"next_page_token"`
		PageToken     loose[string] `json:"nextPageToken"`

		ModelID        loose[string]              `json:"model_id"`
		ModelType      map[string]json.RawMessage `json:"model_type"`
		MaxInputLength loose[int64]               `json:"max_input_length"`
	}
	if json.Unmarshal(data, &object) != nil {
		return nil, errNoModelList
	}
	switch {
	case object.Data != nil:
		page.entries = *object.Data
	case object.Models != nil:
		page.entries = *object.Models
	case object.ModelID.value != "":
		kinds := slices.Sorted(maps.Keys(object.ModelType))
		page.entries = modelEntries{{id: object.ModelID.value, endpoints: kinds, context: max(object.MaxInputLength.value, 0)}}
	default:
		return nil, errNoModelList
	}
	page.hasMore, page.lastID = object.HasMore.value, object.LastID.value
	page.nextPageToken, page.pageToken = object.NextPageToken.value, object.PageToken.value
	return page, nil
}

// modelEntries are those of one page: one more than [maxModels] at most, which
// shows that there are too many. Two bytes of a page would make 104 in memory.
type modelEntries []modelEntry

// UnmarshalJSON takes only an array.
func (e *modelEntries) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if start, err := dec.Token(); err != nil || start != json.Delim('[') {
		return errNoModelList
	}
	for *e = nil; dec.More() && len(*e) <= maxModels; {
		var entry modelEntry
		if err := dec.Decode(&entry); err != nil {
			return err
		}
		*e = append(*e, entry)
	}
	return nil
}

// modelEntry is a model as vendors describe it. An entry that is not an object has no members.
type modelEntry struct {
	id, name  string
	kind      string   // Together, LM Studio
	endpoints []string // Cohere
	methods   []string // Gemini
	context   int64    // in tokens
}

// UnmarshalJSON never fails: what cannot be read has no id, and is counted as invalid.
func (e *modelEntry) UnmarshalJSON(data []byte) error {
	var m struct {
		ID            loose[string]   `json:"id"`
		Name          loose[string]   `json:"name"`
		Type          loose[string]   `json:"type"`
		Endpoints     loose[[]string] `json:"endpoints"`
		Methods       loose[[]string] `json:"supportedGenerationMethods"`
		ContextLength loose[int64]    `json:"context_length"`
		ContextWindow loose[int64]    `json:"context_window"`
		MaxContext    loose[int64]    `json:"max_context_length"`
		MaxModelLen   loose[int64]    `json:"max_model_len"`
		InputLimit    loose[int64]    `json:"inputTokenLimit"`
	}
	if json.Unmarshal(data, &m) != nil {
		*e = modelEntry{}
		return nil
	}
	*e = modelEntry{
		id: m.ID.value, name: m.Name.value, kind: m.Type.value, endpoints: m.Endpoints.value, methods: m.Methods.value,
		context: max(m.ContextLength.value, m.ContextWindow.value, m.MaxContext.value, m.MaxModelLen.value, m.InputLimit.value, 0),
	}
	return nil
}

// model is the entry without what vendors put around an id.
func (e *modelEntry) model() upstream.ListedModel {
	id := strings.TrimPrefix(cmp.Or(e.id, e.name), "models/") // which Gemini puts before it
	return upstream.ListedModel{ID: id, Op: e.op(), Context: e.context}
}

// op is what a model is for, if the vendor's words leave no doubt.
func (e *modelEntry) op() upstream.Op {
	var found []upstream.Op
	for _, word := range slices.Concat([]string{e.kind}, e.endpoints, e.methods) {
		if op := upstream.OpCalled(word); op != "" && !slices.Contains(found, op) {
			found = append(found, op)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// loose is a member of a document that counts as absent where it has another type than T.
type loose[T any] struct{ value T }

// UnmarshalJSON never fails.
func (l *loose[T]) UnmarshalJSON(data []byte) error {
	var value T
	if json.Unmarshal(data, &value) == nil {
		l.value = value
	}
	return nil
}
