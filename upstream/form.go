package upstream

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"mime/multipart"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Form is a multipart form (RFC 7578), each part of which can be opened any
// number of times, also at once. Parts and Boundary must not change once the
// form is in use; methods are safe for concurrent use.
type Form struct {
	// Parts are fields and files, in the order in which they are sent.
	Parts []Part
	// Boundary separates the parts on the wire; letters and digits that cannot be
	// guessed, so that no part contains it.
	Boundary string

	release func() error
	once    sync.Once
}

// Part is one field or file of a form.
type Part struct {
	Name string
	// Filename is that of a file; empty for a field.
	Filename string
	// ContentType is sent if it is not empty.
	ContentType string
	// Size is the length of the content in bytes.
	Size int64
	// Content opens the content. It is called once per reading.
	Content func() (io.ReadCloser, error)
}

// NewForm makes a form with a boundary of its own. release, which may be nil,
// frees what holds the parts; see [Form.Close].
func NewForm(parts []Part, release func() error) *Form {
	return &Form{Parts: parts, Boundary: rand.Text(), release: release}
}

// Field is a part that holds a text.
func Field(name, value string) Part {
	return Part{Name: name, Size: int64(len(value)), Content: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(value)), nil
	}}
}

// ErrPartTooLong is the error of a part whose text is longer than it may be.
var ErrPartTooLong = errors.New("the part is too long for a text")

// Text reads a part of at most most bytes.
func (p *Part) Text(most int64) (string, error) {
	if p.Size > most {
		return "", ErrPartTooLong
	}
	rc, err := p.Content()
	if err != nil {
		return "", err
	}
	data := make([]byte, p.Size)
	_, err = io.ReadFull(rc, data)
	return string(data), errors.Join(err, rc.Close())
}

// With returns a form of other parts that are held where f's are, under the same
// boundary. Only f is to be closed.
func (f *Form) With(parts []Part) *Form { return &Form{Parts: parts, Boundary: f.Boundary} }

// Close frees what holds the parts, which cannot be opened from then on. Later
// calls do nothing.
func (f *Form) Close() (err error) {
	f.once.Do(func() {
		if f.release != nil {
			err = f.release()
		}
	})
	return err
}

// Sum is a hash of the parts' names, file names and contents. It is the same
// for two forms whose parts of different names come in another order or
// have other content types, or whose boundaries differ.
func (f *Form) Sum() (sum [sha256.Size]byte, err error) {
	parts := slices.Clone(f.Parts)
	slices.SortStableFunc(parts, func(a, b Part) int { return strings.Compare(a.Name, b.Name) })
	all := sha256.New()
	for i := range parts {
		content, err := parts[i].sum()
		if err != nil {
			return sum, err
		}
		for _, text := range [...][]byte{[]byte(parts[i].Name), []byte(parts[i].Filename), content} {
			_, _ = all.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // a hash takes everything
			_, _ = all.Write(text)
		}
	}
	return [sha256.Size]byte(all.Sum(nil)), nil
}

func (p *Part) sum() ([]byte, error) {
	rc, err := p.Content()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	n, err := copyChunks(h, io.LimitReader(rc, p.Size))
	if err == nil && n < p.Size {
		err = io.ErrUnexpectedEOF
	}
	return h.Sum(nil), errors.Join(err, rc.Close())
}

// edited are the parts after the edits, which mean what they mean for the
// members of a JSON object.
func (f *Form) edited(edits []rawjson.Edit) []Part {
	if len(edits) == 0 {
		return f.Parts
	}
	parts := slices.Clone(f.Parts)
	for _, e := range edits {
		called := func(name string) func(Part) bool { return func(p Part) bool { return p.Name == name } }
		at := slices.IndexFunc(parts, called(e.Name))
		switch {
		case e.Rename == e.Name:
		case e.Rename != "" && slices.ContainsFunc(parts, called(e.Rename)), e.Rename == "" && e.Value == nil:
			parts = slices.DeleteFunc(parts, called(e.Name))
		case e.Rename != "":
			for i := range parts {
				if parts[i].Name == e.Name {
					parts[i].Name = e.Rename
				}
			}
		case at < 0:
			parts = append(parts, Field(e.Name, fieldText(e.Value)))
		default:
			parts[at] = Field(e.Name, fieldText(e.Value))
			rest := slices.DeleteFunc(parts[at+1:], called(e.Name))
			parts = parts[:at+1+len(rest)]
		}
	}
	return parts
}

// fieldText is a JSON value as a form spells it.
func fieldText(value []byte) string {
	if s, ok := rawjson.String(value); ok {
		return s
	}
	return string(value)
}

// raw is the JSON of the first part called name: a number, true or false where
// the text is spelled as one, else a string; a file is an empty object.
func raw(parts []Part, name string) []byte {
	const longest = 1 << 20
	for i := range parts {
		if parts[i].Name != name {
			continue
		}
		text, err := parts[i].Text(longest)
		if parts[i].Filename != "" || err != nil {
			return []byte("{}")
		}
		v := jsontext.Value(text)
		if strings.ContainsRune("0tf", rune(v.Kind())) && v.IsValid() && strings.TrimSpace(text) == text {
			return v
		}
		return rawjson.Quote(nil, text)
	}
	return nil
}

// appendHead appends what stands before a part's content.
func (f *Form) appendHead(dst []byte, p *Part) []byte {
	disposition := multipart.FileContentDisposition(p.Name, p.Filename)
	if p.Filename == "" {
		disposition = strings.TrimSuffix(disposition, `; filename=""`)
	}
	dst = append(append(append(dst, "--"...), f.Boundary...), "\r\nContent-Disposition: "...)
	dst = append(dst, disposition...)
	if p.ContentType != "" {
		dst = append(append(dst, "\r\nContent-Type: "...), singleLine(p.ContentType)...)
	}
	return append(dst, "\r\n\r\n"...)
}

// singleLine is a header's value without line breaks.
func singleLine(s string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(s) }

// reader is the form of these parts on the wire, and its length.
func (f *Form) reader(parts []Part) (*formReader, int64) {
	d := &formReader{sections: make([]section, 0, 2*len(parts)+1)}
	var size int64
	add := func(n int64, open func() (io.ReadCloser, error)) {
		d.sections = append(d.sections, section{n, open})
		size += n
	}
	addText := func(text []byte) {
		add(int64(len(text)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
	}
	var head []byte
	for i := range parts {
		addText(f.appendHead(head, &parts[i]))
		add(parts[i].Size, parts[i].Content)
		head = []byte("\r\n")
	}
	addText(append(append(append(head, "--"...), f.Boundary...), "--\r\n"...))
	return d, size
}

// formReader reads a form as it goes over the wire. It is for one goroutine, but
// for Close.
type formReader struct {
	sections []section // what is left

	mu      sync.Mutex
	content io.ReadCloser // of sections[0]; nil until it is read
	left    int64         // of the content
	closed  bool
}

// section is a content, or what stands before one or behind the last.
type section struct {
	size int64
	open func() (io.ReadCloser, error)
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

// current is the reader of the section that is next.
func (d *formReader) current() (_ io.Reader, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, errClosedForm
	case len(d.sections) == 0:
		return nil, io.EOF
	case d.content == nil:
		if d.content, err = d.sections[0].open(); err != nil {
			d.content = nil
			return nil, err
		}
		d.left = d.sections[0].size
	}
	return contentReader{d}, nil
}

// next goes on after the end of a section.
func (d *formReader) next() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosedForm
	}
	err := d.content.Close()
	if d.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	d.content, d.sections = nil, d.sections[1:]
	return err
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

// contentReader is the rest of the open content, and nothing past its size.
type contentReader struct{ *formReader }

// Read reads on in the content.
func (r contentReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.content.Read(p[:min(int64(len(p)), r.left)])
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
