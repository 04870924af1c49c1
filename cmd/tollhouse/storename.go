package main

import (
	"cmp"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// storeName is an address without the password. It is the same from every
// directory and however the address is written, and another one for another
// database.
func storeName(address string) string {
	if path, ok := strings.CutPrefix(address, config.SQLite); ok {
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		return config.SQLite + path
	}
	if address == config.Memory {
		return address
	}
	c, err := pgx.ParseConfig(address)
	if err != nil {
		return "postgres:" // nothing of what may be a password
	}
	return postgresName(c)
}

// postgresName is a URL with the host as libpq takes it: a socket's directory
// and several hosts are parameters. The user belongs to it, as tables may be in
// a schema of the user's name.
func postgresName(c *pgx.ConnConfig) string {
	type place struct{ host, port string }
	places := []place{{c.Host, strconv.Itoa(int(c.Port))}}
	for _, f := range c.Fallbacks { // an address may be in it twice, with and without TLS
		if p := (place{f.Host, strconv.Itoa(int(f.Port))}); !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	u := url.URL{Scheme: "postgres", User: url.User(c.User), Path: "/" + cmp.Or(c.Database, c.User)}
	query := url.Values{}
	if len(places) == 1 && !filepath.IsAbs(c.Host) {
		u.Host = net.JoinHostPort(places[0].host, places[0].port)
	} else {
		var hosts, ports []string
		for _, p := range places {
			hosts, ports = append(hosts, p.host), append(ports, p.port)
		}
		query.Set("host", strings.Join(hosts, ","))
		query.Set("port", strings.Join(ports, ","))
	}
	for _, name := range []string{"search_path", "options"} { // which say where the tables are
		if value := c.RuntimeParams[name]; value != "" {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
