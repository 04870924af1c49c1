package images

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollhouse-ai/gateway/upstream"
)

// File is an image that a caller sends. Of one that goes into an [Edit] only
// Name, Size and Open matter; ContentType, Width and Height are then read from
// it.
type File struct {
	Name string // the file's; may be empty
	// ContentType is one of [PNG], [JPEG] and [WebP], by what the file begins with.
	ContentType   string
	Size          int64 // in bytes
	Width, Height int64 // in pixels
	// Open opens the content. It may be called several times, also at once.
	Open func() (io.ReadCloser, error)
}

// BytesFile is a file in memory. data must not change any more.
func BytesFile(name string, data []byte) File {
	return File{Name: name, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return memoryFile{bytes.NewReader(data)}, nil
	}}
}

type memoryFile struct{ io.ReadSeeker }

// Close does nothing.
func (memoryFile) Close() error { return nil }

// PathFile is a file on disk, which must stay as it is until the call has ended.
func PathFile(path string) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("%s is no regular file", path)
	}
	return File{Name: filepath.Base(path), Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}, nil
}

// ReaderFile reads a file to its end, into memory: prefer [PathFile] for a large
// one. It fails where there is more than any vendor takes.
func ReaderFile(name string, r io.Reader) (File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxImage+1))
	if err != nil {
		return File{}, err
	}
	if len(data) > maxImage {
		return File{}, fmt.Errorf("the file is larger than %d bytes", maxImage)
	}
	return BytesFile(name, data), nil
}

// fileOf is a part that holds an image. Its header was not read yet.
func fileOf(p *upstream.Part) File {
	return File{Name: p.Filename, Size: p.Size, Open: p.Content}
}

// read fills in what the file's content says of itself. It fails with an [InvalidImageError],
// or because the file cannot be read.
func (f *File) read() error {
	if f.Size == 0 {
		return errEmpty
	}
	h, err := opened(f, func(r io.Reader) (Header, error) { return ReadHeader(r, f.Size) })
	if err != nil {
		return err
	}
	f.ContentType, f.Width, f.Height = h.ContentType, h.Width, h.Height
	if f.ContentType != PNG {
		return nil
	}
	whole, err := opened(f, endsWell)
	if err == nil && !whole {
		err = errTruncated
	}
	return err
}

// opened gives the file's content to look at.
func opened[T any](f *File, look func(io.Reader) (T, error)) (found T, err error) {
	rc, err := f.Open()
	if err != nil {
		return found, err
	}
	found, err = look(rc)
	if closing := rc.Close(); err == nil {
		err = closing
	}
	return found, err
}

// extensions are those of the formats; the first is given to a file whose name
// has none of them.
var extensions = map[string][]string{PNG: {".png"}, JPEG: {".jpg", ".jpeg"}, WebP: {".webp"}}

// proper is the file's name as a vendor wants it, which goes by the extension:
// SDKs send "anonymous_file" and ".".
func (f *File) proper(otherwise string) string {
	name := f.Name[strings.LastIndexAny(f.Name, `/\`)+1:]
	for _, e := range extensions[f.ContentType] {
		if len(name) > len(e) && strings.EqualFold(filepath.Ext(name), e) {
			return name
		}
	}
	return otherwise + extensions[f.ContentType][0]
}
