package config

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Read reads a configuration. name is what its errors call the file. Every
// error is an *[Error].
func Read(name string, data []byte, env Env) (*Config, error) {
	r := &reader{env: env, anchors: make(map[string]ast.Node)}
	body, err := parse(data)
	if err != nil {
		r.syntax(err, data)
		return nil, r.problems.err(name)
	}
	if body != nil {
		ast.Walk(r, body)
	}
	c := &Config{Prices: make(map[string]Price), Video: defaultVideo()}
	r.object(body, "the file", r.fileFields(c))
	if len(r.problems) == 0 {
		c.validate(&r.problems)
	}
	c.KeyFiles = r.keyFiles
	err = r.problems.err(name)
	if refused := new(Error); errors.As(err, &refused) {
		refused.KeyFiles = r.keyFiles
		return nil, refused
	}
	return c, nil
}

// Places are what a command needs of a file to find the server or its store.
type Locations struct {
	Admin, Data, Store, Billing, Currency Setting
}

// ReadPlaces reads only the places, for a command that need not know the file's
// variables. Mistakes elsewhere are not looked at.
func ReadLocations(name string, data []byte, env Env) (Locations, error) {
	var p Locations
	r := &reader{env: env, anchors: make(map[string]ast.Node)}
	body, err := parse(data)
	if err != nil {
		r.syntax(err, data)
		return p, r.problems.err(name)
	}
	known := fields{
		"admin": r.setting(&p.Admin, "admin"), "data": r.setting(&p.Data, "data"), "store": r.store(&p.Store),
		"billing": r.choice(&p.Billing, "billing", Prepaid, Count), "currency": r.currency(&p.Currency),
	}
	for _, pair := range r.pairs(body, "the file") {
		if read, ok := known[pair.key]; ok {
			read(pair.value)
		}
	}
	return p, r.problems.err(name)
}

// parse is the tree of a file; nil for an empty one. A file must not be able to
// end a server that reads it again.
func parse(data []byte) (body ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file cannot be read as YAML (%v)", p)
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	switch {
	case err != nil:
		return nil, err
	case len(file.Docs) == 0:
		return nil, nil
	case len(file.Docs) > 1:
		return nil, errors.New("the file has more than one YAML document")
	}
	return file.Docs[0].Body, nil
}

// syntax notes what the parser could not read. Its own words for it would show
// the line, in which a key may stand.
func (r *reader) syntax(err error, data []byte) {
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil {
		r.problems.add(Pos{}, "%v", err)
		return
	}
	p, hint := e.GetToken().Position, ""
	if colonAtEnd(data, p.Line) {
		hint = `; a value that ends in ":" needs quotes, such as store: "memory:"`
	}
	r.problems.add(Pos{p.Line, p.Column}, "this is not YAML: %s%s", e.GetMessage(), hint)
}

// colonAtEnd reports whether a line is "store: memory:" or the like.
func colonAtEnd(data []byte, line int) bool {
	lines := strings.Split(string(data), "\n")
	if line < 1 || line > len(lines) {
		return false
	}
	text, _, _ := strings.Cut(lines[line-1], " #")
	value, isStore := strings.CutPrefix(strings.TrimSpace(text), "store:")
	return isStore && strings.HasSuffix(value, ":")
}

// top is the table of the file's own keys (server.md, Config file).
func (r *reader) fileFields(c *Config) fields {
	return fields{
		"listen":   r.address(&c.Listen, "listen"),
		"admin":    r.address(&c.Admin, "admin"),
		"data":     r.setting(&c.Data, "data"),
		"store":    r.store(&c.Store),
		"billing":  r.choice(&c.Billing, "billing", Prepaid, Count),
		"currency": r.currency(&c.Currency),
		"channels": func(n ast.Node) {
			r.list(n, "channels", func(n ast.Node) { c.Channels = append(c.Channels, r.channel(n)) })
		},
		"prices": func(n ast.Node) { r.prices(n, c.Prices) },
		"models": func(n ast.Node) { c.Models = r.models(n) },
		"accounts": func(n ast.Node) {
			r.list(n, "accounts", func(n ast.Node) { c.Accounts = append(c.Accounts, r.account(n)) })
		},
		"limits":    func(n ast.Node) { r.object(n, "limits", r.limits(&c.Limits)) },
		"video":     func(n ast.Node) { r.video(n, &c.Video) },
		"webhooks":  func(n ast.Node) { r.webhooks(n, &c.Webhooks) },
		"server":    func(n ast.Node) { r.server(n, &c.Server) },
		"telemetry": func(n ast.Node) { r.telemetry(n, &c.Telemetry) },
		"metrics":   func(n ast.Node) { r.metrics(n, &c.Metrics) },
		"mcp":       func(n ast.Node) { r.mcp(n, &c.MCP) },
	}
}

// setting reads a top-level value that must not be empty.
func (r *reader) setting(to *Setting, what string) func(ast.Node) {
	return func(n ast.Node) {
		to.Pos = position(n)
		r.word(&to.Value, what)(n)
	}
}

func (r *reader) choice(to *Setting, what string, choices ...string) func(ast.Node) {
	return r.checked(to, what, func(v string) error {
		for _, c := range choices {
			if v == c {
				return nil
			}
		}
		return fmt.Errorf("it must be one of %s", strings.Join(choices, ", "))
	})
}

func (r *reader) address(to *Setting, what string) func(ast.Node) {
	return r.checked(to, what, func(v string) error {
		if _, _, err := net.SplitHostPort(v); err != nil && (what != "admin" || v != "off") {
			return errors.New("it must be host:port, for example 127.0.0.1:8080")
		}
		return nil
	})
}

func (r *reader) currency(to *Setting) func(ast.Node) {
	return r.checked(to, "currency", func(v string) error {
		if len(v) != 3 || strings.Trim(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			return errors.New("it must be three capital letters such as USD")
		}
		return nil
	})
}

// store reads where accounts, keys and balances are kept. The word memory is
// taken too: "memory:" without quotes is not YAML.
func (r *reader) store(to *Setting) func(ast.Node) {
	read := r.checked(to, "store", func(v string) error {
		path, sqlite := strings.CutPrefix(v, SQLite)
		switch {
		case v == Memory, v+":" == Memory, strings.HasPrefix(v, Postgres), strings.HasPrefix(v, "postgresql://"):
			return nil
		case sqlite && path != "" && !strings.HasPrefix(path, "//") && path != Memory:
			return nil
		}
		return errors.New(`it must be sqlite:PATH, postgres://… or "memory:"`)
	})
	return func(n ast.Node) {
		read(n)
		if to.Value+":" == Memory {
			to.Value = Memory
		}
	}
}

// checked reads a setting that check may refuse.
func (r *reader) checked(to *Setting, what string, check func(string) error) func(ast.Node) {
	return func(n ast.Node) {
		r.setting(to, what)(n)
		if to.Value == "" {
			return
		}
		if err := check(to.Value); err != nil {
			r.problems.add(to.Pos, "%s: %v", what, err)
		}
	}
}
