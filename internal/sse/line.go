package sse

import (
	"bytes"
	"fmt"
)

// fieldSlack is what a line may have besides its value: a byte order mark, the
// field's name, a colon and a space.
const fieldSlack = 16

// span is a half-open range of offsets into the buffer.
type span struct{ start, end int }

func (s span) of(buf []byte) []byte { return buf[s.start:s.end:s.end] }

// line takes the next whole line out of the buffer; false when there is none.
func (r *Reader) line() (span, bool) {
	if r.afterCR && r.pos < r.end {
		r.afterCR = false
		if r.mem.buf[r.pos] == '\n' {
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
	r.afterCR = r.mem.buf[at] == '\r'
	r.pos, r.scanned = at+1, at+1
	return line, true
}

// lineEnd is where the first line end at or after r.pos stands, or r.end.
// It looks for LF and CR in windows, so that a stream which has only one of
// them does not make it search the whole buffer for the other at every line.
func (r *Reader) lineEnd() int {
	const window = 1024
	for r.scanned < r.end {
		part := r.mem.buf[r.scanned:min(r.scanned+window, r.end)]
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

// take lets one whole line have its effect on the event.
func (r *Reader) take(line span) {
	line = r.unmarked(line)
	switch {
	case line.start < line.end:
		r.field(line)
	case r.hasData:
		r.event.Data, r.ready = r.data.of(r.mem.buf), true
	default:
		r.event = Event{}
	}
}

// unmarked takes the byte order mark off the stream's first line.
func (r *Reader) unmarked(line span) span {
	if !r.started && bytes.HasPrefix(line.of(r.mem.buf), []byte("\xef\xbb\xbf")) {
		line.start += 3
	}
	r.started = true
	return line
}

// field lets a line that is not blank have its effect on the event.
func (r *Reader) field(line span) {
	switch name, value := cut(line.of(r.mem.buf)); string(name) {
	case "data":
		r.join(span{line.end - len(value), line.end})
	case "event":
		r.event.Name = r.mem.name(value)
	}
}

// cut splits a line into its field name and its value.
func cut(line []byte) (name, value []byte) {
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

// join adds a data line to the event's data, in place: a line is longer than
// its value by at least the field's name, so the line feed always fits between.
func (r *Reader) join(value span) {
	if !r.hasData {
		r.hasData, r.data = true, value
	} else {
		buf := r.mem.buf
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
