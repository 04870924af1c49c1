package sse

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// reference is the definition of a stream's events, written for clarity: it
// has the whole stream and no limit.
func reference(stream string) ([]got, error) {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	switch document := strings.TrimLeft(stream, " \t\r\n"); {
	case strings.HasPrefix(document, "{"), strings.HasPrefix(document, "["):
		return []got{{"", document}}, io.EOF
	case strings.HasPrefix(document, "<"):
		return nil, ErrMarkup
	}
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	var (
		events []got
		name   string
		data   []string
	)
	for i, line := range lines {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		unfinished := i == len(lines)-1
		switch {
		case field == "data":
			data = append(data, value)
		case field == "event" && !unfinished:
			name = value
		case line == "" && !unfinished:
			if strings.Trim(strings.Join(data, "\n"), " \t\n") != "" {
				events = append(events, got{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
		}
	}
	last := strings.Join(data, "\n")
	if last == "[DONE]" || strings.HasPrefix(last, "{") && json.Valid([]byte(last)) {
		events = append(events, got{name, last})
	}
	return events, io.EOF
}

// chunks is a reader that gives size bytes at a time.
type chunks struct {
	rest []byte
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:min(len(c.rest), c.size)])
	c.rest = c.rest[n:]
	return n, nil
}

// pushAll gives a Reader size bytes at a time.
func pushAll(stream []byte, size int) (all []got) {
	r := NewReader(nil, 0)
	defer r.Release()
	for ; len(stream) > 0; stream = stream[min(size, len(stream)):] {
		r.Push(stream[:min(size, len(stream))])
		for r.Buffered() {
			e, _ := r.Next() // which cannot fail
			all = append(all, got{e.Name, string(e.Data)})
		}
	}
	for {
		e, err := r.Next()
		if err != nil {
			return all
		}
		all = append(all, got{e.Name, string(e.Data)})
	}
}

func FuzzReader(f *testing.F) {
	for _, d := range dialects {
		f.Add([]byte(d.stream), uint16(3))
	}
	f.Add([]byte("data: "+strings.Repeat("x", 3*firstSize)+"\r\ndata: y\r\n\r\n"), uint16(4095))
	f.Add([]byte(strings.Repeat("data: 1\n:\n", firstSize)+"\n"), uint16(100))
	f.Add([]byte(strings.Repeat("event: delta\ndata: {\"a\":1}\n\n", 9)+"event: delta\ndata: a\rdata: b\n\nevent: delta\ndata: \n\nevent: delta\ndata: c\nid: 1\n\n"), uint16(70))
	f.Add([]byte("\xef\xbb\xbf \r\n{\"a\":\n\ndata: 1\n\n"), uint16(1))
	f.Add([]byte("\n\n<html>\n"), uint16(2))
	f.Add([]byte("data: 1\n\n"+strings.Repeat("data: 2\n\n", 9)+"data: 3\n\r\ndata:  4\n\n\ndata: 5\n\n:\nevent: x\n\ndata: 6\n\ndata: 7\n"), uint16(25))
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		want, end := reference(string(stream))
		for how, src := range map[string]io.Reader{
			"at once":      bytes.NewReader(stream),
			"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
			"in chunks":    &chunks{stream, int(size) + 1},
		} {
			events, err := readAll(src, 0)
			if err != end || !slices.Equal(events, want) {
				t.Errorf("%s: got %q, %v, want %q", how, events, err, want)
			}
		}
		if events := pushAll(stream, int(size)+1); !slices.Equal(events, want) {
			t.Errorf("pushed: got %q, want %q", events, want)
		}
	})
}
