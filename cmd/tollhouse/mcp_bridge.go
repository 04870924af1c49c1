package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/secret"
)

// bridge carries an agent's messages to a server that runs, and its answers back.
type bridge struct {
	base string // the server's address
	key  secret.String
	http *http.Client

	mu               sync.Mutex // guards what follows and the order of lines
	out              io.Writer
	session, version string // of the server, once it was asked to begin
}

// rpc is what is read of a message of the protocol.
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
}

// longestMessage is how long a line of an agent may be, in bytes: what a server
// takes.
const maxMessageBytes = 32 << 20

// bridge runs until the agent closes standard input. What still runs then is
// taken back.
func (p *program) bridge(ctx context.Context, base string, key secret.String) error {
	ctx, cancel := context.WithCancel(ctx)
	b := &bridge{base: base, key: key, http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}, out: p.stdout}
	defer b.http.CloseIdleConnections()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	lines, failed := p.readLines(ctx)
	for {
		var line []byte
		select {
		case <-ctx.Done(): // it was told to end
			return nil
		case line = <-lines:
		}
		if line == nil {
			return *failed
		}
		var m rpc
		_ = json.Unmarshal(line, &m, jsontext.AllowDuplicateNames(true)) // the server says what is wrong with it
		if m.Method == "initialize" {                                    // all else needs its answer
			b.forward(ctx, line, &m)
			continue
		}
		running.Go(func() { b.forward(ctx, line, &m) })
	}
}

// lines are those of standard input, until it or ctx ends: reading it cannot be
// ended. err may be looked at when the lines have ended.
func (p *program) readLines(ctx context.Context) (lines <-chan []byte, err *error) {
	out, err := make(chan []byte), new(error)
	go func() {
		defer close(out)
		in := bufio.NewScanner(p.stdin)
		in.Buffer(nil, maxMessageBytes)
		for in.Scan() {
			select {
			case <-ctx.Done():
				return
			case out <- append([]byte{}, in.Bytes()...):
			}
		}
		if *err = in.Err(); errors.Is(*err, bufio.ErrTooLong) {
			*err = fmt.Errorf("a message is longer than %d bytes, which is the most that a server takes", maxMessageBytes)
		}
	}()
	return out, err
}

// carry asks the server, and writes what it answers as lines.
func (b *bridge) forward(ctx context.Context, line []byte, m *rpc) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	if err := b.ask(ctx, line, m); err != nil && ctx.Err() == nil && m.ID != nil {
		data, _ := json.Marshal(map[string]any{ // of texts and an id that was JSON
			"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32000, "message": err.Error()},
		}, json.Deterministic(true))
		b.write(data)
	}
}

func (b *bridge) ask(ctx context.Context, line []byte, m *rpc) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.base+mcpPath, bytes.NewReader(line))
	if err != nil {
		return err
	}
	b.setHeaders(r.Header, m)
	resp, err := b.http.Do(r)
	if err != nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if m.Method == "initialize" {
		b.mu.Lock()
		b.session = resp.Header.Get("Mcp-Session-Id")
		b.mu.Unlock()
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return b.copyEvents(resp.Body)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxMessageBytes))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return statusError(resp.StatusCode, data)
	}
	if len(bytes.TrimSpace(data)) > 0 {
		b.write(data)
	}
	return nil
}

// head sets what the protocol wants beside a message.
func (b *bridge) setHeaders(h http.Header, m *rpc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Set("Authorization", "Bearer "+b.key.Reveal())
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	version, own := m.Params.Meta["io.modelcontextprotocol/protocolVersion"].(string)
	if !own {
		version = b.version
	}
	for name, value := range map[string]string{
		"Mcp-Session-Id": b.session, "Mcp-Protocol-Version": version, "Mcp-Method": m.Method, "Mcp-Name": m.Params.Name,
	} {
		if value != "" {
			h.Set(name, value)
		}
	}
}

func (b *bridge) copyEvents(body io.Reader) error {
	events := sse.NewReader(body, 2*maxMessageBytes) // results are larger than what was asked
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

// write writes a message as one line, and notes the version that the server
// speaks.
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
	_ = line.Compact()                     // what is no JSON goes as it is
	_, _ = b.out.Write(append(line, '\n')) // an agent that is gone closes the input too
}

// refused is the error of an HTTP status, in the server's words.
func statusError(status int, data []byte) error {
	var m struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &m) == nil && m.Error.Message != "" {
		return errors.New(m.Error.Message)
	}
	return fmt.Errorf("the server answered with status %d: %s", status, strings.TrimSpace(string(data[:min(len(data), 200)])))
}
