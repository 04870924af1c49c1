package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	presetfile "github.com/tollhouse-ai/gateway/internal/presets"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// preset is a channel that variables of the environment configure. presets.yaml says what the
// fields mean.
type preset struct {
	Channel  config.Channel `yaml:"channel"`
	Key      string         `yaml:"key"`
	URL      string         `yaml:"url"`
	Local    string         `yaml:"local"`
	Path     string         `yaml:"path"`
	Messages string         `yaml:"messages"`
	Host     string         `yaml:"host"`
	Lists    bool           `yaml:"lists"`
	Behind   string         `yaml:"behind"`
	Example  string         `yaml:"example"`
}

// presets are all presets, in the order in which they serve.
var presets = sync.OnceValue(func() (all []preset) {
	_ = config.Decode("presets.yaml", presetfile.YAML(), &all) // a test finds every mistake in it
	return all
})

const defaultAccount = "default"

// presets makes a channel for each vendor whose key is in the environment, and for each
// server of the operator's own whose address is. Usage is counted and no money moves.
func (p *program) presets() (*source, error) {
	src := &source{firstAccount: defaultAccount, config: &config.Config{
		Locations: config.Locations{Billing: config.Count},
		Accounts:  []config.Account{{Name: defaultAccount}},
	}}
	env := config.Env(p.env).Trimmed()
	bare := true // no channel has the ids without a prefix yet
	for i := range presets() {
		v := &presets()[i]
		if on, _ := env(v.turnedOnBy()); on == "" {
			continue
		}
		var front *config.Channel
		if v.Behind != "" {
			if front = src.config.Channel(v.Behind); front == nil || !v.asked(env) {
				continue
			}
		}
		base, missing, err := v.base(env)
		switch {
		case err != nil:
			return nil, err
		case missing != "":
			src.notes = append(src.notes, fmt.Sprintf("%s is set, but not %s: %s is left out", v.Key, missing, v.Channel.Name))
			continue
		}
		c := v.channel(base, bare)
		if address := v.messagesAt(env, base); address != "" {
			c.Wire, c.Messages.BaseURL = []upstream.Op{upstream.ChatCompletion, upstream.Messages}, address
		}
		if front != nil {
			c.Discover, c.Models = &config.Discovery{}, map[string]string{}
			c.Discover.Prefix, front.DefersToDiscovered = front.Discover.Prefix, true
		}
		if key, _ := env(v.Key); key != "" {
			c.Keys = []secret.String{secret.New(key)}
		}
		bare = bare && (c.Models["*"] == "" || len(c.Begins) > 0)
		if warning := c.AddressWarning(); warning != "" {
			src.notes = append(src.notes, warning)
		}
		src.config.Channels = append(src.config.Channels, c)
	}
	reserveModels(src.config.Channels)
	return src, nil
}

// asked reports whether a row behind another one is asked: where both addresses are the
// vendor's own, or that of the row is given.
func (v *preset) asked(env config.Env) bool {
	own, _ := env(v.URL)
	front, _ := env(presetNamed(v.Behind).URL)
	return own != "" || front == ""
}

// turnedOnBy is the variable without which the channel is not made.
func (v *preset) turnedOnBy() string {
	if v.Local != "" {
		return v.URL
	}
	return v.Key
}

// messagesVar is the variable with the address of a vendor's messages.
func (v *preset) messagesVar() string {
	return strings.TrimSuffix(v.URL, "BASE_URL") + "MESSAGES_BASE_URL"
}

// messagesAt is where the channel's messages go; empty if they are translated into chats. A
// proxy at an address of the operator's own need not have both wires: it is asked for messages
// only where the variable says so.
func (v *preset) messagesAt(env config.Env, base string) string {
	if v.Messages == "" {
		return ""
	}
	if given, _ := env(v.messagesVar()); given != "" {
		return given
	}
	own, _ := url.Parse(v.Channel.BaseURL)
	if at, err := url.Parse(base); err != nil || at.Scheme != own.Scheme || at.Host != own.Host {
		return ""
	}
	return own.Scheme + "://" + own.Host + v.Messages
}

// base is the channel's base URL, or the variable that it lacks.
func (v *preset) base(env config.Env) (base, missing string, err error) {
	given, _ := env(v.URL)
	base = cmp.Or(given, v.Channel.BaseURL)
	switch {
	case given == "" || v.Local == "":
	case v.Local == "ollama":
		base, err = ollamaURL(given)
	default:
		base, err = localURL(given)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", v.URL, err)
	}
	if before, rest, found := strings.Cut(v.Channel.BaseURL, "${"); found && given == "" {
		name, after, _ := strings.Cut(rest, "}")
		value, _ := env(name)
		if value == "" {
			return "", name, nil
		}
		// An endpoint that is copied from the vendor's page may have the end already.
		base = before + strings.TrimSuffix(strings.TrimSuffix(value, "/"), after) + after
	}
	if v.Path != "" {
		base = strings.TrimSuffix(base, "/") + v.Path
	}
	return base, "", nil
}

// channel is the preset's channel, without its key. bare says that it may have the ids of
// all models to itself.
func (v *preset) channel(base string, bare bool) config.Channel {
	c := v.Channel
	c.BaseURL = base
	if v.Lists {
		c.Discover = new(config.Discovery)
		for _, begin := range c.Begins {
			c.Discover.Only = append(c.Discover.Only, begin+"*")
		}
	}
	if v.Host != "" {
		c.Discover = new(config.Discovery)
		c.Models = map[string]string{"*": "*"}
		if !bare {
			c.Discover.Prefix = v.Host
			c.Models = map[string]string{v.Host + "*": "*"}
		}
	}
	return c
}

// reserveModels excepts the models of the other channels from a channel that passes
// every id through.
func reserveModels(channels []config.Channel) {
	var taken []string
	for i := range channels {
		for _, shown := range channels[i].Shown() {
			if shown != "*" {
				taken = append(taken, shown)
			}
		}
	}
	for i := range channels {
		c := &channels[i]
		if _, every := c.Models["*"]; every && len(c.Begins) == 0 {
			c.Except, c.DefersToDiscovered = taken, true
		}
	}
}

// exampleOf is a model to try on a preset's channel, among the ids that it passes through;
// empty for any other channel.
func exampleOf(c *config.Channel) string {
	if v := presetNamed(c.Name); v != nil && v.Example != "" {
		for _, id := range slices.Sorted(maps.Keys(c.Models)) {
			if prefix, wild := strings.CutSuffix(id, "*"); wild {
				return prefix + v.Example
			}
		}
	}
	return ""
}

// presetNamed is the preset of a channel; nil if there is none.
func presetNamed(channel string) *preset {
	i := slices.IndexFunc(presets(), func(v preset) bool { return v.Channel.Name == channel })
	if i < 0 {
		return nil
	}
	return &presets()[i]
}

// presetVariables are the variables that turn presets on, sorted, and those that are
// needed besides.
func presetVariables() []string {
	names := make(map[string]bool)
	for i := range presets() {
		v := &presets()[i]
		name := v.turnedOnBy()
		if _, rest, found := strings.Cut(v.Channel.BaseURL, "${"); found {
			also, _, _ := strings.Cut(rest, "}")
			name += " with " + also
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// localURL is the base URL of a server of the operator's own, which is often given
// without the /v1 at its end.
func localURL(text string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("it must be an address such as http://127.0.0.1:8000/v1")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1"
	}
	return u.String(), nil
}

// ollamaURL reads OLLAMA_HOST as Ollama's own clients do (envconfig/config.go of
// ollama/ollama): a host, a port or both, with or without a scheme. Without one the port
// is 11434, with one that of the scheme. An address to listen on everywhere means this
// machine.
func ollamaURL(text string) (string, error) {
	text = strings.Trim(strings.TrimSpace(text), `"'`)
	port := "11434"
	scheme, rest, given := strings.Cut(text, "://")
	switch {
	case !given:
		scheme, rest = "http", text
	case scheme == "http":
		port = "80"
	case scheme == "https":
		port = "443"
	default:
		return "", errors.New("it must be host:port, or an http or https address")
	}
	at, path, _ := strings.Cut(rest, "/")
	host := strings.Trim(at, "[]")
	if h, p, err := net.SplitHostPort(at); err == nil {
		host, port = h, cmp.Or(p, port)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("%q is no port", port)
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	u := &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}
	return u.JoinPath(path, "v1").String(), nil
}
