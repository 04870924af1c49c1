// Package mcp offers a gateway's operations to agents, as tools of the Model
// Context Protocol: over HTTP as a Handler, and over a pair of pipes. A tool call
// is a request to the gateway like any other, with the same key, limits,
// idempotency and ledger. It keeps no state of a session, so that any node can
// answer any request, before a restart and after it.
package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/imagesapi"
	"github.com/tollhouse-ai/gateway/secret"
)

// Options configure a server of tools. The zero value is the documented default.
type Options struct {
	// Version is that of the program, as clients are told it; empty means "dev".
	Version string
	// Origins are web pages that may call, as a browser's Origin header names them
	// ("https://app.example.com"). Pages of this machine may always; any other
	// request with an Origin is refused, whoever's key it brings.
	Origins []string
	// MaxBody is the largest message of a client in bytes; zero means 32 MiB.
	MaxBody int64
	// MaxResult is the most bytes of pictures or of audio in one result, before
	// they are written as base64; zero means 32 MiB.
	MaxResult int64
	// MaxWait is how long a tool waits for a video where the client is told of the
	// progress; zero means 10 minutes. Without that it is 45 s, since many clients
	// give up after a minute.
	MaxWait time.Duration
	// KeepAlive is the silence after which a client that waits for a tool hears
	// something, so that nothing in between takes the connection for dead; zero
	// means 15 s.
	KeepAlive time.Duration
}

func (o *Options) setDefaults() {
	o.Version = cmp.Or(o.Version, "dev")
	o.MaxBody = cmp.Or(o.MaxBody, 32<<20)
	o.MaxResult = cmp.Or(o.MaxResult, 32<<20)
	o.MaxWait = cmp.Or(o.MaxWait, 10*time.Minute)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
}

// toolServer offers the tools of a gateway, over HTTP or pipes.
type toolServer struct {
	g     *gateway.Gateway
	o     Options
	tools []*tool // with schemas that are read off Go types, once

	mu      sync.Mutex
	servers map[string]*sdk.Server // by what its key may use
}

func newToolServer(g *gateway.Gateway, o Options) *toolServer {
	o.setDefaults()
	return &toolServer{g: g, o: o, tools: tools(), servers: make(map[string]*sdk.Server)}
}

// instructions are what a model is told before it sees the tools.
const instructions = "These tools make texts, pictures, videos, embeddings and speech, and each use costs the account money. " +
	"list_models says which models there are and what they cost, estimate_cost what a call would cost, get_balance what is left. " +
	"Give each piece of work a task_label of its own and keep it when you repeat the call: then it is done and paid once. " +
	"A video takes minutes: generate_video gives its id, and get_video tells when it is there."

// server is the SDK's server for keys that may use these models. Keys that may use
// the same models share one.
func (s *toolServer) server(c catalog) *sdk.Server {
	name := c.cacheKey()
	s.mu.Lock()
	defer s.mu.Unlock()
	if server := s.servers[name]; server != nil {
		return server
	}
	const maxServers = 256 // they are made anew faster than the oldest is found
	if len(s.servers) >= maxServers {
		clear(s.servers)
	}
	server := sdk.NewServer(
		&sdk.Implementation{Name: "tollhouse", Title: "Tollhouse AI gateway", Version: s.o.Version},
		&sdk.ServerOptions{
			Instructions: instructions, Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
			// Each key is shown models of its own.
			SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
		},
	)
	for _, t := range s.tools {
		server.AddTool(t.describe(c), s.handle(t))
	}
	s.servers[name] = server
	return server
}

// catalog is what one key may use.
type catalog struct {
	models   []gateway.Model // sorted by id
	complete bool            // there are no others
}

// catalogOf is that of a principal.
func (s *toolServer) catalogOf(ctx context.Context, p *auth.Principal) (catalog, error) {
	models, err := s.g.Models(auth.NewContext(ctx, p))
	return catalog{models, s.g.ListsAllModels()}, err
}

// cacheKey tells catalogs apart.
func (c catalog) cacheKey() string {
	var key strings.Builder
	for _, m := range c.models {
		key.WriteString(m.ID)
		key.WriteByte(' ')
		key.WriteString(string(m.Kind))
		key.WriteByte('\n')
	}
	if c.complete {
		key.WriteByte('.')
	}
	return key.String()
}

// modelsFor are the ids of the models that a tool takes. They are all only if each
// model's kind is known.
func (c catalog) modelsFor(takes func(gateway.Model) bool) (ids []string, all bool) {
	all = c.complete
	for _, m := range c.models {
		switch {
		case m.Kind == "":
			all = false
		case takes(m):
			ids = append(ids, m.ID)
		}
	}
	return ids, all
}

// ofKind is the rule of a tool whose models are of these kinds.
func ofKind(kinds ...gateway.Kind) func(gateway.Model) bool {
	return func(m gateway.Model) bool { return slices.Contains(kinds, m.Kind) }
}

// generatesImages reports whether a model makes pictures from a text alone.
func generatesImages(m gateway.Model) bool {
	_, row, _ := imagesapi.FamilyOf(m.ID)
	return m.Kind == gateway.KindImage && row.Fewest == 0
}

// editsImages reports whether a model changes pictures.
func editsImages(m gateway.Model) bool {
	f, row, known := imagesapi.FamilyOf(m.ID)
	switch m.Kind {
	case gateway.KindImageEdit:
		return true
	case gateway.KindImage:
		return !known || f.Edit != nil || row.Largest > 0
	}
	return false
}

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
