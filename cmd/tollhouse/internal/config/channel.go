package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/reranker"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// driver makes the upstreams of channels.
type driver struct {
	construct func(*Channel) (upstream.Upstream, error)
	address   string // the base URL of a channel without one; empty where no vendor is asked
}

// drivers are all drivers by the names that a file has for them.
var drivers = map[string]driver{
	"anthropic": vendor(anthropic.New, anthropic.DefaultBaseURL),
	"ark":       vendor(ark.New, ark.DefaultBaseURL),
	"cohere":    vendor(reranker.NewCohere, reranker.CohereBaseURL),
	"dashscope": vendor(dashscope.New, dashscope.DefaultBaseURL),
	"openai":    {newOpenAI, openai.DefaultBaseURL},
	Simulated:   {construct: newSim},
	"tei":       vendor(reranker.NewTEI, reranker.TEIBaseURL),
	"voyage":    vendor(voyage.New, voyage.DefaultBaseURL),
}

// Simulated is the driver that answers in this process.
const Simulated = "sim"

// Address is the base URL of the channel's vendor; empty for a simulated one.
func (c *Channel) Address() string { return cmp.Or(c.BaseURL, drivers[c.Driver].address) }

// LacksKeys reports whether the channel has no keys for the address of its driver, which is
// that of a vendor who refuses calls without one. A server of the operator's own may take
// them.
func (c *Channel) LacksKeys() bool {
	of := drivers[c.Driver].address
	return len(c.Keys) == 0 && strings.HasPrefix(of, "https://") && strings.TrimSuffix(c.Address(), "/") == of
}

// endpoints are the ends of addresses that drivers add to a base URL by themselves.
var endpoints = []string{
	"/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens", "/embeddings", "/rerank", "/models",
	"/images/generations", "/images/edits", "/audio/speech", "/contents/generations/tasks",
	"/services/aigc/multimodal-generation/generation", "/services/aigc/video-generation/video-synthesis", "/services/rerank/text-rerank/text-rerank",
}

// AddressWarning says what is meant by a base URL that is the address of an endpoint; empty
// for any other.
func (c *Channel) AddressWarning() string {
	anthropic := drivers[c.Driver].address == anthropic.DefaultBaseURL
	for _, a := range []struct {
		name, url string
		root      bool // /v1 is the driver's, too
	}{{"base_url", c.BaseURL, anthropic}, {"base_url of messages", c.Messages.BaseURL, true}} {
		meant := strings.TrimSuffix(a.url, "/")
		for _, end := range endpoints {
			if base, found := strings.CutSuffix(meant, end); found {
				meant = base
				break
			}
		}
		if a.root {
			meant = strings.TrimSuffix(meant, "/v1")
		}
		if added := strings.TrimPrefix(strings.TrimSuffix(a.url, "/"), meant); added != "" {
			return fmt.Sprintf("channel %s: the gateway adds %s to the %s by itself: write %s", c.Name, added, a.name, meant)
		}
	}
	return ""
}

// vendor is the driver of a vendor.
func vendor[T upstream.Upstream](construct func(upstream.DriverOptions) (T, error), address string) driver {
	return driver{func(c *Channel) (upstream.Upstream, error) { return construct(c.options()) }, address}
}

// options are those of the channel's driver.
func (c *Channel) options() upstream.DriverOptions {
	return upstream.DriverOptions{
		BaseURL: c.BaseURL, Keys: c.Keys, Auth: c.Auth, Headers: c.Headers, Wire: c.Wire,
		DoneOptional: c.DoneOptional, NoStreamOptions: c.NoStreamOptions, ConnectTimeout: c.Connect,
	}
}

// newOpenAI is the driver of a vendor of OpenAI's wire, joined with that of messages where
// the vendor speaks both.
func newOpenAI(c *Channel) (upstream.Upstream, error) {
	o := c.options()
	if !c.speaksMessages() {
		return openai.New(o)
	}
	o.Wire = slices.DeleteFunc(slices.Clone(c.Wire), func(op upstream.Op) bool { return op == upstream.Messages })
	base := c.Messages.BaseURL
	if base == "" {
		root, versioned := strings.CutSuffix(strings.TrimSuffix(cmp.Or(c.BaseURL, openai.DefaultBaseURL), "/"), "/v1")
		if !versioned {
			return nil, errors.New("wire has messages: say in messages, base_url, to what address /v1/messages is added, since base_url does not end in /v1")
		}
		base = root
	}
	main, err := openai.New(o)
	if err != nil {
		return nil, err
	}
	// The key travels as in the channel's other calls, unless it says otherwise: vendors that
	// have messages besides take a bearer token, as Claude Code sends it.
	auth := cmp.Or(c.Messages.Auth, c.Auth, upstream.Auth{By: upstream.ByBearer})
	other, err := anthropic.New(upstream.DriverOptions{BaseURL: base, Keys: c.Keys, Auth: auth, Headers: c.Headers, ConnectTimeout: c.Connect})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("messages: %w", err), main.Close())
	}
	return upstream.Join(main, other), nil
}

// speaksMessages reports whether the vendor of OpenAI's wire has messages too.
func (c *Channel) speaksMessages() bool { return slices.Contains(c.Wire, upstream.Messages) }

// newSim refuses settings of a vendor: a file that has them was meant for one, and would
// answer customers with simulated texts.
func newSim(c *Channel) (upstream.Upstream, error) {
	if c.BaseURL != "" || len(c.Keys) > 0 || c.Auth.By != "" || len(c.Headers) > 0 {
		return nil, errors.New("the sim driver answers in this process: take base_url, keys, auth and headers out")
	}
	return sim.New(sim.Options{}), nil
}

// orMore is the range of a limit of a channel.
const orMore = ", 0 or more; 0 is no limit"

// channel reads an item of channels.
func (r *reader) channel(n ast.Node) Channel {
	c := Channel{Pos: position(r.resolve(n)), Headers: map[string]string{}, Models: map[string]string{}, Rename: map[string]string{}, modelPos: map[string]Pos{}}
	r.object(n, "a channel", fields{
		"name":     r.word(&c.Name),
		"driver":   into(r, &c.Driver, oneOf[string](slices.Sorted(maps.Keys(drivers)))),
		"base_url": r.word(&c.BaseURL),
		"wire":     intoList(r, &c.Wire, oneOf[upstream.Op]([]upstream.Op{upstream.ChatCompletion, upstream.Responses, upstream.Messages})),
		"messages": func(n ast.Node, name string) {
			r.object(n, name, fields{
				"base_url": r.word(&c.Messages.BaseURL),
				"auth":     into(r, &c.Messages.Auth, upstream.ParseAuth),
			})
		},
		"keys":           r.vendorKeys(&c.Keys),
		"auth":           into(r, &c.Auth, upstream.ParseAuth),
		"headers":        r.mapping(c.Headers, nil),
		"weight":         whole(r, &c.Weight, 1, 1_000_000, " from 1 to 1000000"),
		"priority":       whole(r, &c.Priority, math.MinInt32, math.MaxInt32, ""),
		"max_concurrent": whole(r, &c.MaxConcurrent, 0, math.MaxInt32, orMore),
		"rpm":            whole(r, &c.RPM, 0, math.MaxInt32, orMore),
		"timeout": func(n ast.Node, name string) {
			r.object(n, name, fields{
				"connect": r.duration(&c.Connect),
				"headers": r.duration(&c.Timeout.Headers),
				"idle":    r.duration(&c.Timeout.Idle),
				"total":   r.duration(&c.Timeout.Total),
			})
		},
		"cache":          into(r, &c.CachePrompts, parseCache),
		"thinking":       into(r, &c.Thinking, parseThinking),
		"session_header": r.word(&c.SessionHeader),

		"done":  into(r, &c.DoneOptional, parseDone),
		"usage": r.usage(&c.NoStreamOptions),

		"begins": r.words(&c.Begins),
		"except": r.words(&c.Except),
		"drain":  into(r, &c.Drain, parseDrain),
		"drop":   r.words(&c.Drop),
		"pass":   r.words(&c.Pass),
		"rename": r.mapping(c.Rename, nil),
		"models": r.channelModels(&c),
	})
	return c
}

// mapping reads a mapping of names to names. positions, if not nil, gets the position
// of each key.
func (r *reader) mapping(to map[string]string, positions map[string]Pos) field {
	return func(n ast.Node, name string) {
		for _, p := range r.pairs(n, name, nil) {
			var value string
			r.word(&value)(p.value, name+": "+p.key)
			to[p.key] = value
			if positions != nil {
				positions[p.key] = p.at
			}
		}
	}
}

func parseDone(text string) (optional bool, err error) {
	if text != "optional" && text != "required" {
		return false, errors.New("it must be one of optional, required")
	}
	return text == "optional", nil
}

// usage reads how a vendor is asked for usage.
func (r *reader) usage(refused *bool) field {
	return func(n ast.Node, name string) {
		r.object(n, name, fields{"stream_options": into(r, refused, func(text string) (bool, error) {
			switch text {
			case "yes", "true":
				return false, nil
			case "no", "false":
				return true, nil
			}
			return false, errors.New("it must be one of yes, no: no is for a vendor that refuses the field")
		})})
	}
}

func parseCache(text string) (bool, error) {
	if text != "auto" {
		return false, errors.New("it must be auto, or left out: then only callers mark what is cached")
	}
	return true, nil
}

func parseThinking(text string) (string, error) {
	if text != "adaptive" && text != "enabled" {
		return "", errors.New("it must be adaptive or enabled, or left out: then only clients that ask to see reasoning get any")
	}
	return text, nil
}

func parseDrain(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d > router.MaxDrain {
		err = fmt.Errorf("it must be at most %s", router.MaxDrain)
	}
	return d, err
}

// KeyFile is a file that holds keys of a channel, as it was when it was read.
type KeyFile struct {
	Path string
	Info fs.FileInfo // nil if there is none
}

// maxKeyFile bounds a file of keys, in bytes.
const maxKeyFile = 64 << 10

// vendorKeys reads the keys of a channel. A key that occurs twice counts once:
// otherwise it would get two turns, and be retried in its own place when it is
// refused.
func (r *reader) vendorKeys(to *[]secret.String) field {
	return r.list(func(n ast.Node, name string) {
		for _, key := range r.vendorKey(n, name) {
			if !slices.ContainsFunc(*to, func(k secret.String) bool { return k.Reveal() == key }) {
				*to = append(*to, secret.New(key))
			}
		}
	})
}

// vendorKey reads an item of keys without ever repeating a key in a problem: the key
// itself, the variable that holds it, or the file that holds one or several.
func (r *reader) vendorKey(n ast.Node, name string) (keys []string) {
	if _, single := scalar(r.resolve(n)); single {
		var key string
		if r.word(&key)(n, name); key != "" {
			keys = append(keys, strings.TrimSpace(key)) // ${NAME} may be in it
		}
		return keys
	}
	given := 0
	source := func(read func(string) ([]string, error)) field {
		return func(n ast.Node, name string) {
			given++
			keys = nil
			into(r, &keys, read)(n, name)
		}
	}
	before := len(r.problems)
	r.object(n, name, fields{"env": source(r.keyOfVariable), "file": source(r.keysOfFile)})
	if given != 1 && len(r.problems) == before {
		r.problems.add(position(r.resolve(n)), "%s is the key itself, {env: the variable that holds it} or {file: the file that holds it}", name)
	}
	return keys
}

// keyOfVariable is the key in a variable, as a list of one.
func (r *reader) keyOfVariable(name string) ([]string, error) {
	value, err := r.variable(name)
	if err == nil && value == "" {
		err = fmt.Errorf("the environment variable %s is empty", name)
	}
	if err != nil {
		return nil, err
	}
	return []string{value}, nil
}

// variable is the value of an environment variable that holds a key.
func (r *reader) variable(name string) (string, error) {
	value, set := r.env.Trimmed()(name)
	switch {
	case !isName(name):
		return "", errors.New("it must be the name of an environment variable, never the key itself")
	case !set:
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	return value, nil
}

// keysOfFile reads the keys of a file. Its errors do not repeat the path, which may be
// a key in the wrong place.
func (r *reader) keysOfFile(path string) ([]string, error) {
	if path == "" {
		return nil, errEmpty
	}
	info, err := os.Stat(path) // before it is read, so that no later change is missed
	r.keyFiles = append(r.keyFiles, KeyFile{path, info})
	if err != nil {
		return nil, unreadable(err)
	}
	data, err := readKeyFile(path, info)
	if err != nil {
		return nil, err
	}
	return parseKeys(data)
}

// parseKeys reads one key a line. Its errors do not repeat any of them.
func parseKeys(data []byte) (keys []string, err error) {
	for i, line := range strings.Split(string(withoutMark(data)), "\n") {
		key := strings.TrimSpace(line)
		if strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, fmt.Errorf("line %d of the file is no key: it has a space or a character that no key can have", i+1)
		}
		if key != "" {
			keys = append(keys, key)
		}
	}
	if keys == nil {
		return nil, errors.New("the file is empty; it must hold a key, or several of them, one a line")
	}
	return keys, nil
}

// readKeyFile reads a regular file of a bounded size: a pipe or a device may never
// end.
func readKeyFile(path string, info fs.FileInfo) ([]byte, error) {
	switch {
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > maxKeyFile:
		return nil, fmt.Errorf("the file is larger than %d bytes, and so is no file of keys", maxKeyFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(err)
	}
	return data, nil
}

// unreadable is why a file cannot be read, without its path, which may be a key.
func unreadable(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return fmt.Errorf("the file cannot be read: %w", err)
}
