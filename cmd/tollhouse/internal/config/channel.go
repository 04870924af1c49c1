package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// drivers make the upstream of a channel.
var drivers = map[string]func(*Channel) (upstream.Upstream, error){
	"anthropic": newAnthropic,
	"ark":       newArk,
	"dashscope": newDashScope,
	"openai":    newOpenAI,
	"sim":       newSim,
	"voyage":    newVoyage,
}

func newOpenAI(c *Channel) (upstream.Upstream, error) {
	return openai.New(openai.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newAnthropic(c *Channel) (upstream.Upstream, error) {
	return anthropic.New(anthropic.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newArk(c *Channel) (upstream.Upstream, error) {
	return ark.New(ark.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newDashScope(c *Channel) (upstream.Upstream, error) {
	return dashscope.New(dashscope.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newVoyage(c *Channel) (upstream.Upstream, error) {
	return voyage.New(voyage.Options{BaseURL: c.BaseURL, Keys: c.Keys, ConnectTimeout: c.Connect})
}

func newSim(c *Channel) (upstream.Upstream, error) {
	if c.BaseURL != "" || len(c.Keys) > 0 {
		return nil, errors.New("the sim driver answers in this process: take base_url and keys out")
	}
	return sim.New(sim.Options{}), nil
}

// channel reads an item of channels.
func (r *reader) channel(n ast.Node) Channel {
	c := Channel{Pos: position(r.resolve(n)), Models: map[string]string{}, Rename: map[string]string{}, modelPos: map[string]Pos{}}
	r.object(n, "a channel", fields{
		"name":           r.word(&c.Name, "name"),
		"driver":         r.driver(&c.Driver),
		"base_url":       r.word(&c.BaseURL, "base_url"),
		"keys":           r.vendorKeys(&c.Keys),
		"weight":         into(r, &c.Weight, "weight", weight),
		"priority":       into(r, &c.Priority, "priority", whole),
		"max_concurrent": into(r, &c.MaxConcurrent, "max_concurrent", limit),
		"rpm":            into(r, &c.RPM, "rpm", limit),
		"timeout": func(n ast.Node) {
			r.object(n, "timeout", fields{
				"connect": r.duration(&c.Connect, "connect"),
				"headers": r.duration(&c.Timeout.Headers, "headers"),
				"idle":    r.duration(&c.Timeout.Idle, "idle"),
				"total":   r.duration(&c.Timeout.Total, "total"),
			})
		},
		"drain":  into(r, &c.Drain, "drain", drain),
		"drop":   r.words(&c.Drop, "drop"),
		"pass":   r.words(&c.Pass, "pass"),
		"rename": func(n ast.Node) { r.mapping(n, "rename", c.Rename, nil) },
		"models": func(n ast.Node) { r.mapping(n, "models", c.Models, c.modelPos) },
	})
	return c
}

func (r *reader) driver(to *string) func(ast.Node) {
	return into(r, to, "driver", func(text string) (string, error) {
		if drivers[text] == nil {
			return "", fmt.Errorf("there is no such driver; it is one of %s", strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
		}
		return text, nil
	})
}

// mapping reads names that lead to names, and where each stands.
func (r *reader) mapping(n ast.Node, what string, to map[string]string, places map[string]Pos) {
	for _, p := range r.pairs(n, what) {
		var value string
		r.word(&value, what+": "+p.key)(p.value)
		to[p.key] = value
		if places != nil {
			places[p.key] = p.at
		}
	}
}

func drain(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d > upstream.MaxDrain {
		err = fmt.Errorf("it must be at most %s", upstream.MaxDrain)
	}
	return d, err
}

func weight(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1_000_000 {
		return 0, errors.New("it must be a whole number from 1 to 1000000")
	}
	return n, nil
}

// limit reads a bound of which 0 is none.
func limit(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, errors.New("it must be a whole number, 0 or more; 0 is no limit")
	}
	return int(n), nil
}

func whole(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, errors.New("it must be a whole number")
	}
	return int(n), nil
}

// KeyFile is a file that holds keys of a channel, as it was when it was read.
type KeyFile struct {
	Path string
	Info fs.FileInfo // nil if there is none
}

// maxKeyFile is far more than a file of keys has, in bytes.
const maxKeyFile = 64 << 10

// vendorKeys reads the keys of a channel. One that is there twice counts once:
// it would take two turns, and stand in for itself when it is refused.
func (r *reader) vendorKeys(to *[]secret.String) func(ast.Node) {
	return func(n ast.Node) {
		r.list(n, "keys", func(item ast.Node) {
			for _, key := range r.vendorKey(item) {
				if !slices.ContainsFunc(*to, func(k secret.String) bool { return k.Reveal() == key }) {
					*to = append(*to, secret.New(key))
				}
			}
		})
	}
}

// vendorKey reads an item of keys without ever naming one: the key itself, the
// variable that holds it, or the file that holds one or several.
func (r *reader) vendorKey(n ast.Node) (keys []string) {
	if _, single := scalar(r.resolve(n)); single {
		var key string
		if r.word(&key, "an item of keys")(n); key != "" {
			keys = append(keys, key)
		}
		return keys
	}
	given := 0
	source := func(what string, read func(string) ([]string, error)) func(ast.Node) {
		return func(n ast.Node) {
			given++
			keys = parsed(r, n, what, read)
		}
	}
	before := len(r.problems)
	r.object(n, "an item of keys", fields{"env": source("env", r.keyOfVariable), "file": source("file", r.keysOfFile)})
	if given != 1 && len(r.problems) == before {
		r.problems.add(position(r.resolve(n)), "an item of keys is the key itself, {env: the variable that holds it} or {file: the file that holds it}")
	}
	return keys
}

func (r *reader) keyOfVariable(name string) ([]string, error) {
	switch value, set := r.env(name); {
	case !isName(name):
		return nil, errors.New("it must be the name of an environment variable, never the key itself")
	case !set:
		return nil, fmt.Errorf("the environment variable %s is not set", name)
	case value == "":
		return nil, fmt.Errorf("the environment variable %s is empty", name)
	default:
		return []string{value}, nil
	}
}

// keysOfFile reads the keys of a file. The path is not repeated in its errors: it
// may be a key in the wrong place.
func (r *reader) keysOfFile(path string) ([]string, error) {
	info, err := os.Stat(path) // before it is read, so that no change gets lost
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

// parseKeys reads one key a line, without a word of them in its errors.
func parseKeys(data []byte) (keys []string, err error) {
	for i, line := range strings.Split(string(data), "\n") {
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

// readKeyFile reads nothing that might never end.
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

func unreadable(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("the file cannot be read: %w", err)
}
