package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
)

// Read reads a configuration. name is what its errors call the file. Every
// error is an *[Error].
func Read(name string, data []byte, env Env) (*Config, error) {
	r, body, err := newReader(name, data, env)
	if err != nil {
		return nil, err
	}
	if body != nil {
		ast.Walk(r, body)
	}
	c := &Config{Prices: make(map[string]Price), Video: defaultVideo(), Responses: defaultResponses()}
	r.object(body, "the file", r.fileFields(c))
	if len(r.problems) == 0 {
		c.validate(&r.problems)
	}
	c.Sections, c.KeyFiles, c.validated = r.sections, r.keyFiles, true
	err = r.problems.err(name)
	if refused, ok := errors.AsType[*Error](err); ok {
		refused.KeyFiles = r.keyFiles
		return nil, refused
	}
	return c, nil
}

// Locations are what a command needs of a file to find the server or its store.
type Locations struct {
	Admin, Data, Store, Billing, Currency Setting
}

// ReadLocations reads only the locations, for a command that may run without the
// file's variables. Mistakes elsewhere in the file are ignored.
func ReadLocations(name string, data []byte, env Env) (Locations, error) {
	var l Locations
	r, body, err := newReader(name, data, env)
	if err != nil {
		return l, err
	}
	known := fields{
		"admin": r.setting(&l.Admin), "data": r.setting(&l.Data), "store": r.store(&l.Store),
		"billing": r.choice(&l.Billing, Prepaid, Count), "currency": r.currency(&l.Currency),
	}
	for _, pair := range r.pairs(body, "the file", nil) {
		if read, ok := known[pair.key]; ok {
			read(pair.value, pair.key)
		}
	}
	return l, r.problems.err(name)
}

// newReader parses a file.
func newReader(name string, data []byte, env Env) (*reader, ast.Node, error) {
	r := &reader{env: env, anchors: make(map[string]ast.Node), sections: make(map[string]Pos)}
	body, err := parseYAML(data)
	if err != nil {
		r.addSyntax(err, data)
		return nil, nil, r.problems.err(name)
	}
	return r, body, nil
}

// fileFields are the file's own keys.
func (r *reader) fileFields(c *Config) fields {
	return fields{
		"listen":    r.address(&c.Listen),
		"admin":     r.address(&c.Admin, "off"),
		"data":      r.setting(&c.Data),
		"store":     r.store(&c.Store),
		"billing":   r.choice(&c.Billing, Prepaid, Count),
		"currency":  r.currency(&c.Currency),
		"channels":  r.list(func(n ast.Node, _ string) { c.Channels = append(c.Channels, r.channel(n)) }),
		"prices":    r.prices(c.Prices),
		"models":    r.models(&c.Models),
		"affinity":  into(r, &c.Affinity, oneOf[gateway.Affinity](gateway.Affinities())),
		"accounts":  r.list(func(n ast.Node, _ string) { c.Accounts = append(c.Accounts, r.account(n)) }),
		"limits":    r.section(r.limits(&c.Limits)),
		"responses": r.responses(&c.Responses),
		"secrets":   r.secrets(&c.Secrets),
		"video":     r.video(&c.Video),
		"webhooks":  r.section(fields{"allow_private": r.boolean(&c.Webhooks.AllowPrivate)}),
		"server":    r.server(&c.Server),
		"telemetry": r.telemetry(&c.Telemetry),
		"metrics":   r.section(fields{"public": r.boolean(&c.Metrics.Public)}),
		"mcp":       r.mcp(&c.MCP),
		"cors":      r.cors(&c.CORS),
	}
}

// section reads a top-level mapping whose keys are known.
func (r *reader) section(known fields) field {
	return func(n ast.Node, name string) {
		r.sections[name] = position(n)
		r.object(n, name, known)
	}
}

// setting reads a top-level value that must not be empty.
func (r *reader) setting(to *Setting) field {
	return func(n ast.Node, name string) {
		to.Pos = position(n)
		r.word(&to.Value)(n, name)
	}
}

// checked reads a setting that check may refuse.
func (r *reader) checked(to *Setting, check func(string) error) field {
	read := into(r, &to.Value, func(text string) (string, error) { return text, check(text) })
	return func(n ast.Node, name string) {
		to.Pos = position(n)
		read(n, name)
	}
}

func (r *reader) choice(to *Setting, choices ...string) field {
	return r.checked(to, func(v string) error {
		_, err := oneOf[string](choices)(v)
		return err
	})
}

// address reads host:port, or one of the words.
func (r *reader) address(to *Setting, words ...string) field {
	return r.checked(to, func(v string) error {
		if _, _, err := net.SplitHostPort(v); err != nil && !slices.Contains(words, v) {
			return errors.New(strings.Join(append([]string{"it must be host:port, for example 127.0.0.1:8080"}, words...), ", or "))
		}
		return nil
	})
}

// currency reads a currency by the form of ISO 4217. Any such word is taken: amounts are
// never converted.
func (r *reader) currency(to *Setting) field {
	return r.checked(to, func(v string) error {
		if len(v) != 3 || strings.Trim(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			return errors.New("it must be three capital letters such as USD")
		}
		return nil
	})
}

// store reads where accounts, keys and balances are kept. The word memory is taken
// for "memory:", which is not YAML without quotes.
func (r *reader) store(to *Setting) field {
	read := r.checked(to, func(v string) error {
		path, sqlite := strings.CutPrefix(v, SQLite)
		switch {
		case v == Memory, v+":" == Memory, strings.HasPrefix(v, postgres), strings.HasPrefix(v, "postgresql://"):
			return nil
		case sqlite && path != "" && !strings.HasPrefix(path, "//") && path != Memory:
			return nil
		}
		return errors.New(`it must be sqlite:PATH, postgres://… or "memory:"`)
	})
	return func(n ast.Node, name string) {
		read(n, name)
		if to.Value+":" == Memory {
			to.Value = Memory
		}
	}
}

// account reads an item of accounts.
func (r *reader) account(n ast.Node) Account {
	a := Account{Pos: position(r.resolve(n))}
	r.object(n, "an account", fields{
		"name":           r.word(&a.Name),
		"credit":         into(r, &a.Credit, parseCredit),
		"keys":           r.list(func(n ast.Node, _ string) { a.Keys = append(a.Keys, r.key(n)) }),
		"rpm":            r.count(&a.Limits.RPM),
		"tpm":            r.count(&a.Limits.TPM),
		"max_concurrent": r.count(&a.Limits.MaxConcurrent),
	})
	return a
}

func parseCredit(text string) (billing.Money, error) {
	m, err := billing.ParseMoney(text)
	if err != nil || m < 0 {
		return 0, errors.New(`it must be a decimal such as "25.00", and not negative`)
	}
	return m, nil
}

// keyForms is what an item of an account's keys may be.
const keyForms = `a key needs one of env and hash: write {env: NAME}, where the environment variable NAME holds it, or {hash: "sha256:…"}, and never the key itself`

// key reads a key of an account: the variable that holds it, or its hash.
func (r *reader) key(n ast.Node) Key {
	k := Key{Pos: position(r.resolve(n))}
	if _, single := scalar(r.resolve(n)); single {
		r.problems.add(k.Pos, keyForms)
		return k
	}
	given := 0
	source := func(read field) field {
		return func(n ast.Node, name string) { given++; read(n, name) }
	}
	known := r.limits(&k.Limits)
	known["name"] = r.word(&k.Name)
	known["models"] = r.words(&k.Models)
	known["env"] = source(into(r, &k.Hash, r.hashOfVariable))
	known["hash"] = source(into(r, &k.Hash, parseHash))
	before := len(r.problems)
	r.object(n, "a key", known)
	if given > 1 || given == 0 && len(r.problems) == before {
		r.problems.add(k.Pos, keyForms)
	}
	return k
}

// hashOfVariable is the hash of the key in a variable: of a key of an account nothing else
// is kept.
func (r *reader) hashOfVariable(name string) ([32]byte, error) {
	value, err := r.variable(name)
	if err == nil && (len(value) < 20 || !strings.HasPrefix(value, "sk-")) {
		err = fmt.Errorf("the environment variable %s does not hold a key: one begins with sk- and has at least 20 characters", name)
	}
	if err != nil {
		return [32]byte{}, err
	}
	return auth.HashOf(value), nil
}

// parseHash reads the hash of a key in the form of [auth.ParseHash].
func parseHash(text string) ([32]byte, error) {
	hash, err := auth.ParseHash(text)
	if err != nil {
		err = errors.New(fault.From(err).Message)
	}
	return hash, err
}

// Server are the limits on what the server does at one time. Zero means the default.
type Server struct {
	MaxCalls            int64
	MaxWaiting          int64
	MaxConnections      int64
	MaxConnectionsPerIP int64
	Memory              int64 // bytes that the process may take
	TrustedProxies      []netip.Prefix
}

// Admission are the gateway's options of admission control.
func (s *Server) Admission() gateway.Admission {
	return gateway.Admission{MaxCalls: int(s.MaxCalls), MaxWaiting: int(s.MaxWaiting)}
}

func (r *reader) server(s *Server) field {
	return r.section(fields{
		"max_calls":              r.positive(&s.MaxCalls),
		"max_waiting":            r.positive(&s.MaxWaiting),
		"max_connections":        r.positive(&s.MaxConnections),
		"max_connections_per_ip": r.positive(&s.MaxConnectionsPerIP),
		"memory":                 into(r, &s.Memory, parseBytes),
		"trusted_proxies":        intoList(r, &s.TrustedProxies, parsePrefix),
	})
}

// sizeUnits are the units of a size of memory.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// parseBytes reads a size of memory.
func parseBytes(text string) (int64, error) {
	const least = 64 << 20
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err == nil && n > 0 && n <= math.MaxInt64/u.bytes && n*u.bytes >= least {
			return n * u.bytes, nil
		}
	}
	return 0, errors.New("write a size such as 512MiB or 2GiB, at least 64MiB")
}

// parsePrefix reads an address or a network.
func parsePrefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.Prefix{}, errors.New("write an address such as 10.0.0.7, or a network such as 10.0.0.0/8")
}

// Telemetry is where traces and metrics of OpenTelemetry go. The zero Telemetry
// leaves that to the environment's OTEL_… variables.
type Telemetry struct {
	OTLP    string // a collector's address; empty means OTEL_EXPORTER_OTLP_ENDPOINT, and off without it
	Headers map[string]secret.String
	Service string // the service's name
	Sample  int    // of 1,000 traces; 0 means OTEL_TRACES_SAMPLER
	// NoTraces and NoMetrics switch one signal off. NoCallers ignores the trace context
	// of incoming requests.
	NoTraces, NoMetrics, NoCallers bool
	// TrustCallers makes requests parts of their callers' traces, so that callers
	// decide what is sampled. Otherwise they are linked.
	TrustCallers bool
}

// Metrics says who may read the metrics.
type Metrics struct {
	Public bool // without the admin token
}

func (r *reader) telemetry(t *Telemetry) field {
	return r.section(fields{
		"otlp": into(r, &t.OTLP, parseCollector),
		"headers": func(n ast.Node, name string) {
			for _, p := range r.pairs(n, name, nil) {
				if text, ok := r.text(p.value, "a header", nil); ok {
					if t.Headers == nil { // empty is the same as absent
						t.Headers = make(map[string]secret.String)
					}
					t.Headers[p.key] = secret.New(text)
				}
			}
		},
		"service":       r.word(&t.Service),
		"sample":        into(r, &t.Sample, parseShare),
		"traces":        r.negated(&t.NoTraces),
		"metrics":       r.negated(&t.NoMetrics),
		"callers":       r.negated(&t.NoCallers),
		"trust_callers": r.boolean(&t.TrustCallers),
	})
}

// parseCollector reads the base address of a collector.
func parseCollector(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("write a collector's address such as http://127.0.0.1:4318; a key goes into headers")
	}
	return strings.TrimSuffix(text, "/"), nil
}

// parseShare reads a share such as 0.25 in thousandths, without a float.
func parseShare(text string) (int, error) {
	wrong := errors.New("write a share of traces from 0.001 to 1, such as 0.25")
	whole, part, _ := strings.Cut(text, ".")
	if len(part) > 3 {
		return 0, wrong
	}
	n, err := strconv.ParseUint(whole+part+strings.Repeat("0", 3-len(part)), 10, 16)
	if err != nil || n < 1 || n > 1000 {
		return 0, wrong
	}
	return int(n), nil
}

// MCP is the server of tools for agents, at /mcp of the public address.
type MCP struct {
	Off     bool
	Origins []string // web pages that may call, besides those of this machine
}

func (r *reader) mcp(m *MCP) field {
	return r.section(fields{
		"enabled": r.negated(&m.Off),
		"origins": intoList(r, &m.Origins, parseOrigin),
	})
}

// parseOrigin reads the origin of a web page as browsers send it.
func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != text {
		return "", errors.New("write the origin of a page, as browsers do: a scheme, a host and a port if it is not the usual one, such as https://app.example.com")
	}
	return text, nil
}

// The origins of pages that are none of a host's.
const (
	everyOrigin = "*"    // of all pages
	nullOrigin  = "null" // of files and of sandboxed frames, which any page can open
)

// cors reads the origins of the web pages that may call the API.
func (r *reader) cors(to *[]string) field {
	read := intoList(r, to, parsePageOrigin)
	return func(n ast.Node, name string) {
		read(n, name)
		if slices.Contains(*to, everyOrigin) && len(*to) > 1 {
			r.problems.add(position(n), `%s: "*" stands for every origin, so that it must be the only one`, name)
		}
	}
}

// parsePageOrigin reads an origin exactly as browsers send it: an origin that never
// matches would be a mistake that nothing tells of. Apps have schemes of their own.
func parsePageOrigin(text string) (string, error) {
	if text == everyOrigin || text == nullOrigin {
		return text, nil
	}
	u, err := url.Parse(text)
	usualPort := err == nil && (u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443")
	switch {
	case err == nil && strings.Contains(u.Host, "*"):
		return "", errors.New(`each origin is written out, there are no patterns; "*" alone stands for every origin`)
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme+"://"+u.Host != text || usualPort || text != strings.ToLower(text) || strings.Trim(text, printableASCII) != "":
		return "", errors.New("write the origin of a page, exactly as browsers send it: a scheme, a host in lower case and a port if it is not the usual one, with nothing behind it, such as https://app.example.com")
	}
	return text, nil
}

// printableASCII is what an origin may consist of: browsers send other names encoded.
const printableASCII = "abcdefghijklmnopqrstuvwxyz0123456789+-._:/[]"

// Responses is what of responses is kept for requests that go on from them.
type Responses struct {
	Store     gateway.ResponsesMode
	Retention time.Duration
}

// defaultResponses is the section of a file that has none.
func defaultResponses() Responses {
	return Responses{Store: gateway.ResponsesOff, Retention: 30 * 24 * time.Hour}
}

// ResponsesOptions are the gateway's options of responses, but for where they are kept.
func (c *Config) ResponsesOptions() gateway.ResponsesOptions {
	return gateway.ResponsesOptions{Mode: c.Responses.Store, Retention: c.Responses.Retention}
}

func (r *reader) responses(o *Responses) field {
	return r.section(fields{
		"store":     into(r, &o.Store, oneOf[gateway.ResponsesMode](gateway.ResponsesModes())),
		"retention": r.duration(&o.Retention),
	})
}

// secrets reads the secrets of the deployment, which are written as the keys of a channel
// are.
func (r *reader) secrets(to *[]secret.String) field {
	read := r.vendorKeys(to)
	return func(n ast.Node, name string) {
		r.sections[name] = position(n)
		read(n, name)
		const least = 32 // characters
		for _, s := range *to {
			if len(s.Reveal()) < least {
				r.problems.add(position(n), "%s: each must have at least %d characters; make one with `openssl rand -base64 32`", name, least)
				return
			}
		}
	}
}

// Video is how video tasks are polled and kept. A duration of zero means the default.
type Video struct {
	Retention, Poll time.Duration
	DuplicateWindow time.Duration // negative: off
}

// Webhooks is which addresses may receive webhooks.
type Webhooks struct {
	AllowPrivate bool // http, any port and private addresses too
}

// The defaults of the video section of a file.
const (
	defaultRetention       = 7 * 24 * time.Hour
	defaultPoll            = 5 * time.Second
	defaultDuplicateWindow = 5 * time.Second
)

// defaultVideo is the section of a file that has none. So a file that writes a default
// out is the same as one that does not.
func defaultVideo() Video {
	return Video{Retention: defaultRetention, Poll: defaultPoll, DuplicateWindow: defaultDuplicateWindow}
}

// VideoOptions are the gateway's options of video tasks.
func (c *Config) VideoOptions() gateway.VideoOptions {
	return gateway.VideoOptions{
		Poll: c.Video.Poll, Retention: c.Video.Retention, DuplicateWindow: c.Video.DuplicateWindow,
		AllowPrivate: c.Webhooks.AllowPrivate,
	}
}

func (r *reader) video(v *Video) field {
	return r.section(fields{
		"retention":        r.duration(&v.Retention),
		"poll":             r.duration(&v.Poll),
		"duplicate_window": into(r, &v.DuplicateWindow, parseWindow),
	})
}

// parseWindow reads a duration. 0, which switches the window off, becomes negative,
// since 0 is the default.
func parseWindow(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d == 0 {
		d = -1
	}
	return d, err
}

// limits are the fields of the limits of a key.
func (r *reader) limits(l *auth.Limits) fields {
	return fields{
		"rpm":                   r.count(&l.RPM),
		"tpm":                   r.count(&l.TPM),
		"max_concurrent":        r.count(&l.MaxConcurrent),
		"max_concurrent_videos": r.count(&l.MaxConcurrentVideos),
	}
}
