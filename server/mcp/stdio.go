package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
)

// Serve serves one client over a pair of pipes, each line a message, until in
// ends, which is no error, or ctx does: what still runs then is cancelled. A line
// that is no message is answered with an error, and so is a batch. It closes both
// pipes. Calls belong to the key, which is checked at the start and again at each
// call; the zero key is right where the gateway has no Authenticator, or ctx has a
// principal. A *fault.Error says why it could not begin.
func Serve(ctx context.Context, g *gateway.Gateway, key secret.String, in io.ReadCloser, out io.WriteCloser, o Options) error {
	b := newToolServer(g, o)
	response, err := g.Do(ctx, &gateway.Request{Token: key.Reveal()})
	response.End(0, err)
	if err != nil {
		return err
	}
	c, err := b.catalogOf(ctx, response.Principal())
	if err != nil {
		return fault.From(err)
	}
	ctx = withCaller(ctx, &caller{g: g, ctx: ctx, token: key})
	answers := &lineWriter{out: out}
	transport := &sdk.IOTransport{Reader: newMessageReader(in, answers, int(b.o.MaxBody)), Writer: answers, MaxLineLength: int(b.o.MaxBody)}
	return b.server(c).Run(ctx, transport)
}

// messageReader reads a client's messages, one a line. A line that is no message is
// answered here: it must not end the calls of the others. It is read by one
// goroutine; out is shared with the answers.
type messageReader struct {
	io.Closer
	in   *bufio.Reader
	out  *lineWriter
	max  int
	rest []byte // of the line that is being read
	err  error  // what follows it
}

func newMessageReader(in io.ReadCloser, out *lineWriter, most int) *messageReader {
	return &messageReader{Closer: in, in: bufio.NewReaderSize(in, 64<<10), out: out, max: most}
}

// Read gives the next message, or a part of it.
func (l *messageReader) Read(p []byte) (int, error) {
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
func (l *messageReader) next() {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		long := errors.Is(err, bufio.ErrBufferFull)
		if long && len(line) <= l.max {
			continue
		}
		if !long {
			l.err = err
		}
		break
	}
	text := bytes.TrimSpace(line)
	switch {
	case len(line) > l.max:
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
