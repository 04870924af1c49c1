package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
)

// api asks a server as the holder of a key does, over its public address.
type api struct {
	p                *program
	config, url, key string
	json             bool // the answer as JSON
}

// newAPI gives a command the flags of one that uses a key.
func newAPI(p *program, c *command) *api {
	a := &api{p: p}
	c.flags.BoolVar(&a.json, "json", false, "print the API's own JSON")
	c.flags.StringVar(&a.url, "url", "", "the server's address; default that which serve listens on")
	c.flags.StringVar(&a.key, "key", "", "the API key, sk-...; others can see it here, but not in the variable")
	addConfigFlag(c.flags, &a.config)
	c.withTwins("url", "key", "config")
	return a
}

// door is where requests go, and with which key.
type door struct {
	base string // without a slash at its end
	key  secret.String
	http http.RoundTripper
	// after is how long the server wants to be left alone for.
	after time.Duration
}

// find looks at the flags, the environment, the file and the default.
func (a *api) find() (*door, error) {
	if a.key == "" {
		return nil, usagef("--key or TOLLHOUSE_KEY is missing: `tollhouse key create` makes an API key")
	}
	base, err := a.base()
	if err != nil {
		return nil, err
	}
	through := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	return &door{base: base, key: secret.New(a.key), http: through}, nil
}

func (a *api) base() (string, error) {
	if a.url == "" {
		listen, err := a.listen()
		return "http://" + dialable(listen), err
	}
	u, err := url.Parse(a.url)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", usagef("--url must be an address such as http://127.0.0.1:8080")
	}
	return strings.TrimSuffix(strings.TrimSuffix(u.String(), "/"), "/v1"), nil
}

// listen is where serve listens that was started in the same way.
func (a *api) listen() (string, error) {
	if address, _ := a.p.env(twin("listen")); address != "" {
		return address, nil
	}
	if a.config == "" {
		return defaultListen, nil
	}
	data, err := os.ReadFile(a.config)
	if err != nil {
		return "", err
	}
	in, err := config.ReadPlaces(a.config, data, a.p.env)
	return in.Listen.Or(defaultListen), err
}

// dialable is an address to which a client on this machine can connect.
func dialable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// errAPI is an error that the API told.
type errAPI struct {
	status        int
	code, message string
	after         time.Duration // when it may be tried again; 0: it was not said
}

// Error is the API's own word for it, and what to do.
func (e *errAPI) Error() string {
	text := fmt.Sprintf("%s (%s, status %d)", e.message, cmp.Or(e.code, "no code"), e.status)
	if advice := advices[e.status]; advice != "" {
		text += "; " + advice
	}
	if e.after > 0 {
		text += fmt.Sprintf("; try again in %s", e.after)
	}
	return text
}

// advices are what to do where the API's word does not say it.
var advices = map[int]string{
	http.StatusUnauthorized:    "`tollhouse key create --account NAME` makes a key, and TOLLHOUSE_KEY gives it to this command",
	http.StatusPaymentRequired: "`tollhouse account credit NAME AMOUNT` adds money",
}

// passing reports whether the same request may be answered a moment later.
func (e *errAPI) passing() bool {
	return e.status == http.StatusTooManyRequests || e.status >= 500
}

// errAway is a server that does not answer, or not in time, or not to its end.
type errAway struct {
	base  string
	asked bool // the request may have reached it
	cause error
}

func (e *errAway) Error() string {
	if e.asked {
		return fmt.Sprintf("the server at %s broke off before it answered (%v)", e.base, e.cause)
	}
	return fmt.Sprintf("no server answers at %s: start one with `tollhouse serve`, or name its address with --url (%v)", e.base, e.cause)
}

func (e *errAway) Unwrap() error { return e.cause }

// ask sends one request and gives the JSON of a good answer.
func (d *door) ask(ctx context.Context, method, path string, body []byte, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("--url must be an address such as http://127.0.0.1:8080")
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "Bearer "+d.key.Reveal())
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.http.RoundTrip(req) // a redirect would take the key elsewhere
	if err != nil {
		var op *net.OpError
		return nil, &errAway{d.base, !errors.As(err, &op) || op.Op != "dial", err}
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	switch {
	case err != nil:
		return nil, &errAway{d.base, true, err}
	case resp.StatusCode >= 300:
		return nil, apiError(d.base, resp, data)
	case !json.Valid(data):
		return nil, stranger(d.base, resp.StatusCode)
	}
	return data, nil
}

// apiError reads the error of an answer.
func apiError(base string, resp *http.Response, body []byte) error {
	var e struct {
		Error struct {
			Message string `json:"message"`
			Code    string `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Error.Message == "" {
		return stranger(base, resp.StatusCode)
	}
	seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 20) // 0 where there is none
	return &errAPI{resp.StatusCode, e.Error.Code, e.Error.Message, time.Duration(seconds) * time.Second}
}

func stranger(base string, status int) error {
	return fmt.Errorf("what answers at %s (with status %d) is not tollhouse's API: name the right address with --url", base, status)
}
