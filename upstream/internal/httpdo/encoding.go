package httpdo

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxDecoded is how much a compressed answer may unfold to (faults.md, row 9).
const maxDecoded = 256 << 20

var errTooLarge = errors.New("the compressed answer is too large")

// Decoded is the response's body without a compression that nobody asked for.
func Decoded(resp *http.Response) (io.ReadCloser, error) {
	given := resp.Header.Values("Content-Encoding")
	if len(given) == 0 {
		return resp.Body, nil
	}
	switch e := strings.ToLower(strings.Join(given, ", ")); e {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		return &inflated{src: resp.Body, left: maxDecoded}, nil
	default:
		if len(e) > 16 { // no name of a coding, and not to be cut before keys are masked
			return nil, fmt.Errorf("a content encoding of %d bytes was not asked for", len(e))
		}
		return nil, fmt.Errorf("content encoding %q was not asked for", e)
	}
}

// inflated is a body under gzip. It reads nothing before its first Read, so
// that a stream's headers do not wait for its first byte.
type inflated struct {
	src  io.ReadCloser
	zip  *gzip.Reader
	left int64
}

// Read unfolds until the limit.
func (b *inflated) Read(p []byte) (n int, err error) {
	if b.zip == nil {
		if b.zip, err = gzip.NewReader(b.src); err != nil {
			return 0, b.cut(err)
		}
	}
	n, err = b.zip.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// cut keeps an answer of no bytes at all from looking like an empty one.
func (b *inflated) cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close closes the vendor's body.
func (b *inflated) Close() error { return b.src.Close() }
