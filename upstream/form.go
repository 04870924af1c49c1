package upstream

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Form is a multipart form (RFC 7578). Each part can be opened any number of times, also
// concurrently. Parts and Boundary must not change once the form is in use. Methods are safe
// for concurrent use.
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
	// Content opens the content. It is called once per reading. What it opens may be
	// closed while it is read, which has to end the Read.
	Content func() (io.ReadCloser, error)
}

// NewForm makes a form with a new boundary. release, which may be nil, frees what holds the
// parts; see [Form.Close].
func NewForm(parts []Part, release func() error) *Form {
	return &Form{Parts: parts, Boundary: rand.Text(), release: release}
}

// Field is a part that holds a text.
func Field(name, value string) Part {
	return Part{Name: name, Size: int64(len(value)), Content: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(value)), nil
	}}
}

var errPartTooLong = errors.New("the part is too long for a text")

// Text reads a part; it fails if that has more than most bytes.
func (p *Part) Text(most int64) (string, error) {
	if p.Size > most {
		return "", errPartTooLong
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

// Sum returns a hash of the parts' names, file names and contents. Boundaries, content types,
// and the order of parts with different names do not change it.
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
	n, err := io.CopyN(h, rc, p.Size)
	if err == io.EOF && n < p.Size {
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

// raw is the JSON of the first part called name. It is a number, true or false if the text is
// spelled as one, an empty object for a file, otherwise a string.
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

// singleLine is a header's value without line breaks.
func singleLine(s string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(s) }

// reader is the form of these parts on the wire, and its length.
func (f *Form) reader(parts []Part) (r *formReader, size int64, err error) {
	r = &formReader{sections: make([]Part, 0, 2*len(parts)+1)}
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	err = w.SetBoundary(f.Boundary)
	addText := func() {
		r.sections = append(r.sections, Field("", text.String()))
		size += int64(text.Len())
		text.Reset()
	}
	for _, p := range parts {
		disposition := multipart.FileContentDisposition(p.Name, p.Filename)
		if p.Filename == "" {
			disposition = strings.TrimSuffix(disposition, `; filename=""`)
		}
		head := textproto.MIMEHeader{"Content-Disposition": {disposition}}
		if p.ContentType != "" {
			head.Set("Content-Type", singleLine(p.ContentType))
		}
		_, _ = w.CreatePart(head) // a buffer takes everything
		addText()
		r.sections = append(r.sections, p)
		size += p.Size
	}
	_ = w.Close()
	addText()
	return r, size, err
}

// formReader reads a form as it goes over the wire. Close may be called while a Read
// runs: it closes the content, which ends a Read that waits for one.
type formReader struct {
	sections []Part // that are left: contents, and what stands before each and behind the last
	left     int64  // of the content, which is that of the first section
	err      error  // that Read gave, and gives again

	mu      sync.Mutex
	content io.ReadCloser // nil until it is read
	closed  bool
}

var errClosedForm = errors.New("the form's reader is closed")

// Read reads on. A content that is shorter than it was said to be is an
// io.ErrUnexpectedEOF; of one that is longer the rest is left out.
func (r *formReader) Read(p []byte) (n int, err error) {
	for n == 0 && r.err == nil && len(p) > 0 {
		n, r.err = r.readSection(p)
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// readSection reads of the first section that is left, and removes it at its end.
func (r *formReader) readSection(p []byte) (n int, err error) {
	content, err := r.open()
	if err != nil {
		return 0, err
	}
	n, err = content.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	switch {
	case err == nil && r.left > 0:
		return n, nil
	case err == io.EOF && r.left > 0:
		err = io.ErrUnexpectedEOF
	case err == io.EOF:
		err = nil
	}
	r.sections = r.sections[1:]
	return n, errors.Join(err, r.release(false))
}

// open is the content of the first section, io.EOF behind the last one.
func (r *formReader) open() (io.ReadCloser, error) {
	r.mu.Lock()
	content, closed := r.content, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return nil, errClosedForm
	case content != nil:
		return content, nil
	case len(r.sections) == 0:
		return nil, io.EOF
	}
	content, err := r.sections[0].Content()
	if err != nil {
		return nil, err
	}
	r.left = r.sections[0].Size
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.Join(errClosedForm, content.Close())
	}
	r.content = content
	return content, nil
}

// release closes the content that is open; after it with last, none is opened.
func (r *formReader) release(last bool) error {
	r.mu.Lock()
	content := r.content
	r.content, r.closed = nil, r.closed || last
	r.mu.Unlock()
	if content == nil {
		return nil
	}
	return content.Close()
}

// Close closes the content that is open.
func (r *formReader) Close() error { return r.release(true) }
