package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
)

// adminPlace says where the running server's admin API is and who may use it.
type adminPlace struct{ config, admin, data string }

func (a *adminPlace) flags(c *command) {
	addConfigFlag(c.flags, &a.config)
	addPlaceFlags(c.flags, &a.admin, &a.data)
	c.withTwins("config", "admin", "data")
}

// find looks at the flags, the environment, the file and the defaults.
func (a *adminPlace) find(p *program) (address, dir string, err error) {
	var inFile struct{ admin, data config.Setting }
	if a.config != "" {
		data, err := os.ReadFile(a.config)
		if err == nil {
			inFile.admin, inFile.data, err = config.Addresses(a.config, data, p.env)
		}
		if err != nil {
			return "", "", err
		}
	}
	return cmp.Or(a.admin, inFile.admin.Or(defaultAdmin)), cmp.Or(a.data, inFile.data.Or(defaultData)), nil
}

// client talks to the admin API of a running server.
type client struct {
	at    adminPlace
	json  bool // the answer as JSON
	p     *program
	base  string
	token secret.String
}

// newClient gives a command the flags of one that talks to a server.
func newClient(p *program, c *command) *client {
	cl := &client{p: p}
	c.flags.BoolVar(&cl.json, "json", false, "print one JSON document")
	cl.at.flags(c)
	return cl
}

// connect finds the server's address and token.
func (c *client) connect() error {
	address, dir, err := c.at.find(c.p)
	if err != nil {
		return err
	}
	if address == adminOff {
		return errors.New("the admin API is off: name a running server's address with --admin")
	}
	c.token, err = readToken(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no admin token in %s: name the running server's data directory with --data", dir)
	}
	c.base = "http://" + address
	return err
}

// do sends one request and reads the answer into out, unless it is nil.
func (c *client) do(ctx context.Context, method, path string, in, out any) error {
	if err := c.connect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	direct := &http.Transport{DisableKeepAlives: true} // no proxy: the token is for the server alone
	resp, err := direct.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("no server answers at %s: start one with `tollhouse serve`, or name its admin address with --admin (%w)", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("the server at %s broke off its answer: %w", req.URL.Host, err)
	}
	if resp.StatusCode >= 300 {
		return refusal(req.URL.Host, resp.StatusCode, data)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("what answers at %s is not tollhouse's admin API", req.URL.Host)
	}
	return nil
}

func (c *client) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("the admin address %q must be host:port", c.base)
	}
	req.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// refusal is the server's own word for what went wrong.
func refusal(host string, status int, body []byte) error {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Error.Message == "" {
		return fmt.Errorf("what answers at %s (with status %d) is not tollhouse's admin API", host, status)
	}
	if status == http.StatusUnauthorized {
		return fmt.Errorf("the server at %s does not take this token: name the server's own data directory with --data", host)
	}
	return errors.New(e.Error.Message)
}
