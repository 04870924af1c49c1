package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
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
	admin    string // address, or off
	explicit bool   // by a flag or a variable: it is meant, and nothing else
	data     string
	store    string // address
	fromFile bool   // the store, by a configuration file
	file     config.Places
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
	flags     adminFlags
	json      bool   // the answer as JSON
	unbounded bool   // the answer may take any time, once the server is found
	liveOnly  string // why only a server that runs can answer; empty if its store will do
	p         *program
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
	http    http.RoundTripper
	host    string
	token   secret.String
	timeout time.Duration // that of the contexts, to tell of it
	close   func() error
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

// errNoServer says that nothing answers at an admin address.
type noServerError struct {
	host  string
	cause error
}

func (e *noServerError) Error() string {
	return fmt.Sprintf("no server answers at %s: start one with `tollhouse serve`, or name its admin address with --admin (%v)", e.host, e.cause)
}

func (e *noServerError) Unwrap() error { return e.cause }

// errSlow is a server that is there, or a host that swallows what is sent to it.
type timeoutError struct {
	host    string
	timeout time.Duration
	change  bool // was asked for, and may still be made
	cause   error
}

func (e *timeoutError) Error() string {
	text := fmt.Sprintf("the server at %s did not answer in %s", e.host, e.timeout)
	if e.change {
		text += ": look whether the change was made before you repeat it"
	}
	return text
}

func (e *timeoutError) Unwrap() error { return e.cause }

// errStranger is a server that has another token than the data directory.
type wrongServerError struct{ host string }

func (e wrongServerError) Error() string {
	return fmt.Sprintf("the server at %s does not take this token: name the server's own data directory with --data", e.host)
}

// desk finds the server that has the store open, and opens the store itself if
// there is none. It changes nothing before it has found one of them. reading
// says that the request changes nothing either: then no store is made for it.
func (p *program) connect(ctx context.Context, at *adminTarget, reading bool) (*adminClient, error) {
	d, absent := p.connectServer(ctx, at)
	var slow *timeoutError
	if absent == nil || at.explicit || errors.As(absent, &slow) {
		return d, absent
	}
	if at.store == config.Memory {
		return nil, fmt.Errorf("%w; a store in memory is in its server only", absent)
	}
	path, isFile := strings.CutPrefix(at.store, config.SQLite)
	if _, err := os.Stat(path); isFile && reading && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s yet (`tollhouse serve` or `tollhouse account create` makes one), and %w", path, absent)
	}
	return p.openStoreDirectly(ctx, at, absent)
}

// serverDesk is the running server's, at the address that a server recorded or
// else where it is by default. A recorded address may be of a server that was
// killed, so the error is of the other one.
func (p *program) connectServer(ctx context.Context, at *adminTarget) (*adminClient, error) {
	if at.recorded == "" {
		return p.connectTo(ctx, at, at.admin)
	}
	d, failed := p.connectRecorded(ctx, at)
	if failed == nil {
		return d, nil
	}
	d, absent := p.connectTo(ctx, at, at.admin)
	var slow *timeoutError
	if absent != nil && errors.As(failed, &slow) {
		absent = fmt.Errorf("the server at %s, which the data directory names, did not answer in time, and %w", at.recorded, absent)
	}
	return d, absent
}

// recordedServer asks at the recorded address, for half of the time at the most:
// what is there now may be a stranger that never answers.
func (p *program) connectRecorded(ctx context.Context, at *adminTarget) (*adminClient, error) {
	ctx, cancel := context.WithTimeout(ctx, p.adminTimeout()/2)
	defer cancel()
	return p.connectTo(ctx, at, at.recorded)
}

// serverAt is the running server's at an address, if it is the one that is meant:
// it takes the token of the data directory.
func (p *program) connectTo(ctx context.Context, at *adminTarget, address string) (*adminClient, error) {
	if address == adminOff {
		return nil, errors.New("the admin API is off: name a running server's address with --admin")
	}
	token, err := readToken(at.data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no admin token in %s: name the running server's data directory with --data", at.data)
	}
	if err != nil {
		return nil, err
	}
	direct := &http.Transport{DisableKeepAlives: true} // no proxy: the token is for the server alone
	d := &adminClient{http: direct, host: address, token: token, timeout: p.adminTimeout(), close: func() error { return nil }}
	var about server.ServerView
	if err := d.do(ctx, http.MethodGet, "/admin/v1/server", nil, &about); err != nil {
		return nil, err
	}
	if want := storeName(at.store); at.fromFile && about.Store != want {
		return nil, fmt.Errorf("the server at %s keeps its accounts in %s, and the configuration says %s: name the right admin address with --admin", address, about.Store, want)
	}
	return d, nil
}

// storeDesk opens the store and serves its admin API to this process alone.
func (p *program) openStoreDirectly(ctx context.Context, at *adminTarget, absent error) (*adminClient, error) {
	s, err := openStorage(ctx, at.store, store.Options{
		Count: at.file.Billing.Value == config.Count, Currency: at.file.Currency.Or(billing.DefaultCurrency), AsStored: true,
	})
	if errors.Is(err, sqlite.ErrLocked) {
		return nil, fmt.Errorf("a server has %s open, but cannot be asked: %w", storeName(at.store), absent)
	}
	if err != nil {
		return nil, err
	}
	token := secret.New(rand.Text())
	admin := server.NewAdmin(server.AdminOptions{Token: token, Accounts: s.ledger, Keys: s.keys, Webhooks: s.webhooks, Store: s.name, Now: p.now})
	return &adminClient{http: server.Transport{Handler: admin}, host: "the.store", token: token, timeout: p.adminTimeout(), close: s.close}, nil
}

// table is an answer for a terminal: a head and rows of equal length.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write aligns the columns; an empty cell is shown as a dash.
func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			if c == "" {
				c = "-"
			}
			cells[i] = strings.Map(printable, c)
		}
		if _, err := fmt.Fprintln(tw, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// printable keeps a name from moving the cursor of a terminal.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return '?'
	}
	return r
}

// show writes v as one JSON document, or t.
func (c *adminCommand) show(v any, t *table) error {
	if !c.json {
		return t.write(c.p.stdout)
	}
	return writeJSON(c.p.stdout, v)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
