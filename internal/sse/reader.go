// Package sse reads and writes server-sent events: leniently in, one strict
// form out.
package sse

import (
	"encoding/json"
	"errors"
	"io"
)

// DefaultLimit is the most bytes of data that one event may have where the
// caller of [NewReader] names no limit (faults.md, row 5).
const DefaultLimit = 8 << 20

// ErrTooLarge says that an event is larger than the Reader's limit.
var ErrTooLarge = errors.New("the event is larger than the limit")

// errReleased is what a Reader answers after Release.
var errReleased = errors.New("the event reader was released")

// Event is one event of a stream.
type Event struct {
	// Name is the value of the event's last "event:" line; empty when it had none.
	Name string
	// Data is the values of the event's "data:" lines, joined with line feeds.
	// It is valid until the next call of Next or Release.
	Data []byte
}

// Reader takes events out of a byte stream. Lines may end in LF, CRLF or CR, a
// byte order mark may stand first, and the space after "data:" may be missing.
// A Reader is for one goroutine at a time.
type Reader struct {
	src   io.Reader
	limit int
	mem   *memory
	err   error // what src said last; final

	pos, end int // the unread bytes of mem.buf
	scanned  int // the line at pos has no end before here

	event   Event // what the lines read so far say
	data    span  // where its data stands in mem.buf
	hasData bool
	ready   bool // event is complete and was not handed out yet
	afterCR bool // a line feed at pos belongs to the line end before it
	busy    bool // the last read filled the buffer
	started bool // the first line, where a byte order mark may stand, is behind us
}

// NewReader returns a Reader of src. limit is the most bytes that the data of
// one event may have, 0 means [DefaultLimit]; a line of another kind is held to
// it as well. The Reader does not close src. Call Release when done.
func NewReader(src io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Reader{src: src, limit: limit, mem: takeMemory()}
}

// Release gives the Reader's buffer back for use by others; events read before
// are void from then on. Further calls of Next fail, further calls of Release
// do nothing. It must not run at the same time as Next.
func (r *Reader) Release() {
	if r.mem != nil {
		r.mem.release()
	}
	*r = Reader{err: errReleased}
}

// Next returns the next event that has data, as soon as its blank line was
// read. Events without data, comments and other fields are passed over. The end
// of src is io.EOF; any other error of src comes after the events that were
// complete before it; an event over the limit is [ErrTooLarge]. Errors are final.
//
// An event that src ends without a blank line counts only when nothing of its
// data can be missing: it is "[DONE]" or a whole JSON object.
func (r *Reader) Next() (Event, error) {
	for !r.Buffered() {
		if r.err != nil {
			return r.last()
		}
		r.fill()
	}
	r.ready, r.hasData = false, false
	event := r.event
	r.event = Event{}
	return event, nil
}

// Buffered reports whether Next will return an event without reading from the
// source. It leaves the event that Next returned last as it is, and what it
// finds out Next need not find again.
func (r *Reader) Buffered() bool {
	for !r.ready {
		line, ok := r.line()
		if !ok {
			return false
		}
		r.take(line)
	}
	return true
}

// last is what Next returns once the source has failed or ended.
func (r *Reader) last() (Event, error) {
	if r.err != io.EOF { // a wrapped io.EOF is a failure, see io.Reader
		return Event{}, r.err
	}
	rest := r.unmarked(span{r.pos, r.end})
	if name, _ := cut(rest.of(r.mem.buf)); string(name) == "data" {
		r.field(rest)
	}
	r.pos = r.end
	if !r.hasData {
		return Event{}, r.err
	}
	r.hasData = false
	r.event.Data = r.data.of(r.mem.buf)
	if !whole(r.event.Data) {
		return Event{}, r.err
	}
	return r.event, nil
}

// whole reports whether data cannot be the beginning of something longer.
func whole(data []byte) bool {
	return string(data) == "[DONE]" || len(data) > 0 && data[0] == '{' && json.Valid(data)
}
