package openai

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/httpdo"
)

// answer turns a response into a Reply or an error, and closes the body of what
// it does not hand on.
func (u *Upstream) answer(call *upstream.Call, resp *http.Response) (*upstream.Reply, error) {
	body, err := httpdo.Decoded(resp)
	if err != nil {
		_ = resp.Body.Close()
		return nil, u.client.Malformed(resp.StatusCode, err)
	}
	switch s := resp.StatusCode; {
	case s >= 400:
		return nil, u.refusal(resp, body)
	case s < 200 || s >= 300:
		_ = body.Close()
		return nil, u.client.Unexpected(resp)
	case call.Stream:
		if err := u.checkStream(resp, body); err != nil {
			return nil, err
		}
	}
	return &upstream.Reply{Status: resp.StatusCode, Header: allowed(resp.Header), Body: body}, nil
}

// checkStream refuses what is no stream of events. Some vendors answer a
// streamed request with an error object in a 200; some name no type at all.
func (u *Upstream) checkStream(resp *http.Response, body io.ReadCloser) error {
	given := resp.Header.Get("Content-Type")
	if given == "" || given == "text/event-stream" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(given)
	switch {
	case err == nil && kind == "text/event-stream":
		return nil
	case err == nil && kind == "application/json":
		data := httpdo.Read(body)
		if v, ok := parseError(data); ok {
			return u.refused(v.status(), v, data, resp.Header)
		}
		return u.client.Malformed(resp.StatusCode, errors.New("a streamed request was answered with one JSON document"))
	}
	_ = body.Close()
	return u.client.Malformed(resp.StatusCode, fmt.Errorf("a streamed request was answered with content type %q", httpdo.Clip(given)))
}

// allowed are the headers that may reach a client, made anew so that nothing
// hides in them.
func allowed(h http.Header) http.Header {
	given := h.Get("Content-Type")
	switch given {
	case "application/json", "text/event-stream":
		return http.Header{"Content-Type": {given}}
	}
	kind, params, err := mime.ParseMediaType(given)
	if err != nil {
		return nil
	}
	return http.Header{"Content-Type": {mime.FormatMediaType(kind, params)}}
}
