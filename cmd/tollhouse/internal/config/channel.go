package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/reranker"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// Channel is one way to an upstream.
type Channel struct {
	Pos      Pos
	Name     string            `yaml:"name"`
	Driver   string            `yaml:"driver,driver"`
	BaseURL  string            `yaml:"base_url"`                             // empty means the driver's
	Wire     []upstream.Op     `yaml:"wire,wire" example:"[chat, messages]"` // by which a vendor of OpenAI's wire makes texts; nil means the driver's default
	Messages MessagesWire      `yaml:"messages"`                             // where Wire has messages
	Keys     VendorKeys        `yaml:"keys" example:"[{env: OPENAI_API_KEY}]"`
	Auth     upstream.Auth     `yaml:"auth,auth"`                           // how calls carry a key; zero means the driver's way
	Headers  map[string]string `yaml:"headers" example:"{X-Title: my-app}"` // that go with every call; no secrets
	Models   map[string]string // from public ids to the upstream's
	Discover *Discovery        // serves what the vendor lists too; nil does not
	Weight   int               `yaml:"weight,weight"`
	Priority int               `yaml:"priority,priority"`
	Timeout  Timeouts          `yaml:"timeout"`
	Drain    time.Duration     `yaml:"drain,drain"` // of streams whose client has disconnected; zero cancels at once
	Drop     []string          `yaml:"drop" example:"[temperature]"`
	Pass     []string          `yaml:"pass" example:"[service_tier]"` // fields that prepaid billing would refuse, since they have no price
	Rename   map[string]string `yaml:"rename" example:"{max_tokens: max_completion_tokens}"`
	// DoneOptional and Usage.NoStreamOptions are what they are in [upstream.DriverOptions].
	DoneOptional bool  `yaml:"done,done"`
	Usage        Usage `yaml:"usage"`
	// SessionHeader is the header in which the vendor gets a call's session; empty for
	// none.
	SessionHeader string `yaml:"session_header"`

	CachePrompts bool   `yaml:"cache,cache"`       // mark prompts that become messages for the vendor's cache
	Thinking     string `yaml:"thinking,thinking"` // adaptive or enabled; empty for what the client asks to see

	MaxConcurrent int `yaml:"max_concurrent,limit"` // calls at once; zero is no limit
	RPM           int `yaml:"rpm,limit"`            // calls per minute; zero is no limit

	// Upstream, when not nil, is used in place of one that Driver makes.
	Upstream upstream.Upstream
	// Begins are the beginnings of the vendor's ids that "*" passes through; none means all.
	// Except are ids that it does not pass through; one that ends in "*" stands for all ids
	// with that beginning.
	Begins []string `yaml:"begins" example:"[gemini-]"`
	Except []string `yaml:"except" example:"[gemini-old]"`
	// DefersToDiscovered has "*" leave the ids to other channels that they discovered, but for those
	// on the channel's own list. In a file it is what a channel does that discovers too.
	DefersToDiscovered bool

	modelPos map[string]Pos // of public ids
}

// MessagesWire says how a vendor of OpenAI's wire is reached by that of Anthropic.
type MessagesWire struct {
	BaseURL string        `yaml:"base_url"`  // to which /v1/messages is added; empty means the channel's, without /v1
	Auth    upstream.Auth `yaml:"auth,auth"` // zero means the channel's
}

// Timeouts are those of a channel's calls. Zero means the default of the driver or the router.
type Timeouts struct {
	Connect time.Duration `yaml:"connect"`
	Headers time.Duration `yaml:"headers"`
	Idle    time.Duration `yaml:"idle"`
	Total   time.Duration `yaml:"total"`
}

// Usage says how a vendor of OpenAI's wire is asked for usage.
type Usage struct {
	NoStreamOptions bool `yaml:"stream_options,streams"` // it refuses the field
}

// decode implements decodable.
func (c *Channel) decode(d *decoder, n ast.Node, _ string) {
	c.modelPos = make(map[string]Pos)
	d.object(n, "a channel", reflect.ValueOf(c).Elem(), special{
		"models": func(n ast.Node, name string) { c.decodeModels(d, n, name) },
	})
}

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

// endpoints are the ends of addresses that drivers add to a base URL by themselves: those of
// the API, and those of vendors alone. None is the end of a later one.
func endpoints() []string {
	var ends []string
	for _, s := range all.Specs() {
		ends = append(ends, strings.TrimPrefix(s.Path, "/v1"))
	}
	return append(ends, "/completions", "/models", "/contents/generations/tasks",
		"/services/aigc/multimodal-generation/generation", "/services/aigc/video-generation/video-synthesis", "/services/rerank/text-rerank/text-rerank")
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
		for _, end := range endpoints() {
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
		DoneOptional: c.DoneOptional, NoStreamOptions: c.Usage.NoStreamOptions, ConnectTimeout: c.Timeout.Connect,
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
	other, err := anthropic.New(upstream.DriverOptions{BaseURL: base, Keys: c.Keys, Auth: auth, Headers: c.Headers, ConnectTimeout: c.Timeout.Connect})
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

// KeyFile is a file that holds keys of a channel, as it was when it was read.
type KeyFile struct {
	Path string
	Info fs.FileInfo // nil if there is none
}

// maxKeyFile bounds a file of keys, in bytes.
const maxKeyFile = 64 << 10

// VendorKeys are secrets that the file names. A key that occurs twice counts once:
// otherwise it would get two turns, and be retried in its own place when it is refused.
type VendorKeys []secret.String

// decode implements decodable.
func (v *VendorKeys) decode(d *decoder, n ast.Node, name string) {
	for _, item := range d.items(n) {
		for _, key := range d.vendorKey(item, "an item of "+name) {
			if !slices.ContainsFunc(*v, func(k secret.String) bool { return k.Reveal() == key }) {
				*v = append(*v, secret.New(key))
			}
		}
	}
}

// vendorKey reads an item of keys without ever repeating a key in a problem: the key
// itself, the variable that holds it, or the file that holds one or several.
func (d *decoder) vendorKey(n ast.Node, name string) (keys []string) {
	if _, single := scalar(d.resolve(n)); single {
		var key string
		if d.single(n, name, into(parseWord), reflect.ValueOf(&key).Elem()); key != "" {
			keys = append(keys, strings.TrimSpace(key)) // ${NAME} may be in it
		}
		return keys
	}
	given := 0
	source := func(read func(string) ([]string, error)) func(ast.Node, string) {
		return func(n ast.Node, name string) {
			given++
			keys = nil
			d.single(n, name, into(read), reflect.ValueOf(&keys).Elem())
		}
	}
	before := len(d.problems)
	d.object(n, name, reflect.ValueOf(&struct{}{}).Elem(), special{"env": source(d.keyOfVariable), "file": source(d.keysOfFile)})
	if given != 1 && len(d.problems) == before {
		d.problems.add(position(d.resolve(n)), "%s is the key itself, {env: the variable that holds it} or {file: the file that holds it}", name)
	}
	return keys
}

// keyOfVariable is the key in a variable, as a list of one.
func (d *decoder) keyOfVariable(name string) ([]string, error) {
	value, err := d.variable(name)
	if err == nil && value == "" {
		err = fmt.Errorf("the environment variable %s is empty", name)
	}
	if err != nil {
		return nil, err
	}
	return []string{value}, nil
}

// variable is the value of an environment variable that holds a key.
func (d *decoder) variable(name string) (string, error) {
	value, set := d.env.Trimmed()(name)
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
func (d *decoder) keysOfFile(path string) ([]string, error) {
	if path == "" {
		return nil, errEmpty
	}
	info, err := os.Stat(path) // before it is read, so that no later change is missed
	d.keyFiles = append(d.keyFiles, KeyFile{path, info})
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
