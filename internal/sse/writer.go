package sse

import "bytes"

// Done is the event that ends a complete stream of chat completions.
const Done = "data: [DONE]\n\n"

// AppendData appends data as one event without a name. Data that has line
// breaks goes out as several data lines, which a reader joins with line feeds.
func AppendData(dst, data []byte) []byte { return AppendEvent(dst, "", data) }

// AppendEvent appends data as one event called name; an empty name writes no
// "event:" line. What follows a line break in name is left out, so that no name
// can forge a field.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	if head, _, _ := nextLine([]byte(name)); len(head) > 0 {
		dst = append(dst, "event: "...)
		dst = append(dst, head...)
		dst = append(dst, '\n')
	}
	for more := true; more; {
		var line []byte
		line, data, more = nextLine(data)
		dst = append(dst, "data: "...)
		dst = append(dst, line...)
		dst = append(dst, '\n')
	}
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
