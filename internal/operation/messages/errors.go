package messages

import (
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// errorTypes are the vendor's type names for statuses, where they are not those of
// the rest of the API.
var errorTypes = map[int]string{
	402: "billing_error", 404: "not_found_error", 413: "request_too_large",
	503: "overloaded_error", 504: "timeout_error", 529: "overloaded_error",
}

// ErrorType is the vendor's type name of an error with an HTTP status.
func ErrorType(status int) string {
	if kind, ok := errorTypes[status]; ok {
		return kind
	}
	return fault.Type(status)
}

// errorBody is an error on the wire.
type errorBody struct {
	Type      string      `json:"type"`
	Error     errorObject `json:"error"`
	RequestID string      `json:"request_id,omitzero"`
}

type errorObject struct {
	Type    string     `json:"type"`
	Message string     `json:"message"`
	Code    fault.Code `json:"code,omitzero"`
}

// ErrorBody is the JSON of an error in the vendor's shape.
func ErrorBody(requestID string, f *fault.Error) []byte {
	data, err := json.Marshal(errorBody{"error", errorObject{ErrorType(f.HTTPStatus()), f.Message, f.Code}, requestID})
	if err != nil { // invalid UTF-8 in a message
		return []byte(`{"type":"error","error":{"type":"api_error","message":"The request failed.","code":"internal_error"}}`)
	}
	return data
}

// ErrorEvent appends the event that ends a broken stream.
func ErrorEvent(dst []byte, requestID string, f *fault.Error) []byte {
	return sse.AppendEvent(dst, "error", ErrorBody(requestID, f))
}

// quotedTypes are the vendor's error types whose words the client gets, besides those of
// errors that are its own fault. All others may be about the vendor account.
var quotedTypes = []string{"rate_limit_error", "api_error", "timeout_error", "overloaded_error"}

// vendorError is the error that an upstream put into a stream. The caller gets
// the vendor's words, for agents act on them; the log gets the type alone.
func vendorError(raw []byte) error {
	err := answer.ErrorFrame(raw)
	f, _ := upstream.FailureOf(err)
	kind := rawjson.LookupString(raw, "type")
	if message := answer.Words(raw); message != "" && !f.Fatal && slices.Contains(quotedTypes, kind) {
		return fault.From(err).With(func(e *fault.Error) { e.Message = message })
	}
	return err
}
