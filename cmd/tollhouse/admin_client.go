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
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf16"

	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/secret"
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
	at, err := c.flags.find(ctx, c.p)
	if err != nil {
		return err
	}
	at.liveOnly = c.liveOnly != ""
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
	err = send(ctx, client)
	if _, refused := errors.AsType[*refusedError](err); err != nil && !refused {
		err = &sentError{err}
	}
	return errors.Join(err, client.close())
}

// sentError is an error of a request that was sent: what it asked for may have been done.
type sentError struct{ error }

func (e *sentError) Unwrap() error { return e.error }

// listPage is how many rows a command asks for at once. An older server refuses so many, and is
// asked for what it gives by itself.
const listPage = 10_000

// showList requests page after page, and prints all items together. id is the id of an item, after which the next
// page begins.
func showList[T any](ctx context.Context, c *adminCommand, path string, query url.Values, id func(T) string, toTable func([]T) *table) error {
	all := adminapi.NewList[T](nil)
	err := eachPage(ctx, c, path, query, func(page *adminapi.List[T]) (after string) {
		all.Object, all.Data = page.Object, append(all.Data, page.Data...)
		if page.HasMore && len(page.Data) > 0 {
			after = id(page.Data[len(page.Data)-1])
		}
		return after
	})
	if err != nil {
		return err
	}
	return c.show(all, toTable(all.Data))
}

// eachPage requests a page, and the next one as long as add says after what it begins.
func eachPage[T any](ctx context.Context, c *adminCommand, path string, query url.Values, add func(page *T) (after string)) error {
	c.noLimit = true // each page has the limit, not all of them together
	return c.with(ctx, http.MethodGet, func(ctx context.Context, client *adminClient) error {
		q := maps.Clone(query)
		if q == nil {
			q = url.Values{}
		}
		q.Set("limit", strconv.Itoa(listPage))
		for {
			page := new(T)
			err := func() error {
				bounded, cancel := context.WithTimeout(ctx, c.p.adminTimeout())
				defer cancel()
				return client.do(bounded, http.MethodGet, path+"?"+q.Encode(), nil, page)
			}()
			if _, refused := errors.AsType[*refusedError](err); refused && q.Has("limit") {
				q.Del("limit")
				continue
			}
			if err != nil {
				return err
			}
			after := add(page)
			if after == "" {
				return nil
			}
			q.Set("after", after)
		}
	})
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

// change sends a request that changes something, and prints the answer as JSON or what
// was done.
func (c *adminCommand) change(ctx context.Context, method, path, format string, args ...any) error {
	var answer map[string]any
	if err := c.do(ctx, method, path, nil, &answer); err != nil {
		return err
	}
	return c.say(answer, format, args...)
}

// say prints v as one JSON document with --json, otherwise the text.
func (c *adminCommand) say(v any, format string, args ...any) error {
	if c.json {
		return writeJSON(c.p.stdout, v)
	}
	_, err := io.WriteString(c.p.stdout, safetext.Clean(fmt.Sprintf(format, args...)))
	return err
}

// writeJSON prints v as one indented JSON document. Characters that act on a terminal are
// escaped.
func writeJSON(w io.Writer, v any) error {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	var out strings.Builder
	for _, r := range text.String() {
		if r <= '~' || !safetext.Controls(r) { // up to there the encoder has escaped them
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// table is output for a terminal: a head and rows of equal length.
type table struct {
	head []string
	rows [][]string
}

// add adds a row, each value as fmt prints it.
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

// write aligns the columns. An empty cell is printed as a dash, and an empty table as "none".
func (t *table) write(w io.Writer) error {
	if len(t.rows) == 0 {
		_, err := io.WriteString(w, "none\n")
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = safetext.Line(cmp.Or(c, "-"))
		}
		if _, err := fmt.Fprintln(tw, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// adminClient sends requests to one admin API.
type adminClient struct {
	http    http.RoundTripper // not a Client: a redirect would take the token elsewhere
	host    string
	token   secret.String
	timeout time.Duration   // the callers' contexts have it; named in the error
	server  adminapi.Server // what it is; zero for a store
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

// request is a request with the token. in is its JSON body; nil for none.
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
	if status < http.StatusInternalServerError {
		return &refusedError{message + listing(message)}
	}
	return errors.New(message)
}

// listing says what lists the things of a kind if a message says that one does not exist; empty
// for any other message.
func listing(message string) string {
	for _, kind := range []struct{ beginning, says string }{
		{"There is no account ", " `tollhouse account list` lists the accounts."},
		{"There is no key ", " `tollhouse key list` lists the keys with their ids."},
		{"There is no webhook ", " `tollhouse webhook list` lists the webhooks with their ids."},
		{"There is no receipt ", " A receipt has the X-Request-Id of its answer as its id; refused requests have none."},
	} {
		if strings.HasPrefix(message, kind.beginning) {
			return kind.says
		}
	}
	return ""
}

// refusedError is the server's message for a request that it refused, and so did not do.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

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

// Error tells of a change that it may have been made: repeated, it could count twice.
func (e *timeoutError) Error() string {
	text := fmt.Sprintf("the server at %s did not answer in %s", e.host, e.timeout)
	if e.change {
		text += ": look whether the change was made before you repeat it"
	}
	return text
}

func (e *timeoutError) Unwrap() error { return e.cause }
