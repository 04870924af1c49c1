package httpdo

import (
	"io"
	"net/http"
	"net/url"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Below are the addresses of operations, whose paths are added to the base.
func (c *Client) Below(paths map[upstream.Op]string) map[upstream.Op]*url.URL {
	all := make(map[upstream.Op]*url.URL, len(paths))
	for op, path := range paths {
		all[op] = c.Base.JoinPath(path)
	}
	return all
}

// Unserved is the error of a call for an operation that the driver does not
// support.
func Unserved() error {
	return fault.New(fault.InternalError, "The gateway sent the request to a channel that cannot serve it.")
}

// Body is the decoded body of a good answer, or the error of any other, whose
// body it closes. refused makes the error of an error body.
func (c *Client) Body(resp *http.Response, refused func(status int, data []byte, h http.Header) error) (io.ReadCloser, error) {
	body, err := Decoded(resp)
	switch s := resp.StatusCode; {
	case err != nil:
		_ = resp.Body.Close() // nothing of it is read
		return nil, c.Malformed(s, err)
	case s >= 400:
		return nil, refused(s, Read(body), resp.Header)
	case s < 200 || s >= 300:
		_ = body.Close() // nothing of it is read
		return nil, c.Unexpected(resp)
	}
	return body, nil
}

// Reply is [Client.Answer] of a call that was made with the key, which it tells
// how it did.
func (c *Client) Reply(resp *http.Response, key *upstream.Key, stream bool, d Dialect) (*upstream.Reply, error) {
	reply, err := c.Answer(resp, stream, d)
	Judge(key, err)
	return reply, err
}
