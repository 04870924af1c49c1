package formdata

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/textproto"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/fault"
)

// window is how much of a body is looked at at a time.
const window = 64 << 10

// scanner finds the boundaries of a form. After content and until head, the
// reader stands behind a boundary.
type scanner struct {
	in        *bufio.Reader
	delimiter []byte // "\r\n--boundary"
	last      bool   // the boundary was the last
}

func newScanner(body io.Reader, boundary string) *scanner {
	// What stands before the first part is scanned as a content is, which ends
	// with a line break.
	in := readers.Get().(*bufio.Reader)
	in.Reset(io.MultiReader(strings.NewReader("\r\n"), body))
	return &scanner{in: in, delimiter: []byte("\r\n--" + boundary)}
}

// readers are those of forms that were read.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, window) }}

// release lets go of the body.
func (s *scanner) release() {
	s.in.Reset(nil)
	readers.Put(s.in)
}

// content writes what stands before the next boundary to w.
func (s *scanner) content(w io.Writer) error {
	for {
		_, err := s.in.Peek(len(s.delimiter) + 2) // which waits for more than a boundary
		ahead, _ := s.in.Peek(s.in.Buffered())
		at := bytes.Index(ahead, s.delimiter)
		switch {
		case at >= 0:
			if found, err := s.boundary(w, at); err != nil || found {
				return err
			}
			continue
		case err != nil:
			return cut(err)
		}
		// The tail may be the beginning of a boundary.
		if err := s.pass(w, len(ahead)-len(s.delimiter)+1); err != nil {
			return err
		}
	}
}

// pass writes the next n bytes to w.
func (s *scanner) pass(w io.Writer, n int) error {
	ahead, err := s.in.Peek(n)
	if err != nil {
		return cut(err)
	}
	if _, err := w.Write(ahead); err != nil {
		return err
	}
	_, err = s.in.Discard(n)
	return err
}

// boundary writes what stands before what looks like a boundary. It is none if
// more stands behind it in its line; then it is written as content too.
func (s *scanner) boundary(w io.Writer, before int) (found bool, err error) {
	if err := s.pass(w, before); err != nil {
		return false, err
	}
	const blanks = 64 // that may stand behind a boundary
	at := len(s.delimiter)
	for range blanks {
		ahead, err := s.in.Peek(at + 2)
		tail := ahead[min(at, len(ahead)):]
		switch {
		case string(tail) == "--" && at == len(s.delimiter):
			s.last = true
			_, err = s.in.Discard(at + 2)
			return true, err
		case string(tail) == "\r\n":
			_, err = s.in.Discard(at + 2)
			return true, err
		case len(tail) > 0 && (tail[0] == ' ' || tail[0] == '\t'):
			at++
		case err != nil:
			return false, cut(err)
		default:
			return false, s.pass(w, len(s.delimiter))
		}
	}
	return false, s.pass(w, len(s.delimiter))
}

// head reads a part's headers.
func (s *scanner) head() (textproto.MIMEHeader, error) {
	var head []byte
	for {
		line, err := s.in.ReadSlice('\n')
		if len(head)+len(line) > maxHead || errors.Is(err, bufio.ErrBufferFull) {
			return nil, fault.Invalid("", "The headers of a part of the form are too long.")
		}
		if err != nil {
			return nil, cut(err)
		}
		head = append(head, line...)
		if len(line) <= 2 && len(bytes.TrimRight(line, "\r\n")) == 0 {
			break
		}
	}
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(head))).ReadMIMEHeader()
	if err != nil {
		return nil, fault.Invalid("", "The headers of a part of the form are malformed.")
	}
	return h, nil
}
