package mcp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
)

// The codes of JSON-RPC that refusals have: the request is none, or the server's
// own reasons, which the data tells apart.
const (
	invalidRequest = -32600
	ownReason      = -32000
)

// refuseRequest answers an HTTP request that no message comes of, with the
// status and the headers of the API and a JSON-RPC error without an id.
func refuseRequest(w *writer, x *gateway.Exchange, err error) {
	if w.sent() != 0 {
		return
	}
	f := fault.From(err)
	status := f.HTTPStatus()
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if d := wait(f); d > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10))
	}
	code := ownReason
	if status == http.StatusBadRequest {
		code = invalidRequest
	}
	answer := map[string]any{
		"jsonrpc": "2.0", "id": nil,
		"error": map[string]any{"code": code, "message": string(f.Code) + ": " + reworded(f.Message), "data": about(x.ID, f)},
	}
	data, err := json.Marshal(answer, json.Deterministic(true))
	if err != nil {
		data = []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"The request failed."}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that does not take it is its own loss
}
