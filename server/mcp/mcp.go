// Package mcp offers a gateway's operations to agents, as tools of the Model
// Context Protocol: over HTTP as a Handler, and over a pair of pipes. A tool call
// is an exchange of the gateway like any other, with the same key, limits,
// idempotency and ledger. It keeps no state of a session, so that any node can
// answer any request, before a restart and after it.
package mcp

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/internal/imagesapi"
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
	// ReadTimeout is how long the next 64 KiB of a message, or its rest, may take
	// to come; zero means 30 s.
	ReadTimeout time.Duration
	// WriteTimeout is how long one write to a client may take; zero means 30 s.
	WriteTimeout time.Duration
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
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 30*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
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
