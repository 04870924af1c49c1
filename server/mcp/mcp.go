// Package mcp offers a gateway's operations to agents, as tools of the Model Context Protocol.
// It speaks over HTTP as a Handler, and over a pair of pipes. A tool call is a request to the
// gateway like any other, with the same key, limits, idempotency and ledger. It keeps no state
// of a session, so that any node can answer any request, before a restart and after it.
package mcp

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
	imagesop "github.com/tollhouse-ai/gateway/internal/operation/images"
)

// Options configure a server of tools. The zero value is the documented default.
type Options struct {
	// Version is that of the program, as clients see it; empty means "dev".
	Version string
	// Origins are the web pages that may call, as a browser's Origin header names them
	// ("https://app.example.com"). Pages of this machine always may. Any other request with an
	// Origin is refused, whatever key it brings.
	Origins []string
	// MaxBody is the largest message of a client in bytes; zero means 32 MiB.
	MaxBody int64
	// MaxResult is the most bytes of images or of audio in one result, before
	// they are written as base64; zero means 32 MiB.
	MaxResult int64
	// MaxWait is how long a tool waits for a video where the client gets its
	// progress; zero means 10 minutes. Without that it is 45 s, since many clients
	// give up after a minute.
	MaxWait time.Duration
	// KeepAlive is the silence after which a client that waits for a tool gets a message, so
	// that no proxy takes the connection for dead. Zero means 15 s.
	KeepAlive time.Duration
}

func (o *Options) setDefaults() {
	o.Version = cmp.Or(o.Version, "dev")
	o.MaxBody = cmp.Or(o.MaxBody, 32<<20)
	o.MaxResult = cmp.Or(o.MaxResult, 32<<20)
	o.MaxWait = cmp.Or(o.MaxWait, 10*time.Minute)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
}

// Handler serves the tools by streamable HTTP, at any path. It is safe for concurrent use.
type Handler struct {
	g         *gateway.Gateway
	o         Options
	tools     []*tool
	transport http.Handler // the SDK's
	running   runningRequests
}

// New returns the handler of a gateway's tools.
func New(g *gateway.Gateway, o Options) *Handler {
	o.setDefaults()
	h := &Handler{g: g, o: o, tools: tools()}
	h.serveBy(h.newServer())
	return h
}

// serveBy has a server of the SDK answer the messages.
func (h *Handler) serveBy(server *sdk.Server) {
	h.transport = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless: true, MaxRequestBodyBytes: -1, PropagateRequestCancellation: true,
		// It would refuse all that a proxy on this machine passes on, since that comes
		// from here under a public name. checkOrigin does its work: a browser names
		// the page that sends a POST.
		DisableLocalhostProtection: true,
	})
}

// instructions are what a model reads before it sees the tools.
const instructions = "These tools make texts, pictures, videos, embeddings, rankings and speech, and each use costs the account money. " +
	"list_models says which models there are and what they cost, estimate_cost what a call would cost, get_balance what is left. " +
	"Give each piece of work a task_label of its own and keep it when you repeat the call: then it is done and paid once. " +
	"A video takes minutes: generate_video gives its id, and get_video tells when it is there."

// newServer is the SDK's server of the tools. It is one for all keys.
func (h *Handler) newServer() *sdk.Server {
	server := sdk.NewServer(
		&sdk.Implementation{Name: "tollhouse", Title: "Tollhouse AI gateway", Version: h.o.Version},
		&sdk.ServerOptions{
			Instructions: instructions, Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
			// Each key is shown models of its own.
			SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
		},
	)
	for _, t := range h.tools {
		server.AddTool(t.describe(catalog{}), h.handle(t))
	}
	server.AddReceivingMiddleware(h.listForCaller)
	return server
}

// listForCaller has tools/list describe the tools with the models that the caller's
// key may use.
func (h *Handler) listForCaller(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
		result, err := next(ctx, method, r)
		list, ok := result.(*sdk.ListToolsResult)
		v := callerFrom(ctx)
		if err != nil || !ok || v == nil {
			return result, err
		}
		c, err := h.catalogOf(ctx, v.principal)
		if err != nil {
			f := fault.From(err) // whose cause is not the client's to read
			return nil, &jsonrpc.Error{Code: ownReason, Message: string(f.Code) + ": " + f.Message}
		}
		for i, listed := range list.Tools {
			for _, t := range h.tools {
				if t.name == listed.Name {
					list.Tools[i] = t.describe(c)
				}
			}
		}
		return list, nil
	}
}

// catalog is what one key may use.
type catalog struct {
	models   []gateway.Model // sorted by id
	complete bool            // there are no others
}

// catalogOf is that of a principal.
func (h *Handler) catalogOf(ctx context.Context, p *auth.Principal) (catalog, error) {
	models, err := h.g.Models(auth.NewContext(ctx, p))
	return catalog{models, h.g.ListsAllModels()}, err
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

// generatesImages reports whether a model makes images from a text alone.
func generatesImages(m gateway.Model) bool {
	_, row, _ := imagesop.FamilyOf(m.ID)
	return m.Kind == gateway.KindImage && row.Fewest == 0
}

// editsImages reports whether a model changes images.
func editsImages(m gateway.Model) bool {
	f, row, known := imagesop.FamilyOf(m.ID)
	switch m.Kind {
	case gateway.KindImageEdit:
		return true
	case gateway.KindImage:
		return !known || f.Edit != nil || row.Largest > 0
	}
	return false
}
