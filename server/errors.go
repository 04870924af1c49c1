package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// writeError is the one place where an error is written.
func (x *exchange) writeError(err error) {
	f := fault.From(err)
	if x.audio.started() {
		return // ServeHTTP breaks the connection off
	}
	if x.stream.started() {
		x.stream.fail(f)
		return
	}
	errorHeaders(x.w.Header(), f)
	x.write(f.HTTPStatus(), "application/json", x.errorBody(f))
}

// errorHeaders are the headers that tell a client what to do next
// (decisions.md, Error bodies).
func errorHeaders(h http.Header, f *fault.Error) {
	status := f.HTTPStatus()
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusPaymentRequired, http.StatusForbidden:
	default:
		if f.RetryAfter > 0 {
			setRetryAfter(h, f.RetryAfter)
		}
	}
	switch f.Retry {
	case fault.RetryYes:
		h.Set("X-Should-Retry", "true")
	case fault.RetryNo:
		h.Set("X-Should-Retry", "false")
	}
}

// setRetryAfter gives whole seconds, at least one, and milliseconds.
func setRetryAfter(h http.Header, d time.Duration) {
	seconds := max((d+time.Second-1)/time.Second, 1)
	h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(max(d.Milliseconds(), 1), 10))
}

// shape writes an error in the form of an endpoint.
type shape func(requestID string, f *fault.Error) any

// shapes says which paths have a form of their own (decisions.md, Error
// bodies); every other path has OpenAI's.
var shapes = []struct {
	prefix string
	shape  shape
	flat   bool // an upstream's body gets the alpha form's members beside `error`
}{
	{"/v1/images/generations", alphaShape, true},
	{"/v1/images/edits", plainShape, false},
	{"/v1/audio/speech", plainShape, false},
	{"/v1/messages", messagesShape, false},
}

// errorBody is the body in the form of the request's path.
func (x *exchange) errorBody(f *fault.Error) []byte {
	form, flat := openAIShape, false
	for _, s := range shapes {
		if rest, ok := strings.CutPrefix(x.r.URL.Path, s.prefix); ok && (rest == "" || rest[0] == '/') {
			form, flat = s.shape, s.flat
		}
	}
	if own := upstreamBody(f, x.ID, flat); own != nil {
		return own
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(form(x.ID, f)); err != nil {
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

func object(f *fault.Error) errorObject {
	o := errorObject{Message: f.Message, Type: fault.Type(f.HTTPStatus()), Code: f.Code}
	if f.Param != "" {
		o.Param = &f.Param
	}
	return o
}

func openAIShape(_ string, f *fault.Error) any {
	return map[string]any{"error": object(f)}
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
	}{f.Code, f.Message, id, object(f)}
}

// messagesTypes are the vendor's type names on /v1/messages.
var messagesTypes = map[int]string{
	401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
}

func messagesShape(id string, f *fault.Error) any {
	type errorMember struct {
		Type    string     `json:"type"`
		Message string     `json:"message"`
		Code    fault.Code `json:"code"`
	}
	kind, ok := messagesTypes[f.HTTPStatus()]
	if !ok {
		kind = fault.Type(f.HTTPStatus())
	}
	return struct {
		Type      string      `json:"type"`
		Error     errorMember `json:"error"`
		RequestID string      `json:"request_id"`
	}{"error", errorMember{kind, f.Message, f.Code}, id}
}

// upstreamBody is an upstream's own error body with the members added that the
// public form needs and our request id; nil if there is none that fits. The form
// is OpenAI's or, where it is flat, also that of the alpha family.
func upstreamBody(f *fault.Error, id string, flat bool) []byte {
	if f.Body == nil {
		return nil
	}
	outer, err := rawjson.Index(f.Body, nil, nil)
	if err != nil {
		return nil
	}
	inner := outer.Raw("error")
	if _, said := rawjson.String(outer.Raw("message")); rawjson.IsNull(inner) && flat && said {
		inner = []byte("{}")
	}
	inner = completed(inner, f)
	if inner == nil {
		return nil
	}
	edits := []rawjson.Edit{rawjson.Set("error", inner)}
	for _, m := range [...]struct{ name, value string }{{"code", string(f.Code)}, {"message", f.Message}} {
		if said, ok := rawjson.String(outer.Raw(m.name)); flat && (!ok || said == "") {
			edits = append(edits, rawjson.Set(m.name, rawjson.Quote(nil, m.value)))
		}
	}
	if flat || outer.Raw("request_id") != nil {
		edits = append(edits, rawjson.Set("request_id", rawjson.Quote(nil, id)))
	}
	return outer.Apply(nil, edits...)
}

// completed is an `error` object with the members that it lacks; nil if raw is
// no object.
func completed(raw []byte, f *fault.Error) []byte {
	inner, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil
	}
	var add []rawjson.Edit
	if s, ok := rawjson.String(inner.Raw("message")); !ok || s == "" {
		add = append(add, rawjson.Set("message", rawjson.Quote(nil, f.Message)))
	}
	for _, m := range [...]struct{ name, value string }{
		{"type", string(rawjson.Quote(nil, fault.Type(f.HTTPStatus())))},
		{"code", string(rawjson.Quote(nil, string(f.Code)))},
		{"param", "null"},
	} {
		if inner.Raw(m.name) == nil {
			add = append(add, rawjson.Set(m.name, []byte(m.value)))
		}
	}
	return inner.Apply(nil, add...)
}
