package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
)

// adminPlace says where the running server's admin API is, who may use it, and
// where the store is if no server runs.
type adminFlags struct{ config, admin, data string }

func (a *adminFlags) register(c *command) {
	addConfigFlag(c.flags, &a.config)
	addPlaceFlags(c.flags, &a.admin, &a.data)
	c.bindEnv("config", "admin", "data")
}

// place is what came of an adminPlace.
type adminTarget struct {
	admin  string // address, or off
	explicit bool   // by a flag or a variable: it is meant, and nothing else
	data   string
	store  string // address
	fromFile  bool   // the store, by a configuration file
	file  config.Places
	// recorded is the address that a server wrote in the data directory; empty if
	// there is none, or a flag, a variable or the file says where the server is.
	recorded string
}

// find looks at the flags, the environment, the file and the defaults.
func (a *adminFlags) target(p *program) (*adminTarget, error) {
	var in config.Places
	if a.config != "" {
		data, err := os.ReadFile(a.config)
		if err == nil {
			in, err = config.ReadPlaces(a.config, data, p.env)
		}
		if err != nil {
			return nil, err
		}
	}
	at := &adminTarget{
		admin: cmp.Or(a.admin, in.Admin.Or(defaultAdmin)), explicit: a.admin != "" && a.admin != adminOff,
		data: cmp.Or(a.data, in.Data.Or(defaultData)), fromFile: a.config != "", file: in,
	}
	at.store = config.StoreIn(at.data, in.Store)
	if said := cmp.Or(a.admin, in.Admin.Value); said == "" || strings.HasSuffix(said, ":0") { // port 0: the system chose
		at.recorded = readAddress(at.data)
	}
	return at, nil
}

// client does the operator's requests: through the admin API of a running
// server, or on the store itself while none runs.
type adminCommand struct {
	flags   adminFlags
	json bool   // the answer as JSON
	unbounded bool   // the answer may take any time, once the server is found
	liveOnly string // why only a server that runs can answer; empty if its store will do
	p    *program
}

// newClient gives a command the flags of one that works on a store.
func newAdminCommand(p *program, c *command) *adminCommand {
	cl := &adminCommand{p: p}
	c.flags.BoolVar(&cl.json, "json", false, "print one JSON document")
	cl.flags.register(c)
	return cl
}

// do sends one request and reads the answer into out.
func (c *adminCommand) do(ctx context.Context, method, path string, in, out any) error {
	return c.with(ctx, method, func(ctx context.Context, desk *adminClient) error { return desk.do(ctx, method, path, in, out) })
}

// with finds who answers requests of a method, and has them sent there.
func (c *adminCommand) with(ctx context.Context, method string, send func(context.Context, *adminClient) error) error {
	at, err := c.flags.target(c.p)
	if err != nil {
		return err
	}
	at.explicit = at.explicit || c.liveOnly != ""
	bounded, cancel := context.WithTimeout(ctx, c.p.adminTimeout())
	defer cancel()
	desk, err := c.p.connect(bounded, at, method == http.MethodGet)
	if err != nil && c.liveOnly != "" {
		err = fmt.Errorf("%s, and %w", c.liveOnly, err)
	}
	if err != nil {
		return err
	}
	if !c.unbounded {
		ctx = bounded
	}
	return errors.Join(send(ctx, desk), desk.close())
}

// listing is a list of the admin API.
type listing[T any] struct {
	Object  string `json:"object"`
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more,omitempty"`
}

// listAll asks for page after page. id is what a page is told to begin after.
func listAll[T any](ctx context.Context, c *adminCommand, path string, query url.Values, id func(T) string) (all listing[T], err error) {
	c.unbounded = true // each page is bounded, and not how many there are
	err = c.with(ctx, http.MethodGet, func(ctx context.Context, desk *adminClient) error {
		q := maps.Clone(query)
		if q == nil {
			q = url.Values{}
		}
		for {
			var page listing[T]
			bounded, cancel := context.WithTimeout(ctx, c.p.adminTimeout())
			err := desk.do(bounded, http.MethodGet, path+"?"+q.Encode(), nil, &page)
			cancel()
			if err != nil {
				return err
			}
			page.Data = append(all.Data, page.Data...)
			all = page
			if !page.HasMore || len(page.Data) == 0 {
				return nil
			}
			q.Set("after", id(page.Data[len(page.Data)-1]))
		}
	})
	return all, err
}

// desk is where requests are handed in.
type adminClient struct {
	http     http.RoundTripper
	host     string
	token    secret.String
	timeout time.Duration // that of the contexts, to tell of it
	close    func() error
}

// do sends one request and reads the answer into out.
func (d *adminClient) do(ctx context.Context, method, path string, in, out any) error {
	req, err := d.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	resp, err := d.http.RoundTrip(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return &timeoutError{req.URL.Host, d.timeout, method != http.MethodGet, err}
	}
	if err != nil {
		return &noServerError{req.URL.Host, err}
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if errors.Is(err, context.DeadlineExceeded) {
		return &timeoutError{req.URL.Host, d.timeout, method != http.MethodGet, err}
	}
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

func (d *adminClient) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.host+path, body)
	if err != nil {
		return nil, fmt.Errorf("the admin address %q must be host:port", d.host)
	}
	req.Header.Set("Authorization", "Bearer "+d.token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tollhouse/"+versionText())
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
		return wrongServerError{host}
	}
	return errors.New(e.Error.Message)
}
