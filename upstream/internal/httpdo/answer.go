package httpdo

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Dialect is how a vendor words its errors.
type Dialect struct {
	// Refused makes the error of an error body: the caller's fault, the
	// operator's or the vendor's.
	Refused func(status int, data []byte, h http.Header) error
	// Status is what the error in a body would have come with, had the vendor
	// not said 200; 0 if the body is no error.
	Status func(data []byte) int
}

// Answer turns a response into a Reply whose body streams, or into an error,
// and closes the body of what it does not hand on. stream says that events were
// asked for.
func (c *Client) Answer(resp *http.Response, stream bool, d Dialect) (*upstream.Reply, error) {
	body, err := c.Body(resp, d.Refused)
	if err != nil {
		return nil, err
	}
	if stream {
		if err := c.checkStream(resp, body, d); err != nil {
			return nil, err
		}
	}
	reply := &upstream.Reply{Status: resp.StatusCode, Header: allowed(resp.Header), Body: body}
	if stream { // the transport keeps the response as long as it lasts
		resp.Request, resp.Header = nil, nil
	}
	return reply, nil
}

// checkStream refuses what is no stream of events. Some vendors answer a
// streamed request with an error object in a 200; some name no type at all.
func (c *Client) checkStream(resp *http.Response, body io.ReadCloser, d Dialect) error {
	given := resp.Header.Get("Content-Type")
	if given == "" || given == "text/event-stream" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(given)
	switch {
	case err == nil && kind == "text/event-stream":
		return nil
	case err == nil && kind == "application/json":
		data := Read(body)
		if status := d.Status(data); status != 0 {
			return d.Refused(status, data, resp.Header)
		}
		return c.Malformed(resp.StatusCode, errors.New("a streamed request was answered with one JSON document"))
	}
	_ = body.Close()
	return c.Malformed(resp.StatusCode, fmt.Errorf("a streamed request was answered with content type %q", c.Excerpt(given)))
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

// Words are what a vendor says of an error.
type Words struct {
	Code    fault.Code
	Message string
	Param   string
	Body    []byte // the vendor's own, if it has the form of the public wire
}

// Quote puts a vendor's words into the error of a 4xx that is the caller's
// fault, keys masked. A body that holds a key is not passed on.
func (c *Client) Quote(e *fault.Error, w Words) {
	e.Code, e.Param = fault.Code(c.Keys.Mask(string(w.Code))), c.Keys.Mask(w.Param)
	message := c.Keys.Mask(w.Message)
	if message != "" {
		e.Message = message
	}
	clean := message == w.Message && c.Keys.Mask(string(w.Body)) == string(w.Body)
	if message != "" && clean {
		e.Body = w.Body
	}
}
