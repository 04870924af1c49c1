package main

import (
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func addressFileOf(i *instance) string { return filepath.Join(i.data, addressFile) }

func TestACommandFindsAServerByItsDataDirectoryAlone(t *testing.T) {
	i := serving(t)
	text, err := os.ReadFile(addressFileOf(i))
	if err != nil || string(text) != i.admin+"\n" {
		t.Fatalf("the server wrote %q, %v; it listens on %s", text, err, i.admin)
	}
	if info, err := os.Stat(addressFileOf(i)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	place := "\ndata: " + i.data + "\n"
	silent, open := file(t, place), file(t, "admin: 127.0.0.1:0"+place)
	other, off := file(t, "admin: 127.0.0.1:1"+place), file(t, "admin: off"+place)
	store := file(t, "store: memory"+place)
	for _, row := range []struct {
		name, args string
		finds      bool
	}{
		{"data directory only", "account list --data " + i.data, true},
		{"a change", "key create --account acme --data " + i.data, true},
		{"a request for a running server only", "channel list --data " + i.data, true},
		{"a file that says no address", "account list --config " + silent, true},
		{"a file that leaves the port to the system", "account list --config " + open, true},
		{"a file with another address", "account list --config " + other, false},
		{"a file that says off", "account list --config " + off, false},
		{"a file with another store", "account list --config " + store, false},
		{"another address by flag", "account list --admin 127.0.0.1:1 --data " + i.data, false},
		{"off by flag", "account list --admin off --data " + i.data, false},
	} {
		r := tollhouse(t, nil, strings.Fields(row.args)...)
		if found := r.code == exitOK && r.stderr == ""; found != row.finds {
			t.Errorf("%s: exit %d, %q", row.name, r.code, r.stderr)
		}
	}
	i.stop()
	if _, err := os.Stat(addressFileOf(i)); !os.IsNotExist(err) {
		t.Errorf("a server that has ended left the file: %v", err)
	}
}

func TestAServerWithoutAnAdminAPIWritesNoAddress(t *testing.T) {
	data := t.TempDir()
	i := start(t, acme, "--config", file(t, planted("m")), "--data", data, "--admin", "off")
	if _, err := os.Stat(addressFileOf(i)); !os.IsNotExist(err) {
		t.Errorf("there is an address: %v", err)
	}
}

func TestAServerLeavesTheAddressThatAnotherWrote(t *testing.T) {
	i := serving(t)
	write(t, addressFileOf(i), "127.0.0.1:1\n")
	i.stop()
	if text, err := os.ReadFile(addressFileOf(i)); err != nil || string(text) != "127.0.0.1:1\n" {
		t.Errorf("it is %q, %v", text, err)
	}
}

func TestAStaleAddressMisleadsNoCommand(t *testing.T) {
	stranger := serving(t)
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for _, row := range []struct {
		name, text string
		mode       fs.FileMode
	}{
		{"nothing listens", "127.0.0.1:1\n", 0o600},
		{"a server with another token", stranger.admin + "\n", 0o600},
		{"another program", strings.TrimPrefix(elsewhere.URL, "http://") + "\n", 0o600},
		{"a program that does not answer", silent.Addr().String() + "\n", 0o600},
		{"no address", "not an address\n", 0o600},
		{"empty", "", 0o600},
		{"written by others", stranger.admin + "\n", 0o666},
	} {
		data := t.TempDir()
		if _, err := ensureToken(data); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(data, addressFile)
		write(t, name, row.text)
		if err := os.Chmod(name, row.mode); err != nil {
			t.Fatal(err)
		}
		stdout, stderr := newPage(), newPage()
		p := &program{env: environment{}.lookup, stdout: stdout, stderr: stderr, timeout: 4 * time.Second}
		if code := p.run(t.Context(), []string{"account", "create", "beta", "--data", data}); code != exitOK {
			t.Errorf("%s: the store was not used: %q", row.name, stderr)
		}
		if out := stranger.good("account", "list"); strings.Contains(out, "beta") {
			t.Fatalf("%s: the change was made on another server", row.name)
		}
	}
}

func TestAnAddressThatOthersCanWriteIsNotRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	data := t.TempDir()
	write(t, filepath.Join(data, addressFile), "127.0.0.1:4242\n")
	if got := readAddress(data); got != "127.0.0.1:4242" {
		t.Errorf("a private one is read as %q", got)
	}
	if err := os.Chmod(filepath.Join(data, addressFile), 0o620); err != nil {
		t.Fatal(err)
	}
	if got := readAddress(data); got != "" {
		t.Errorf("it is %q", got)
	}
}
