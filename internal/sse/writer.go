package sse

import (
	"bytes"
	"strings"
	"sync"
)

// Done is the event that ends a complete stream of chat completions.
const Done = "data: [DONE]\n\n"

// IsDone reports whether the data of an event is that of [Done].
func IsDone(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

// AppendData appends data as one event without a name. Data that has line
// breaks goes out as several data lines, which a reader joins with line feeds.
func AppendData(dst, data []byte) []byte { return AppendEvent(dst, "", data) }

// AppendEvent appends data as one event called name; an empty name writes no "event:" line.
// Anything behind a line break in name is left out, so that no name can forge a field.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	dst = AppendName(dst, name)
	for more := true; more; {
		var line []byte
		line, data, more = nextLine(data)
		dst = append(dst, "data: "...)
		dst = append(dst, line...)
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}

// AppendName appends the line of an event called name, which [AppendEvent] begins with.
func AppendName(dst []byte, name string) []byte {
	if at := strings.IndexAny(name, "\r\n"); at >= 0 {
		name = name[:at]
	}
	if name == "" {
		return dst
	}
	dst = append(dst, "event: "...)
	dst = append(dst, name...)
	return append(dst, '\n')
}

// nextLine splits text at its first line break; more is false when it has none.
func nextLine(text []byte) (line, rest []byte, more bool) {
	i := bytes.IndexByte(text, '\n')
	if i < 0 {
		i = len(text)
	}
	if cr := bytes.IndexByte(text[:i], '\r'); cr >= 0 {
		i = cr
	}
	if i == len(text) {
		return text, nil, false
	}
	line, rest = text[:i], text[i+1:]
	if text[i] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return line, rest, true
}

// outputs keep the buffers of ended streams for later ones. A new buffer that grows with its
// first events costs a fifth of a short stream (BenchmarkServe of package server).
var outputs = sync.Pool{New: func() any { return new([]byte) }}

// GetOutput returns an empty slice to append events to. Give it back with [PutOutput].
func GetOutput() []byte { return *outputs.Get().(*[]byte) }

// PutOutput gives back a buffer that is no longer used. It drops an unusually large one.
func PutOutput(out []byte) {
	const usual = 16 << 10
	if cap(out) == 0 || cap(out) > usual {
		return
	}
	empty := out[:0] // which alone moves to the heap
	outputs.Put(&empty)
}
