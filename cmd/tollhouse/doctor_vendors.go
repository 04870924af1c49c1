package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adminapi"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/discovery"
)

// vendorTimeout is for all requests to one vendor.
const vendorTimeout = 15 * time.Second

// The differences of clocks that are reported. Signatures of webhooks are refused by
// their receivers from five minutes on.
const (
	clockWarning = 5 * time.Second
	clockProblem = 5 * time.Minute
)

// checkKeys looks at the form of the vendors' keys. It prints none of them.
func (d *doctor) checkKeys(context.Context) {
	keys, told := 0, false
	for i := range d.source.config.Channels {
		c := &d.source.config.Channels[i]
		for n, key := range c.Keys {
			keys++
			if wrong := keyForm(c, key); wrong != "" {
				told = true
				d.add("key of "+c.Name, checkWarning, "key %d of %d %s", n+1, len(c.Keys), wrong)
			}
		}
	}
	if !told {
		d.add("keys", checkOK, "%s of vendors", plural(keys, "key"))
	}
}

// keyForm says why a key cannot be one of the channel's vendor; empty if it can.
func keyForm(c *config.Channel, key secret.String) string {
	text := key.Reveal()
	lower := strings.ToLower(text)
	contains := func(word string) bool { return strings.Contains(lower, word) }
	switch {
	case strings.TrimSpace(text) != text:
		return "begins or ends with a space or a line end: remove it from the variable"
	case strings.Trim(text, `"'`) != text:
		return "has quotes around it, which count as part of it: remove them from the variable"
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "has a character that no key can have: copy it again from the vendor's page"
	case slices.ContainsFunc([]string{"your-", "your_", "changeme", "change-me", "replace", "xxxx", "...", "<"}, contains):
		return "looks like the placeholder of an example: copy the key from the vendor's page"
	case strings.HasPrefix(text, "Bearer "):
		return `begins with "Bearer ", which the gateway adds: remove it`
	case len(text) < 8:
		return "is shorter than any vendor's key: copy it again from the vendor's page"
	case strings.HasPrefix(text, "sk-ant-") && c.Driver != "anthropic" && !strings.Contains(c.Address(), "anthropic"):
		return "is one of Anthropic's, but this channel's vendor is at " + c.Address()
	}
	return ""
}

// checkTimeouts looks for time-outs that never apply.
func (d *doctor) checkTimeouts(context.Context) {
	told := false
	for i := range d.source.config.Channels {
		c := &d.source.config.Channels[i]
		total := cmp.Or(c.Timeout.Total, 30*time.Minute)
		for _, t := range []struct {
			name string
			is   time.Duration
		}{{"connect", c.Timeout.Connect}, {"headers", c.Timeout.Headers}, {"idle", c.Timeout.Idle}} {
			if t.is > total {
				told = true
				d.add("time-outs", checkWarning, "channel %s: timeout.%s (%s) is longer than timeout.total (%s), so it never applies", c.Name, t.name, t.is, total)
			}
		}
	}
	if !told {
		d.add("time-outs", checkOK, "every time-out can apply")
	}
}

// checkVendors asks each vendor, all at once, whether it can be reached and takes the keys.
// The clock is compared with theirs.
func (d *doctor) checkVendors(ctx context.Context) {
	channels := d.source.config.Channels
	rows, clocks := make([][]finding, len(channels)), make([]*time.Duration, len(channels))
	var running sync.WaitGroup
	for i := range channels {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, vendorTimeout)
			defer cancel()
			rows[i], clocks[i] = d.askVendor(ctx, &channels[i])
		})
	}
	running.Wait()
	var skew *time.Duration // the least: a vendor's clock may be wrong too
	for i := range channels {
		d.findings = append(d.findings, rows[i]...)
		if clocks[i] != nil && (skew == nil || clocks[i].Abs() < skew.Abs()) {
			skew = clocks[i]
		}
	}
	if skew == nil {
		d.add("clock", checkOK, "not compared: no vendor sent a Date header")
		return
	}
	differs := "it differs by " + skew.Abs().Round(time.Second).String() + " from the vendors': "
	d.addFirst("clock",
		outcome{skew.Abs() > clockProblem, checkProblem, differs + "set it (timedatectl set-ntp true), or receivers refuse the signatures of webhooks"},
		outcome{skew.Abs() > clockWarning, checkWarning, differs + "let a time server set it (timedatectl set-ntp true)"},
		outcome{true, checkOK, "the system clock is within " + clockWarning.String() + " of the vendors'"})
}

// onlyNamed is what to do about vendors that are not asked. A file of this directory that no
// flag or variable names can be that of a cloned repository, and send keys anywhere.
const onlyNamed = "run `tollhouse doctor --config " + defaultFile + "` to test vendors with their keys"

// askVendor asks a channel's vendor without a key, which costs nothing and shows whether
// it can be reached and what its clock says, and then for its list of models with each
// key.
func (d *doctor) askVendor(ctx context.Context, c *config.Channel) ([]finding, *time.Duration) {
	name := "channel " + c.Name
	row := func(result, format string, args ...any) finding {
		return finding{name, result, fmt.Sprintf(format, args...)}
	}
	if c.Driver == config.Simulated {
		return []finding{row(checkOK, "simulated: nothing is asked")}, nil
	}
	if d.unnamed {
		return []finding{row(checkWarning, "skipped: %s", onlyNamed)}, nil
	}
	address := c.Address()
	skew, err := d.probe(ctx, address)
	if err != nil {
		return []finding{row(checkProblem, "%s", unreachable(address, err))}, nil
	}
	keys := c.Keys
	if len(keys) == 0 {
		keys = []secret.String{{}}
	}
	var rows []finding
	at := "the vendor at " + vendorHost(address)
	for n, key := range keys {
		which := ""
		if len(keys) > 1 {
			which = fmt.Sprintf(" with key %d of %d", n+1, len(keys))
		}
		models, err := listModels(ctx, c, key)
		failed, _ := errors.AsType[*upstream.Failure](err)
		switch {
		case errors.Is(err, upstream.ErrNoList):
			return append(rows, row(checkOK, "%s can be reached; only --call can test its key", at)), skew
		case err == nil && len(models.Models) == 0:
			rows = append(rows, row(checkWarning, "%s answers%s, but lists no models", at, which))
		case err == nil:
			rows = append(rows, row(checkOK, "%s answers%s, and lists %s", at, which, plural(len(models.Models), "model")))
		case refusedKey(err) != 0:
			rows = append(rows, row(checkProblem, "%s refuses the key%s (status %d): %s", at, which, refusedKey(err), replaceKey(d.source, c.Name)))
		case failed != nil && (failed.Status == http.StatusNotFound || failed.Status == http.StatusMethodNotAllowed):
			rows = append(rows, row(checkWarning, "%s has no list of models%s (status %d): if calls fail too, check base_url, to which paths such as /chat/completions are added", at, which, failed.Status))
		default:
			rows = append(rows, row(checkWarning, "%s did not list its models%s: %s", at, which, (&discovery.List{Err: err}).Reason()))
		}
	}
	return rows, skew
}

// listModels asks with one key alone.
func listModels(ctx context.Context, c *config.Channel, key secret.String) (*upstream.ModelList, error) {
	single := *c
	if single.Keys = nil; key.Reveal() != "" {
		single.Keys = []secret.String{key}
	}
	components, err := (&config.Config{Locations: config.Locations{Billing: config.Count}, Channels: []config.Channel{single}}).Build(nil)
	if err != nil {
		return nil, err
	}
	defer components.Close()
	lister, ok := components.Lister(c.Name)
	if !ok {
		return nil, upstream.ErrNoList
	}
	return lister.ListModels(ctx)
}

// messageOf is an error as an operator reads it.
func messageOf(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Message
	}
	return oneLine(err.Error())
}

// refusedKey is the status with which a vendor refused a key; 0 for any other error.
func refusedKey(err error) (status int) {
	if f, ok := errors.AsType[*upstream.Failure](err); ok && (f.Status == http.StatusUnauthorized || f.Status == http.StatusForbidden) {
		return f.Status
	}
	return 0
}

// replaceKey says where a channel's key is to be replaced.
func replaceKey(src *source, channel string) string {
	if v := presetNamed(channel); v != nil && src.file == "" {
		return "set " + v.Key + " to a valid one"
	}
	return "replace the key that `keys` of channel " + channel + " names"
}

// probe makes a request without a key, and returns by how much the vendor's clock is
// ahead; nil if it does not tell. Any answer shows that the vendor can be reached.
func (d *doctor) probe(ctx context.Context, address string) (*time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	sent := d.p.currentTime()
	resp, err := transport.RoundTrip(r) // no redirect is followed
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return nil, nil
	}
	// The vendor wrote its time, in whole seconds, while the request was under way.
	got := d.p.currentTime()
	var skew time.Duration
	switch {
	case theirs.After(got):
		skew = theirs.Sub(got)
	case theirs.Add(time.Second).Before(sent):
		skew = theirs.Add(time.Second).Sub(sent)
	}
	return &skew, nil
}

// unreachable says why a vendor cannot be reached, and what to do.
func unreachable(address string, err error) string {
	var (
		name    *net.DNSError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		plain   tls.RecordHeaderError
	)
	at := vendorHost(address)
	switch {
	case errors.As(err, &name):
		return "the name " + name.Name + " cannot be resolved: check base_url, and this machine's DNS"
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid):
		return "the certificate of " + at + " is not valid here: " + oneLine(err.Error()) + ": check base_url and the clock, and install ca-certificates"
	case errors.As(err, &plain):
		return at + " does not speak TLS: check whether base_url must begin with http://"
	case errors.Is(err, context.DeadlineExceeded):
		return at + " did not answer in " + vendorTimeout.String() + ": check the firewall, and whether HTTPS_PROXY is needed"
	}
	return at + " cannot be reached (" + oneLine(err.Error()) + "): check base_url, the firewall, and whether HTTPS_PROXY is needed"
}

// vendorHost is the host and port of an address.
func vendorHost(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "its address"
	}
	return u.Host
}

// checkRunningChannels asks the running server how its channels are.
func (d *doctor) checkRunningChannels(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.p.adminTimeout())
	defer cancel()
	var list adminapi.List[adminapi.Channel]
	if err := d.server.do(ctx, http.MethodGet, "/admin/v1/channels", nil, &list); err != nil {
		d.add("running channels", checkProblem, "%v", err)
		return
	}
	for _, c := range list.Data {
		d.running = append(d.running, c.Name)
		name := shellQuoted(c.Name)
		d.addFirst("running "+c.Name,
			outcome{c.State == "paused", checkWarning, "paused: `tollhouse channel resume " + name + "` sends calls to it again"},
			outcome{c.Cooldown, checkWarning, "in a cooldown" + until(c.Until) + ": its vendor said when to come back, or does not have a model; last error: " + cmp.Or(c.LastError, "unknown")},
			outcome{c.State == "resting", checkProblem, "its circuit breaker is open" + until(c.Until) + "; last error: " + cmp.Or(c.LastError, "unknown") + "; `tollhouse channel test " + name + "` shows more"},
			outcome{true, checkOK, c.State + ", " + plural(int(c.Requests), "request") + ", " + plural(int(c.Failures), "failure")})
	}
}

// until says when the state of a channel ends.
func until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " until " + timeText(t)
}

// checkCalls makes one small call through each channel, of the running server if there is
// one.
func (d *doctor) checkCalls(ctx context.Context) {
	names := d.running
	test := func(ctx context.Context, in server.ChannelTest) (server.ChannelResult, error) {
		var r server.ChannelResult
		err := d.server.do(ctx, http.MethodPost, channelPath(in.Channel, "test"), in, &r)
		return r, err
	}
	if d.server == nil && d.unnamed {
		d.add("calls", checkWarning, "skipped: %s", onlyNamed)
		return
	}
	if d.server == nil && d.components != nil {
		a := new(app)
		a.components.Store(d.components)
		test = a.testChannel
		for _, c := range d.source.config.Channels {
			names = append(names, c.Name)
		}
	}
	for _, name := range names {
		in := server.ChannelTest{Channel: name}
		if d.source != nil {
			if c := d.source.config.Channel(name); c != nil {
				in.Model = exampleOf(c)
			}
		}
		r, err := test(ctx, in)
		switch {
		case err != nil:
			d.add("call of "+name, checkWarning, "not made: %s", messageOf(err))
		case r.OK:
			d.add("call of "+name, checkOK, "%s answered in %s (%s)", r.Model, milliseconds(r.MS), r.Operation)
		default:
			d.add("call of "+name, checkProblem, "%s failed: %s", r.Model, r.Message)
		}
	}
}
