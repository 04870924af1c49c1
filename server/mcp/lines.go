package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// lines are a client's messages, one a line. A line that is no message is
// answered here: it must not end the calls of the others. It is read by one
// goroutine; out is shared with the answers.
type lines struct {
	io.Closer
	in   *bufio.Reader
	out  *lineWriter
	most int
	rest []byte // of the line that is being read
	err  error  // what follows it
}

func newLines(in io.ReadCloser, out *lineWriter, most int) *lines {
	return &lines{Closer: in, in: bufio.NewReaderSize(in, 64<<10), out: out, most: most}
}

// Read gives the next message, or a part of it.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.next()
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next reads a line. One that is too long is for the reader to refuse.
func (l *lines) next() {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		long := errors.Is(err, bufio.ErrBufferFull)
		if long && len(line) <= l.most {
			continue
		}
		if !long {
			l.err = err
		}
		break
	}
	text := bytes.TrimSpace(line)
	switch {
	case len(line) > l.most:
		l.rest = line
		return
	case len(text) == 0:
		return
	case text[0] == '[':
		l.out.refuse(jsonrpc.CodeInvalidRequest, "One message a line: batches are not taken over pipes.")
		return
	}
	if _, err := jsonrpc.DecodeMessage(text); err != nil {
		l.out.refuse(jsonrpc.CodeParseError, "This line is no JSON-RPC message. A message is one JSON object on one line.")
		return
	}
	l.rest = append(text, '\n')
}

// lineWriter writes whole messages. It is safe for concurrent use.
type lineWriter struct {
	mu  sync.Mutex
	out io.WriteCloser
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}

func (w *lineWriter) Close() error { return w.out.Close() }

// refuse answers a line that has no id to answer to.
func (w *lineWriter) refuse(code int64, message string) {
	// A client that does not read it any more is noticed by the next answer.
	_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":` + strconv.FormatInt(code, 10) + `,"message":` + strconv.Quote(message) + "}}\n"))
}
