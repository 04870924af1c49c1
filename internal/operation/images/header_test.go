package images

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tollhouse-ai/gateway/images"
)

func TestTheSizeOfAnImageIsReadFromItsHeader(t *testing.T) {
	photo := jpegOf(t, 33, 17)
	for name, row := range map[string]struct {
		content string
		want    Header
	}{
		"a PNG":                         {pngOf(t, 33, 17), Header{TypePNG, 33, 17}},
		"the widest":                    {claims(65_535, 1), Header{TypePNG, 65_535, 1}},
		"the largest":                   {claims(10_000, 10_000), Header{TypePNG, 10_000, 10_000}},
		"a JPEG":                        {photo, Header{TypeJPEG, 33, 17}},
		"a JPEG behind a profile":       {photo[:2] + "\xff\xe2\xff\xff" + strings.Repeat("\xff", 65_533) + photo[2:], Header{TypeJPEG, 33, 17}},
		"a JPEG with fill bytes":        {photo[:2] + "\xff\xff\xff" + photo[2:], Header{TypeJPEG, 33, 17}},
		"a progressive JPEG":            {"\xff\xd8\xff\xc2\x00\x0b\x08\x01\x02\x03\x04\x01\x01\x11\x00\xff\xda\x00\x02", Header{TypeJPEG, 0x304, 0x102}},
		"a lossy WebP":                  {webpOf("VP8 ", 0, 0, 0, 0x9d, 0x01, 0x2a, 33, 0x40, 17, 0x80), Header{TypeWebP, 33, 17}},
		"a lossless WebP":               {webpOf("VP8L", 0x2f, 32, 0, 4, 0), Header{TypeWebP, 33, 17}},
		"an extended WebP":              {webpOf("VP8X", 0, 0, 0, 0, 32, 1, 0, 16, 0, 0), Header{TypeWebP, 33 + 256, 17}},
		"an extended WebP, the largest": {webpOf("VP8X", 0, 0, 0, 0, 0x0f, 0x27, 0, 0x0f, 0x27, 0), Header{TypeWebP, 10_000, 10_000}},
	} {
		h, err := ReadHeader(iotest.OneByteReader(strings.NewReader(row.content)), int64(len(row.content)))
		if err != nil || h != row.want {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func TestWhatIsNoImageIsUnfit(t *testing.T) {
	bad := badFiles(t)
	delete(bad, "a PNG without its end") // of which the header is whole
	for name, content := range bad {
		h, err := ReadHeader(strings.NewReader(content), int64(len(content)))
		var unfit unfitError
		if !errors.As(err, &unfit) || h != (Header{}) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func TestAnErrorOfReadingIsNoFaultOfTheImage(t *testing.T) {
	broken := errors.New("the disk is broken")
	content := pngOf(t, 16, 16)
	for _, n := range []int{0, 5, 20} {
		_, err := ReadHeader(iotest.DataErrReader(errorAfter{strings.NewReader(content[:n]), broken}), int64(len(content)))
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

type errorAfter struct {
	*strings.Reader
	err error
}

func (e errorAfter) Read(p []byte) (int, error) {
	if e.Len() == 0 {
		return 0, e.err
	}
	return e.Reader.Read(p)
}

func TestAFileIsNamedByItsContent(t *testing.T) {
	for _, row := range []struct{ name, kind, want string }{
		{"cube.png", TypePNG, "cube.png"}, {"CUBE.PNG", TypePNG, "CUBE.PNG"}, {"cube.jpg", TypeJPEG, "cube.jpg"}, {"cube.jpeg", TypeJPEG, "cube.jpeg"},
		{"cube.png", TypeJPEG, "image.jpg"}, {".", TypePNG, "image.png"}, {"anonymous_file", TypeWebP, "image.webp"}, {"", TypePNG, "image.png"},
		{".png", TypePNG, "image.png"}, {`C:\photos\cube.png`, TypePNG, "cube.png"}, {"../../etc/cube.png", TypePNG, "cube.png"},
	} {
		f := images.File{Name: row.name, ContentType: row.kind}
		if got := vendorName(&f, "image"); got != row.want {
			t.Errorf("%q, %s: %q, want %q", row.name, row.kind, got, row.want)
		}
	}
}

// FuzzReadHeader feeds anything to the reader of headers.
func FuzzReadHeader(f *testing.F) {
	for _, content := range badFiles(f) {
		if len(content) < 1<<10 {
			f.Add([]byte(content))
		}
	}
	f.Add([]byte(pngOf(f, 3, 2)))
	f.Add([]byte(jpegOf(f, 3, 2)))
	f.Add([]byte(webpOf("VP8L", 0x2f, 32, 0, 4, 0)))
	f.Fuzz(func(t *testing.T, data []byte) {
		content := string(data)
		h, err := ReadHeader(strings.NewReader(content), int64(len(content)))
		var unfit unfitError
		if err != nil {
			if !errors.As(err, &unfit) || h != (Header{}) || len(err.Error()) > 200 {
				t.Fatalf("%q: %+v, %v", content, h, err)
			}
			return
		}
		if h.Width < 1 || h.Height < 1 || h.Width > maxSide || h.Height > maxSide || h.Width*h.Height > maxPixels || extensions[h.ContentType] == nil {
			t.Fatalf("%q: %+v", content, h)
		}
		f := images.BytesFile("x", data)
		if err := readFile(&f); err != nil && !errors.As(err, &unfit) {
			t.Fatalf("%q: %v", content, err)
		}
	})
}
