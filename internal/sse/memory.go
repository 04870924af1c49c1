package sse

import (
	"io"
	"sync"
)

const (
	firstSize = 1 << 9   // a buffer's size to begin with: most streams say a little at a time
	busySize  = 4 << 10  // that of a stream which fills a smaller one
	keptSize  = 64 << 10 // a larger buffer is not kept for the next stream
	keptNames = 64       // event names that are kept
	longName  = 64       // a longer event name is not kept
)

// memory is what outlives one stream: the buffer, and the event names met so
// far, of which a stream has few and repeats them with every event.
type memory struct {
	buf   []byte
	names map[string]string
}

var memories = sync.Pool{New: func() any {
	return &memory{buf: make([]byte, firstSize), names: make(map[string]string)}
}}

func takeMemory() *memory { return memories.Get().(*memory) }

func (m *memory) release() {
	if len(m.buf) <= keptSize {
		memories.Put(m)
	}
}

// name returns b as a string, without a copy where it was met before.
func (m *memory) name(b []byte) string {
	if s, ok := m.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(m.names) < keptNames && len(s) <= longName {
		m.names[s] = s
	}
	return s
}

// fill makes room and reads from the source once (again only when a read gives
// neither bytes nor an error).
func (r *Reader) fill() {
	r.compact()
	if r.end == len(r.mem.buf) || r.busy && len(r.mem.buf) < busySize {
		r.grow()
	}
	const patience = 100
	for range patience {
		n, err := r.src.Read(r.mem.buf[r.end:])
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			r.busy = r.end == len(r.mem.buf)
			return
		}
	}
	r.err = io.ErrNoProgress
}

// compact moves what is still needed, the event's data so far and the unread
// bytes, together at the front of the buffer, unless nothing would be gained or
// half of the buffer is free anyway.
func (r *Reader) compact() {
	buf, to := r.mem.buf, 0
	if r.pos < r.end && r.end <= len(buf)/2 {
		return
	}
	if r.hasData {
		if r.data.start > 0 {
			r.data = span{0, copy(buf, r.data.of(buf))}
		}
		to = r.data.end
	}
	if gap := r.pos - to; gap > 0 {
		copy(buf[to:], buf[r.pos:r.end])
		r.pos, r.scanned, r.end = r.pos-gap, r.scanned-gap, r.end-gap
	}
}

// grow doubles the buffer. The limit bounds it: what compact leaves in a full
// buffer is one event's data and the line after it.
func (r *Reader) grow() {
	buf := make([]byte, 2*len(r.mem.buf))
	copy(buf, r.mem.buf[:r.end])
	r.mem.buf = buf
}
