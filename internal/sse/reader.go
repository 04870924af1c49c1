// Package sse reads and writes server-sent events: leniently in, one strict
// form out.
package sse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/tollhouse-ai/gateway/fault"
)

// DefaultLimit is the most bytes of data that one event may have where the
// caller of [NewReader] names no limit (docs/reference/faults.md, row 5).
const DefaultLimit = 8 << 20

// ErrMarkup says that the source is a web page, or another text in angle brackets.
var ErrMarkup = errors.New("the stream of events is a web page")

// MaxSize is a limit for streams whose events were bounded before: no answer is larger.
const MaxSize = 256 << 20

// Budget is memory that large events share with others.
type Budget interface {
	// Reserve waits until n bytes in all are the Reader's. Less than before gives some back.
	Reserve(n int64) error

	// Keep says that an event has come whole. It keeps its bytes, but others that wait for
	// memory need not wait for the client that reads it.
	Keep()
}

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
	// Whole says that the source is no stream: Data is all of it, a JSON document.
	Whole bool
}

// Reader takes events out of a byte stream. Lines may end in LF, CRLF or CR, a byte order mark
// may come first, and the space after "data:" may be missing.
//
// The first byte that is not white space decides what the source is, whatever its content type
// says. A bracket begins a JSON document, which is one event, and "<" begins a web page.
// Everything else is a stream.
//
// A Reader is for one goroutine at a time.
type Reader struct {
	src    io.Reader // nil where Push gives the bytes
	limit  int
	pooled *pooledBuffer
	err    error // what src said last; final

	budget   Budget // of events of more than unbudgeted bytes; nil for no bound
	reserved bool   // some of it is reserved

	pos, end int // the unread bytes of mem.buf
	scanned  int // the line at pos has no end before here

	event   Event // what the lines read so far say
	data    span  // where its data stands in mem.buf
	hasData bool
	ready   bool // event is complete and was not handed out yet
	afterCR bool // a line feed at pos belongs to the line end before it
	busy    bool // the last read filled the buffer
	started bool // the first line, where a byte order mark may stand, is behind us
	opened  bool // the first byte that is no white space has come
	whole   bool // which begins a JSON document
	cut     bool // src has ended within the data of an event

	name string // of the events that pooled.head is the head of
}

// NewReader returns a Reader of src. limit is the most bytes of one event's data, and of a
// line of another kind; 0 means [DefaultLimit]. The Reader does not close src. Call Release
// when done.
//
// A nil src is for a stream that the caller reads: [Reader.Push] takes its bytes.
func NewReader(src io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Reader{src: src, limit: limit, pooled: getBuffer()}
}

// SetBudget has the Reader reserve the memory of large events: for each twice its size, since
// whoever reads it makes something of it.
func (r *Reader) SetBudget(b Budget) { r.budget = b }

// Release gives the Reader's buffer back for use by others; events read before
// are invalid from then on. Further calls of Next fail, further calls of Release
// do nothing. It must not run at the same time as Next.
func (r *Reader) Release() {
	if r.pooled != nil {
		r.pooled.release()
	}
	if r.reserved {
		_ = r.budget.Reserve(0)
	}
	*r = Reader{err: errReleased, opened: true}
}

// Next returns the next event that has data, as soon as its blank line was read. Events
// without data or with a blank one, comments and other fields are passed over. The end of src
// is io.EOF. Any other error of src comes after the events that were complete before it. An
// event over the limit is [ErrTooLarge]. Errors are final.
//
// If src ends without a blank line, its last event counts only if it is surely complete:
// "[DONE]" or a whole JSON object.
func (r *Reader) Next() (Event, error) {
	for !r.Buffered() && r.err == nil {
		r.fill()
	}
	if r.reserved {
		r.budget.Keep()
	}
	if !r.ready {
		return r.last()
	}
	r.ready, r.hasData = false, false
	event := r.event
	r.event = Event{}
	return event, nil
}

// Push adds the next bytes of a stream, of a Reader without a source; it copies them. Take all
// events that are [Reader.Buffered] before the next Push, so that the limit bounds the memory.
// Push makes the data of the last event invalid. Next without a buffered event says that the
// stream has ended, and gives its last event or io.EOF. After an error Push does nothing.
func (r *Reader) Push(p []byte) {
	for len(p) > 0 && r.err == nil {
		if r.compact(); r.end == len(r.pooled.buf) {
			r.grow()
		}
		n := copy(r.pooled.buf[r.end:], p)
		r.end, p = r.end+n, p[n:]
	}
}

// Cut reports, once Next has returned io.EOF, whether the stream ended within an event.
// Then its last data can be the beginning of something longer, which Next did not return.
func (r *Reader) Cut() bool { return r.cut }

// Ended reports whether the source has ended well, even if some of it was not read yet.
func (r *Reader) Ended() bool { return r.err == io.EOF }

// Buffered reports whether Next will return an event without reading from the
// source. It leaves the event that Next returned last as it is, and what it
// finds out Next need not find again.
func (r *Reader) Buffered() bool {
	if !r.opened && !r.open() {
		return false
	}
	if r.whole {
		if r.end-r.pos > r.limit {
			r.tooLarge()
		}
		return false // all of the source is waited for
	}
	for !r.ready && !r.repeats() {
		line, ok := r.nextLine()
		if !ok {
			return false
		}
		r.applyLine(line)
	}
	return true
}

// open finds out what the source is; it reports false if more of it must come first, or if
// it is no stream. White space alone does not tell.
func (r *Reader) open() bool {
	rest := r.pooled.buf[r.pos:r.end]
	if !r.started {
		if len(rest) < len(bom) && bytes.HasPrefix(bom, rest) {
			return false
		}
		rest = bytes.TrimPrefix(rest, bom)
	}
	if rest = bytes.TrimLeft(rest, " \t\r\n"); len(rest) == 0 {
		return true
	}
	switch r.opened = true; rest[0] {
	case '{', '[':
		r.whole, r.pos = true, r.end-len(rest)
	case '<':
		r.err, r.pos, r.scanned = ErrMarkup, r.end, r.end
		return false
	}
	return true
}

// bom is the byte order mark in UTF-8.
var bom = []byte("\xef\xbb\xbf")

// repeats takes the next event if it has one line of data and the form that the last
// event suggests. Its whole head is compared at once, and only the data is searched for
// an end. It reports false, with nothing done, of any other.
func (r *Reader) repeats() bool {
	if r.pos == r.end || r.hasData || r.afterCR || !r.started || r.event.Name != "" || r.scanned != r.pos {
		return false
	}
	head := r.pooled.head
	if len(head) == 0 || !bytes.HasPrefix(r.pooled.buf[r.pos:r.end], head) {
		return false
	}
	start := r.pos + len(head)
	rest := r.pooled.buf[start:r.end]
	size := bytes.IndexByte(rest, '\n')
	if size <= 0 || isBlank(rest[:size]) || size > r.limit || size+1 == len(rest) || rest[size+1] != '\n' || bytes.IndexByte(rest[:size], '\r') >= 0 {
		return false
	}
	r.hasData, r.data = true, span{start, start + size}
	r.event, r.ready = Event{Name: r.name, Data: r.data.of(r.pooled.buf)}, true
	r.pos = r.data.end + len("\n\n")
	r.scanned = r.pos
	return true
}

// last is what Next returns once the source has failed or ended.
func (r *Reader) last() (Event, error) {
	if r.err != io.EOF { // a wrapped io.EOF is a failure, see io.Reader
		return Event{}, r.err
	}
	if r.whole && r.pos < r.end {
		rest := span{r.pos, r.end}
		r.pos = r.end
		return Event{Data: rest.of(r.pooled.buf), Whole: true}, nil
	}
	rest := r.skipBOM(span{r.pos, r.end})
	if name, _ := splitField(rest.of(r.pooled.buf)); string(name) == "data" {
		r.field(rest)
	}
	r.pos = r.end
	if !r.hasData {
		return Event{}, r.err
	}
	r.hasData = false
	r.event.Data = r.data.of(r.pooled.buf)
	if r.cut = !isComplete(r.event.Data); r.cut {
		return Event{}, r.err
	}
	return r.event, nil
}

// isComplete reports whether data cannot be the beginning of something longer.
func isComplete(data []byte) bool {
	return string(data) == "[DONE]" || len(data) > 0 && data[0] == '{' && json.Valid(data)
}

// fieldSlack is what a line may have besides its value: a byte order mark, the
// field's name, a colon and a space.
const fieldSlack = 16

// span is a half-open range of offsets into the buffer.
type span struct{ start, end int }

func (s span) of(buf []byte) []byte { return buf[s.start:s.end:s.end] }

// nextLine takes the next whole line out of the buffer; false when there is none.
func (r *Reader) nextLine() (span, bool) {
	if r.afterCR && r.pos < r.end {
		r.afterCR = false
		if r.pooled.buf[r.pos] == '\n' {
			r.pos++
			r.scanned = r.pos
		}
	}
	at := r.lineEnd()
	size := at - r.pos
	if r.hasData {
		size += r.data.end - r.data.start
	}
	if size > r.limit+fieldSlack {
		r.tooLarge()
		return span{}, false
	}
	if at == r.end {
		return span{}, false
	}
	line := span{r.pos, at}
	r.afterCR = r.pooled.buf[at] == '\r'
	r.pos, r.scanned = at+1, at+1
	return line, true
}

// lineEnd returns the offset of the first line end at or after r.pos, or r.end. It looks for
// LF and CR in windows. A stream that has only one of them then does not search the whole
// buffer for the other at every line.
func (r *Reader) lineEnd() int {
	const window = 1024
	for r.scanned < r.end {
		part := r.pooled.buf[r.scanned:min(r.scanned+window, r.end)]
		lf := bytes.IndexByte(part, '\n')
		if lf >= 0 {
			part = part[:lf]
		}
		if cr := bytes.IndexByte(part, '\r'); cr >= 0 {
			return r.scanned + cr
		}
		if lf >= 0 {
			return r.scanned + lf
		}
		r.scanned += len(part)
	}
	return r.end
}

// applyLine applies one whole line to the event.
func (r *Reader) applyLine(line span) {
	line = r.skipBOM(line)
	switch {
	case line.start < line.end:
		r.field(line)
	case r.hasData && !isBlank(r.data.of(r.pooled.buf)):
		r.event.Data, r.ready = r.data.of(r.pooled.buf), true
		r.expect(r.event.Name)
	default:
		r.event, r.hasData = Event{}, false
	}
}

// isBlank reports whether data is white space alone, or nothing: the heartbeat of some
// servers is an empty data line. The standard dispatches no event without data
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func isBlank(data []byte) bool {
	return len(data) == 0 || data[0] <= ' ' && len(bytes.Trim(data, " \t\n")) == 0
}

// expect has repeats look for events called name.
func (r *Reader) expect(name string) {
	if name == r.name && len(r.pooled.head) > 0 {
		return
	}
	r.name = name
	r.pooled.head = append(AppendName(r.pooled.head[:0], name), "data: "...)
}

// skipBOM takes the byte order mark off the stream's first line.
func (r *Reader) skipBOM(line span) span {
	if !r.started && bytes.HasPrefix(line.of(r.pooled.buf), bom) {
		line.start += 3
	}
	r.started = true
	return line
}

// field applies a line that is not blank to the event.
func (r *Reader) field(line span) {
	switch name, value := splitField(line.of(r.pooled.buf)); string(name) {
	case "data":
		r.appendData(span{line.end - len(value), line.end})
	case "event":
		r.event.Name = r.pooled.name(value)
	}
}

// splitField splits a line into its field name and its value.
func splitField(line []byte) (name, value []byte) {
	i := bytes.IndexByte(line[:min(len(line), fieldSlack)], ':')
	if i < 0 {
		return line, nil
	}
	name, value = line[:i], line[i+1:]
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return name, value
}

// appendData adds a data line to the event's data, in place. The line feed always fits
// between, because a line is longer than its value by at least the field's name.
func (r *Reader) appendData(value span) {
	if !r.hasData {
		r.hasData, r.data = true, value
	} else {
		buf := r.pooled.buf
		buf[r.data.end] = '\n'
		r.data.end++
		r.data.end += copy(buf[r.data.end:], value.of(buf))
	}
	if r.data.end-r.data.start > r.limit {
		r.tooLarge()
	}
}

// tooLarge ends the stream and forgets what was gathered.
func (r *Reader) tooLarge() {
	r.err = fmt.Errorf("%w of %d bytes", ErrTooLarge, r.limit)
	r.pos, r.scanned, r.end, r.hasData = 0, 0, 0, false
}

const (
	firstSize     = 1 << 9   // a buffer's size to begin with: most streams say a little at a time
	busySize      = 15 << 9  // that of a stream which fills a smaller one; see grow
	maxPooledSize = 64 << 10 // a larger buffer is not kept for the next stream
	maxNames      = 64       // event names that are kept
	maxNameLength = 64       // a longer event name is not kept
)

// pooledBuffer is what one stream leaves to the next: the buffer, and the event names so far.
// A stream has few names and repeats them with every event.
type pooledBuffer struct {
	buf   []byte
	names map[string]string
	head  []byte // what is expected before the next event's data; empty for nothing yet
}

var bufferPool = sync.Pool{New: func() any {
	return &pooledBuffer{buf: make([]byte, firstSize), names: make(map[string]string)}
}}

func getBuffer() *pooledBuffer { return bufferPool.Get().(*pooledBuffer) }

// release keeps the buffer for another stream, unless one event made it large.
func (m *pooledBuffer) release() {
	if m.head = m.head[:0]; len(m.buf) <= maxPooledSize {
		bufferPool.Put(m)
	}
}

// name returns b as a string, without a copy where it was met before.
func (m *pooledBuffer) name(b []byte) string {
	if s, ok := m.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(m.names) < maxNames && len(s) <= maxNameLength {
		m.names[s] = s
	}
	return s
}

// fill makes room and reads from the source once (again only when a read gives
// neither bytes nor an error). What has no source has ended.
func (r *Reader) fill() {
	if r.src == nil {
		r.err = io.EOF
		return
	}
	r.shrink()
	r.compact()
	if r.end == len(r.pooled.buf) || r.busy && len(r.pooled.buf) < busySize {
		r.grow()
	}
	if r.err != nil { // there is no memory for it
		return
	}
	const maxEmptyReads = 100
	for range maxEmptyReads {
		n, err := r.src.Read(r.pooled.buf[r.end:])
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			r.busy = r.end == len(r.pooled.buf)
			return
		}
	}
	r.err = io.ErrNoProgress
}

// compact moves the event's data so far and the unread bytes to the front of the buffer. It
// does nothing if that gains nothing or half of the buffer is free.
func (r *Reader) compact() {
	buf, to := r.pooled.buf, 0
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

// unbudgeted is how large a buffer is a part of any stream.
const unbudgeted = 1 << 20

// shrink gives up a buffer that one event has made large, once that was read.
func (r *Reader) shrink() {
	rest := r.pooled.buf[r.pos:r.end]
	if len(r.pooled.buf) <= unbudgeted || r.hasData || r.whole || len(rest) > busySize/2 {
		return
	}
	buf := make([]byte, busySize)
	r.scanned -= r.pos
	r.pos, r.end = 0, copy(buf, rest)
	r.pooled.buf = buf
	if r.reserved {
		r.reserved = false
		_ = r.budget.Reserve(0)
	}
}

// grow doubles the buffer. The limit bounds it: what compact leaves in a full
// buffer is one event's data and the line after it.
//
// It stops at busySize on the way: what that holds leaves, with a chunk's frame, in two
// of net/http's buffers of 4 KiB. A little more would take three writes.
func (r *Reader) grow() {
	size := 2 * len(r.pooled.buf)
	if len(r.pooled.buf) < busySize {
		size = min(size, busySize)
	}
	if size > unbudgeted && r.budget != nil {
		r.reserved = true
		if r.err = r.budget.Reserve(2 * int64(size)); r.err != nil {
			return
		}
	}
	buf := make([]byte, size)
	copy(buf, r.pooled.buf[:r.end])
	r.pooled.buf = buf
}

// Decode yields what decode makes of the events of a source. It closes the source at the end
// of the loop, however that ends. An error of the source comes last, as a *fault.Error. An
// event for which decode returns nil is passed over.
func Decode[T any](source io.ReadCloser, decode func(e Event) (*T, error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		defer func() { _ = source.Close() }() // what was read is all there is
		events := NewReader(source, MaxSize)
		defer events.Release()
		for {
			e, err := events.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, fault.From(err))
				return
			}
			v, err := decode(e)
			if v == nil && err == nil {
				continue
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}
