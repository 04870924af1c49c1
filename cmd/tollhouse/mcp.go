package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server/mcp"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// mcpPath is the path of the MCP server on the public address.
const mcpPath = "/mcp"

// withMCP adds the MCP server to the API, unless the configuration switches it off.
func (a *app) withMCP(api http.Handler) http.Handler {
	c := &a.components.Load().Config.MCP
	if c.Off {
		return api
	}
	tools := mcp.New(a.gateway, mcp.Options{Version: versionText(), Origins: c.Origins})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == mcpPath {
			tools.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

func mcpCommand(p *program) *command {
	c := newCommand("mcp", "serve the tools to one agent, over standard input and output")
	c.details = "An agent's program starts it: standard output carries the protocol only, and logs go to standard error.\n" +
		"It is a gateway of its own with the same configuration as serve; with --url it forwards to a running server.\n" +
		"Calls belong to the key in TOLLHOUSE_KEY. Without one, the demo and vendors' keys in the environment serve\n" +
		"the user who started it, on an account of this machine."
	c.examples = []string{
		"tollhouse mcp --demo",
		"OPENAI_API_KEY=... tollhouse mcp",
		"TOLLHOUSE_KEY=sk-... tollhouse mcp --config tollhouse.yaml",
		"TOLLHOUSE_KEY=sk-... tollhouse mcp --url http://127.0.0.1:8080",
	}
	var s settings
	f := c.flags
	s.addFlags(f, "warn")
	f.StringVar(&s.data, "data", "", "the data directory; default "+defaultData)
	c.bindEnv("config", "demo", "data", "log-level", "log-format")
	var server string
	f.StringVar(&server, "url", "", "the address of a server that runs, instead of a gateway in this process")
	c.run = func(ctx context.Context, _ []string) error {
		key, _ := p.env("TOLLHOUSE_KEY")
		ctx, stop := p.withSignals(ctx)
		defer stop()
		if server != "" {
			if f.Changed("config") || f.Changed("demo") {
				return usagef("--url is the way to a server that runs: leave out --config and --demo")
			}
			return p.bridge(ctx, server, key)
		}
		if err := s.chooseSource(f); err != nil {
			return err
		}
		return p.serveStdio(ctx, &s, secret.New(key))
	}
	return c
}

// apiBase is a server's address as --url names it, without the "/v1" with which the
// API's paths begin.
func apiBase(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", usagef("--url must be an address such as http://127.0.0.1:8080")
	}
	return strings.TrimSuffix(strings.TrimSuffix(u.String(), "/"), "/v1"), nil
}

// serveStdio serves the tools of a gateway in this process until the agent closes
// standard input.
func (p *program) serveStdio(ctx context.Context, s *settings, key secret.String) (err error) {
	src, logger, err := p.load(s)
	if err != nil {
		return err
	}
	account := src.firstAccount
	if key.Reveal() == "" && account == "" {
		return usagef("TOLLHOUSE_KEY is missing: it holds the key of one of the file's accounts")
	}
	a, err := p.newApp(ctx, src, s.data, logger)
	if errors.Is(err, sqlite.ErrLocked) {
		return fmt.Errorf("%w To use the server that has it open, give its address: --url http://127.0.0.1:8080", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.shutdown()) }()
	defer a.startJobs(ctx)()
	if key.Reveal() == "" { // the user who started this process has its data and the vendors' keys anyway
		ctx = auth.NewContext(ctx, &auth.Principal{Account: account, Key: "stdio", Name: "stdio", Limits: src.config.Limits})
	}
	err = mcp.Serve(ctx, a.gateway, key, io.NopCloser(p.stdin), unclosed{p.stdout}, mcp.Options{Version: versionText()})
	if ctx.Err() != nil { // a signal ended it
		err = nil
	}
	return errors.Join(err, a.gateway.Close())
}

// unclosed is an output that its writer cannot close.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }

// withSignals ends the context at a signal.
func (p *program) withSignals(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals, release := p.notify()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); release() }
}

// bridge forwards an agent's messages to a running server, and its answers back.
type bridge struct {
	base string // the server's address, without "/v1"
	key  secret.String
	http *http.Client

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
}

// maxMessageBytes bounds a message of an agent; a server takes no larger one.
const maxMessageBytes = 32 << 20

// bridge runs until the agent closes standard input. Requests that still run then
// are canceled.
func (p *program) bridge(ctx context.Context, server, key string) error {
	if key == "" {
		return usagef("TOLLHOUSE_KEY is missing: it holds a key of the server at %s", server)
	}
	base, err := apiBase(server)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &bridge{base: base, key: secret.New(key), http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}, out: p.stdout}
	defer b.http.CloseIdleConnections()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	lines, failed := p.readLines(ctx)
	for {
		var line []byte
		select {
		case <-ctx.Done(): // a signal ended it
			return nil
		case line = <-lines:
		}
		if line == nil {
			return *failed
		}
		var m rpc
		_ = json.Unmarshal(line, &m, jsontext.AllowDuplicateNames(true)) // the server reports what is wrong with it
		if m.Method == "initialize" {                                    // all other messages need its answer
			b.forward(ctx, line, &m)
			continue
		}
		running.Go(func() { b.forward(ctx, line, &m) })
	}
}

// readLines reads the lines of standard input until it or ctx ends. A goroutine does
// so because reading cannot be canceled. *err is valid once lines is closed.
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

// forward sends a message to the server, and writes the answer or the error.
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

// setHeaders sets the headers that the protocol requires with a message.
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
	_, _ = b.out.Write(append(line, '\n')) // an agent that is gone has closed the input too
}

// statusError is the server's message for a request that it refused.
func statusError(status int, data []byte) error {
	if message := errorMessage(data); message != "" {
		return errors.New(message)
	}
	return fmt.Errorf("the server answered with status %d: %s", status, strings.TrimSpace(string(data[:min(len(data), 200)])))
}
