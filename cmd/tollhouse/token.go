package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tollhouse-ai/gateway/secret"
)

// tokenFile is the admin token's name in the data directory.
const tokenFile = "admin-token"

// readToken reads the admin token of a data directory.
func readToken(dir string) (secret.String, error) {
	name := filepath.Join(dir, tokenFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return secret.String{}, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return secret.String{}, err
	}
	token := strings.TrimSpace(string(data))
	switch {
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return secret.String{}, fmt.Errorf("others can read %s: `chmod 600 %s`, or delete it to have a new one made", name, name)
	case len(token) < 20:
		return secret.String{}, fmt.Errorf("%s holds no token: delete it to have a new one made", name)
	}
	return secret.New(token), nil
}

// ensureToken reads the admin token, or makes one that only its owner can read.
func ensureToken(dir string) (secret.String, error) {
	token, err := readToken(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return token, err
	}
	f, err := os.OpenFile(filepath.Join(dir, tokenFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) { // somebody else was quicker
		return readToken(dir)
	}
	if err != nil {
		return token, err
	}
	made := "admin-" + rand.Text() + rand.Text()
	_, err = f.WriteString(made + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return token, err
	}
	return secret.New(made), nil
}

func adminToken(p *program) *command {
	c := newCommand("admin token", "print the token of the admin API, making one if there is none")
	c.examples = []string{
		"tollhouse admin token",
		`curl -H "Authorization: Bearer $(tollhouse admin token)" http://127.0.0.1:8081/admin/v1/accounts`,
	}
	var at adminFlags
	at.register(c)
	c.run = func(context.Context, []string) error {
		found, err := at.target(p)
		if err != nil {
			return err
		}
		token, err := ensureToken(found.data)
		if err == nil {
			_, err = fmt.Fprintln(p.stdout, token.Reveal())
		}
		return err
	}
	return c
}
