package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/tollhouse-ai/gateway/secret"
)

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
