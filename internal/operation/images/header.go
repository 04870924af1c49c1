package images

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"path/filepath"
	"strings"

	"github.com/tollhouse-ai/gateway/images"
)

// readFile fills in the format and the size of the file's content. It fails with an
// unfitError, or because the file cannot be read.
func readFile(f *images.File) error {
	if f.Size == 0 {
		return errEmpty
	}
	h, err := withContent(f, func(r io.Reader) (Header, error) { return ReadHeader(r, f.Size) })
	if err != nil {
		return err
	}
	f.ContentType, f.Width, f.Height = h.ContentType, h.Width, h.Height
	if f.ContentType != TypePNG {
		return nil
	}
	whole, err := withContent(f, hasEnd)
	if err == nil && !whole {
		err = errTruncated
	}
	return err
}

// withContent gives the file's content to look at.
func withContent[T any](f *images.File, look func(io.Reader) (T, error)) (found T, err error) {
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

// The formats of images that a caller may send, as their content types.
const (
	TypePNG  = "image/png"
	TypeJPEG = "image/jpeg"
	TypeWebP = "image/webp"
)

// extensions are the extensions of each format. A file whose name has none of them gets the
// first.
var extensions = map[string][]string{TypePNG: {".png"}, TypeJPEG: {".jpg", ".jpeg"}, TypeWebP: {".webp"}}

// vendorName is the file's name as a vendor wants it, which goes by the
// extension: SDKs send "anonymous_file" and ".".
func vendorName(f *images.File, otherwise string) string {
	name := f.Name[strings.LastIndexAny(f.Name, `/\`)+1:]
	for _, e := range extensions[f.ContentType] {
		if len(name) > len(e) && strings.EqualFold(filepath.Ext(name), e) {
			return name
		}
	}
	return otherwise + extensions[f.ContentType][0]
}

// The bounds of an image that a caller sends. A small file can claim a size that fills the
// memory of the program that decodes it.
const (
	maxSide   = 65_535
	maxPixels = 100_000_000
)

// maxHeaderBytes is how far the size of a JPEG is looked for: behind profiles and
// previews.
const maxHeaderBytes = 4 << 20

// Header is the format and the size of an image, by the beginning of its file.
type Header struct {
	ContentType   string // of its content, whatever it is called
	Width, Height int64  // in pixels
}

// unfitError is what is wrong with a file that is no image which can be
// used.
type unfitError string

// Error is a clause that has the file as its subject: "it is …".
func (u unfitError) Error() string { return string(u) }

const (
	errFormat    unfitError = "it is neither a PNG nor a JPEG nor a WebP file"
	errTruncated unfitError = "it is cut off or damaged"
	errEmpty     unfitError = "it is empty"
	errRare      unfitError = "it is a JPEG file of a kind that few programs read: save it as a usual one"
)

// ReadHeader reads the format and the size of an image without decoding it.
// size is the file's in bytes. It fails with an unfitError, or with
// the error of r.
func ReadHeader(r io.Reader, size int64) (Header, error) {
	source := &errorReader{Reader: io.LimitReader(r, maxHeaderBytes)}
	in := bufio.NewReaderSize(source, 512)
	magic, _ := in.Peek(12)
	var h Header
	var c image.Config
	var err error
	switch {
	case len(magic) == 0:
		err = errEmpty
	case bytes.HasPrefix(magic, []byte("\x89PNG\r\n\x1a\n")):
		h.ContentType = TypePNG
		c, err = png.DecodeConfig(in)
	case bytes.HasPrefix(magic, []byte("\xff\xd8\xff")):
		h.ContentType = TypeJPEG
		c, err = jpeg.DecodeConfig(in)
	case bytes.HasPrefix(magic, []byte("RIFF")) && bytes.HasSuffix(magic, []byte("WEBP")) && len(magic) == 12:
		h.ContentType = TypeWebP
		c, err = webpConfig(in, size)
	default:
		err = errFormat
	}
	h.Width, h.Height = int64(c.Width), int64(c.Height)
	var unfit unfitError
	var rare jpeg.UnsupportedError
	switch {
	case source.err != nil:
		return Header{}, source.err
	case errors.As(err, &unfit):
		return Header{}, unfit
	case errors.As(err, &rare):
		return Header{}, errRare
	case err != nil, h.Width < 1, h.Height < 1:
		return Header{}, errTruncated
	case h.Width > maxSide || h.Height > maxSide || h.Width*h.Height > maxPixels:
		return Header{}, unfitError(fmt.Sprintf("it is %d by %d pixels large; at most %d a side and %d in all are taken", h.Width, h.Height, maxSide, maxPixels))
	}
	return h, nil
}

// errorReader remembers the error of its reader, which is no fault of the image.
type errorReader struct {
	io.Reader
	err error
}

// Read reads on.
func (r *errorReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// webpConfig reads the first chunk of a WebP file, of one of three kinds (RFC 9649).
func webpConfig(in io.Reader, size int64) (c image.Config, err error) {
	var b [30]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return c, err
	}
	if int64(binary.LittleEndian.Uint32(b[4:]))+8 > size {
		return c, errTruncated
	}
	switch kind := string(b[12:16]); {
	case kind == "VP8 " && string(b[23:26]) == "\x9d\x01\x2a":
		c.Width, c.Height = int(binary.LittleEndian.Uint16(b[26:])&0x3fff), int(binary.LittleEndian.Uint16(b[28:])&0x3fff)
	case kind == "VP8L" && b[20] == 0x2f:
		bits := binary.LittleEndian.Uint32(b[21:])
		c.Width, c.Height = int(bits&0x3fff)+1, int(bits>>14&0x3fff)+1
	case kind == "VP8X":
		c.Width = 1 + int(b[24]) + int(b[25])<<8 + int(b[26])<<16
		c.Height = 1 + int(b[27]) + int(b[28])<<8 + int(b[29])<<16
	default:
		return c, errTruncated
	}
	return c, nil
}

// pngTail is how a PNG file ends: its last chunk, IEND.
const pngTail = "IEND\xaeB`\x82"

// hasEnd reports whether a PNG file has its end. What stands behind it is taken,
// however much: cameras and editors put previews and notes there.
func hasEnd(r io.Reader) (bool, error) {
	const window = 64 << 10
	buf := make([]byte, window)
	kept := 0 // of what was read before: the end may begin there
	for {
		n, err := io.ReadFull(r, buf[kept:])
		got := buf[:kept+n]
		if bytes.Contains(got, []byte(pngTail)) {
			return true, nil
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return false, nil
		default:
			return false, err
		}
		kept = copy(buf, got[len(got)-len(pngTail)+1:])
	}
}
