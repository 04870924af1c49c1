package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
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
	c.Sections, c.KeyFiles = r.sections, r.keyFiles
	err = r.problems.err(name)
	if refused := new(Error); errors.As(err, &refused) {
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
	for _, pair := range r.pairs(body, "the file") {
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
		"affinity":  into(r, &c.Affinity, parseAffinity),
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
	return func(n ast.Node, name string) {
		r.setting(to)(n, name)
		if to.Value == "" {
			return
		}
		if err := check(to.Value); err != nil {
			r.problems.add(to.Pos, "%s: %v", name, err)
		}
	}
}

func (r *reader) choice(to *Setting, choices ...string) field {
	return r.checked(to, func(v string) error {
		if !slices.Contains(choices, v) {
			return fmt.Errorf("it must be one of %s", strings.Join(choices, ", "))
		}
		return nil
	})
}

// address reads host:port, or one of the words.
func (r *reader) address(to *Setting, words ...string) field {
	return r.checked(to, func(v string) error {
		if _, _, err := net.SplitHostPort(v); err != nil && !slices.Contains(words, v) {
			return errors.New("it must be host:port, for example 127.0.0.1:8080")
		}
		return nil
	})
}

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

// key reads a key of an account: the variable that holds it, or its hash.
func (r *reader) key(n ast.Node) Key {
	k := Key{Pos: position(r.resolve(n))}
	given := 0
	source := func(read field) field {
		return func(n ast.Node, name string) { given++; read(n, name) }
	}
	known := r.limits(&k.Limits)
	known["name"] = r.word(&k.Name)
	known["models"] = r.words(&k.Models)
	known["env"] = source(into(r, &k.Hash, r.hashOfVariable))
	known["hash"] = source(into(r, &k.Hash, parseHash))
	r.object(n, "a key", known)
	if given != 1 {
		r.problems.add(k.Pos, "a key needs one of env (the variable that holds it) and hash")
	}
	return k
}

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

func parseHash(text string) ([32]byte, error) {
	hash, err := auth.ParseHash(text)
	if err != nil {
		err = errors.New(fault.From(err).Message)
	}
	return hash, err
}
