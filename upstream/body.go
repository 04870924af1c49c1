package upstream

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"net"
	"sync"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Body is a request body: the client's bytes with the members that the gateway sets. It is
// immutable and can be opened any number of times. The zero Body is empty.
type Body struct {
	object rawjson.Object
	form   *Form
	edits  []rawjson.Edit
	plain  []byte
}

// BytesBody is a body that is sent as it is. data must not change any more.
func BytesBody(data []byte) Body { return Body{plain: data} }

// ObjectBody is a body made of an indexed JSON object, whose top-level members
// can be edited.
func ObjectBody(o rawjson.Object) Body { return Body{object: o, plain: o.Src} }

// FormBody is a body made of a form, whose parts can be edited like the members of a JSON
// object. [Body.Raw] says what the value of a part is. The caller closes the form, after
// the last use of the body.
func FormBody(f *Form) Body { return Body{form: f} }

var errNotEditable = errors.New("only a JSON object or a form can be edited")

// Has reports whether the JSON object has a top-level member, or the form a
// part, after the edits.
func (b Body) Has(name string) bool { return b.Raw(name) != nil }

// Raw returns the value of a top-level member after the edits, or nil if it is absent. For a
// form, it returns the first part of that name. It is a number, true or false if its text is
// spelled so, an empty object for a file, otherwise a string.
func (b Body) Raw(name string) []byte {
	if b.form != nil {
		return raw(b.form.edited(b.edits), name)
	}
	for i := len(b.edits) - 1; i >= 0; i-- {
		e, before := b.edits[i], Body{object: b.object, edits: b.edits[:i]}
		switch {
		case e.Rename != "" && e.Rename == name:
			if v := before.Raw(name); v != nil {
				return v
			}
			name = e.Name
		case e.Name != name:
		case e.Rename != "":
			return nil
		default:
			return e.Value
		}
	}
	return b.object.Raw(name)
}

// Members yields the top-level members of a JSON object, after the edits.
func (b Body) Members() iter.Seq2[string, []byte] {
	if !b.IsObject() {
		return func(func(string, []byte) bool) {}
	}
	return b.object.Edited(b.edits...)
}

// IsObject reports whether the body is a JSON object.
func (b Body) IsObject() bool { return b.object.Src != nil }

// Editable reports whether the body has members or parts that can be edited.
func (b Body) Editable() bool { return b.IsObject() || b.form != nil }

// Form returns the form of the body with the edits, or nil if the body is not a form. Close
// only the form that was given to [FormBody].
func (b Body) Form() *Form {
	if b.form == nil {
		return nil
	}
	return b.form.With(b.form.edited(b.edits))
}

// ContentType is the media type of a form, with its boundary, or of a JSON object. It is empty
// for any other body.
func (b Body) ContentType() string {
	switch {
	case b.form != nil:
		return "multipart/form-data; boundary=" + b.form.Boundary
	case b.IsObject():
		return "application/json"
	}
	return ""
}

// Set returns the body with a top-level member set to a JSON value. In a form, it sets a text
// part.
func (b Body) Set(name string, value []byte) Body { return b.with(rawjson.Set(name, value)) }

// Delete returns the body without a top-level member, or without a form's parts
// of that name.
func (b Body) Delete(name string) Body { return b.with(rawjson.Delete(name)) }

// Rename returns the body with a top-level member, or a form's parts, called to
// instead of from. A member that is already called to wins.
func (b Body) Rename(from, to string) Body { return b.with(rawjson.Rename(from, to)) }

func (b Body) with(e rawjson.Edit) Body {
	b.edits = append(b.edits[:len(b.edits):len(b.edits)], e)
	return b
}

// Bytes returns the whole body with the edits made. The result must not be
// modified. It fails for an edit of something that has no members, and where a file
// of a form cannot be read. A form is rather opened, since it may be large.
func (b Body) Bytes() ([]byte, error) {
	switch {
	case b.form != nil:
		rc, _, err := b.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(rc)
		return data, errors.Join(err, rc.Close())
	case len(b.edits) == 0:
		return b.plain, nil
	case !b.IsObject():
		return nil, errNotEditable
	}
	return b.object.Apply(nil, b.edits...), nil
}

// Open returns a reader over the body and its length. The caller closes it.
func (b Body) Open() (io.ReadCloser, int64, error) {
	if b.form != nil {
		return b.form.reader(b.form.edited(b.edits))
	}
	const long = 16 << 10
	if len(b.edits) > 0 && len(b.object.Src) > long { // long values are not copied
		pieces := b.object.Pieces(long/4, b.edits...)
		var size int64
		for _, piece := range pieces {
			size += int64(len(piece))
		}
		return &onceReader{pieces: pieces}, size, nil
	}
	data, err := b.Bytes()
	if err != nil {
		return nil, 0, err
	}
	if len(data) > long {
		return &onceReader{pieces: [][]byte{data}}, int64(len(data)), nil
	}
	// As http.Transport knows it: a body in memory goes out with the headers.
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

// onceReader is a long body in memory. It frees the body once it was read: the answer may be a
// stream of minutes, and http.Transport keeps the body until its end. Close is safe to call
// while a Read or WriteTo runs.
type onceReader struct {
	mu     sync.Mutex
	pieces net.Buffers
}

// Read reads on.
func (b *onceReader) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.pieces.Read(p)
	if len(b.pieces) == 0 {
		b.pieces = nil
	}
	return n, err
}

// WriteTo writes the rest, to a network connection with one call of the system.
func (b *onceReader) WriteTo(w io.Writer) (int64, error) {
	b.mu.Lock()
	pieces := b.pieces
	b.pieces = nil
	b.mu.Unlock()
	return pieces.WriteTo(w)
}

// Close frees it.
func (b *onceReader) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pieces = nil
	return nil
}
