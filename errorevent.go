package gateway

import (
	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// AppendError appends the event that ends a broken stream of the exchange, in
// the form of its operation.
func (x *Exchange) AppendError(dst []byte, err error) []byte {
	if x.record.op == upstream.Messages {
		return messages.ErrorEvent(dst, x.ID, fault.From(err))
	}
	return appendErrorEvent(dst, err)
}

// appendErrorEvent appends OpenAI's form: `error` is the first key, nothing
// stands before it, and no terminator follows (decisions.md, Chat).
func appendErrorEvent(dst []byte, err error) []byte {
	type body struct {
		Message string     `json:"message"`
		Type    string     `json:"type"`
		Code    fault.Code `json:"code"`
		Param   *string    `json:"param"`
	}
	f := fault.From(err)
	b := body{Message: f.Message, Type: fault.Type(f.HTTPStatus()), Code: f.Code}
	if f.Param != "" {
		b.Param = &f.Param
	}
	data, marshalErr := json.Marshal(struct {
		Error body `json:"error"`
	}{b})
	if marshalErr != nil { // invalid UTF-8 in a message
		data = []byte(`{"error":{"message":"The stream failed.","type":"api_error","code":"internal_error","param":null}}`)
	}
	dst = append(dst, "data: "...)
	dst = append(dst, data...)
	return append(dst, "\n\n"...)
}
