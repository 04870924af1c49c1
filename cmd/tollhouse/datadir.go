package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
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
	case info.Mode().Perm()&anyAccess != 0 && runtime.GOOS != "windows":
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
	if errors.Is(err, fs.ErrExist) { // another process was first
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

// adminToken is `admin token`, for programs that call the admin API themselves.
func adminToken(p *program) *command {
	c := newCommand("admin token", "print the token of the admin API; create it if there is none")
	c.examples = []string{
		"tollhouse admin token",
		`curl -H "Authorization: Bearer $(tollhouse admin token)" http://127.0.0.1:8081/admin/v1/accounts`,
	}
	var at adminFlags
	at.register(c)
	c.run = func(ctx context.Context, _ []string) error {
		found, err := at.find(ctx, p)
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

// addressFile is the file in the data directory to which a running server writes the
// address of its admin API.
const addressFile = "admin-address"

// writeAddress records where the admin API of the running server is, so that a
// command that is given the data directory alone finds it. The file is replaced
// in one step: no command reads half of an address.
func writeAddress(dir, address string) error {
	return writeFile(filepath.Join(dir, addressFile), address+"\n", true)
}

// writeFile writes a file that only its owner can read, in one step: nobody reads half of
// it. Without replace an existing file is an [fs.ErrExist].
func writeFile(name, text string, replace bool) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	switch err = errors.Join(err, f.Close()); {
	case err != nil:
	case replace:
		if err = os.Rename(f.Name(), name); err == nil {
			return nil
		}
	default:
		err = os.Link(f.Name(), name) // which does not replace
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// readAddress is the address that a server recorded, which may have been killed
// since; empty if there is none. A file that others can write is not read: they
// could have the admin token sent to an address of their own. So could a cloned repository
// whose token is a link to that of another data directory.
func readAddress(dir string) string {
	name := filepath.Join(dir, addressFile)
	if _, open := accessByOthers(name, writeAccess); open {
		return ""
	}
	if token, err := os.Lstat(filepath.Join(dir, tokenFile)); err == nil && !token.Mode().IsRegular() {
		return ""
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	address := strings.TrimSpace(string(data))
	if _, _, err := net.SplitHostPort(address); err != nil {
		return ""
	}
	return address
}

// removeAddress removes what writeAddress recorded, unless another server has
// recorded its own since: its commands would no longer find it. One that stays, as that of
// a server that was killed, does no harm: a command asks who is there.
func removeAddress(dir, address string) {
	if readAddress(dir) == address {
		_ = os.Remove(filepath.Join(dir, addressFile))
	}
}

// The permissions of group and others: all of them, and those to write.
const (
	anyAccess   = 0o077
	writeAccess = 0o022
)

// writableByOthers warns of a directory in which others can replace the server's
// files.
func writableByOthers(dir string) (warning string, found bool) {
	dir = filepath.Clean(dir)
	if _, found = accessByOthers(dir, writeAccess); !found {
		return "", false
	}
	return fmt.Sprintf("others can write to the directory %s, and so put their own files in the place of the server's: `chmod 700 %s`", dir, shellQuoted(dir)), true
}

// accessByOthers reports whether group or others have one of the permissions to a
// file. Windows has no such modes.
func accessByOthers(name string, permissions fs.FileMode) (mode fs.FileMode, have bool) {
	info, err := os.Stat(name)
	if err != nil || runtime.GOOS == "windows" {
		return 0, false
	}
	return info.Mode().Perm(), info.Mode().Perm()&permissions != 0
}
