package mcp

import (
	"context"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
)

// Serve serves one client over a pair of pipes, each line a message, until in
// ends, which is no error, or ctx does: what still runs then is taken back. A line
// that is no message is answered with an error, and so is a batch. It closes both. Calls belong to the key,
// which is checked at the start and again at each call; the zero key is right
// where the gateway has no Authenticator, or ctx has a principal. What it cannot
// begin with is a *fault.Error.
func Serve(ctx context.Context, g *gateway.Gateway, key secret.String, in io.ReadCloser, out io.WriteCloser, o Options) error {
	b := newBox(g, o)
	x := g.Begin()
	err := x.Authenticate(ctx, key.Reveal())
	x.End(ctx, 0, err)
	if err != nil {
		return fault.From(err)
	}
	c, err := b.catalogOf(ctx, x.Principal())
	if err != nil {
		return fault.From(err)
	}
	ctx = withVisit(ctx, &visit{g: g, ctx: ctx, token: key})
	answers := &lineWriter{out: out}
	transport := &sdk.IOTransport{Reader: newLines(in, answers, int(b.o.MaxBody)), Writer: answers, MaxLineLength: int(b.o.MaxBody)}
	return b.server(c).Run(ctx, transport)
}
