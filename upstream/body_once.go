package upstream

import (
	"io"
	"sync"
)

// sentOnce is a long body in memory, which it lets go of when it was read. The
// answer to it may be a stream that lives for minutes, and http.Transport keeps
// the body until its end. Close may be called while a Read runs.
type onceReader struct {
	mu   sync.Mutex
	data []byte
}

// Read reads on.
func (b *onceReader) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.data)
	if b.data = b.data[n:]; len(b.data) == 0 {
		b.data = nil
		return n, io.EOF
	}
	return n, nil
}

// WriteTo writes what is left at once, and not through a buffer.
func (b *onceReader) WriteTo(w io.Writer) (int64, error) {
	b.mu.Lock()
	data := b.data
	b.data = nil
	b.mu.Unlock()
	if len(data) == 0 {
		return 0, nil
	}
	n, err := w.Write(data)
	return int64(n), err
}

// Close lets go of it.
func (b *onceReader) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = nil
	return nil
}
