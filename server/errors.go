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
	"github.com/tollhouse-ai/gateway/messages"
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
	errorHeaders(x.w.Header(), f, x.maxRetryAfter())
	x.write(f.HTTPStatus(), "application/json", x.errorBody(f))
}

// errorHeaders are the headers that tell a client what to do next
// (decisions.md, Error bodies).
func errorHeaders(h http.Header, f *fault.Error, longest time.Duration) {
	status := f.HTTPStatus()
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusPaymentRequired, http.StatusForbidden:
	default:
		if f.RetryAfter > 0 {
			setRetryAfter(h, min(f.RetryAfter, longest))
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

// form is how an endpoint writes errors: its own, and an upstream's with what is
// missing added (decisions.md, Error bodies).
type errorFormat struct {
	shape func(requestID string, f *fault.Error) any
	outer requiredMembers // of the body; where there are some, request_id is one too
	inner requiredMembers // of `error`
	flat  bool            // a body without `error` is one all the same
}

// openAIForm is that of every path which has none of its own.
var openAIFormat = errorFormat{shape: openAIShape, inner: openAIMembers}

var errorFormats = []struct {
	prefix string
	form   errorFormat
}{
	{"/v1/images/generations", errorFormat{alphaShape, alphaMembers, openAIMembers, true}},
	{"/v1/images/edits", errorFormat{shape: plainShape, inner: openAIMembers}},
	{"/v1/audio/speech", errorFormat{shape: plainShape, inner: openAIMembers}},
	{"/v1/messages", errorFormat{messagesShape, messageMembers, messageErrorMembers, false}},
}

// errorBody is the body in the form of the request's path.
func (x *exchange) errorBody(f *fault.Error) []byte {
	form := openAIFormat
	for _, row := range errorFormats {
		if rest, ok := strings.CutPrefix(x.r.URL.Path, row.prefix); ok && (rest == "" || rest[0] == '/') {
			form = row.form
		}
	}
	if own := form.completeUpstream(f, x.ID); own != nil {
		return own
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(form.shape(x.ID, f)); err != nil {
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

func messagesShape(id string, f *fault.Error) any {
	return json.RawMessage(messages.ErrorBody(id, f))
}

// members are what an upstream's own error must have, in order: the name and,
// where it is missing, the value.
type requiredMembers []requiredMember

type requiredMember struct {
	name  string
	value func(f *fault.Error) []byte
	empty bool // an empty string counts as missing
}

func quoted(text func(f *fault.Error) string) func(*fault.Error) []byte {
	return func(f *fault.Error) []byte { return rawjson.Quote(nil, text(f)) }
}

func literal(raw string) func(*fault.Error) []byte {
	return func(*fault.Error) []byte { return []byte(raw) }
}

func messageOf(f *fault.Error) string     { return f.Message }
func codeOf(f *fault.Error) string        { return string(f.Code) }
func typeOf(f *fault.Error) string        { return fault.Type(f.HTTPStatus()) }
func messageTypeOf(f *fault.Error) string { return messages.ErrorType(f.HTTPStatus()) }

var (
	message = requiredMember{"message", quoted(messageOf), true}

	openAIMembers = requiredMembers{
		message, {name: "type", value: quoted(typeOf)}, {name: "code", value: quoted(codeOf)}, {name: "param", value: literal("null")},
	}
	alphaMembers        = requiredMembers{{"code", quoted(codeOf), true}, message}
	messageMembers      = requiredMembers{{name: "type", value: literal(`"error"`)}}
	messageErrorMembers = requiredMembers{message, {name: "type", value: quoted(messageTypeOf)}, {name: "code", value: quoted(codeOf)}}
)

// missing are the edits that complete an object.
func (all requiredMembers) missing(o *rawjson.Object, f *fault.Error) []rawjson.Edit {
	var edits []rawjson.Edit
	for _, m := range all {
		raw := o.Raw(m.name)
		if said, ok := rawjson.String(raw); raw == nil || m.empty && (!ok || said == "") {
			edits = append(edits, rawjson.Set(m.name, m.value(f)))
		}
	}
	return edits
}

// own is an upstream's own error body with the members that the form needs and
// our request id; nil if there is none that fits.
func (form *errorFormat) completeUpstream(f *fault.Error, id string) []byte {
	if f.Body == nil {
		return nil
	}
	outer, err := rawjson.Index(f.Body, nil, nil)
	if err != nil {
		return nil
	}
	raw := outer.Raw("error")
	if _, said := rawjson.String(outer.Raw("message")); rawjson.IsNull(raw) && form.flat && said {
		raw = []byte("{}")
	}
	inner, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil
	}
	edits := []rawjson.Edit{rawjson.Set("error", inner.Apply(nil, form.inner.missing(&inner, f)...))}
	edits = append(edits, form.outer.missing(&outer, f)...)
	if form.outer != nil || outer.Raw("request_id") != nil {
		edits = append(edits, rawjson.Set("request_id", rawjson.Quote(nil, id)))
	}
	return outer.Apply(nil, edits...)
}
