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
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// maxAdminAnswer bounds an answer of the admin API, in bytes.
const maxAdminAnswer = 64 << 20

// adminCommand sends a command's requests to the admin API: that of the running
// server, or one over the store, opened by this process, while no server runs.
type adminCommand struct {
	p        *program
	flags    adminFlags
	json     bool   // print JSON instead of a table
	noLimit  bool   // no time limit once the server is found: the answer may take any time
	liveOnly string // why only a running server can answer; empty if its store is enough
}

// newAdminCommand adds the flags that all commands of the admin API have.
func newAdminCommand(p *program, c *command) *adminCommand {
	cl := &adminCommand{p: p}
	c.flags.BoolVar(&cl.json, "json", false, "print one JSON document")
	cl.flags.register(c)
	return cl
}

// do sends one request and decodes the answer into out.
func (c *adminCommand) do(ctx context.Context, method, path string, in, out any) error {
	return c.with(ctx, method, func(ctx context.Context, client *adminClient) error {
		return client.do(ctx, method, path, in, out)
	})
}

// with connects and calls send. A GET request changes nothing, so no store is
// created for it.
func (c *adminCommand) with(ctx context.Context, method string, send func(context.Context, *adminClient) error) error {
	at, err := c.flags.target(c.p)
	if err != nil {
		return err
	}
	at.explicit = at.explicit || c.liveOnly != ""
	bounded, cancel := context.WithTimeout(ctx, c.p.adminTimeout())
	defer cancel()
	client, err := c.p.connect(bounded, at, method == http.MethodGet)
	if err != nil && c.liveOnly != "" {
		err = fmt.Errorf("%s, and %w", c.liveOnly, err)
	}
	if err != nil {
		return err
	}
	if !c.noLimit {
		ctx = bounded
	}
	return errors.Join(send(ctx, client), client.close())
}

// showList requests page after page, and prints all items together. id is the id of an item, after which the next
// page begins.
func showList[T any](ctx context.Context, c *adminCommand, path string, query url.Values, id func(T) string, toTable func([]T) *table) error {
	c.noLimit = true // each page has the limit, not all of them together
	var all adminapi.List[T]
	err := c.with(ctx, http.MethodGet, func(ctx context.Context, client *adminClient) error {
		q := maps.Clone(query)
		if q == nil {
			q = url.Values{}
		}
		for {
			var page adminapi.List[T]
			bounded, cancel := context.WithTimeout(ctx, c.p.adminTimeout())
			err := client.do(bounded, http.MethodGet, path+"?"+q.Encode(), nil, &page)
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
	if err != nil {
		return err
	}
	return c.show(all, toTable(all.Data))
}

// show prints v as one JSON document with --json, otherwise the table.
func (c *adminCommand) show(v any, t *table) error {
	if c.json {
		return writeJSON(c.p.stdout, v)
	}
	return t.write(c.p.stdout)
}

// showAnswer sends one request and prints the answer, as JSON or as a table.
func showAnswer[T any](ctx context.Context, c *adminCommand, method, path string, in any, toTable func(T) *table) error {
	var answer T
	if err := c.do(ctx, method, path, in, &answer); err != nil {
		return err
	}
	return c.show(answer, toTable(answer))
}

// say prints v as one JSON document with --json, otherwise the text.
func (c *adminCommand) say(v any, format string, args ...any) error {
	if c.json {
		return writeJSON(c.p.stdout, v)
	}
	_, err := fmt.Fprintf(c.p.stdout, format, args...)
	return err
}

// writeJSON prints v as one indented JSON document.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table is output for a terminal: a head and rows of equal length.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

// nonZero is the number as a cell, which is empty for 0.
func nonZero[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

// timeText is the time as a cell, which is empty for none.
func timeText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// write aligns the columns. An empty cell is printed as a dash, and a control
// character as "?", so that a name cannot move the cursor of a terminal.
func (t *table) write(w io.Writer) error {
	printable := func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = strings.Map(printable, cmp.Or(c, "-"))
		}
		if _, err := fmt.Fprintln(tw, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// adminFlags are the flags that say where the admin API and the store are.
type adminFlags struct{ config, admin, data string }

func (a *adminFlags) register(c *command) {
	addConfigFlag(c.flags, &a.config)
	addAdminFlags(c.flags, &a.admin, &a.data)
	c.bindEnv("config", "admin", "data")
}

// adminTarget is where a command sends its requests.
type adminTarget struct {
	admin    string // the admin API's address, or off
	explicit bool   // only this server is meant, never its store
	byFlag   bool   // its address was given, and is not the file's or the default
	recorded string // the address that a running server wrote in the data directory; empty for none
	data     string // the data directory, which holds the admin token
	store    string // the store's address
	fromFile bool   // a configuration file says which store it is
	file     config.Locations
}

// target combines the flags, the environment, the file and the defaults. Where nothing
// is given, and no server runs with the default data directory, a file in this directory
// under the name that init gives it says where its server and its store are, if [fileHere]
// trusts it.
func (a *adminFlags) target(p *program) (*adminTarget, error) {
	name := a.config
	var file config.Locations
	if name == "" && a.admin == "" && a.data == "" && readAddress(defaultData) == "" {
		here, found, err := fileHere(defaultFile)
		if err != nil {
			return nil, err
		}
		if file = here; found {
			name = defaultFile
		}
	} else if name != "" {
		data, err := os.ReadFile(name)
		if err == nil {
			file, err = config.ReadLocations(name, data, p.env)
		}
		if err != nil {
			return nil, err
		}
	}
	at := &adminTarget{
		admin: dialable(cmp.Or(a.admin, file.Admin.Or(defaultAdmin))), explicit: a.admin != "" && a.admin != adminOff, byFlag: a.admin != "",
		data: cmp.Or(a.data, file.Data.Or(defaultData)), fromFile: name != "", file: file,
	}
	at.store = config.StoreIn(at.data, file.Store)
	// The recorded address counts only where nothing names one. With port 0 the
	// system chose the port.
	if named := cmp.Or(a.admin, file.Admin.Value); named == "" || strings.HasSuffix(named, ":0") {
		at.recorded = readAddress(at.data)
	}
	return at, nil
}

// noServerError says that no server was found: nothing answers, or nothing of it is here.
// Another error of connectTo is of something that is there and is not the server meant.
type noServerError struct {
	message string
	cause   error // nil for none
}

func (e *noServerError) Error() string {
	if e.cause == nil {
		return e.message
	}
	return fmt.Sprintf("%s (%v)", e.message, e.cause)
}

func (e *noServerError) Unwrap() error { return e.cause }

// connect finds the server that has the store open, and opens the store itself if
// there is none. It changes nothing before it has found one of them. With readOnly
// no store is created.
func (p *program) connect(ctx context.Context, at *adminTarget, readOnly bool) (*adminClient, error) {
	client, absent := p.connectServer(ctx, at)
	var timeout *timeoutError
	if absent == nil || at.explicit || errors.As(absent, &timeout) {
		return client, absent
	}
	if at.store == config.Memory {
		return nil, fmt.Errorf("%w; a store in memory is in its server only", absent)
	}
	if path, missing := at.missingFile(); missing && readOnly {
		return nil, fmt.Errorf("there is no database at %s yet (`tollhouse serve` or `tollhouse account create` makes one), and %w", path, absent)
	}
	return p.openStoreDirectly(ctx, at, absent)
}

// missingFile reports whether the store is a file that is not there.
func (at *adminTarget) missingFile() (path string, missing bool) {
	path, isFile := strings.CutPrefix(at.store, config.SQLite)
	_, err := os.Stat(path)
	return path, isFile && errors.Is(err, fs.ErrNotExist)
}

// connectServer connects to the server at the recorded address, otherwise to that
// at the configured one. The recorded address may be of a server that was killed,
// so the error returned is that of the configured one, unless nothing is there, and the
// first attempt gets half of the time: what listens there now may never answer.
func (p *program) connectServer(ctx context.Context, at *adminTarget) (*adminClient, error) {
	var timeout *timeoutError
	var none *noServerError
	var first error
	if at.recorded != "" {
		bounded, cancel := context.WithTimeout(ctx, p.adminTimeout()/2)
		defer cancel()
		client, err := p.connectTo(bounded, at, at.recorded)
		if err == nil {
			return client, nil
		}
		if !errors.As(err, &timeout) && !errors.As(err, &none) {
			first = err
		}
	}
	client, err := p.connectTo(ctx, at, at.admin)
	if none = nil; !errors.As(err, &none) {
		first = nil
	}
	switch recorded := readAddress(at.data); {
	case err == nil:
		return client, nil
	case timeout != nil:
		return nil, fmt.Errorf("the server at %s, which the data directory names, did not answer in time, and %w", at.recorded, err)
	case first != nil:
		return nil, first
	case at.byFlag && recorded != "" && recorded != at.admin && none != nil:
		return nil, &noServerError{fmt.Sprintf("no server answers at %s; the data directory %s says that one runs at %s: leave --admin out", at.admin, at.data, recorded), none.cause}
	}
	return nil, err
}

// connectTo connects to the server at an address if it is the one that is meant:
// it takes the token of the data directory and has the file's store open.
func (p *program) connectTo(ctx context.Context, at *adminTarget, address string) (*adminClient, error) {
	if address == adminOff {
		return nil, &noServerError{"the admin API is off: name a running server's address with --admin", nil}
	}
	token, err := readToken(at.data)
	if err != nil {
		return nil, tokenError(at.data, err)
	}
	direct := &http.Transport{DisableKeepAlives: true} // no proxy: the token is for the server alone
	client := &adminClient{http: direct, host: address, token: token, timeout: p.adminTimeout(), close: func() error { return nil }}
	var about adminapi.Server
	if err := client.do(ctx, http.MethodGet, "/admin/v1/server", nil, &about); err != nil {
		return nil, err
	}
	if want := storeName(at.store); at.fromFile && about.Store != want {
		return nil, fmt.Errorf("the server at %s keeps its accounts in %s, and the configuration says %s: name the right admin address with --admin", address, about.Store, want)
	}
	return client, nil
}

// tokenError says how to come to the token of a server that this process cannot read.
func tokenError(data string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &noServerError{fmt.Sprintf("there is no admin token in %s: name the running server's data directory with --data, or its file with --config; for a server in a container, run the command there (`docker exec NAME tollhouse ...`)", data), nil}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the admin token in %s belongs to another user: run the command as the server's user, for example with `sudo -u USER` (%w)", data, err)
	}
	return err
}

// openStoreDirectly opens the store and serves its admin API to this process
// alone, without a socket.
func (p *program) openStoreDirectly(ctx context.Context, at *adminTarget, absent error) (*adminClient, error) {
	s, err := openStored(ctx, at)
	if errors.Is(err, sqlite.ErrLocked) {
		return nil, fmt.Errorf("a server has %s open, but cannot be asked, as with `--admin off` or another --data: restart it with an admin address, or stop it and repeat the command; %w", storeName(at.store), absent)
	}
	if err != nil {
		return nil, err
	}
	token := secret.New(rand.Text())
	admin := server.NewAdmin(server.AdminOptions{Token: token, Accounts: s.ledger, Keys: s.keys, Webhooks: s.webhooks, Store: s.name, Now: p.now})
	return &adminClient{http: server.Client(admin).Transport, host: "the.store", token: token, timeout: p.adminTimeout(), close: s.close}, nil
}

// openStored opens a store as the last server left it.
func openStored(ctx context.Context, at *adminTarget) (*storage, error) {
	return openStorage(ctx, at.store, store.Options{
		Count: at.file.Billing.Value == config.Count, Currency: at.file.Currency.Or(billing.DefaultCurrency), AsStored: true,
	})
}

// adminClient sends requests to one admin API.
type adminClient struct {
	http    http.RoundTripper // not a Client: a redirect would take the token elsewhere
	host    string
	token   secret.String
	timeout time.Duration // the callers' contexts have it; named in the error
	close   func() error
}

// do sends one request and decodes the answer into out.
func (c *adminClient) do(ctx context.Context, method, path string, in, out any) error {
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return err
	}
	resp, err := c.http.RoundTrip(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return &timeoutError{c.host, c.timeout, method != http.MethodGet, err}
	}
	if err != nil {
		return &noServerError{fmt.Sprintf("no server answers at %s: start one with `tollhouse serve`, or name its admin address with --admin", c.host), err}
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer))
	if errors.Is(err, context.DeadlineExceeded) {
		return &timeoutError{c.host, c.timeout, method != http.MethodGet, err}
	}
	if err != nil {
		return fmt.Errorf("the server at %s broke off its answer: %w", c.host, err)
	}
	if resp.StatusCode >= 300 {
		return c.refusal(resp.StatusCode, data)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("what answers at %s is not tollhouse's admin API", c.host)
	}
	return nil
}

func (c *adminClient) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.host+path, body)
	if err != nil {
		return nil, fmt.Errorf("the admin address %q must be host:port", c.host)
	}
	req.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "tollhouse/"+versionText())
	return req, nil
}

// refusal is the server's own message for a request that it refused.
func (c *adminClient) refusal(status int, body []byte) error {
	message := errorMessage(body)
	switch {
	case message == "":
		return fmt.Errorf("what answers at %s (with status %d) is not tollhouse's admin API", c.host, status)
	case status == http.StatusUnauthorized:
		return fmt.Errorf("the server at %s does not take this token: name the server's own data directory with --data", c.host)
	}
	return errors.New(message)
}

// errorMessage is the message of an error answer; empty if it is none of ours.
func errorMessage(body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil {
		return ""
	}
	return e.Error.Message
}

// timeoutError is a server that did not answer in time.
type timeoutError struct {
	host    string
	timeout time.Duration
	change  bool // a change was requested, and may still be made
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
