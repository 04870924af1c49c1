package config

import (
	"errors"
	"net/url"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// MCP is the server of tools for agents, at /mcp of the public address.
type MCP struct {
	Pos     Pos
	Off     bool
	Origins []string // web pages that may call, besides those of this machine
}

// Same reports whether the two say the same, wherever they stand.
func (m *MCP) Same(o *MCP) bool { return m.Off == o.Off && slices.Equal(m.Origins, o.Origins) }

func (r *reader) mcp(n ast.Node, m *MCP) {
	m.Pos = position(n)
	on := true
	r.object(n, "mcp", fields{
		"enabled": r.boolean(&on, "enabled"),
		"origins": func(n ast.Node) {
			r.list(n, "origins", func(n ast.Node) {
				m.Origins = append(m.Origins, parsed(r, n, "an item of origins", parseOrigin))
			})
		},
	})
	m.Off = !on
}

// parseOrigin reads what a browser names a page by.
func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != text {
		return "", errors.New("write the origin of a page, as browsers do: a scheme, a host and a port if it is not the usual one, such as https://app.example.com")
	}
	return text, nil
}
