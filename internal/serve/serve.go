// Package serve holds what an upstream that is a Go function has in common with
// every other.
package serve

import (
	"bytes"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is the typed view of a call; parsed from the body where the call came
// without one.
func Request[R any](call *upstream.Call, parse func([]byte) (*R, error)) (*R, error) {
	if r, ok := call.Request.(*R); ok {
		return r, nil
	}
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.From(err)
	}
	return parse(data)
}

// JSON answers with a document.
func JSON(answer any) (*upstream.Reply, error) {
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The model's answer cannot be written as JSON.", err)
	}
	return Reply("application/json", io.NopCloser(bytes.NewReader(data))), nil
}

// Reply answers with a body.
func Reply(contentType string, body io.ReadCloser) *upstream.Reply {
	return &upstream.Reply{Status: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: body}
}
