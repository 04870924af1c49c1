package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

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
	switch value, set := r.env(name); {
	case strings.HasPrefix(name, "sk-") || !isName(name):
		return [32]byte{}, errors.New("it must be the name of an environment variable, never the key itself")
	case !set:
		return [32]byte{}, fmt.Errorf("the environment variable %s is not set", name)
	case len(value) < 20 || !strings.HasPrefix(value, "sk-"):
		return [32]byte{}, fmt.Errorf("the environment variable %s does not hold a key: one begins with sk- and has at least 20 characters", name)
	default:
		return auth.HashOf(value), nil
	}
}

func parseHash(text string) ([32]byte, error) {
	hash, err := auth.ParseHash(text)
	if err != nil {
		err = errors.New(fault.From(err).Message)
	}
	return hash, err
}
