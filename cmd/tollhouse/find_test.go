package main

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestEveryCommandFindsItsServer starts servers in several ways, each beside one of
// another data directory, and runs a command in the same directory. Where a server is
// found its account is listed; where none is, the error says what to do.
func TestEveryCommandFindsItsServer(t *testing.T) {
	const sim = "billing: count\nchannels: [{name: main, driver: sim, models: {m: m}}]\naccounts: [{name: found}]\n"
	for _, c := range []struct {
		name    string
		files   map[string]string // in the directory
		serve   []string          // nil: no server runs
		env     environment       // of the command
		args    []string          // of the command; nil for account list
		want    string            // on stdout, or on stderr for a failure
		failure bool
		here    bool // the file of this directory is used, and stderr says so
	}{
		{name: "the default data directory", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "tollhouse-data"}, want: "found"},
		{name: "a data directory by flag", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "here"}, args: []string{"account", "list", "--data", "here"}, want: "found"},
		{name: "a data directory by the environment", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "here"}, env: environment{"TOLLHOUSE_DATA": "here"}, want: "found"},
		{name: "a file by flag", files: map[string]string{"other.yaml": sim + "data: there\n"}, serve: []string{"--config", "other.yaml", "--data", "there"}, args: []string{"account", "list", "--config", "other.yaml"}, want: "found"},
		{name: "a file by the environment", files: map[string]string{"other.yaml": sim + "data: there\n"}, serve: []string{"--config", "other.yaml", "--data", "there"}, env: environment{"TOLLHOUSE_CONFIG": "other.yaml"}, want: "found"},
		{name: "the file in this directory", files: map[string]string{defaultFile: sim + "data: there\n"}, serve: []string{"--config", defaultFile, "--data", "there"}, want: "found", here: true},
		{name: "a file that leaves the port to the system", files: map[string]string{"other.yaml": sim + "data: there\nadmin: 127.0.0.1:0\n"}, serve: []string{"--config", "other.yaml", "--data", "there"}, args: []string{"channel", "list", "--config", "other.yaml"}, want: "main"},
		{name: "a demo", serve: []string{"--demo", "--data", "tollhouse-data"}, want: "demo"},
		{name: "a demo, and the file in this directory", files: map[string]string{defaultFile: sim + "data: there\n"}, serve: []string{"--demo", "--data", "tollhouse-data"}, want: "demo"},
		{name: "no server, and the store of the file in this directory", files: map[string]string{defaultFile: sim + "data: there\n"}, args: []string{"account", "create", "made"}, want: "made", here: true},
		{name: "the file in this directory, and the record of a server that was killed", files: map[string]string{defaultFile: sim + "data: there\n", "tollhouse-data/" + addressFile: nowhere + "\n", "tollhouse-data/" + tokenFile: "admin-0123456789abcdef\n"}, serve: []string{"--config", defaultFile, "--data", "there"}, want: "found", here: true},
		{
			name: "a wrong port", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "tollhouse-data"},
			args: []string{"account", "list", "--admin", "127.0.0.1:1"}, want: "no server answers at 127.0.0.1:1; the data directory ./tollhouse-data says that one runs at ADMIN: leave --admin out", failure: true,
		},
		{
			name: "an address by flag, where no server runs: the store is not used", files: map[string]string{"tollhouse-data/" + tokenFile: "admin-0123456789abcdef\n"},
			args: []string{"account", "create", "made", "--admin", "127.0.0.1:1"}, want: "no server answers at 127.0.0.1:1: start one with `tollhouse serve`", failure: true,
		},
		{
			name: "an address as the banner prints it", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "here"},
			args: []string{"account", "list", "--admin", "http://ADMIN/", "--data", "here"}, want: "found",
		},
		{name: "an address with a path", args: []string{"account", "list", "--admin", "http://127.0.0.1:8081/admin"}, want: "--admin takes HOST:PORT, such as 127.0.0.1:8081", failure: true},
		{name: "an address of another scheme", args: []string{"doctor", "--admin", "https://127.0.0.1:8081"}, want: "--admin takes HOST:PORT, such as 127.0.0.1:8081", failure: true},
		{
			name: "another server's data directory", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "here"},
			args: []string{"account", "list", "--admin", "ADMIN", "--data", "beside"}, want: "does not take this token: name the server's own data directory with --data", failure: true,
		},
		{
			name: "a file with another address", files: map[string]string{"other.yaml": sim + "data: there\nadmin: 127.0.0.1:1\n"}, serve: []string{"--config", "other.yaml", "--data", "there"},
			args: []string{"channel", "pause", "main", "--config", "other.yaml"}, want: "channels are a running server's, and no server answers at 127.0.0.1:1", failure: true,
		},
		{
			name: "off by flag", serve: []string{"--demo", "--data", "tollhouse-data"},
			args: []string{"channel", "list", "--admin", "off"}, want: "no server answers at off; the data directory ./tollhouse-data says that one runs at ADMIN: leave --admin out", failure: true,
		},
		{
			name: "a file that says off", files: map[string]string{"other.yaml": sim + "data: there\nadmin: off\n"}, serve: []string{"--config", "other.yaml", "--data", "there"},
			args: []string{"channel", "list", "--config", "other.yaml"}, want: "the admin API is off: name a running server's address with --admin", failure: true,
		},
		{
			name: "without an admin API", files: map[string]string{"other.yaml": sim}, serve: []string{"--config", "other.yaml", "--data", "tollhouse-data", "--admin", "off"},
			want: "cannot be reached, as with `--admin off` or another --data: restart it with an admin address, or stop it", failure: true,
		},
		{
			name: "a demo without an admin API", serve: []string{"--demo", "--data", "tollhouse-data", "--admin", "off"},
			want: "there is no database at tollhouse-data/tollhouse.db yet", failure: true,
		},
		{
			name: "a store in memory, and no server", files: map[string]string{defaultFile: sim + "store: 'memory:'\n"},
			want: "a store in memory exists only in its server", failure: true, here: true,
		},
		{
			name: "nothing here, as for a server in a container", args: []string{"channel", "list"},
			want: "channels are a running server's, and there is no admin token in ./tollhouse-data: name the running server's data directory with --data, or its file with --config; for a server in a container, run the command there", failure: true,
		},
		{
			name: "a file that is another server's", files: map[string]string{"other.yaml": sim, "mine.yaml": sim + "store: sqlite:mine.db\nadmin: 127.0.0.1:0\n"}, serve: []string{"--config", "other.yaml", "--data", "tollhouse-data"},
			args: []string{"channel", "list", "--config", "mine.yaml"}, want: "name the right admin address with --admin", failure: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			chdirPrivate(t)
			for name, text := range c.files {
				if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, name, text)
			}
			beside := file(t, strings.ReplaceAll(sim, "found", "beside"))
			start(t, nil, "--config", beside, "--data", "beside")
			admin := ""
			if c.serve != nil {
				admin = start(t, nil, c.serve...).admin
			}
			args := c.args
			if args == nil {
				args = []string{"account", "list"}
			}
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "ADMIN", admin)
			}
			r := tollhouse(t, c.env, args...)
			text, want := r.stdout, strings.ReplaceAll(c.want, "ADMIN", admin)
			stderr, here := strings.CutPrefix(r.stderr, "Using tollhouse.yaml in this directory; --config names another file.\n")
			if here != c.here || !c.failure && stderr != "" {
				t.Errorf("stderr is %q", r.stderr)
			}
			if c.failure {
				text = stderr
			}
			if !strings.Contains(text, want) || (r.code != exitOK) != c.failure || strings.Contains(r.stdout, "beside") || c.failure && strings.Count(text, "\n") != 1 {
				t.Errorf("%d: %q %q, want %q", r.code, r.stdout, r.stderr, want)
			}
		})
	}
}

// chdirPrivate changes to a new directory that no other user can write to, whatever the umask.
func chdirPrivate(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Chmod(".", 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestAFileThatNobodyNamedSendsTheTokenNowhere has the files of a cloned repository or of
// another user in the current directory. Named with --config each of them is used.
func TestAFileThatNobodyNamedSendsTheTokenNowhere(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	address := strings.TrimPrefix(elsewhere.URL, "http://")
	for _, c := range []struct {
		name, text string
		file, dir  fs.FileMode
		owner      int // of the file; 0: this user
		want       string
	}{
		{"a file that all can write", "admin: " + address, 0o666, 0o700, 0, "others can write to it (mode 0666)"},
		{"a file that a group can write", "admin: " + address, 0o620, 0o700, 0, "others can write to it (mode 0620)"},
		{"a directory that all can write", "admin: " + address, 0o600, 0o777, 0, "others can write to its directory (mode 0777)"},
		{"a sticky directory", "admin: " + address, 0o600, 0o777 | fs.ModeSticky, 0, "others can write to its directory (mode 0777)"},
		{"a file of another user", "admin: " + address, 0o644, 0o700, 54321, "it belongs to another user"},
		{"the address of another machine", "admin: evil.example:8081", 0o600, 0o700, 0, "its admin address is not a loopback address"},
		{"an IP address of another machine", "admin: 192.0.2.1:8081", 0o600, 0o700, 0, "its admin address is not a loopback address"},
		{"a name that begins as a loopback address", "admin: 127.0.0.1.evil.example:8081", 0o600, 0o700, 0, "its admin address is not a loopback address"},
		{"a secret in the name of a machine", "admin: ${VENDOR_KEY}.invalid:80", 0o600, 0o700, 0, "depends on the variable VENDOR_KEY"},
		{"a secret in the name of a directory", "data: ./${VENDOR_KEY}", 0o600, 0o700, 0, "depends on the variable VENDOR_KEY"},
		{"a secret in the address of a store", "store: 'postgres://u:${VENDOR_KEY}@evil.example/d'", 0o600, 0o700, 0, "depends on the variable VENDOR_KEY"},
		{"a store of another machine", "store: 'postgres://evil.example/d'", 0o600, 0o700, 0, "its store is a database server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root gives a file away")
			}
			victim := t.TempDir()
			if _, err := ensureToken(victim); err != nil {
				t.Fatal(err)
			}
			chdirPrivate(t)
			text := c.text
			if !strings.HasPrefix(text, "data:") {
				text += "\ndata: " + victim
			}
			write(t, defaultFile, text+"\n")
			err := errors.Join(os.Chmod(defaultFile, c.file), os.Chmod(".", c.dir))
			if c.owner != 0 {
				err = errors.Join(err, os.Chown(defaultFile, c.owner, -1))
			}
			if err != nil {
				t.Fatal(err)
			}
			env := environment{"VENDOR_KEY": "sk-of-the-vendor"}
			for _, args := range [][]string{{"account", "list"}, {"account", "create", "a"}, {"admin", "token"}, {"doctor", "--listen", "127.0.0.1:0"}} {
				r := tollhouse(t, env, args...)
				if r.code != exitFailed || !strings.Contains(r.stdout+r.stderr, c.want) || !strings.Contains(r.stdout+r.stderr, "use --config tollhouse.yaml") || strings.Contains(r.stdout+r.stderr, "sk-of-the-vendor") {
					t.Errorf("%q: %d: %q %q, want %q", args, r.code, r.stdout, r.stderr, c.want)
				}
			}
		})
	}
	if asked.Load() != 0 {
		t.Errorf("the token went elsewhere %d times", asked.Load())
	}
}

// TestATokenOfAnotherUserIsReported has the error alone, since root may read everything.
func TestATokenOfAnotherUserIsReported(t *testing.T) {
	err := tokenError("data", &fs.PathError{Op: "open", Path: filepath.Join("data", tokenFile), Err: os.ErrPermission})
	if want := "the admin token in data belongs to another user: run the command as the server's user"; !strings.Contains(err.Error(), want) {
		t.Errorf("it says %q, want %q", err, want)
	}
}

// The directory may be that of a cloned repository, in which a start has made a token since. No
// name is looked up.
func TestARecordedAddressIsAskedOnlyIfItIsThisMachines(t *testing.T) {
	data := t.TempDir()
	if _, err := ensureToken(data); err != nil {
		t.Fatal(err)
	}
	addresses := map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true,
		"": false, "127.0.0.1": false, "192.0.2.1:1": false, "vendor.example:1": false, "127.0.0.1.vendor.example:1": false,
	}
	if own, err := net.InterfaceAddrs(); err == nil && len(own) > 0 {
		addresses[net.JoinHostPort(own[len(own)-1].(*net.IPNet).IP.String(), "1")] = true
	}
	for address, asked := range addresses {
		write(t, filepath.Join(data, addressFile), address+"\n")
		if got := recordedAddress(data); (got == address && asked) != asked || !asked && got != "" {
			t.Errorf("%s is recorded: a command asks %q, want it asked: %t", address, got, asked)
		}
	}
}
