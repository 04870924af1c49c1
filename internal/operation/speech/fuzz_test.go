package speech

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/speech"
)

// FuzzParse feeds anything to the parser: what it refuses is a 400, and what it
// takes is split into parts that are together the input.
func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"model":"alpha3-tts-flash","input":"hi"}`, `{"model":"m","input":"héllo. Wörld","voice":"nova","speed":1.5}`, `{"model":"m","input":"a","voice":{"id":"v"}}`,
		`{"model":"m","Input":"a"}`, `{"input":"a","input":"b"}`, `{"model":"m","input":"\ud83d\ude00"}`, `[]`, `{"model":"m","input":"a","speed":1e400}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		r, err := Parse(data)
		if err == nil {
			err = r.Check(&operation.Facts{}, nil, nil)
		}
		if !bytes.Equal(before, data) {
			t.Fatalf("%q became %q", before, data)
		}
		if err != nil {
			var e *fault.Error
			if !errors.As(err, &e) || e.HTTPStatus() != 400 || e.Message == "" {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		if r.Model == "" || r.Input == "" || !utf8.ValidString(r.Input) {
			t.Errorf("%q is taken as %+v", data, r)
		}
	})
}

// FuzzSamples feeds anything to the reader of WAV files: it never gives more than
// there is, and all of what it gives stood in the file.
func FuzzSamples(f *testing.F) {
	head := WAVHeader(speech.PCM{Channels: 1, Rate: 24_000, Bits: 16})
	f.Add(append(bytes.Clone(head), "abcd"...))
	f.Add(head[:20])
	f.Add(append(append(bytes.Clone(head[:36]), "LIST\x03\x00\x00\x00xyz\x00"...), head[36:]...))
	f.Add(append(bytes.Clone(head[:16]), 0xff, 0xff, 0xff, 0x7f))
	f.Fuzz(func(t *testing.T, file []byte) {
		p, r, err := Samples(bytes.NewReader(file))
		if err != nil {
			return
		}
		if p.Channels < 1 || p.Rate < 1 || p.Bits < 1 {
			t.Fatalf("%q is %+v", file, p)
		}
		data, err := io.ReadAll(r)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Contains(file, data) {
			t.Errorf("%q gives %q, %v", file, data, err)
		}
	})
}
