package openai

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/tollhouse-ai/gateway/upstream"
)

// maxRefusal is how much of an error body is read.
const maxRefusal = 64 << 10

// answer turns a response into a Reply or an error, and closes the body of what
// it does not hand on.
func (u *Upstream) answer(call *upstream.Call, resp *http.Response) (*upstream.Reply, error) {
	body, err := decoded(resp)
	if err != nil {
		_ = resp.Body.Close()
		return nil, u.malformed(resp.StatusCode, err)
	}
	switch s := resp.StatusCode; {
	case s >= 400:
		return nil, u.refusal(resp, body)
	case s < 200 || s >= 300:
		_ = body.Close()
		return nil, u.malformed(s, fmt.Errorf("unexpected status, location %q", resp.Header.Get("Location")))
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
		data := read(body)
		if v, ok := parseError(data); ok {
			return u.refused(v.status(), v, data, resp.Header)
		}
		return u.malformed(resp.StatusCode, errors.New("a streamed request was answered with one JSON document"))
	}
	_ = body.Close()
	return u.malformed(resp.StatusCode, fmt.Errorf("a streamed request was answered with content type %q", clip(given)))
}

// read reads and closes an error body; as far as it goes if it is cut.
func read(body io.ReadCloser) []byte {
	data, _ := io.ReadAll(io.LimitReader(body, maxRefusal+1))
	_ = body.Close()
	return data
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
