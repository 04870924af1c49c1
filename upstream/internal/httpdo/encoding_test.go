package httpdo

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
)

func zipped(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	block := make([]byte, 1<<20)
	for ; size > 0; size -= len(block) {
		if _, err := w.Write(block[:min(size, len(block))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestACompressedAnswerUnfoldsToItsEndOrFails(t *testing.T) {
	const size = 3 << 20
	for name, row := range map[string]struct {
		body []byte
		left int64
		want int
		err  error
	}{
		"whole":         {zipped(t, size), size, size, nil},
		"over the cap":  {zipped(t, size), size - 1, -1, errTooLarge},
		"cut":           {zipped(t, size)[:100], size, -1, io.ErrUnexpectedEOF},
		"nothing":       {nil, size, 0, io.ErrUnexpectedEOF},
		"not gzip":      {[]byte("{\"choices\":[]}"), size, 0, gzip.ErrHeader},
		"wrong content": {append(zipped(t, 5)[:20:20], 0, 0, 0, 0, 0, 0, 0, 0), size, -1, nil},
	} {
		body := &inflated{src: io.NopCloser(bytes.NewReader(row.body)), left: row.left}
		n, err := io.Copy(io.Discard, body)
		if row.want >= 0 && n != int64(row.want) || row.err != nil && !errors.Is(err, row.err) || (err == nil) != (name == "whole") {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
	if maxDecoded != 256<<20 {
		t.Error("the cap is not that of the answers")
	}
}

func TestWhatAServerDidNotLookAtIsKnownByItsWords(t *testing.T) {
	if !unprocessed(errors.New("stream error: stream ID 3; REFUSED_STREAM")) || unprocessed(io.EOF) {
		t.Error("what a server did not look at is known by its words")
	}
}
