package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/tollhouse-ai/gateway/fault"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
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

// errorFormat is how an endpoint writes errors, so that the official SDK of the endpoint
// can read the gateway's own and an upstream's.
type errorFormat struct {
	shape func(requestID string, f *fault.Error) any
	flat  bool // an upstream's body without `error` is one all the same
}

// errorBody is the body in the format of the request's client: an upstream's own with what
// it lacks, or the gateway's.
func (x *httpExchange) errorBody(f *fault.Error) []byte {
	format := x.dialect.errors
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(format.shape(x.entry.ID, f)); err != nil {
		return []byte(`{"error":{"message":"The request failed.","type":"api_error","code":"internal_error","param":null}}`)
	}
	if f.Body != nil {
		if body := complete(f.Body, buf.Bytes(), x.entry.ID, format.flat); body != nil {
			return body
		}
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

// toErrorObject is an error as OpenAI's clients read it; param is null where no field is
// named.
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
	if f.Code == fault.InsufficientBalance {
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

// rerankShape has the same message three times, since each of the clients reads another
// member.
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
	return json.RawMessage(messagesop.ErrorBody(id, f))
}

// complete is an upstream's own error body with the members of the gateway's that it lacks,
// and our request id. It is nil if the body does not fit.
func complete(upstreams, gateways []byte, id string, flat bool) []byte {
	outer, err := rawjson.Index(upstreams, nil, nil)
	ours, ourErr := rawjson.Index(gateways, nil, nil)
	if err != nil || ourErr != nil {
		return nil
	}
	raw := outer.Raw("error")
	if _, isText := rawjson.String(outer.Raw("message")); rawjson.IsNull(raw) && flat && isText {
		raw = []byte("{}")
	}
	inner, err := rawjson.Index(raw, nil, nil)
	ourInner, ourErr := rawjson.Index(ours.Raw("error"), nil, nil)
	if err != nil || ourErr != nil {
		return nil
	}
	ours.Members = slices.DeleteFunc(ours.Members, func(m rawjson.Member) bool { return m.Name == "error" })
	edits := append(missing(&outer, &ours, "message", "detail", "code"), rawjson.Set("error", inner.Apply(nil, missing(&inner, &ourInner, "message")...)))
	if ours.Raw("request_id") != nil || outer.Raw("request_id") != nil {
		edits = append(edits, rawjson.Set("request_id", rawjson.Quote(nil, id)))
	}
	return outer.Apply(nil, edits...)
}

// missing are the edits that give an object the members of ours that it lacks. Those that
// are named it lacks too where they are no text, or an empty one.
func missing(o, ours *rawjson.Object, texts ...string) (edits []rawjson.Edit) {
	for _, m := range ours.Members {
		raw := o.Raw(m.Name)
		if text, ok := rawjson.String(raw); raw == nil || slices.Contains(texts, m.Name) && (!ok || text == "") {
			edits = append(edits, rawjson.Set(m.Name, m.Value.Of(ours.Src)))
		}
	}
	return edits
}
