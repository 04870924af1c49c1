package httpdo

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
)

func TestACompressedAnswerUnfoldsToItsEndOrFails(t *testing.T) {
	const size = 3 << 20
	for name, row := range map[string]struct {
		body []byte
		left int64
		want int
		err  error
	}{
		"whole":         {vendortest.Gzip(t, size), size, size, nil},
		"over the cap":  {vendortest.Gzip(t, size), size - 1, -1, errTooLarge},
		"cut":           {vendortest.Gzip(t, size)[:100], size, -1, io.ErrUnexpectedEOF},
		"nothing":       {nil, size, 0, io.ErrUnexpectedEOF},
		"not gzip":      {[]byte("{\"choices\":[]}"), size, 0, gzip.ErrHeader},
		"wrong content": {append(vendortest.Gzip(t, 5)[:20:20], 0, 0, 0, 0, 0, 0, 0, 0), size, -1, nil},
	} {
		body := &gzipBody{body: io.NopCloser(bytes.NewReader(row.body)), left: row.left}
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
	if !notProcessed(errors.New("stream error: stream ID 3; REFUSED_STREAM")) || notProcessed(io.EOF) {
		t.Error("what a server did not look at is known by its words")
	}
}
