package responses

import (
	"bytes"
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/responses"
)

// kept is what a stream keeps of its response, so that one which breaks off can end with
// what there is of it.
type kept struct {
	response []byte // as it began; nil if it is long even without what may be long in it
	id       []byte // of a long one, quoted; nil if it has no id
	output   []byte // the first items that are whole, joined by commas
	items    int64  // how many they are
	full     bool   // there were more than are kept
}

// What a stream keeps at most, in bytes. A head that is short anyway is only made shorter
// if it is needed.
const (
	shortHead  = 2 << 10
	mostHead   = 8 << 10
	mostOutput = 64 << 10
)

// begin keeps the response of the stream's first event; nil if it has none.
func (k *kept) begin(o *rawjson.Object) {
	switch {
	case o == nil:
		return
	case len(o.Src) <= shortHead:
		k.response = bytes.Clone(o.Src)
		return
	}
	if id := o.Raw("id"); len(id) <= mostHead {
		k.id = bytes.Clone(id)
	}
	if k.response = o.Apply(nil, shorter(o)...); len(k.response) > mostHead {
		k.response = nil
	}
}

// shorter are the edits that take out of a response what may be long when it begins.
func shorter(o *rawjson.Object) []rawjson.Edit {
	edits := make([]rawjson.Edit, 0, 8)
	if o.Raw("tools") != nil {
		edits = append(edits, rawjson.Set("tools", []byte("[]")))
	}
	if o.Raw("instructions") != nil {
		edits = append(edits, rawjson.Set("instructions", []byte("null")))
	}
	return edits
}

// add keeps an item of the output, by its place there.
func (k *kept) add(index int64, item []byte) {
	k.full = k.full || len(k.output)+len(item) > mostOutput || index != k.items || rawjson.IsNull(item) || item[0] != '{'
	if k.full {
		return
	}
	k.items++
	if len(k.output) > 0 {
		k.output = append(k.output, ',')
	}
	k.output = append(k.output, item...)
}

// failedResponse is the response of a stream that broke off, with its items so far.
func (t *Tap) failedResponse(why []byte) []byte {
	response := t.kept.response
	if response == nil {
		response = t.begin()
	}
	o, err := rawjson.Index(response, nil, nil)
	if err != nil {
		return response // it was an object
	}
	edits := append(shorter(&o),
		rawjson.Set("status", []byte(`"failed"`)), rawjson.Set("error", why), rawjson.Set("incomplete_details", []byte("null")),
		rawjson.Set("model", t.request.Spelled(t.request.Model)),
		rawjson.Set("output", bytes.Join([][]byte{[]byte("["), t.kept.output, []byte("]")}, nil)),
	)
	if usage, err := json.Marshal(t.shownUsage()); err == nil && t.Delivered() {
		edits = append(edits, rawjson.Set("usage", usage))
	}
	return o.Apply(nil, edits...)
}

// begin is the beginning of a response of the gateway's own.
func (t *Tap) begin() []byte {
	if t.id = t.kept.id; t.id == nil {
		id := "resp_"
		if t.options.NewID != nil {
			id = t.options.NewID("resp_")
		}
		t.id = rawjson.Quote(nil, id)
	}
	response := t.request.beginning(t.id, t.options.Created)
	if t.options.Edit != nil {
		response = t.options.Edit(response, false)
	}
	if o, err := rawjson.Index(response, nil, nil); err == nil {
		t.kept.begin(&o)
	}
	return response
}

// shownUsage is the usage until now as the public wire shows it.
func (t *Tap) shownUsage() responses.Usage {
	u := t.Usage()
	shown := responses.Usage{InputTokens: u.Input + u.CachedInput + u.CacheWrite, OutputTokens: u.Output}
	shown.InputTokensDetails.CachedTokens, shown.InputTokensDetails.CacheWriteTokens = u.CachedInput, u.CacheWrite
	shown.OutputTokensDetails.ReasoningTokens = u.Reasoning
	shown.TotalTokens = shown.InputTokens + shown.OutputTokens
	return shown
}

// Echoed are the members of a request that its response repeats, and what they are where
// the request has none.
var Echoed = []struct{ Name, Otherwise string }{
	{"instructions", "null"}, {"max_output_tokens", "null"}, {"max_tool_calls", "null"}, {"metadata", "{}"},
	{"parallel_tool_calls", "true"}, {"previous_response_id", "null"}, {"prompt_cache_key", "null"},
	{"reasoning", `{"effort":null,"summary":null}`}, {"safety_identifier", "null"}, {"temperature", "1"},
	{"text", `{"format":{"type":"text"}}`}, {"tool_choice", `"auto"`}, {"tools", "[]"}, {"top_logprobs", "0"}, {"top_p", "1"},
	{"presence_penalty", "0"}, {"frequency_penalty", "0"}, {"truncation", `"disabled"`}, {"user", "null"},
}

// beginning is a response of the gateway's own that has begun.
func (r *Request) beginning(id []byte, created int64) []byte {
	out := append([]byte(`{"id":`), id...)
	out = strconv.AppendInt(append(out, `,"object":"response","created_at":`...), created, 10)
	out = append(out, `,"completed_at":null,"status":"in_progress","background":false,"error":null,"incomplete_details":null,"model":`...)
	out = append(out, r.Spelled(r.Model)...)
	for _, m := range Echoed {
		out = append(out, `,"`+m.Name+`":`...)
		out = append(out, cmp.Or(string(r.original(m.Name)), m.Otherwise)...)
	}
	return append(out, `,"service_tier":"default","store":false,"output":[],"usage":null}`...)
}
