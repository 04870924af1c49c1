package sse

import (
	"bytes"
	"io"
	"testing"
)

// endless repeats a stream for ever, in reads of at most 4 KiB.
type endless struct {
	stream []byte
	at     int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.stream[e.at:])
	e.at = (e.at + n) % len(e.stream)
	return n, nil
}

func benchmark(b *testing.B, one string) {
	r := NewReader(&endless{stream: bytes.Repeat([]byte(one), 1000)}, 0)
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAChunkOf200Bytes(b *testing.B) {
	benchmark(b, "data: "+string(bytes.Repeat([]byte("x"), 192))+"\n\n")
}

func BenchmarkANamedEvent(b *testing.B) {
	benchmark(b, "event: content_block_delta\ndata: "+string(bytes.Repeat([]byte("x"), 165))+"\n\n")
}

func BenchmarkAnEventOf1MiB(b *testing.B) {
	benchmark(b, "data: "+string(bytes.Repeat([]byte("x"), 1<<20))+"\n\n")
}

func BenchmarkAStreamOfOneEvent(b *testing.B) {
	stream := []byte("data: [DONE]\n\n")
	src := bytes.NewReader(nil)
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(stream)
		r := NewReader(src, 0)
		for {
			if _, err := r.Next(); err == io.EOF {
				break
			}
		}
		r.Release()
	}
}

func TestReadingAnEventTakesNoMemory(t *testing.T) {
	for _, one := range []string{"data: {\"a\":1}\n\n", "event: ping\ndata: a\ndata: b\n\n", "data: a\r\r"} {
		r := NewReader(&endless{stream: []byte(one)}, 0)
		if n := testing.AllocsPerRun(1000, func() { r.Next() }); n > 0 {
			t.Errorf("%q: %v allocations", one, n)
		}
	}
}
