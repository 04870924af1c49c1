package config

import (
	"errors"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/secret"
)

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
			for _, p := range r.pairs(n, name) {
				if text, ok := r.text(p.value, "a header"); ok {
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
		"store": into(r, &o.Store, func(text string) (gateway.ResponsesMode, error) {
			if !slices.Contains(gateway.ResponsesModes(), text) {
				return "", errors.New("it must be one of " + strings.Join(gateway.ResponsesModes(), ", "))
			}
			return gateway.ResponsesMode(text), nil
		}),
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
