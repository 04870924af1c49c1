package imagesapi

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/tollhouse-ai/gateway/images"
)

// readFile fills in the format and the size of the file's content. It fails with an
// [InvalidImageError], or because the file cannot be read.
func readFile(f *images.File) error {
	if f.Size == 0 {
		return errEmpty
	}
	h, err := withContent(f, func(r io.Reader) (Header, error) { return ReadHeader(r, f.Size) })
	if err != nil {
		return err
	}
	f.ContentType, f.Width, f.Height = h.ContentType, h.Width, h.Height
	if f.ContentType != images.PNG {
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

// extensions are those of the formats; the first is given to a file whose name
// has none of them.
var extensions = map[string][]string{images.PNG: {".png"}, images.JPEG: {".jpg", ".jpeg"}, images.WebP: {".webp"}}

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

// The bounds of an image that a caller sends: a small file can say that it is a
// picture which fills the memory of the program that decodes it.
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

// InvalidImageError is what is wrong with a file that is no image which can be
// used.
type InvalidImageError string

// Error is a clause that has the file as its subject: "it is …".
func (u InvalidImageError) Error() string { return string(u) }

const (
	errFormat    InvalidImageError = "it is neither a PNG nor a JPEG nor a WebP file"
	errTruncated InvalidImageError = "it is cut off or damaged"
	errEmpty     InvalidImageError = "it is empty"
)

// ReadHeader reads the format and the size of an image without decoding it.
// size is the file's in bytes. It fails with an [InvalidImageError], or with
// the error of r.
func ReadHeader(r io.Reader, size int64) (Header, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, maxHeaderBytes), 512)
	magic, err := in.Peek(12)
	switch {
	case err != nil && err != io.EOF:
		return Header{}, err
	case len(magic) == 0:
		return Header{}, errEmpty
	}
	var h Header
	switch {
	case bytes.HasPrefix(magic, []byte("\x89PNG\r\n\x1a\n")):
		h, err = pngHeader(in)
	case bytes.HasPrefix(magic, []byte("\xff\xd8\xff")):
		h, err = jpegHeader(in)
	case bytes.HasPrefix(magic, []byte("RIFF")) && bytes.HasSuffix(magic, []byte("WEBP")) && len(magic) == 12:
		h, err = webpHeader(in, size)
	default:
		return Header{}, errFormat
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Header{}, errTruncated
	case err != nil:
		return Header{}, err
	case h.Width < 1 || h.Height < 1:
		return Header{}, errTruncated
	case h.Width > maxSide || h.Height > maxSide || h.Width*h.Height > maxPixels:
		return Header{}, InvalidImageError(fmt.Sprintf("it is %d by %d pixels large; at most %d a side and %d in all are taken", h.Width, h.Height, maxSide, maxPixels))
	}
	return h, nil
}

// pngHeader reads the chunk IHDR, which must be the first.
func pngHeader(in io.Reader) (Header, error) {
	var b [8 + 25]byte // the signature and the chunk
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return Header{}, err
	}
	if string(b[8:16]) != "\x00\x00\x00\x0dIHDR" {
		return Header{}, errTruncated
	}
	return Header{images.PNG, int64(binary.BigEndian.Uint32(b[16:])), int64(binary.BigEndian.Uint32(b[20:]))}, nil
}

// jpegHeader looks for the frame header, the first marker SOF.
func jpegHeader(in *bufio.Reader) (Header, error) {
	if _, err := in.Discard(2); err != nil {
		return Header{}, err
	}
	for {
		marker, err := jpegMarker(in)
		if err != nil {
			return Header{}, err
		}
		if marker == 0x01 || marker >= 0xd0 && marker <= 0xd8 { // they stand alone
			continue
		}
		if marker == 0xd9 || marker == 0xda { // the end, or pixels without a frame
			return Header{}, errTruncated
		}
		var b [7]byte
		if _, err := io.ReadFull(in, b[:2]); err != nil {
			return Header{}, err
		}
		length := int(binary.BigEndian.Uint16(b[:]))
		switch {
		case length < 2:
			return Header{}, errTruncated
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			if _, err := io.ReadFull(in, b[2:]); err != nil {
				return Header{}, err
			}
			return Header{images.JPEG, int64(binary.BigEndian.Uint16(b[5:])), int64(binary.BigEndian.Uint16(b[3:]))}, nil
		}
		if _, err := in.Discard(length - 2); err != nil {
			return Header{}, err
		}
	}
}

// jpegMarker reads the next marker; any number of 0xff may stand before it.
func jpegMarker(in *bufio.Reader) (byte, error) {
	b, err := in.ReadByte()
	if err == nil && b != 0xff {
		err = errTruncated
	}
	for err == nil && b == 0xff {
		b, err = in.ReadByte()
	}
	if err == nil && b == 0 {
		err = errTruncated
	}
	return b, err
}

// webpHeader reads the first chunk, of one of three kinds (RFC 9649).
func webpHeader(in io.Reader, size int64) (Header, error) {
	var b [30]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return Header{}, err
	}
	if int64(binary.LittleEndian.Uint32(b[4:]))+8 > size {
		return Header{}, errTruncated
	}
	h := Header{ContentType: images.WebP}
	switch string(b[12:16]) {
	case "VP8 ":
		if string(b[23:26]) != "\x9d\x01\x2a" {
			return Header{}, errTruncated
		}
		h.Width = int64(binary.LittleEndian.Uint16(b[26:]) & 0x3fff)
		h.Height = int64(binary.LittleEndian.Uint16(b[28:]) & 0x3fff)
	case "VP8L":
		if b[20] != 0x2f {
			return Header{}, errTruncated
		}
		bits := binary.LittleEndian.Uint32(b[21:])
		h.Width, h.Height = int64(bits&0x3fff)+1, int64(bits>>14&0x3fff)+1
	case "VP8X":
		h.Width = 1 + int64(b[24]) + int64(b[25])<<8 + int64(b[26])<<16
		h.Height = 1 + int64(b[27]) + int64(b[28])<<8 + int64(b[29])<<16
	default:
		return Header{}, errTruncated
	}
	return h, nil
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
