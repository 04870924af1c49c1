package server

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// writeError is the one place where an error of the API is written.
func (x *httpExchange) writeError(err error) {
	f := fault.From(err)
	if x.stream.started() {
		x.stream.fail(f) // serveRoutes breaks the connection of audio off
		return
	}
	errorHeaders(x.w.Header(), f, x.maxRetryAfter(f))
	x.write(f.HTTPStatus(), "application/json", x.errorBody(f))
}

// errorFormat is how an endpoint writes errors: the gateway's own, and an
// upstream's own body with what is missing added, so that the official SDK of the
// endpoint can read both.
type errorFormat struct {
	shape func(requestID string, f *fault.Error) any
	outer func(f *fault.Error) []requiredMember // of the body; where there are some, request_id is one too
	inner func(f *fault.Error) []requiredMember // of `error`
	flat  bool                                  // a body without `error` is one all the same
}

// openAIFormat is the format of every path which has none of its own.
var openAIFormat = errorFormat{shape: openAIShape, inner: openAIMembers}

// rerankFormat is for the clients of several vendors: Cohere's read `message`, Voyage's
// and Jina's `detail`.
var rerankFormat = errorFormat{rerankShape, rerankMembers, openAIMembers, true}

var errorFormats = []struct {
	prefix string
	format errorFormat
}{
	{"/v1/images/generations", errorFormat{alphaShape, alphaMembers, openAIMembers, true}},
	{"/v1/images/edits", errorFormat{shape: plainShape, inner: openAIMembers}},
	{"/v1/audio/speech", errorFormat{shape: plainShape, inner: openAIMembers}},
	{"/v1/responses", errorFormat{shape: responsesShape, inner: openAIMembers}},
	{"/v1/rerank", rerankFormat},
	{"/v2/rerank", rerankFormat},
	{"/rerank", rerankFormat},
	{"/v1/messages", errorFormat{messagesShape, messagesBodyMembers, messagesErrorMembers, false}},
}

// errorBody is the body in the format of the request's path.
func (x *httpExchange) errorBody(f *fault.Error) []byte {
	format := openAIFormat
	for _, row := range errorFormats {
		if isWithin(x.r.URL.Path, row.prefix) {
			format = row.format
		}
	}
	if own := format.completeUpstream(f, x.response.ID); own != nil {
		return own
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(format.shape(x.response.ID, f)); err != nil {
		return []byte(`{"error":{"message":"The request failed.","type":"api_error","code":"internal_error","param":null}}`)
	}
	return buf.Bytes()
}

// errorObject is the `error` member that the official SDKs read.
type errorObject struct {
	Message string     `json:"message"`
	Type    string     `json:"type"`
	Code    fault.Code `json:"code"`
	Param   *string    `json:"param"`
}

func toErrorObject(f *fault.Error) errorObject {
	o := errorObject{Message: f.Message, Type: fault.Type(f.HTTPStatus()), Code: f.Code}
	if f.Param != "" {
		o.Param = &f.Param
	}
	return o
}

func openAIShape(_ string, f *fault.Error) any {
	return map[string]any{"error": toErrorObject(f)}
}

// plainShape is that of image edits and speech: a refused balance says nothing else.
func plainShape(id string, f *fault.Error) any {
	if f.HTTPStatus() == http.StatusPaymentRequired {
		return map[string]any{"error": map[string]string{"message": "Insufficient balance"}}
	}
	return openAIShape(id, f)
}

// alphaShape is that of image generation; a rate refusal has the vendor's word.
func alphaShape(id string, f *fault.Error) any {
	if f.HTTPStatus() == http.StatusTooManyRequests {
		f = f.With(func(e *fault.Error) { e.Code, e.Status = "Throttling.RateQuota", http.StatusTooManyRequests })
	}
	return struct {
		Code      fault.Code  `json:"code"`
		Message   string      `json:"message"`
		RequestID string      `json:"request_id"`
		Error     errorObject `json:"error"`
	}{f.Code, f.Message, id, toErrorObject(f)}
}

func rerankShape(id string, f *fault.Error) any {
	return struct {
		Message   string      `json:"message"`
		Detail    string      `json:"detail"`
		RequestID string      `json:"request_id"`
		Error     errorObject `json:"error"`
	}{f.Message, f.Message, id, toErrorObject(f)}
}

// responsesShape has the word at which Codex repeats an overloaded request a few times
// only.
func responsesShape(id string, f *fault.Error) any {
	if status := f.HTTPStatus(); status == http.StatusServiceUnavailable {
		f = f.With(func(e *fault.Error) { e.Code, e.Status = "server_is_overloaded", status })
	}
	return openAIShape(id, f)
}

func messagesShape(id string, f *fault.Error) any {
	return json.RawMessage(messagesapi.ErrorBody(id, f))
}

// requiredMember is a member that an upstream's own error must have, and its value
// as JSON where the upstream has none.
type requiredMember struct {
	name  string
	value []byte
	empty bool // an empty string counts as missing
}

func quoted(text string) []byte { return rawjson.Quote(nil, text) }

func openAIMembers(f *fault.Error) []requiredMember {
	return []requiredMember{
		{"message", quoted(f.Message), true}, {"type", quoted(fault.Type(f.HTTPStatus())), false},
		{"code", quoted(string(f.Code)), false}, {"param", []byte("null"), false},
	}
}

func alphaMembers(f *fault.Error) []requiredMember {
	return []requiredMember{{"code", quoted(string(f.Code)), true}, {"message", quoted(f.Message), true}}
}

func rerankMembers(f *fault.Error) []requiredMember {
	return []requiredMember{{"message", quoted(f.Message), true}, {"detail", quoted(f.Message), true}}
}

func messagesBodyMembers(*fault.Error) []requiredMember {
	return []requiredMember{{"type", []byte(`"error"`), false}}
}

func messagesErrorMembers(f *fault.Error) []requiredMember {
	return []requiredMember{
		{"message", quoted(f.Message), true}, {"type", quoted(messagesapi.ErrorType(f.HTTPStatus())), false},
		{"code", quoted(string(f.Code)), false},
	}
}

// addMissing are the edits that complete an object.
func addMissing(o *rawjson.Object, required []requiredMember) []rawjson.Edit {
	var edits []rawjson.Edit
	for _, m := range required {
		raw := o.Raw(m.name)
		if text, ok := rawjson.String(raw); raw == nil || m.empty && (!ok || text == "") {
			edits = append(edits, rawjson.Set(m.name, m.value))
		}
	}
	return edits
}

// completeUpstream is the upstream's own error body with the members that the
// format requires and our request id; nil if there is none that fits.
func (format *errorFormat) completeUpstream(f *fault.Error, id string) []byte {
	if f.Body == nil {
		return nil
	}
	outer, err := rawjson.Index(f.Body, nil, nil)
	if err != nil {
		return nil
	}
	raw := outer.Raw("error")
	if _, isText := rawjson.String(outer.Raw("message")); rawjson.IsNull(raw) && format.flat && isText {
		raw = []byte("{}")
	}
	inner, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil
	}
	edits := []rawjson.Edit{rawjson.Set("error", inner.Apply(nil, addMissing(&inner, format.inner(f))...))}
	if format.outer != nil {
		edits = append(edits, addMissing(&outer, format.outer(f))...)
	}
	if format.outer != nil || outer.Raw("request_id") != nil {
		edits = append(edits, rawjson.Set("request_id", quoted(id)))
	}
	return outer.Apply(nil, edits...)
}
