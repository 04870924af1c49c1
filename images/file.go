package images

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// File is an image that a caller sends. Of one that goes into an [Edit] only
// Name, Size and Open matter; ContentType, Width and Height are then read from
// it.
type File struct {
	Name string // the file's; may be empty
	// ContentType is image/png, image/jpeg or image/webp, by what the file begins with.
	ContentType   string
	Size          int64 // in bytes
	Width, Height int64 // in pixels
	// Open opens the content. It may be called several times, also at once.
	Open func() (io.ReadCloser, error)
}

// BytesFile is a file in memory. data must not change any more.
func BytesFile(name string, data []byte) File {
	return File{Name: name, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

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

// maxFileBytes is the largest image that any vendor takes.
const maxFileBytes = 50 << 20

// ReaderFile reads a file to its end, into memory: prefer [PathFile] for a large
// one. It fails where there is more than any vendor takes.
func ReaderFile(name string, r io.Reader) (File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return File{}, err
	}
	if len(data) > maxFileBytes {
		return File{}, fmt.Errorf("the file is larger than %d bytes", maxFileBytes)
	}
	return BytesFile(name, data), nil
}
