// Package formdata reads multipart forms: strictly, part by part, and never whole
// into memory.
package formdata

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// The bounds of a form (faults.md, row 30).
const (
	MaxParts    = 16
	maxBoundary = 70
	maxHead     = 8 << 10
	maxName     = 100
	memory      = 1 << 20  // of all parts together; what is more goes to disk
	window      = 64 << 10 // is read and written at a time; mime/multipart takes 4 KiB of it
)

// MediaType is the media type of a form.
const MediaType = "multipart/form-data"

// Boundary is what a Content-Type header says of a form's boundary. ok is false
// for another media type; err is a 400 about a boundary that cannot be one.
func Boundary(contentType string) (boundary string, ok bool, err error) {
	media, params, err := mime.ParseMediaType(contentType)
	if media != MediaType {
		return "", false, nil
	}
	boundary = params["boundary"]
	switch {
	case err != nil, boundary == "":
		return "", true, fault.Invalid("", "The Content-Type of a form names its boundary: multipart/form-data; boundary=…")
	case len(boundary) > maxBoundary, strings.Trim(boundary, boundaryLetters) != "", strings.HasSuffix(boundary, " "):
		return "", true, fault.Invalid("", fmt.Sprintf("The boundary of a form is made of at most %d letters, digits and signs (RFC 2046, section 5.1.1).", maxBoundary))
	}
	return boundary, true, nil
}

const boundaryLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'()+_,-./:=? "

// Options say where the parts of a form are kept. The zero value is the system's
// directory for temporary files, without a quota.
type Options struct {
	// Dir is where the temporary file is made that holds everything above 1 MiB; empty means
	// os.TempDir. If the system allows it, the file never has a name, so that nothing is left of
	// it, however the process ends.
	Dir string
	// Quota bounds what many forms take on disk together; nil bounds nothing.
	Quota *Quota
	// Owner is whose form it is: what it takes counts as the owner's.
	Owner string
}

// Read reads a form to its end, with the bytes after it. Its error is a 400 if the form is
// wrong, a 503 if the disk takes no more, or body's own, wrapped. Close the form when it is no
// longer needed.
func Read(body io.Reader, boundary string, o Options) (*upstream.Form, error) {
	s := &spool{options: o, left: memory}
	in := &source{body: bufio.NewReaderSize(body, window)}
	parts, err := readParts(in, boundary, s)
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	if err != nil {
		_ = s.close() // its content is not needed any more
		return nil, in.refusal(err)
	}
	return upstream.NewForm(parts, s.close), nil
}

// readParts has mime/multipart read the parts, with something added around the body. A part
// before it holds what stands before the first boundary, and makes the lines of the form end
// with CR LF. After the body come a line break, which the last boundary may lack, and an
// error. Otherwise mime/multipart would take cut-off headers for the end of the form.
func readParts(in *source, boundary string, s *spool) (parts []upstream.Part, err error) {
	r := multipart.NewReader(io.MultiReader(strings.NewReader("--"+boundary+"\r\n\r\n"), in, strings.NewReader("\r\n"), cutOff{}), boundary)
	before, err := r.NextRawPart()
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, before); err != nil {
		return nil, err
	}
	kept := bufio.NewWriterSize(nil, window)
	for {
		in.head, in.left = true, maxHead+readAhead
		part, err := r.NextRawPart()
		in.head = false
		switch {
		case err == io.EOF: // the last boundary
			return parts, nil
		case err != nil:
			return nil, err
		case len(parts) == MaxParts:
			return nil, fault.Invalid("", fmt.Sprintf("The form has more than %d parts.", MaxParts))
		}
		p, err := readPart(part, s, kept)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
}

// readPart reads a part into the spool, through the buffer kept.
func readPart(part *multipart.Part, s *spool, kept *bufio.Writer) (p upstream.Part, err error) {
	size := 0
	for name, values := range part.Header {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	if size > maxHead {
		return p, errHead
	}
	if p.Name, p.Filename, err = disposition(part.Header); err != nil {
		return p, err
	}
	if e := part.Header.Get("Content-Transfer-Encoding"); e != "" && e != "binary" && e != "8bit" && e != "7bit" {
		return p, fault.Invalid("", fmt.Sprintf("The part %q has a Content-Transfer-Encoding: send the bytes as they are.", p.Name))
	}
	p.ContentType, _, _ = mime.ParseMediaType(part.Header.Get("Content-Type")) // empty if it is none
	w := s.begin()
	kept.Reset(w)
	if _, err := kept.ReadFrom(part); err != nil {
		return p, err
	}
	if err := kept.Flush(); err != nil {
		return p, err
	}
	p.Size, p.Content = w.end()
	return p, nil
}

// readAhead is how much mime/multipart reads of what follows the headers, at most.
const readAhead = 8 << 10

// source is the body of a form. It bounds the headers of a part: mime/multipart would take
// megabytes.
type source struct {
	body io.Reader
	err  error // of body, but for its end
	head bool  // a part's headers are being read
	left int   // bytes of them that may come
}

// errHead ends the reading of headers that are too long.
var errHead = fault.Invalid("", "The headers of a part of the form are too long.")

// Read reads on.
func (s *source) Read(p []byte) (n int, err error) {
	if s.head {
		if s.left == 0 {
			return 0, errHead
		}
		p = p[:min(len(p), s.left)]
	}
	n, err = s.body.Read(p)
	s.left -= n
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// cutOff is what follows the body.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// refusal is what an error of mime/multipart means: that of the body, or that the
// form is not one.
func (s *source) refusal(err error) error {
	var own *fault.Error
	var header textproto.ProtocolError
	switch {
	case s.err != nil:
		return s.err
	case errors.As(err, &own):
		return own
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	case errors.As(err, &header):
		return fault.Invalid("", "The headers of a part of the form are malformed.")
	}
	return fault.Invalid("", "A boundary of the form has more in its line.")
}

// errCut is the refusal of a form that ends too early.
var errCut = fault.Invalid("", "The form is cut off: it does not end with its boundary and two hyphens.")

// disposition reads what a part is called.
func disposition(head textproto.MIMEHeader) (name, filename string, err error) {
	given := head.Values("Content-Disposition")
	if len(given) != 1 {
		return "", "", fault.Invalid("", `Each part of the form needs one header "Content-Disposition: form-data; name=…".`)
	}
	kind, params, err := mime.ParseMediaType(given[0])
	name, filename = params["name"], clean(params["filename"])
	switch {
	case err != nil, kind != "form-data", name == "":
		return "", "", fault.Invalid("", `A part of the form has no name: its header must be "Content-Disposition: form-data; name=…".`)
	case len(name) > maxName, !plain(name), strings.TrimSpace(name) != name:
		return "", "", fault.Invalid("", "The name of a part of the form is too long, or has blanks around it or control characters in it.")
	}
	return name, filename, nil
}

// plain reports whether s is text without control characters.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, control) }

func control(r rune) bool { return r < ' ' || r == 0x7f }

// clean is a file name as far as it is text; nothing depends on it.
func clean(filename string) string {
	return strings.Map(func(r rune) rune {
		if control(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, filename)
}
