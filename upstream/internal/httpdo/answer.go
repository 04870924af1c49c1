package httpdo

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Reply turns a response into a Reply whose body streams, or into an error, which it reports
// to the key. It closes the body of what it does not hand on. err is the error of
// [Client.Post] or [Client.Get].
func (c *Client) Reply(call *upstream.Call, resp *http.Response, key *upstream.Key, err error) (*upstream.Reply, error) {
	if err != nil {
		return nil, err
	}
	body, err := c.Body(resp)
	if err != nil {
		if !upstream.LimitOfStored(call.Op, err) {
			key.Report(call, err)
		}
		return nil, err
	}
	reply := &upstream.Reply{Status: resp.StatusCode, Header: clientHeader(resp.Header), Body: body, Key: key.ID(), Used: key, Moved: key.Moved(call)}
	if len(resp.Header["Retry-After"])+len(resp.Header["Retry-After-Ms"]) > 0 {
		reply.RetryAfter = retryAfter(resp.Header, c.now())
	}
	if call.Stream { // the transport keeps the response as long as it lasts
		resp.Request, resp.Header = nil, nil
	}
	return reply, nil
}

// clientHeader are the headers that may reach a client, made anew so that nothing
// hides in them.
func clientHeader(h http.Header) http.Header {
	given := h.Get("Content-Type")
	switch given {
	case "application/json", "text/event-stream":
		return http.Header{"Content-Type": h["Content-Type"][:1:1]}
	}
	kind, params, err := mime.ParseMediaType(given)
	if err != nil {
		return nil
	}
	return http.Header{"Content-Type": {mime.FormatMediaType(kind, params)}}
}

// VendorError is what a vendor says of an error.
type VendorError struct {
	Code    fault.Code
	Message string
	Param   string
	Body    []byte // the vendor's own, if it has the form of the public wire
	Said    []byte // the body in any form; its words count if Message is empty
}

// QuoteError puts a vendor's text into the error of a 4xx that is the caller's
// fault, keys masked. A body that holds a key is not passed on.
func (c *Client) QuoteError(e *fault.Error, w VendorError) {
	e.Code, e.Param = fault.Code(c.Keys.Mask(string(w.Code))), c.Keys.Mask(w.Param)
	if w.Message == "" {
		w.Message = answer.Words([]byte(c.Keys.Mask(string(w.Said)))) // masked before it is cut
	}
	message := c.Keys.Mask(w.Message)
	if message != "" {
		e.Message = message
	}
	clean := message == w.Message && len(w.Body) <= MaxRefusal && c.Keys.Mask(string(w.Body)) == string(w.Body)
	if message != "" && clean {
		e.Body = w.Body
	}
}

// Body is the decoded body of a good answer, or the error of any other, whose
// body it closes.
func (c *Client) Body(resp *http.Response) (io.ReadCloser, error) {
	body, err := Decompress(resp)
	switch s := resp.StatusCode; {
	case err != nil:
		_ = resp.Body.Close() // nothing of it is read
		return nil, c.Malformed(s, err)
	case s >= 400:
		return nil, c.vendor.Refused(c, s, readRefusal(body), resp.Header)
	case s < 200 || s >= 300:
		_ = body.Close()                                                // nothing of it is read
		location, _, _ := strings.Cut(resp.Header.Get("Location"), "?") // the rest may have the key in other letters
		return nil, c.Malformed(s, fmt.Errorf("unexpected status, location %q", c.Excerpt(location)))
	}
	return body, nil
}

// Memory is what a call has reserved for what its driver keeps. Close gives it back.
type Memory struct {
	call     *upstream.Call
	releases []func()
}

// Close gives the memory back.
func (m *Memory) Close() error {
	for _, release := range m.releases {
		release()
	}
	m.releases = nil
	return nil
}

// reserve waits for n more bytes.
func (m *Memory) reserve(ctx context.Context, n int64) error {
	if m.call.Reserve == nil {
		return nil
	}
	release, err := m.call.Reserve(ctx, n)
	if err == nil {
		m.releases = append(m.releases, release)
	}
	return err
}

// ReadReserved reads a body of at most so many bytes, and one more, and closes it. The part
// above a small answer is reserved before it is read. It is reserved twice, because the answer
// is copied. The caller closes the memory when it is done with the answer.
func ReadReserved(ctx context.Context, call *upstream.Call, body io.ReadCloser, most int64) (data []byte, memory *Memory, err error) {
	const small, copies = 1 << 20, 2
	memory = &Memory{call: call}
	defer body.Close()
	var buf bytes.Buffer
	for allowed := min(small, most+1); ; {
		if _, err := buf.ReadFrom(io.LimitReader(body, allowed-int64(buf.Len()))); err != nil {
			_ = memory.Close()
			return nil, memory, err
		}
		if int64(buf.Len()) < allowed || allowed > most {
			return buf.Bytes(), memory, nil
		}
		more := min(allowed, most+1-allowed)
		if err := memory.reserve(ctx, copies*more); err != nil {
			_ = memory.Close()
			return nil, memory, err
		}
		allowed += more
	}
}

// readDocument returns the whole body of a good answer, of at most most bytes, or the error of
// any other.
func (c *Client) readDocument(ctx context.Context, call *upstream.Call, resp *http.Response, most int64) ([]byte, *Memory, error) {
	body, err := c.Body(resp)
	if err != nil {
		return nil, nil, err
	}
	data, memory, err := ReadReserved(ctx, call, body, most)
	data = rawjson.TrimBOM(data)
	switch {
	case err != nil:
		return nil, nil, c.BrokenOff(ctx, resp.StatusCode, err)
	case int64(len(data)) > most:
		_ = memory.Close()
		return nil, nil, c.Malformed(resp.StatusCode, fmt.Errorf("the answer has more than %d bytes", most))
	}
	return data, memory, nil
}

// BrokenOff is the error of a good answer whose body could not be read to its end.
func (c *Client) BrokenOff(ctx context.Context, status int, err error) error {
	if ctx.Err() != nil {
		return fault.From(ctx.Err()).With(func(e *fault.Error) {
			e.Err = &upstream.Failure{Status: status, Sent: true, Err: err}
		})
	}
	return c.Malformed(status, err)
}

// Translate makes a vendor's document the public wire's. An error that is no fault means that
// the document is malformed.
type Translate func(data []byte, h http.Header) ([]byte, error)

// Exchange posts a body and replies with the whole answer, which may have most bytes. dropped
// names the fields that the body lacks. A nil translate leaves the answer as it is, for the
// gateway to check.
func (c *Client) Exchange(ctx context.Context, call *upstream.Call, body upstream.Body, dropped []string, most int64, translate Translate) (*upstream.Reply, error) {
	to, err := c.URL(call.Op)
	if err != nil {
		return nil, err
	}
	resp, key, err := c.Post(ctx, call, to, Header("application/json", "application/json"), body)
	reply, err := c.Document(ctx, call, resp, key, err, most, translate)
	if err == nil {
		reply.Dropped = dropped
	}
	return reply, err
}

// Document turns a response into a Reply of the whole answer, as [Client.Exchange] does. It
// turns a refusal into an error, which it reports to the key. err is the error of
// [Client.Post] or [Client.Get].
func (c *Client) Document(ctx context.Context, call *upstream.Call, resp *http.Response, key *upstream.Key, err error, most int64, translate Translate) (*upstream.Reply, error) {
	if err != nil {
		return nil, err
	}
	data, memory, err := c.readDocument(ctx, call, resp, most)
	if err == nil && translate != nil {
		data, err = translate(data, resp.Header)
		if e := (*fault.Error)(nil); err != nil && !errors.As(err, &e) {
			err = c.Malformed(resp.StatusCode, err)
		}
	}
	if err != nil {
		key.Report(call, err)
		if memory != nil {
			_ = memory.Close()
		}
		return nil, err
	}
	return &upstream.Reply{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: Kept{bytes.NewReader(data), memory}, Key: key.ID(), Used: key,
	}, nil
}

// Kept is the body of an answer that lies in memory.
type Kept struct {
	io.Reader
	io.Closer // of its memory
}

// MaxRanking is how much of a ranking is read: 10,000 results take a tenth of it.
const MaxRanking = 16 << 20

// DropFields leaves members out of a body, and lists those that have a value.
func DropFields(body upstream.Body, names ...string) (_ upstream.Body, dropped []string) {
	if !body.IsObject() {
		return body, nil
	}
	for _, name := range names {
		if !rawjson.IsNull(body.Raw(name)) {
			dropped = append(dropped, name)
		}
		body = body.Delete(name)
	}
	return body, dropped
}

// maxDecoded is how much a compressed answer may decompress to (docs/reference/faults.md, row 9).
const maxDecoded = 256 << 20

var errTooLarge = errors.New("the compressed answer is too large")

// Decompress is the response's body without a compression that was not asked for.
func Decompress(resp *http.Response) (io.ReadCloser, error) {
	given := resp.Header.Values("Content-Encoding")
	if len(given) == 0 {
		return resp.Body, nil
	}
	switch e := strings.ToLower(strings.Join(given, ", ")); e {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		return &gzipBody{body: resp.Body, left: maxDecoded}, nil
	default:
		if len(e) > 16 { // no name of a coding, and not to be cut before keys are masked
			return nil, fmt.Errorf("a content encoding of %d bytes was not asked for", len(e))
		}
		return nil, fmt.Errorf("content encoding %q was not asked for", e)
	}
}

// gzipBody is a body under gzip. It reads nothing before its first Read, so
// that a stream's headers do not wait for its first byte.
type gzipBody struct {
	body   io.ReadCloser
	reader *gzip.Reader
	left   int64
}

// Read decompresses until the limit.
func (b *gzipBody) Read(p []byte) (n int, err error) {
	if b.reader == nil {
		if b.reader, err = gzip.NewReader(b.body); err != nil {
			if err == io.EOF { // an answer of no bytes at all is no empty one
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	n, err = b.reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// Close closes the vendor's body.
func (b *gzipBody) Close() error { return b.body.Close() }
