package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/secret"
)

// maxLine bounds a message of a client; a server takes no larger one by default.
const maxLine = 32 << 20

// Serve serves one client over a pair of pipes, each line a message. It forwards the messages
// to the MCP server at a URL and writes its answers. For a Handler of the same process, client
// is one of package server. Calls belong to the key; a zero key is right where the gateway has
// no Authenticator, or ctx has a principal.
//
// It returns nil when in or ctx ends, after it has cancelled the requests that still
// run then. It closes neither pipe: where ctx ends it, a read of in goes on until that
// ends too. A line that is no message is answered with an error, and so is a batch.
// The error is of reading in.
func Serve(ctx context.Context, client *http.Client, url string, key secret.String, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	b := &bridge{url: url, key: key, client: client, out: out}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	lines, failed := readLines(ctx, in)
	for {
		var line []byte
		select {
		case <-ctx.Done():
			return nil
		case line = <-lines:
		}
		if line == nil {
			return *failed
		}
		m, ok := b.check(line)
		switch {
		case !ok:
		case m.Method == "initialize": // all other messages need its answer
			b.forward(ctx, line, m)
		default:
			running.Go(func() { b.forward(ctx, line, m) })
		}
	}
}

// readLines reads lines that are not empty until in or ctx ends. A goroutine does so
// because reading cannot be cancelled. *err is valid once lines is closed.
func readLines(ctx context.Context, in io.Reader) (lines <-chan []byte, err *error) {
	out, err := make(chan []byte), new(error)
	go func() {
		defer close(out)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			line := bytes.TrimSpace(scanner.Bytes())
			if len(line) == 0 {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case out <- bytes.Clone(line):
			}
		}
		if *err = scanner.Err(); errors.Is(*err, bufio.ErrTooLong) {
			*err = fmt.Errorf("a message is longer than %d bytes, which is the most that a server takes", maxLine)
		}
	}()
	return out, err
}

// bridge forwards a client's messages to a server. It is safe for concurrent use.
type bridge struct {
	url    string
	key    secret.String
	client *http.Client

	mu               sync.Mutex // guards what follows and the order of lines
	out              io.Writer
	session, version string // of the server, once it was asked to begin
}

// rpc are the fields of a JSON-RPC message that the bridge needs.
type rpc struct {
	Method string         `json:"method"`
	ID     jsontext.Value `json:"id"`
	Params struct {
		Name string         `json:"name"`
		Meta map[string]any `json:"_meta"`
	} `json:"params"`
	Result struct {
		Version string `json:"protocolVersion"`
	} `json:"result"`
	Error struct {
		Code    jsontext.Value `json:"code"` // a number, where a server of MCP answers
		Message string         `json:"message"`
		Data    struct {
			Code       fault.Code `json:"code"`
			Status     int        `json:"status"`
			RequestID  string     `json:"request_id"`
			RetryAfter int64      `json:"retry_after_ms"`
		} `json:"data"`
	} `json:"error"`
}

// check reads what the bridge needs of a line. One that is no message is answered.
func (b *bridge) check(line []byte) (m rpc, ok bool) {
	if line[0] == '[' {
		b.refuse(nil, jsonrpc.CodeInvalidRequest, "One message a line: batches are not taken over pipes.")
		return m, false
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		b.refuse(nil, jsonrpc.CodeParseError, "This line is no JSON-RPC message. A message is one JSON object on one line.")
		return m, false
	}
	_ = json.Unmarshal(line, &m, jsontext.AllowDuplicateNames(true)) // the server says what is wrong with it
	return m, true
}

// forward sends a message to the server, and writes the answer or the error. A
// notification has no answer.
func (b *bridge) forward(ctx context.Context, line []byte, m rpc) {
	if err := b.ask(ctx, line, m); err != nil && ctx.Err() == nil && m.ID != nil {
		code := ownReason
		if answered, ok := errors.AsType[*answeredError](err); ok {
			code = answered.code
		}
		b.refuse(m.ID, code, err.Error())
	}
}

// ask sends a message and writes the answer, or every message of a stream of events. The
// session of the answer to initialize goes with all later messages.
func (b *bridge) ask(ctx context.Context, line []byte, m rpc) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(line))
	if err != nil {
		return err
	}
	b.setHeaders(r.Header, m)
	resp, err := b.client.Do(r)
	if err != nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if m.Method == "initialize" {
		b.mu.Lock()
		b.session = resp.Header.Get(sessionHeader)
		b.mu.Unlock()
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return b.copyEvents(resp.Body)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return b.refused(m, resp.StatusCode, data)
	}
	if len(bytes.TrimSpace(data)) > 0 {
		b.write(data)
	}
	return nil
}

// setHeaders sets the headers that the protocol requires with a message.
func (b *bridge) setHeaders(h http.Header, m rpc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	if !b.key.IsZero() {
		h.Set("Authorization", "Bearer "+b.key.Reveal())
	}
	version, own := m.Params.Meta["io.modelcontextprotocol/protocolVersion"].(string)
	if !own {
		version = b.version
	}
	for name, value := range map[string]string{
		sessionHeader: b.session, "Mcp-Protocol-Version": version, "Mcp-Method": m.Method, "Mcp-Name": m.Params.Name,
	} {
		if value != "" {
			h.Set(name, value)
		}
	}
}

// copyEvents writes the messages of a stream.
func (b *bridge) copyEvents(body io.Reader) error {
	events := sse.NewReader(body, 2*maxLine) // results are larger than what was asked
	defer events.Release()
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the server's answer broke off: %w", err)
		}
		if len(e.Data) > 0 {
			b.write(e.Data)
		}
	}
}

// write writes a message as one line, and notes the protocol version of the first
// answer that has one.
func (b *bridge) write(data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.version == "" {
		var m rpc
		if json.Unmarshal(data, &m, jsontext.AllowDuplicateNames(true)) == nil {
			b.version = m.Result.Version
		}
	}
	line := jsontext.Value(bytes.Clone(data))
	_ = line.Compact()                     // invalid JSON is passed on as it is
	_, _ = b.out.Write(append(line, '\n')) // a client that is gone has closed the input too
}

// refuse answers a message, or a line without an id, with an error.
func (b *bridge) refuse(id jsontext.Value, code int, message string) {
	b.write(rpcAnswer(id, "error", map[string]any{"code": code, "message": message}))
}

// refused tells of a message that the server refused. For a tool that is a result, so
// that the model reads what to do about it.
func (b *bridge) refused(m rpc, status int, data []byte) error {
	var answer rpc
	_ = json.Unmarshal(data, &answer, jsontext.AllowDuplicateNames(true)) // the server may not speak JSON-RPC
	e := &answer.Error
	switch {
	case e.Message == "":
		return fmt.Errorf("the server answered with status %d: %s", status, strings.TrimSpace(string(data[:min(len(data), 200)])))
	case e.Data.Code == "" || m.Method != "tools/call":
		code, err := strconv.Atoi(string(e.Code))
		if err != nil {
			code = ownReason
		}
		return &answeredError{code: code, message: e.Message}
	}
	f := &fault.Error{
		Code: e.Data.Code, Status: e.Data.Status, Message: strings.TrimPrefix(e.Message, string(e.Data.Code)+": "),
		RetryAfter: time.Duration(e.Data.RetryAfter) * time.Millisecond,
	}
	b.write(rpcAnswer(m.ID, "result", errorResult(e.Data.RequestID, f)))
	return nil
}

// answeredError is the server's own JSON-RPC error, which keeps its code.
type answeredError struct {
	code    int
	message string
}

func (e *answeredError) Error() string { return e.message }
