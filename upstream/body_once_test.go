package upstream_test

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/tollhouse-ai/gateway/upstream"
)

// long opens a body of 100,000 bytes of its own.
func long(t *testing.T) (io.ReadCloser, weak.Pointer[byte]) {
	t.Helper()
	data := []byte(strings.Repeat("0123456789", 10_000))
	rc, size, err := upstream.BytesBody(data).Open()
	if err != nil || size != 100_000 {
		t.Fatal(size, err)
	}
	return rc, weak.Make(&data[0])
}

// http.Transport keeps a body as long as its answer, which may be a stream.
func TestALongBodyLetsGoOfItsBytesWhenItWasReadOrClosed(t *testing.T) {
	for name, end := range map[string]func(rc io.ReadCloser) error{
		"read": func(rc io.ReadCloser) error {
			_, err := io.Copy(io.Discard, struct{ io.Reader }{rc})
			return err
		},
		"written": func(rc io.ReadCloser) error {
			_, err := rc.(io.WriterTo).WriteTo(io.Discard)
			return err
		},
		"closed": io.ReadCloser.Close,
	} {
		rc, data := long(t)
		if runtime.GC(); data.Value() == nil {
			t.Fatalf("%s: the bytes are gone before", name)
		}
		if err := end(rc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if runtime.GC(); data.Value() != nil {
			t.Errorf("%s: the bytes are still there", name)
		}
		if n, err := rc.Read(make([]byte, 8)); n != 0 || err != io.EOF {
			t.Errorf("%s: %d, %v afterwards", name, n, err)
		}
		runtime.KeepAlive(rc)
	}
}

func TestALongBodyIsWholeHoweverItIsRead(t *testing.T) {
	want := strings.Repeat("0123456789", 10_000)
	for _, first := range []int{0, 1, 99_999, 100_000} {
		rc, _ := long(t)
		var got bytes.Buffer
		if _, err := io.CopyN(&got, rc, int64(first)); err != nil {
			t.Fatal(err)
		}
		if _, err := rc.(io.WriterTo).WriteTo(&got); err != nil || got.String() != want {
			t.Errorf("%d bytes read and the others written: %d, %v", first, got.Len(), err)
		}
	}
	rc, _ := long(t)
	if got, err := io.ReadAll(rc); err != nil || string(got) != want {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
