package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server/mcp"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// toolsPath is where the public address serves the tools for agents.
const mcpPath = "/mcp"

// withTools serves the tools beside the API, unless they are switched off.
func (h *app) withMCP(api http.Handler) http.Handler {
	c := &h.components.Load().Config.MCP
	if c.Off {
		return api
	}
	tools := mcp.New(h.gateway, mcp.Options{Version: versionText(), Origins: c.Origins})
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
		"It is a gateway of its own, of the same sources as serve; or, with --url, the way to one that runs.\n" +
		"Calls belong to the key in TOLLHOUSE_KEY. Without one, the demo and vendors' keys in the environment serve\n" +
		"whoever started it, on an account of this machine."
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
			return p.checkedBridge(ctx, server, key, f)
		}
		if err := s.chooseSource(f); err != nil {
			return err
		}
		return p.serveStdio(ctx, &s, secret.New(key))
	}
	return c
}

// bridgeTo is the way to a server that runs, which has all else that the flags
// could say.
func (p *program) checkedBridge(ctx context.Context, server, key string, f *pflag.FlagSet) error {
	if f.Changed("config") || f.Changed("demo") {
		return usagef("--url is the way to a server that runs: leave out --config and --demo")
	}
	if key == "" {
		return usagef("TOLLHOUSE_KEY is missing: it holds a key of the server at %s", server)
	}
	base, err := apiBase(server)
	if err != nil {
		return err
	}
	return p.bridge(ctx, base, secret.New(key))
}

// serveAgent serves the tools of a gateway in this process until the agent
// closes standard input.
func (p *program) serveStdio(ctx context.Context, s *settings, key secret.String) (err error) {
	src, logger, err := p.load(s)
	if err != nil {
		return err
	}
	account := src.firstAccount
	if key.Reveal() == "" && account == "" {
		return usagef("TOLLHOUSE_KEY is missing: it holds the key of one of the file's accounts")
	}
	h, err := p.newApp(ctx, src, s.data, logger)
	if errors.Is(err, sqlite.ErrLocked) {
		return fmt.Errorf("%w To use the server that has it open, give its address: --url http://127.0.0.1:8080", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.shutdown()) }()
	defer h.startJobs(ctx)()
	if key.Reveal() == "" { // whoever started this has the data and the vendors' keys anyway
		ctx = auth.NewContext(ctx, &auth.Principal{Account: account, Key: "stdio", Name: "stdio", Limits: src.config.Limits})
	}
	err = mcp.Serve(ctx, h.gateway, key, io.NopCloser(p.stdin), unclosed{p.stdout}, mcp.Options{Version: versionText()})
	if ctx.Err() != nil { // it was told to end
		err = nil
	}
	return errors.Join(err, h.gateway.Close())
}

// unclosed is an output that outlives who writes to it.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }

// interruptible ends the context at a signal.
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
