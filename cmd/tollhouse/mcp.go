package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
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

// mcpCommand is `mcp`. Its key comes by the environment alone: the arguments of a process
// can be read by other users of the machine.
func mcpCommand(p *program) *command {
	c := newCommand("mcp", "serve tools to one agent over standard input and output")
	c.details = "The agent's program starts this command: standard output carries only the protocol, and logs go to standard\n" +
		"error. It runs its own gateway, configured like serve; with --url it forwards to a running server. Calls are\n" +
		"made with the key in TOLLHOUSE_KEY. Without a key, the demo and vendors' keys in the environment serve the\n" +
		"user who started it, on a local account."
	c.examples = []string{
		"tollhouse mcp --demo",
		"OPENAI_API_KEY=... tollhouse mcp",
		"TOLLHOUSE_KEY=sk-... tollhouse mcp --config tollhouse.yaml",
		"TOLLHOUSE_KEY=sk-... tollhouse mcp --url http://127.0.0.1:8080",
	}
	var s settings
	f := c.flags
	s.addFlags(f, "warn")
	f.StringVar(&s.data, "data", "", "the data directory `DIR`; default "+defaultData)
	c.bindEnv("config", "demo", "data", "log-level", "log-format")
	var at string
	f.StringVar(&at, "url", "", "the address `URL` of a running server to forward to, instead of a gateway in this process")
	c.run = func(ctx context.Context, _ []string) error {
		key, _ := config.Env(p.env).Trimmed()("TOLLHOUSE_KEY")
		ctx, stop := p.withSignals(ctx)
		defer stop()
		if at != "" {
			if f.Changed("config") || f.Changed("demo") {
				return usagef("--url is the way to a server that runs: leave out --config and --demo")
			}
			return p.forward(ctx, at, key)
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
	if key.IsZero() && account == "" {
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
	if key.IsZero() { // the user who started this process has its data and the vendors' keys anyway
		ctx = auth.NewContext(ctx, &auth.Principal{Account: account, Key: "stdio", Name: "stdio", Limits: src.config.Limits})
	}
	entry, err := a.gateway.Enter(ctx, gateway.Caller{Token: key.Reveal()}) // a wrong key is told at once
	entry.End(http.StatusOK, err)
	if err == nil {
		tools := mcp.New(a.gateway, mcp.Options{Version: versionText()})
		err = mcp.Serve(ctx, server.Client(tools), "http://gateway"+mcpPath, key, p.stdin, p.stdout)
	}
	return errors.Join(err, a.gateway.Close())
}

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

// forward forwards an agent's messages to a server that runs, until the agent closes
// standard input.
func (p *program) forward(ctx context.Context, at, key string) error {
	if key == "" {
		return usagef("TOLLHOUSE_KEY is missing: it holds a key of the server at %s", at)
	}
	base, err := apiBase(at)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}
	defer client.CloseIdleConnections()
	return mcp.Serve(ctx, client, base+mcpPath, secret.New(key), p.stdin, p.stdout)
}
