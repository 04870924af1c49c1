package upstream

import (
	"errors"
	"io"
	"sync"
)

// document reads a form as it goes over the wire. It is for one goroutine, but
// for Close.
type document struct {
	pieces []piece // what is left

	mu     sync.Mutex
	now    io.ReadCloser // the content of pieces[0], once its head was read
	left   int64         // of it
	closed bool
}

// piece is what stands before a content, and the content; the last has none.
type piece struct {
	head io.Reader
	part *Part
}

var errClosedForm = errors.New("the form's reader is closed")

// Read reads on. A content that is shorter than it was said to be is an
// io.ErrUnexpectedEOF.
func (d *document) Read(p []byte) (int, error) {
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
func (d *document) WriteTo(w io.Writer) (total int64, err error) {
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
func (d *document) current() (io.Reader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, errClosedForm
	case len(d.pieces) == 0:
		return nil, io.EOF
	case d.now != nil:
		return &remainder{d}, nil
	}
	return d.pieces[0].head, nil
}

// next goes on after the end of a head or of a content.
func (d *document) next() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return errClosedForm
	case d.now != nil:
		err := d.now.Close()
		if d.left > 0 {
			err = io.ErrUnexpectedEOF
		}
		d.now = nil
		d.pieces = d.pieces[1:]
		return err
	case d.pieces[0].part == nil:
		d.pieces = nil
		return nil
	}
	content, err := d.pieces[0].part.Content()
	if err != nil {
		return err
	}
	d.now, d.left = content, d.pieces[0].part.Size
	return nil
}

// Close closes the content that is open.
func (d *document) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	if d.now != nil {
		return d.now.Close()
	}
	return nil
}

// remainder is the rest of the open content, and nothing past its size.
type remainder struct{ *document }

// Read reads on in the content.
func (r *remainder) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.now.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
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
