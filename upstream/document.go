package upstream

import (
	"errors"
	"io"
	"sync"
)

// document reads a form as it goes over the wire. It is for one goroutine, but
// for Close.
type formReader struct {
	sections []section // what is left

	mu     sync.Mutex
	content    io.ReadCloser // the content of pieces[0], once its head was read
	contentLeft   int64         // of it
	closed bool
}

// piece is what stands before a content, and the content; the last has none.
type section struct {
	head io.Reader
	part *Part
}

var errClosedForm = errors.New("the form's reader is closed")

// Read reads on. A content that is shorter than it was said to be is an
// io.ErrUnexpectedEOF.
func (d *formReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		r, err := d.current()
		if err != nil {
			return 0, err
		}
		n, err := r.Read(p)
		if err == io.EOF {
			err = d.next()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// WriteTo writes the rest in large pieces, which spares a transport its small
// ones.
func (d *formReader) WriteTo(w io.Writer) (total int64, err error) {
	for {
		r, err := d.current()
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		n, err := copyChunks(w, r)
		total += n
		if err == nil {
			err = d.next()
		}
		if err != nil {
			return total, err
		}
	}
}

// current is the reader of the head or of the content that is next.
func (d *formReader) current() (io.Reader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, errClosedForm
	case len(d.sections) == 0:
		return nil, io.EOF
	case d.content != nil:
		return &contentReader{d}, nil
	}
	return d.sections[0].head, nil
}

// next goes on after the end of a head or of a content.
func (d *formReader) next() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return errClosedForm
	case d.content != nil:
		err := d.content.Close()
		if d.contentLeft > 0 {
			err = io.ErrUnexpectedEOF
		}
		d.content = nil
		d.sections = d.sections[1:]
		return err
	case d.sections[0].part == nil:
		d.sections = nil
		return nil
	}
	content, err := d.sections[0].part.Content()
	if err != nil {
		return err
	}
	d.content, d.contentLeft = content, d.sections[0].part.Size
	return nil
}

// Close closes the content that is open.
func (d *formReader) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	if d.content != nil {
		return d.content.Close()
	}
	return nil
}

// remainder is the rest of the open content, and nothing past its size.
type contentReader struct{ *formReader }

// Read reads on in the content.
func (r *contentReader) Read(p []byte) (int, error) {
	if r.contentLeft == 0 {
		return 0, io.EOF
	}
	n, err := r.content.Read(p[:min(int64(len(p)), r.contentLeft)])
	r.contentLeft -= int64(n)
	return n, err
}

// chunks are buffers through which contents are copied.
var chunks = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// copyChunks copies in pieces of 64 KiB.
func copyChunks(w io.Writer, r io.Reader) (int64, error) {
	chunk := chunks.Get().(*[64 << 10]byte)
	defer chunks.Put(chunk)
	// Hidden, since a reader or a writer that copies by itself takes smaller pieces.
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, chunk[:])
}
